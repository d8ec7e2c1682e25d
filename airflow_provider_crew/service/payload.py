"""What a kickoff sends, checked before it costs anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict, Unpack

from airflow_provider_crew.service.errors import InvalidInputs
from airflow_provider_crew.service.text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_provider_crew.service.models import CrewInputs

_MAX_DEPTH = 64
# Comparing names takes time that grows with the square of their number.
_MAX_NAMES_COMPARED = 200
_MAX_NAMES_TOLD = 20
_MAX_TOLD = 300


class KickoffOptions(TypedDict, total=False):
    """
    What a kickoff may carry besides the inputs.

    ``meta`` is passed to the crew. The addresses are called by the service: after each task, after each step
    of an agent, at the end, and when a task waits for a person. ``webhooks`` says which ``events`` go to which
    ``url``, and is sent as given. ``restore_from_state_id`` is the kickoff id of an earlier run of a flow, with
    whose state the new one begins.
    """

    meta: Mapping[str, Any] | None
    task_webhook_url: str | None
    step_webhook_url: str | None
    crew_webhook_url: str | None
    human_input_webhook_url: str | None
    webhooks: Mapping[str, Any] | None
    restore_from_state_id: str | int | None


class _Field(NamedTuple):
    """What the service calls a part of a kickoff, and what it may be."""

    on_the_wire: str
    type: type
    kind: str


_FIELDS = {
    "inputs": _Field("inputs", Mapping, "an object of names and values"),
    "meta": _Field("meta", Mapping, "an object"),
    "task_webhook_url": _Field("taskWebhookUrl", str, "an address"),
    "step_webhook_url": _Field("stepWebhookUrl", str, "an address"),
    "crew_webhook_url": _Field("crewWebhookUrl", str, "an address"),
    "human_input_webhook_url": _Field("humanInputWebhookUrl", str, "an address"),
    "webhooks": _Field("webhooks", Mapping, "an object"),
    "restore_from_state_id": _Field("restoreFromStateId", str, "a kickoff id"),
}
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
        if unknown := options.keys() - _FIELDS.keys():
            raise TypeError(f"kickoff() got unexpected arguments: {', '.join(sorted(unknown))}")
        given = {"inputs": _checked("inputs", inputs)}
        given |= {name: _checked(name, value) for name, value in options.items() if value is not None}
        if "webhooks" in given:
            _check_webhooks(given["webhooks"])
        payload = {_FIELDS[name].on_the_wire: value for name, value in given.items() if value or name == "inputs"}
        secrets: tuple[str, ...] = ()
        if webhook_secret is not None:
            if "webhooks" not in payload:
                raise InvalidInputs(
                    "webhook_conn_id holds the secret of webhooks, and there are none. Nothing was sent.",
                    path="webhooks",
                )
            payload["webhooks"]["authentication"] = {"strategy": "bearer", "token": webhook_secret}
            secrets = (webhook_secret,)
        return cls(given["inputs"], json.dumps(payload, allow_nan=False).encode(), secrets)


def _checked(name: str, value: Any) -> Any:
    if name == "restore_from_state_id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # native rendering of templates makes a number of an id that looks like one
    wanted = _FIELDS[name]
    if not isinstance(value, wanted.type):
        raise _not_json((name,), f"is of type {type(value).__name__}, and must be {wanted.kind}")
    return plain(value, name)


def _check_webhooks(webhooks: dict[str, Any]) -> None:
    if "authentication" in webhooks:
        raise InvalidInputs(
            "webhooks.authentication would be shown to everybody as a rendered template. Put the secret "
            "into the password of a connection, and name that in webhook_conn_id. Nothing was sent.",
            path="webhooks.authentication",
        )
    url, events = webhooks.get("url"), webhooks.get("events")
    if not (isinstance(url, str) and url):
        raise _not_json(("webhooks", ".url"), "must be an address")
    if not (isinstance(events, list) and all(isinstance(event, str) for event in events)):
        raise _not_json(("webhooks", ".events"), "must be a list of names of events")


def plain(value: Any, path: str) -> Any:
    """
    Return JSON data as nothing but texts, numbers, lists and dicts; InvalidInputs names the path to anything else.

    Any other sequence becomes a list: values that are fetched one by one are fetched once.
    """
    return _plain(value, (path,))


def _plain(value: Any, steps: tuple[str, ...]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _not_json(steps, f"is {float(value)}, which JSON does not have")
    if value is None or isinstance(value, str | int | float):
        return value
    if len(steps) > _MAX_DEPTH + 1:
        raise _not_json(steps, f"is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {_key(key, steps): _plain(item, (*steps, f".{key}")) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(item, (*steps, f"[{index}]")) for index, item in enumerate(value)]
    raise _not_json(steps, f"is of type {type(value).__name__}, which JSON does not have")


def compare_inputs(given: Mapping[str, Any], known: CrewInputs, *, strict: bool = False) -> list[str]:
    """
    Return doubts about names that are given and not listed, and the other way round.

    InvalidInputs names what the service says is needed and is not given; and what is not given, but looks like a
    mistyped name that is: a flow would drop that one, and run, and be paid for, on its defaults. ``strict``
    refuses every name that is not listed, and every one that is not given, unless the service says that it is
    optional.
    """
    listed = dict.fromkeys(name for name in known.names if name != _STATE_ID)
    unlisted = [name for name in given if name not in listed and name != _STATE_ID]
    required, not_missed = frozenset(known.required), {*given, *known.optional}
    missing = [name for name in listed if name not in not_missed]
    if strict and (missing or unlisted):
        raise _refused(given, "lists", missing, unlisted, _meant_by(unlisted, missing or listed))
    if needed := [name for name in missing if name in required]:
        raise _refused(given, "needs", needed, [], _meant_by(unlisted, needed))
    if meant := _meant_by(unlisted, missing):
        raise _refused(given, "lists", list(dict.fromkeys(meant.values())), [], meant)
    meant = _meant_by(unlisted, listed)
    doubts = [
        f"The crew does not list the input {_told(name)!r}.{_question(name, meant)} It is sent all the same."
        for name in unlisted
    ]
    if missing:
        doubts.append(
            f"The crew lists inputs that are not given: {some_names(missing)}. A crew refuses the kickoff then, "
            "and nothing starts; a flow runs on its defaults."
        )
    if _STATE_ID in given:
        doubts.append(
            "The input 'id' is the deprecated way to restore a flow's state, and mixes up two runs: use "
            "restore_from_state_id."
        )
    return doubts


def _refused(
    given: Mapping[str, Any], needs: str, missing: list[str], unlisted: list[str], meant: Mapping[str, str]
) -> InvalidInputs:
    """Build the refusal of a kickoff for what is not given, and for what is given and not listed."""
    told = []
    if missing:
        told += [f"The crew {needs} inputs that are not given: {some_names(missing)}."]
        told += [f"Given: {some_names(given) or 'none'}."]
    if unlisted:
        told += [f"The crew does not list inputs that are given: {some_names(unlisted)}."]
    questions = "".join(_question(name, meant) for name in islice(meant, _MAX_NAMES_TOLD))
    return InvalidInputs(f"{' '.join(told)}{questions} Nothing was started.", missing=tuple(missing))


def some_names(names: Collection[str]) -> str:
    """Return names for a message, the first of them when they are many."""
    first = [_told(name) for name in islice(names, _MAX_NAMES_TOLD)]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")


def _meant_by(names: Collection[str], others: Collection[str]) -> dict[str, str]:
    """Return the nearest of the others to each of the names that are near to any."""
    if max(len(names), len(others)) > _MAX_NAMES_COMPARED:
        return {}
    nearest = {name: get_close_matches(name, others, n=1) for name in names}
    return {name: found[0] for name, found in nearest.items() if found}


def _question(name: str, meant: Mapping[str, str]) -> str:
    return f" Is {name!r} meant to be {meant[name]!r}?" if name in meant else ""


def _key(key: Any, steps: tuple[str, ...]) -> str:
    if not isinstance(key, str):
        raise _not_json(steps, f"has a key of type {type(key).__name__}, which is not a text")
    return key


def _not_json(steps: tuple[str, ...], fault: str) -> InvalidInputs:
    where = _told("".join(steps))
    return InvalidInputs(f"{where} {fault}. Nothing was sent. Give texts, numbers, lists and objects.", path=where)


def _told(name: str) -> str:
    return one_line(name, _MAX_TOLD)
