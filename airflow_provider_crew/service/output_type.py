"""
The type that a crew's output is to have: anything that pydantic can check JSON data by.

What an output holds is told to nobody: an error names the places that do not fit, and not what stands there.
"""

import json
import pkgutil
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airflow_provider_crew.service.errors import Cost, InvalidOutput, InvalidOutputType
from airflow_provider_crew.service.json_text import json_within
from airflow_provider_crew.service.storable import storable_json
from airflow_provider_crew.service.text import one_line

_MOST_MISFITS = 10
# Beyond so many, pydantic's own account of them would take more memory than a worker may have.
_MOST_TO_ASK_FOR = 100_000
_PLACE = 100
_REASON = 200
_FAULT = 300


def adapter_of(output_type: object) -> TypeAdapter[Any]:
    """
    Return what checks data by a type, or by the one at an import path.

    Whatever keeps the type from being used is an InvalidOutputType: the module of a user may raise anything.
    """
    try:
        wanted: Any = pkgutil.resolve_name(output_type) if isinstance(output_type, str) else output_type
        adapter = TypeAdapter[Any](wanted)
        adapter.rebuild()  # else a name that a model lacks would be found out with the first output
    except Exception as error:  # noqa: BLE001
        # Of what pydantic says, the first paragraph: the others lead to its documentation.
        fault = one_line(str(error).partition("\n\n")[0], _FAULT).rstrip(". ")
        raise InvalidOutputType(
            f"output_type {_shown(output_type)} is unusable: {type(error).__name__}: {fault}.",
            cost=Cost.NONE,
            next_step="Fix `output_type`.",
        ) from None
    return adapter


def fitted(output_type: object, kickoff_id: str, output: str, output_json: Any) -> Any:
    """
    Return the output as JSON data of the type, with its defaults filled in.

    ``output_json`` is what the output holds as JSON, if that is known already. InvalidOutput when it does not fit.
    """
    try:
        adapter = adapter_of(output_type)
    except InvalidOutputType as error:
        raise _unchecked(kickoff_id, error.event) from None
    try:
        data = json_within(output) if output_json is None else output_json
    except ValueError as error:
        raise _misfitting(kickoff_id, [f"it cannot be read as JSON: {error}"]) from None
    try:
        # Read from JSON, where a strict type takes what JSON has no other form for, such as a date.
        return storable_json(adapter.dump_python(adapter.validate_json(json.dumps(data)), mode="json"))
    except ValidationError as error:
        raise _misfitting(kickoff_id, _misfits(error)) from None
    except Exception as error:  # noqa: BLE001 - a type may have code of its own, and that is no fault of the crew
        raise _unchecked(kickoff_id, f"output_type raised {type(error).__name__}.") from None


def _shown(output_type: object) -> str:
    named = output_type.__qualname__ if isinstance(output_type, type) else output_type
    return one_line(str(named), _PLACE)


def _misfitting(kickoff_id: str, misfits: Iterable[str]) -> InvalidOutput:
    all_misfits = iter(misfits)
    shown = tuple(islice(all_misfits, _MOST_MISFITS))
    more = sum(1 for _ in all_misfits)
    listed = "; ".join((*shown, *([f"and {more} more"] if more else [])))
    return InvalidOutput(
        f"Execution {kickoff_id} has completed, and its output does not match output_type: {listed}.",
        next_step="Fix `output_type`.",
        kickoff_id=kickoff_id,
        misfits=shown,
    )


def _unchecked(kickoff_id: str, why: str) -> InvalidOutput:
    return InvalidOutput(
        f"Execution {kickoff_id} has completed, and its output could not be checked. {why}",
        next_step="Fix `output_type`.",
        kickoff_id=kickoff_id,
    )


def _misfits(error: ValidationError) -> Iterable[str]:
    """Name the places that do not fit, and why."""
    count = error.error_count()
    if count > _MOST_TO_ASK_FOR:
        return [f"{count:,} places do not fit, too many to name them"]
    return map(_misfit, error.errors(include_url=False, include_input=False))


def _misfit(told: Mapping[str, Any]) -> str:
    """Name one place that does not fit, and why."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in told["loc"]).lstrip(".")
    reason: str = told["msg"]
    if told["type"] == "union_tag_invalid":  # the one reason that pydantic gives with what it has found
        reason = f"Input tag is none of {told['ctx']['expected_tags']}"
    named = f"{one_line(place, _PLACE)}: " if place else ""
    return f"{named}{one_line(reason, _REASON).rstrip('. ')}"
