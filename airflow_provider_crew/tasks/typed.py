"""What a task makes of its crew's output: data of the type that its author asks for, or what is JSON in it."""

from collections.abc import Mapping
from typing import Any, Protocol

from airflow_provider_crew.service.errors import InvalidOutput
from airflow_provider_crew.service.json_text import doubt_about
from airflow_provider_crew.service.output_type import adapter_of, fitted
from airflow_provider_crew.tasks.running import RunningTask
from airflow_provider_crew.tasks.xcom import RESULT, without_reserved_keys


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
        task.warn(
            f"Execution {kickoff_id}: its output looks like JSON, and is none.\n{doubt}. output_json is None."
        )
    return _with(result, data)


def _with(result: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return a result with the output as data, in a form that XCom takes."""
    return {
        **result,
        "usage": without_reserved_keys(result.get("usage")),
        "output_json": without_reserved_keys(data),
    }
