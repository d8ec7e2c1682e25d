"""The result of an execution as its task returns it: structured output, and what the log shows of it."""

import json
import pkgutil
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Protocol

from airflow.providers.common.compat.sdk import conf
from pydantic import TypeAdapter, ValidationError

from airflow_provider_crew.client.errors import Cost, InvalidOutput, InvalidOutputType, storable_json
from airflow_provider_crew.client.models import doubt_about, json_within
from airflow_provider_crew.client.text import one_line, quoted, size
from airflow_provider_crew.client.watch import in_all, wrote
from airflow_provider_crew.durable.record import RESULT, without_reserved_keys
from airflow_provider_crew.durable.task import RunningTask

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


class OutputArguments(Protocol):
    """What the output is to be, as its author says. Without ``do_xcom_push`` nobody wants a result in XCom."""

    output_type: object
    do_xcom_push: bool


def check_type(given: OutputArguments) -> None:
    """Refuse a type that cannot be used, while nothing is paid for, or waited for."""
    if given.output_type is not None:
        adapter_of(given.output_type)


def finished(task: RunningTask, given: OutputArguments, result: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the result of an execution as the task's own.

    When the output is not of the type, the result stays in XCom under a key of its own: it is paid for.
    """
    kickoff_id, output, data = str(task.execution), str(result.get("output", "")), result.get("output_json")
    if given.output_type is not None:
        try:
            data = fitted(given.output_type, kickoff_id, output, data)
        except InvalidOutput:
            if given.do_xcom_push:
                task.leave(RESULT, _with(result, data), what=f"Execution {kickoff_id}: its result")
            raise
    elif data is None and (doubt := doubt_about(output)):
        task.warn(f"Output of execution {kickoff_id} looks like JSON, but is not: {doubt}. output_json is None.")
    return _with(result, data)


def _with(result: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return a result with the output as data, in a form that XCom takes."""
    return {
        **result,
        "usage": without_reserved_keys(result.get("usage")),
        "output_json": without_reserved_keys(data),
    }


_MOST_OUTPUT = 4_000


class ReportArguments(Protocol):
    """What an operator was given. ``log_output``: the log may show what the crew has put out."""

    log_output: bool
    do_xcom_push: bool


def may_log_output(given: ReportArguments) -> bool:
    """Whether the log of the triggerer may show what the crew has put out."""
    try:
        return _may_show_output(given)
    except Exception:  # noqa: BLE001 - the report warns of a setting that cannot be read
        return False


def report(task: RunningTask, given: ReportArguments, result: Mapping[str, Any]) -> None:
    """
    Tell what each task of the crew took and wrote, what all of it cost, and what came of it.

    The result is paid for, so whatever fails here fails no more than the report.
    """
    try:
        about = f"Execution {result['kickoff_id']}:"
        for line in (*wrote(result), *in_all(result)):
            task.log.info("%s %s", about, line)
        if output := result["output"].strip():
            where = "in XCom return_value" if given.do_xcom_push else "in the crew's dashboard"
            if _may_show_output(given):
                _show(task, f"{about} its output, {size(output)}", output, where)
            else:
                task.log.info(
                    "%s its output, %s, is %s: log_output keeps it out of the log.", about, size(output), where
                )
    except Exception as error:  # noqa: BLE001 - whatever it is; its text may hold what is not to be shown
        task.log.warning("What the execution has put out could not be told here: %s", type(error).__name__)


def _show(task: RunningTask, heading: str, output: str, where: str) -> None:
    shown, is_cut = quoted(output, _MOST_OUTPUT)
    # Each a record of its own: Airflow's log page takes the whole record for the heading.
    task.log.info("::group::%s", heading)
    task.log.info("%s:\n%s\n", f"Its beginning. All of it is {where}" if is_cut else "All of it", shown)
    task.log.info("::endgroup::")


def _may_show_output(given: ReportArguments) -> bool:
    """Whether the author of the task and those who run this Airflow let outputs into its logs."""
    return given.log_output and bool(conf.getboolean("crew", "log_output", fallback=True))
