"""Errors as plain JSON data, to travel from the process that watched to the one that acts on it."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow_provider_crew.service import errors
from airflow_provider_crew.service.errors import CrewError
from airflow_provider_crew.service.models import storable_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def error_record(error: CrewError) -> dict[str, Any]:
    """Return the kind, the message and the facts of an error."""
    return {
        "kind": type(error).__name__,
        "message": storable_text(str(error.args[0])),
        "facts": {name: _plain(fact) for name, fact in vars(error).items() if name[0] != "_"},
    }


def recorded_error(record: Mapping[str, Any]) -> CrewError:
    """
    Return the error of a record.

    While an installation is being upgraded, the record may come from a newer version: a kind that is not known
    here is a plain CrewError, and a fact that is not known here is left out.
    """
    kind = getattr(errors, record["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, CrewError)):
        kind = CrewError
    known = signature(kind.__init__).parameters.keys() & record["facts"].keys()
    return kind(record["message"], **{name: _fact(record["facts"][name]) for name in known})


def _fact(told: Any) -> Any:
    return recorded_error(told) if isinstance(told, dict) else told


def _plain(fact: Any) -> Any:
    if isinstance(fact, CrewError):
        return error_record(fact)
    if isinstance(fact, tuple):
        return [storable_text(item) for item in fact]
    return storable_text(fact) if isinstance(fact, str) else fact
