"""The documented dialect: its bodies as models for the OpenAPI description, and its status of an execution."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, JsonValue

from airflow_provider_crew.local.answer import Answer, json_answer
from airflow_provider_crew.local.dialects.dialect import Bodies, Dialect
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.scenario import Scenario


class ErrorBody(BaseModel):
    """Body of every error."""

    error: str
    message: str


class MissingInputs(BaseModel):
    """The names of the required inputs that a kickoff left out."""

    missing_inputs: list[str]


class MissingInputsBody(ErrorBody):
    """The reason why a kickoff was rejected."""

    details: MissingInputs


class InputsAnswer(BaseModel):
    """The inputs that the crew takes, in one of the shapes that deployments use, and those that it needs."""

    inputs: list[str] | list[dict[str, JsonValue]] | dict[str, JsonValue]
    required_inputs: list[str] = []


class KickoffAnswer(BaseModel):
    """The kickoff ID of the execution that was started."""

    kickoff_id: str = Field(json_schema_extra={"format": "uuid"})


class StopAnswer(BaseModel):
    """The kickoff ID of the execution that was stopped."""

    status: Literal["stopped"] = "stopped"
    kickoff_id: str = Field(alias="kickoffId")


class Progress(BaseModel):
    """The number of completed tasks."""

    completed_tasks: int
    total_tasks: int


class Running(BaseModel):
    """An execution in progress."""

    status: Literal["running"] = "running"
    current_task: str | None
    progress: Progress


class TaskResult(BaseModel):
    """Output of one task."""

    task_id: str
    output: str
    agent: str | None
    execution_time: float


class Result(BaseModel):
    """Output of the crew."""

    output: str
    tasks: list[TaskResult]


class Completed(BaseModel):
    """A completed execution."""

    status: Literal["completed"] = "completed"
    result: Result
    execution_time: float


class Failed(BaseModel):
    """An execution that failed."""

    status: Literal["error"] = "error"
    error: str
    execution_time: float


def documented(execution: Execution, now: float) -> Running | Completed | Failed:
    """Return the status of an execution. It is running while it is queued or waits for human input."""
    at = execution.standing(now)
    if not at.over:
        # The total number of steps of a flow is unknown, so count the current one as the last.
        total = at.done + 1 if at.total is None else at.total
        return Running(current_task=at.current, progress=Progress(completed_tasks=at.done, total_tasks=total))
    if at.error is not None:
        return Failed(error=at.error, execution_time=at.seconds)
    results = [
        TaskResult(task_id=task.name, output=task.output, agent=task.agent, execution_time=task.seconds)
        for task in at.tasks
    ]
    return Completed(result=Result(output=at.output, tasks=results), execution_time=at.seconds)


class _Documented:
    """The dialect described in the API reference of the crew."""

    bodies: ClassVar[Bodies] = {
        "inputs": {200: InputsAnswer, 401: ErrorBody, 500: ErrorBody},
        "kickoff": {
            200: KickoffAnswer,
            400: ErrorBody,
            401: ErrorBody,
            403: ErrorBody,
            422: MissingInputsBody,
            500: ErrorBody,
        },
        "status": {200: Running | Completed | Failed, 401: ErrorBody, 404: ErrorBody, 500: ErrorBody},
        "stop": {
            200: StopAnswer,
            400: ErrorBody,
            401: ErrorBody,
            403: ErrorBody,
            404: ErrorBody,
            500: ErrorBody,
        },
    }

    def refusal(self, status: int, error: str, message: str, /) -> Answer:
        return json_answer(status, {"error": error, "message": message})

    def no_json(self, reason: str, /) -> Answer:
        return self.no_kickoff(f"The body is not JSON: {reason}.")

    def no_kickoff(self, reason: str, /) -> Answer:
        return self.refusal(400, "Bad request", reason)

    def missing_inputs(self, names: Sequence[str], /) -> Answer:
        message = f"These inputs are required: {', '.join(names)}."
        details: JsonValue = {"missing_inputs": [*names]}
        return json_answer(422, {"error": "Missing inputs", "message": message, "details": details})

    def unknown_execution(self, kickoff_id: str, /) -> Answer:
        return self.refusal(404, "Execution not found", f"No execution exists with the id {kickoff_id}.")

    def inputs(self, scenario: Scenario, /) -> JsonValue:
        """Return the inputs. Shapes that cannot mark an input as optional leave optional inputs out."""
        if scenario.inputs_shape == "names":
            return scenario.listed()
        if scenario.inputs_shape == "mapping":
            return {"inputs": {wanted.name: wanted.description for wanted in scenario.inputs if wanted.required}}
        return {"inputs": [wanted.model_dump() for wanted in scenario.inputs]}

    def standing(self, execution: Execution, now: float, /) -> JsonValue:
        body: JsonValue = documented(execution, now).model_dump()
        return body

    def state(self, execution: Execution, now: float, /) -> str:
        return documented(execution, now).status


DOCUMENTED: Dialect = _Documented()
