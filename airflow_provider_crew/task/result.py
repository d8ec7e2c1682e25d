"""Return value of a task: the result of its execution, structured output, and the report in the log."""

import json
import pkgutil
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airflow_provider_crew.client.errors import Cost, InvalidOutput, InvalidOutputType, storable_json
from airflow_provider_crew.client.models import json_within
from airflow_provider_crew.client.text import one_line, quoted, size
from airflow_provider_crew.client.wording import in_all, run_times

RETURN_VALUE = "return_value"
USAGE = "usage"
RESULT = "crew_result"
"""XCom key of a result that is not returned, because the output does not match ``output_type``."""

# Airflow's serializers reject objects with these keys, or interpret the keys themselves.
_RESERVED_KEYS = frozenset({"__id__", "__classname__", "__var"})


def without_reserved_keys(value: Any) -> Any:
    """Return JSON data with renamed reserved keys, so that Airflow can store it."""
    if isinstance(value, dict):
        renamed = {key: f"{key}_" if key in _RESERVED_KEYS else key for key in value}
        return {renamed[key]: without_reserved_keys(item) for key, item in value.items()}
    return [without_reserved_keys(item) for item in value] if isinstance(value, list) else value


_MOST_MISFITS = 10
# Maximum length of an external text in a message.
_SHOWN = 200


def adapter_of(output_type: object) -> TypeAdapter[Any]:
    """
    Return the pydantic adapter of a type, or of the type at an import path.

    Raises InvalidOutputType for every error, because importing a user's module may raise anything.
    """
    try:
        wanted: Any = pkgutil.resolve_name(output_type) if isinstance(output_type, str) else output_type
        adapter = TypeAdapter[Any](wanted)
        adapter.rebuild()  # otherwise an undefined name in a model would surface with the first output
    except Exception as error:  # noqa: BLE001
        # Keep the first paragraph of pydantic's message. The others link to its documentation.
        fault = one_line(str(error).partition("\n\n")[0], _SHOWN).rstrip(". ")
        named = output_type.__qualname__ if isinstance(output_type, type) else output_type
        shown = one_line(str(named), _SHOWN)
        event = f"output_type {shown} is unusable: {type(error).__name__}: {fault}."
        raise InvalidOutputType(event, cost=Cost.NONE) from None
    return adapter


def fitted(output_type: object, kickoff_id: str, output: str, output_json: Any) -> Any:
    """
    Return the output as JSON data of the type, with the type's defaults filled in.

    Raises InvalidOutput if the output does not match.

    :param output_type: Type, or its import path.
    :param kickoff_id: Kickoff ID of the execution, for the error.
    :param output: Output of the crew as text.
    :param output_json: JSON data of the output. ``None`` parses ``output``.
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
        # Validate JSON text, because a strict type then accepts strings for types that JSON lacks, such as dates.
        return storable_json(adapter.dump_python(adapter.validate_json(json.dumps(data)), mode="json"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise _misfitting(kickoff_id, [_misfit(each) for each in found]) from None
    except Exception as error:  # noqa: BLE001 - a type may run its own code, whose errors are not the crew's
        raise _unchecked(kickoff_id, f"output_type raised {type(error).__name__}.") from None


def _misfitting(kickoff_id: str, misfits: list[str]) -> InvalidOutput:
    shown, more = tuple(misfits[:_MOST_MISFITS]), len(misfits) - _MOST_MISFITS
    listed = "; ".join((*shown, f"and {more} more") if more > 0 else shown)
    event = f"The output does not match output_type: {listed}."
    return InvalidOutput(event, kickoff_id=kickoff_id, misfits=shown)


def _unchecked(kickoff_id: str, why: str) -> InvalidOutput:
    event = f"The output could not be checked. {why}"
    return InvalidOutput(event, kickoff_id=kickoff_id)


def _misfit(error: Mapping[str, Any]) -> str:
    """Return the place and the reason of one mismatch."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"]).lstrip(".")
    reason: str = error["msg"]
    if error["type"] == "union_tag_invalid":  # the only message of pydantic that repeats the value
        reason = f"Input tag is not one of {error['ctx']['expected_tags']}"
    named = f"{one_line(place, _SHOWN)}: " if place else ""
    return f"{named}{one_line(reason, _SHOWN).rstrip('. ')}"


def value_of(result: Mapping[str, Any], kickoff_id: str, output_type: object) -> dict[str, Any]:
    """
    Return the result of an execution in the form that the task returns.

    Raises InvalidOutput if the output does not match ``output_type``.
    """
    output, data = str(result.get("output", "")), result.get("output_json")
    if output_type is not None:
        data = fitted(output_type, kickoff_id, output, data)
    return storable(result) | {"output_json": without_reserved_keys(data)}


def storable(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result in a form that XCom can store."""
    names = ("usage", "output_json")
    return {**result, **{name: without_reserved_keys(result.get(name)) for name in names}}


def report(result: Mapping[str, Any], log: Any, *, shows_output: bool, where: str) -> None:
    """
    Log the run time of each task of the crew, the tokens, and the crew's output.

    The result was billed, so an error here ends only the report and not the task.
    """
    try:
        for line in (*run_times(result), *in_all(result)):
            log.info("Crew: %s", line)
        if not (output := result["output"].strip()):
            return
        if not shows_output:
            log.info("Crew: output, %s, is %s. log_output keeps it out of the log.", size(output), where)
            return
        shown, is_cut = quoted(output, 4_000)
        # Log separate records, because the Airflow UI uses the whole record as the heading of the group.
        log.info(
            "::group::Crew: output, %s%s", size(output), f", cut here; all of it is {where}" if is_cut else ""
        )
        log.info("%s\n", shown)
        log.info("::endgroup::")
    except Exception as error:  # noqa: BLE001 - log only the type, because the text may contain output
        log.warning("The output was not logged: %s", type(error).__name__)
