"""Errors as plain JSON data, to travel from the process that watched to the one that acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from airflow_provider_crew.service import errors
from airflow_provider_crew.service.errors import CrewError
from airflow_provider_crew.service.models import storable_text

_NUMBER = (int, float)
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("call", "reason", "kickoff_id", "error", "last_seen", "field", "conn_id", "path"), str),
    **dict.fromkeys(("content_type", "excerpt", "elsewhere", "address"), str),
    **dict.fromkeys(("http_status", "limit"), int),
    **dict.fromkeys(("retry_after", "execution_time", "waited", "lasted"), _NUMBER),
    "sent": bool,
    "trusted": bool,
    "timed_out": bool,
    "has_completed": bool,
    "cause": Mapping,
    "usage": Mapping,
}
_MAX_DEPTH = 8
_NO_MESSAGE = "What happened is not known: what was passed on of it cannot be read."


def error_record(error: CrewError) -> dict[str, Any]:
    """Return the kind, the message and the facts of an error."""
    return {
        "kind": type(error).__name__,
        "message": storable_text(str(error.args[0])),
        "facts": {name: _plain(fact) for name, fact in vars(error).items() if name[0] != "_"},
    }


def recorded_error(record: Any) -> CrewError:
    """
    Return the error of a record.

    While an installation is being upgraded, the record may come from a newer version: a kind that is not known
    here is a plain CrewError, and a fact that is not known here, or is of another type, is left out.
    """
    return _error(record, _MAX_DEPTH)


def _error(record: Any, depth: int) -> CrewError:
    told = record if isinstance(record, Mapping) else {}
    kind = _kind(told.get("kind"))
    facts = given if isinstance(given := told.get("facts"), Mapping) else {}
    known = signature(kind.__init__).parameters.keys() & facts.keys()
    kept = {name: facts[name] for name in known if _fits(name, facts[name])}
    if "cause" in kept:
        kept["cause"] = _error(kept["cause"], depth - 1) if depth else None
    message = told.get("message")
    return kind(message if isinstance(message, str) else _NO_MESSAGE, **kept)


def _kind(name: Any) -> type[CrewError]:
    found = getattr(errors, name, None) if isinstance(name, str) else None
    return found if isinstance(found, type) and issubclass(found, CrewError) else CrewError


def _fits(name: str, fact: Any) -> bool:
    if name in {"missing", "missing_inputs"}:
        return isinstance(fact, list) and all(isinstance(item, str) for item in fact)
    return name in _TYPES and isinstance(fact, _TYPES[name])


def _plain(fact: Any) -> Any:
    if isinstance(fact, CrewError):
        return error_record(fact)
    if isinstance(fact, tuple):
        return [storable_text(item) for item in fact]
    return storable_text(fact) if isinstance(fact, str) else fact
