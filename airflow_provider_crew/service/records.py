"""Errors as plain JSON data, to travel from the process that watched to the one that acts on it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from airflow_provider_crew.service import errors
from airflow_provider_crew.service.errors import Cost
from airflow_provider_crew.service.storable import storable_json

# What an error tells whoever catches it, and no other process.
_STAYS_HERE = {"cause", "misfits", "missing_inputs"}


def error_record(error: errors.CrewError) -> dict[str, Any]:
    """Return the kind, the message and the facts of an error."""
    facts = {each.name: getattr(error, each.name) for each in fields(error) if each.name not in _STAYS_HERE}
    told = {"kind": type(error).__name__, "message": str(error.args[0]), "facts": facts}
    return dict(storable_json(told))


def recorded_error(record: Any) -> errors.CrewError:
    """
    Return the error of a record; ValueError when it is none.

    While an installation is being upgraded, the record may come from a newer version: a kind that is not known
    here is a plain errors.CrewError, and a fact that is not known here is left out.
    """
    match record:
        case {"kind": str(name), "message": str(message), "facts": Mapping() as facts}:
            found = getattr(errors, name, None)
            kind = found if isinstance(found, type) and issubclass(found, errors.CrewError) else errors.CrewError
            known = {each.name for each in fields(kind)} & facts.keys()
            told = {name: facts[name] for name in known}
            if told.get("cost") not in set(Cost):
                told.pop("cost", None)
            return kind(message, **told | ({"cost": Cost(told["cost"])} if "cost" in told else {}))
    raise ValueError("this is no record of an error")
