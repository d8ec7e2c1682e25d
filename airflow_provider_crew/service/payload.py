"""What a kickoff sends, checked before it costs anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from airflow_provider_crew.service.errors import InvalidInputs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_crew.service.models import CrewInputs

_MAX_DEPTH = 64
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
        raise _not_json("inputs", f"is of type {type(inputs).__name__}, and must be an object of names and values")
    if unknown := options.keys() - _NAMES_ON_THE_WIRE.keys():
        raise TypeError(f"kickoff() got unexpected arguments: {', '.join(sorted(unknown))}")
    return {"inputs": inputs, **{_NAMES_ON_THE_WIRE[name]: value for name, value in options.items() if value}}


def json_bytes(payload: Mapping[str, Any]) -> bytes:
    """Encode a payload; InvalidInputs names the path to what is no JSON."""
    return json.dumps({key: plain(value, key) for key, value in payload.items()}, allow_nan=False).encode()


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """
    Return JSON data as nothing but texts, numbers, lists and dicts; InvalidInputs names the path to anything else.

    Any other sequence becomes a list: values that are fetched one by one are fetched once.
    """
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        raise _not_json(path, "is an integer too long to be written")
    if value is None or isinstance(value, str | int):
        return value
    if depth > _MAX_DEPTH:
        raise _not_json(path, f"is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _not_json(path, f"is {value}, which JSON does not have")
        return value
    if isinstance(value, Mapping):
        return {_key(key, path): plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise _not_json(path, f"is of type {type(value).__name__}, which JSON does not have")


def compare_inputs(given: Mapping[str, Any], known: CrewInputs) -> list[str]:
    """
    Return doubts about names that the crew does not list: it may list only the required ones.

    InvalidInputs names those that it requires and that are not given.
    """
    unknown = [name for name in given if name not in known.names]
    missing = [name for name in known.required if name not in given]
    if missing:
        raise InvalidInputs(
            f"The crew needs inputs that are not given: {', '.join(missing)}. Given: {', '.join(given) or 'none'}."
            f"{''.join(_meant(name, missing) for name in unknown)} Nothing was started.",
            missing=missing,
        )
    return [
        f"The crew does not list the input {name!r}.{_meant(name, known.names)} It is sent all the same."
        for name in unknown
    ]


def _meant(name: str, names: Iterable[str]) -> str:
    nearest = get_close_matches(name, names, n=1)
    return f" Is {name!r} meant to be {nearest[0]!r}?" if nearest else ""


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise _not_json(path, f"has the key {key!r}, which is not a text")
    return key


def _not_json(path: str, fault: str) -> InvalidInputs:
    return InvalidInputs(f"{path} {fault}. Nothing was sent. Give texts, numbers, lists and objects.", path=path)
