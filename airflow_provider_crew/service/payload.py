"""What a kickoff sends, checked before it costs anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard, Unpack

from airflow_provider_crew.service.errors import InvalidInputs
from airflow_provider_crew.service.text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from airflow_provider_crew.service.models import CrewInputs

_MAX_DEPTH = 64
# Few objects can stand for more values than fit into memory, when they hold each other or are made on demand.
_MAX_VALUES = 200_000
# Comparing names takes time that grows with their number and with the square of their length.
_MAX_NAMES_COMPARED = 200
_MAX_NAME_COMPARED = 60
_MAX_NAMES_TOLD = 20
_MAX_TOLD = 300
# Python refuses to write longer ones.
_MAX_INT_BITS = 14_000


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
    restore_from_state_id: str | None


_NAMES_ON_THE_WIRE = {
    "meta": "meta",
    "task_webhook_url": "taskWebhookUrl",
    "step_webhook_url": "stepWebhookUrl",
    "crew_webhook_url": "crewWebhookUrl",
    "human_input_webhook_url": "humanInputWebhookUrl",
    "webhooks": "webhooks",
    "restore_from_state_id": "restoreFromStateId",
}
_KINDS: dict[str, tuple[type, str]] = {
    "meta": (Mapping, "an object"),
    "webhooks": (Mapping, "an object"),
    "restore_from_state_id": (str, "a kickoff id"),
}
# A field of every flow's state, which flows list among their inputs.
_STATE_ID = "id"


def kickoff_payload(inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> dict[str, Any]:
    """Put a kickoff together; what was not given is not sent."""
    if not isinstance(inputs, Mapping):
        raise _not_json(
            ("inputs",), f"is of type {type(inputs).__name__}, and must be an object of names and values"
        )
    if unknown := options.keys() - _NAMES_ON_THE_WIRE.keys():
        raise TypeError(f"kickoff() got unexpected arguments: {', '.join(sorted(unknown))}")
    for name, value in options.items():
        if value is not None:
            _check_option(name, value)
    if (webhooks := options.get("webhooks")) is not None:
        _check_webhooks(webhooks)
    return {"inputs": inputs, **{_NAMES_ON_THE_WIRE[name]: value for name, value in options.items() if value}}


def _check_option(name: str, value: Any) -> None:
    wanted, kind = _KINDS.get(name, (str, "an address"))
    if not isinstance(value, wanted):
        raise _not_json((name,), f"is of type {type(value).__name__}, and must be {kind}")


def _check_webhooks(webhooks: Mapping[str, Any]) -> None:
    url, events = webhooks.get("url"), webhooks.get("events")
    if not (isinstance(url, str) and url):
        raise _not_json(("webhooks", ".url"), "must be an address")
    if not (_is_list(events) and all(isinstance(event, str) for event in events)):
        raise _not_json(("webhooks", ".events"), "must be a list of names of events")


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


class _Secret(str):
    """A text that whoever shows its surroundings, such as the frames of a traceback, does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def with_secret(webhooks: Mapping[str, Any] | None, secret: str) -> dict[str, Any]:
    """Return webhooks by whose bearer token the receiver knows the service."""
    if not isinstance(webhooks, Mapping):
        raise InvalidInputs(
            "webhook_conn_id holds the secret of webhooks, and there are none. Nothing was sent.", path="webhooks"
        )
    return {**webhooks, "authentication": {"strategy": "bearer", "token": _Secret(secret)}}


def secrets_of(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a payload holds that nobody may read in an answer that repeats it."""
    match payload:
        case {"webhooks": {"authentication": {"token": str(token)}}}:
            return (str(token),)
    return ()


def json_bytes(payload: Mapping[str, Any]) -> bytes:
    """Encode a payload; InvalidInputs names the path to what is no JSON."""
    return json.dumps({key: plain(value, key) for key, value in payload.items()}, allow_nan=False).encode()


def plain(value: Any, path: str) -> Any:
    """
    Return JSON data as nothing but texts, numbers, lists and dicts; InvalidInputs names the path to anything else.

    Any other sequence becomes a list: values that are fetched one by one are fetched once.
    """
    return _plain(value, (path,), iter(range(_MAX_VALUES)))


def _plain(value: Any, steps: tuple[str, ...], left: Iterator[int]) -> Any:
    if next(left, None) is None:
        raise _not_json(steps, f"is beyond the {_MAX_VALUES:,} values that a kickoff may hold")
    if value is None or isinstance(value, str | int | float):
        return _plain_leaf(value, steps)
    if len(steps) > _MAX_DEPTH + 1:
        raise _not_json(steps, f"is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {_key(key, steps): _plain(item, (*steps, f".{key}"), left) for key, item in value.items()}
    if _is_list(value):
        return [_plain(item, (*steps, f"[{index}]"), left) for index, item in enumerate(value)]
    raise _not_json(steps, f"is of type {type(value).__name__}, which JSON does not have")


def _plain_leaf(value: str | float | None, steps: tuple[str, ...]) -> str | float | None:
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        raise _not_json(steps, "is an integer too long to be written")
    if isinstance(value, float) and not math.isfinite(value):
        raise _not_json(steps, f"is {float(value)}, which JSON does not have")
    return value


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


def _meant_by(names: Sequence[str], others: Collection[str]) -> dict[str, str]:
    """Return the nearest of the others to each of the names that are near to any."""
    if len(others) > _MAX_NAMES_COMPARED:
        return {}
    short = [other for other in others if len(other) <= _MAX_NAME_COMPARED]
    compared = [name for name in names[:_MAX_NAMES_COMPARED] if len(name) <= _MAX_NAME_COMPARED]
    nearest = {name: get_close_matches(name, short, n=1) for name in compared}
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
