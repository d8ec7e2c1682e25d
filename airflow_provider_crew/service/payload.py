"""What a kickoff sends, checked before it costs anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

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
    of an agent, and at the end.
    """

    meta: Mapping[str, Any] | None
    task_webhook_url: str | None
    step_webhook_url: str | None
    crew_webhook_url: str | None


_NAMES_ON_THE_WIRE = {
    "meta": "meta",
    "task_webhook_url": "taskWebhookUrl",
    "step_webhook_url": "stepWebhookUrl",
    "crew_webhook_url": "crewWebhookUrl",
}


def kickoff_payload(inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> dict[str, Any]:
    """Put a kickoff together; what was not given is not sent."""
    if not isinstance(inputs, Mapping):
        raise _not_json(
            ("inputs",), f"is of type {type(inputs).__name__}, and must be an object of names and values"
        )
    if unknown := options.keys() - _NAMES_ON_THE_WIRE.keys():
        raise TypeError(f"kickoff() got unexpected arguments: {', '.join(sorted(unknown))}")
    meta = options.get("meta")
    if meta is not None and not isinstance(meta, Mapping):
        raise _not_json(("meta",), f"is of type {type(meta).__name__}, and must be an object")
    for name, address in options.items():
        if name != "meta" and not (address is None or isinstance(address, str)):
            raise _not_json((name,), f"is of type {type(address).__name__}, and must be an address")
    return {"inputs": inputs, **{_NAMES_ON_THE_WIRE[name]: value for name, value in options.items() if value}}


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
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(item, (*steps, f"[{index}]"), left) for index, item in enumerate(value)]
    raise _not_json(steps, f"is of type {type(value).__name__}, which JSON does not have")


def _plain_leaf(value: str | float | None, steps: tuple[str, ...]) -> str | float | None:
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        raise _not_json(steps, "is an integer too long to be written")
    if isinstance(value, float) and not math.isfinite(value):
        raise _not_json(steps, f"is {float(value)}, which JSON does not have")
    return value


def compare_inputs(given: Mapping[str, Any], known: CrewInputs) -> list[str]:
    """
    Return doubts about names that the crew does not list: it may list only the required ones.

    InvalidInputs names those that it requires and that are not given.
    """
    listed = dict.fromkeys(known.names)
    unknown = [name for name in given if name not in listed]
    missing = [name for name in known.required if name not in given]
    if missing:
        raise InvalidInputs(
            f"The crew needs inputs that are not given: {some_names(missing)}. "
            f"Given: {some_names(given) or 'none'}."
            f"{''.join(_meant(name, missing) for name in unknown[:_MAX_NAMES_TOLD])} Nothing was started.",
            missing=missing,
        )
    return [
        f"The crew does not list the input {_told(name)!r}.{_meant(name, listed)} It is sent all the same."
        for name in unknown
    ]


def some_names(names: Collection[str]) -> str:
    """Return names for a message, the first of them when they are many."""
    first = [_told(name) for name in islice(names, _MAX_NAMES_TOLD)]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")


def _meant(name: str, names: Collection[str]) -> str:
    if len(names) > _MAX_NAMES_COMPARED or len(name) > _MAX_NAME_COMPARED:
        return ""
    nearest = get_close_matches(name, [other for other in names if len(other) <= _MAX_NAME_COMPARED], n=1)
    return f" Is {name!r} meant to be {nearest[0]!r}?" if nearest else ""


def _key(key: Any, steps: tuple[str, ...]) -> str:
    if not isinstance(key, str):
        raise _not_json(steps, f"has a key of type {type(key).__name__}, which is not a text")
    return key


def _not_json(steps: tuple[str, ...], fault: str) -> InvalidInputs:
    where = _told("".join(steps))
    return InvalidInputs(f"{where} {fault}. Nothing was sent. Give texts, numbers, lists and objects.", path=where)


def _told(name: str) -> str:
    return one_line(name, _MAX_TOLD)
