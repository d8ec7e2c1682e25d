"""What a kickoff sends, checked before it costs anything."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self, Unpack

from pydantic.alias_generators import to_camel

from airflow_provider_crew.service.errors import InvalidInputs
from airflow_provider_crew.service.kickoff_id import issued_kickoff_id
from airflow_provider_crew.service.models import CrewInputs
from airflow_provider_crew.service.options import KickoffOptions
from airflow_provider_crew.service.text import one_line

_MAX_TOLD = 300
_OBJECTS = frozenset({"inputs", "meta", "webhooks"})
# A field of every flow's state, which flows list among their inputs.
_STATE_ID = "id"


@dataclass(frozen=True, slots=True)
class KickoffRequest:
    """
    One kickoff: what was checked is what is sent, however often that takes.

    ``inputs`` are plain JSON data. ``secrets`` are what the body holds that nobody may read in an answer that
    repeats it.
    """

    inputs: dict[str, Any]
    body: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Any],
        *,
        webhook_secret: str | None = None,
        **options: Unpack[KickoffOptions],
    ) -> Self:
        """
        Put a kickoff together; what was not given is not sent. InvalidInputs names the path to what is no JSON.

        :param webhook_secret: the bearer token by which the receiver of ``webhooks`` knows the service
        """
        if unknown := options.keys() - KickoffOptions.__annotations__.keys():
            raise TypeError(f"a kickoff takes no {some_names(sorted(unknown))}")
        sent = {name: _checked(name, value) for name, value in options.items() if value}
        sent["inputs"] = _checked("inputs", inputs)
        if "webhooks" in sent:
            _check_webhooks(sent["webhooks"])
        if webhook_secret is not None:
            if "webhooks" not in sent:
                raise InvalidInputs("webhook_conn_id is set without webhooks.", next_step="Add `webhooks`.")
            sent["webhooks"]["authentication"] = {"strategy": "bearer", "token": webhook_secret}
        body = json.dumps({to_camel(name): value for name, value in sent.items()}).encode()
        return cls(sent["inputs"], body, () if webhook_secret is None else (webhook_secret,))


def _checked(name: str, value: Any) -> Any:
    if name == "restore_from_state_id":
        try:
            # Native rendering of templates makes a number of an id that looks like one.
            return issued_kickoff_id(value)
        except ValueError:
            raise InvalidInputs(
                f"restore_from_state_id of type {type(value).__name__} is no kickoff ID.",
                next_step="Pass the ID that the kickoff returned.",
            ) from None
    if name in _OBJECTS and not isinstance(value, Mapping):
        raise InvalidInputs(
            f"{name} must be an object of names and values, not {type(value).__name__}.",
            next_step=f"Fix `{name}`.",
        )
    return plain(value, name)


def _check_webhooks(webhooks: dict[str, Any]) -> None:
    if "authentication" in webhooks:
        raise InvalidInputs(
            "webhooks.authentication would show a secret in the rendered template.",
            next_step="Put the secret into the password of a connection, and name it in `webhook_conn_id`.",
        )
    if not (webhooks.get("url") and isinstance(webhooks.get("events"), list)):
        raise InvalidInputs("webhooks needs a url and a list of events.", next_step="Fix `webhooks`.")


def plain(value: Any, path: str) -> Any:
    """
    Return JSON data as nothing but texts, numbers, lists and dicts; InvalidInputs names the path to anything else.

    Any other sequence becomes a list: values that are fetched one by one are fetched once.
    """
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise InvalidInputs(
        f"{one_line(path, _MAX_TOLD)} of type {type(value).__name__} is not JSON.",
        next_step="Pass strings, finite numbers, booleans, lists, and objects with string keys.",
    )


def compare_inputs(given: Mapping[str, Any], known: CrewInputs, *, strict: bool = False) -> list[str]:
    """
    Return doubts about names that are given and not listed, and the other way round.

    InvalidInputs names what the service says is needed and is not given; and what is not given, but looks like a
    mistyped name that is: a flow would drop that one, and run, and be paid for, on its defaults. ``strict``
    refuses every name that is not listed, and every one that is not given, unless the service says that it is
    optional.
    """
    listed = [name for name in known.names if name != _STATE_ID]
    unlisted = [name for name in given if name not in known.names and name != _STATE_ID]
    missing = [name for name in listed if name not in given and name not in known.optional]
    needed = [name for name in missing if name in known.required]
    is_misspelt = any(_question(name, missing) for name in unlisted)
    odd = [
        f"Crew does not list the input {name!r}.{_question(name, missing) or _question(name, listed)}"
        for name in unlisted
    ]
    if needed or is_misspelt or (strict and (missing or odd)):
        absent = [f"Crew needs inputs that are missing: {some_names(needed or missing)}."] if missing else []
        given_names = [f"Given: {some_names(given) or 'none'}."] if missing else []
        raise InvalidInputs(
            " ".join([*absent, *given_names, *odd]), next_step="Pass the inputs that the crew lists."
        )
    return list(_doubts(odd, missing, restores=_STATE_ID in given))


def _doubts(odd: Iterable[str], missing: Sequence[str], *, restores: bool) -> Iterator[str]:
    for doubt in odd:
        yield f"{doubt} It is sent anyway."
    if missing:
        yield (
            f"Inputs are missing that the crew lists: {some_names(missing)}. A crew rejects the kickoff, and a "
            "flow runs on its defaults."
        )
    if restores:
        yield "The input 'id' is deprecated and mixes up two runs. Use restore_from_state_id."


def _question(name: str, others: list[str]) -> str:
    nearest = get_close_matches(name, others, n=1)
    return f" Is {name!r} meant to be {nearest[0]!r}?" if nearest else ""


def some_names(names: Iterable[str]) -> str:
    """Return names for a message, as many as it may hold."""
    return one_line(", ".join(names), _MAX_TOLD)
