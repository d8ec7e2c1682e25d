"""Contents of requests to a crew: kickoffs, answers and IDs, validated before anything is sent."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self, Unpack

from airflow_provider_crew.client.errors import InvalidInputs, InvalidKickoffId
from airflow_provider_crew.client.models import CrewInputs
from airflow_provider_crew.client.options import SENT_AS, KickoffOptions
from airflow_provider_crew.client.text import one_line

# IDs become part of paths, keys and texts. With these characters, none of them needs quoting.
_KICKOFF_ID = re.compile("[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")
# Maximum lengths of external text in messages.
_MAX_ID = 80
_MAX_NAMES = 300

# Flows list this field of their state among their inputs.
_STATE_ID = "id"
# A resumed execution forgets these, so each answer repeats them.
_REPEATED = ("task_webhook_url", "step_webhook_url", "crew_webhook_url", "human_input_webhook_url")


@dataclass(frozen=True, slots=True)
class KickoffRequest:
    """
    Validated kickoff. Each attempt to send it uses the same body.

    ``inputs`` are plain JSON data. ``secrets`` are the parts of the body to mask in a response that repeats them.
    ``call`` is the hash in the address that the crew calls when it has started. Empty if there is none.
    """

    inputs: dict[str, Any]
    body: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    call: str = ""

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Any],
        *,
        webhook_secret: str | None = None,
        **options: Unpack[KickoffOptions],
    ) -> Self:
        """
        Build a kickoff from the options that are set. InvalidInputs names the path to a value that is not JSON.

        :param webhook_secret: Authenticates the crew to the receivers of ``webhooks`` and of human input.
        """
        if unknown := options.keys() - SENT_AS.keys():
            raise TypeError(f"a kickoff takes no {some_names(sorted(unknown))}")
        sent = {
            SENT_AS[name].name: _checked(name, SENT_AS[name].kind, value)
            for name, value in options.items()
            if value is not None
        }
        if not sent.get("meta"):  # the documented way to send none
            sent.pop("meta", None)
        sent["inputs"] = _checked("inputs", Mapping, inputs)
        if "webhooks" in sent:
            _check_webhooks(sent["webhooks"])
        if webhook_secret is not None:
            _add_secret(sent, webhook_secret)
        secrets = () if webhook_secret is None else (webhook_secret,)
        return cls(sent["inputs"], json.dumps(sent).encode(), secrets)


def answer_to_crew(  # noqa: PLR0913 - the fields of the body
    kickoff_id: str,
    task_id: str,
    feedback: str,
    *,
    is_approved: bool,
    options: KickoffOptions,
    webhook_secret: str,
) -> bytes:
    """
    Return the body of an answer to a crew that waits for human input, as two projects send it in production.

    :param kickoff_id: ID from the response to the kickoff. IDs from responses to answers are rejected.
    :param task_id: ID of the question, from the crew's human input webhook.
    :param options: Options of the kickoff.
    """
    ids = {"executionId": kickoff_id, "taskId": task_id}
    sent = {SENT_AS[name].name: options[name] for name in _REPEATED if options.get(name)}  # type: ignore[literal-required]
    _add_secret(sent, webhook_secret)
    return json.dumps(ids | {"humanFeedback": feedback, "isApprove": is_approved} | sent).encode()


def _checked(name: str, kind: type, value: Any) -> Any:
    if name == "restore_from_state_id":
        try:
            return issued_kickoff_id(value)
        except ValueError:
            raise InvalidInputs(f"{name} of type {type(value).__name__} is not a kickoff ID.") from None
    # A template renders to a string, whatever the option should be.
    if not isinstance(value, kind) or value == "":
        wanted = "a text" if kind is str else "an object of names and values"
        given = "empty" if value == "" else f"of type {type(value).__name__}"
        raise InvalidInputs(f"{name} must be {wanted}, but is {given}.")
    return plain(value, name)


def _check_webhooks(webhooks: dict[str, Any]) -> None:
    if "authentication" in webhooks:
        raise InvalidInputs(
            "webhooks.authentication would show a secret in the rendered template. Store the secret as the "
            "password of a connection, and set `webhook_conn_id` to its ID."
        )
    if not (webhooks.get("url") and isinstance(webhooks.get("events"), list)):
        raise InvalidInputs("webhooks needs a url and a list of events.")


def _add_secret(sent: dict[str, Any], secret: str) -> None:
    if not sent.keys() & {"webhooks", "humanInputWebhookUrl"}:
        raise InvalidInputs("webhook_conn_id is set without webhooks or human_input_webhook_url.")
    bearer = {"strategy": "bearer", "token": secret}
    if "webhooks" in sent:
        sent["webhooks"]["authentication"] = bearer
    if url := sent.pop("humanInputWebhookUrl", None):
        sent["humanInputWebhook"] = {"url": url, "authentication": bearer}


def plain(value: Any, path: str) -> Any:
    """
    Return JSON data as plain strings, numbers, lists and dicts. InvalidInputs names the path to anything else.

    Any other sequence becomes a list, so that lazily fetched values are fetched once.
    """
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise InvalidInputs(
        f"{one_line(path, _MAX_NAMES)} of type {type(value).__name__} is not JSON: not a string, finite number, "
        "boolean, list, or object with string keys."
    )


def compare_inputs(given: Mapping[str, Any], expected: CrewInputs) -> list[str]:
    """
    Return warnings about inputs that the crew does not list and about listed inputs that are missing.

    Raise InvalidInputs if a required input is missing, or if a name looks like a misspelled listed one. A flow
    would ignore the misspelled name and start a billed execution with its defaults.
    """
    listed = {each.name: each.required for each in expected.inputs if each.name != _STATE_ID}
    unlisted = [name for name in given if name not in listed and name != _STATE_ID]
    absent = [name for name in listed if name not in given]
    missing = [name for name in absent if listed[name] is not False]
    required = [name for name in absent if listed[name]]
    doubts = [
        f"The crew does not list the input {name!r}.{_suggestion(name, absent) or _suggestion(name, [*listed])}"
        for name in unlisted
    ]
    is_misspelled = any(_suggestion(name, absent) for name in unlisted)
    if required or is_misspelled:
        if missing:
            needed = f"Inputs are missing: {some_names(required or missing)}."
            doubts = [needed, f"Given: {some_names(given) or 'none'}.", *doubts]
        raise InvalidInputs(" ".join(doubts), missing_inputs=() if is_misspelled else tuple(required))
    warnings = [f"{doubt} It is sent anyway." for doubt in doubts]
    if missing:
        warnings.append(
            f"The crew lists inputs that are missing: {some_names(missing)}. A crew rejects such a kickoff, but a "
            "flow runs with its defaults."
        )
    if _STATE_ID in given:
        warnings.append(
            "The input 'id' is deprecated, and overwrites another run's state. Use restore_from_state_id."
        )
    return warnings


def _suggestion(name: str, others: list[str]) -> str:
    nearest = get_close_matches(name, others, n=1)
    return f" Is {name!r} meant to be {nearest[0]!r}?" if nearest else ""


def some_names(names: Iterable[str]) -> str:
    """Return names for a message, shortened to a fixed length."""
    return one_line(", ".join(names), _MAX_NAMES)


def issued_kickoff_id(value: Any) -> str:
    """Return the kickoff ID as a string, as the crew sent it. Raise ValueError if it is missing or malformed."""
    text = str(value) if type(value) in (str, int) else ""
    if not _KICKOFF_ID.fullmatch(text):
        raise ValueError("its kickoff_id is missing or malformed")
    return text


def checked_kickoff_id(kickoff_id: Any) -> str:
    """Reject a kickoff ID that no kickoff can have returned, before it becomes part of a path."""
    if isinstance(kickoff_id, str) and _KICKOFF_ID.fullmatch(kickoff_id):
        return kickoff_id
    shown = one_line(repr(kickoff_id), _MAX_ID)
    raise InvalidKickoffId(f"Kickoff ID {shown} is malformed. An ID has up to 200 letters, digits and `_.:-`.")
