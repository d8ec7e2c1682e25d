"""The documented dialect: its bodies as models for its description, and what it says of an execution."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, JsonValue

from airflow_provider_crew.local.answer import Answer, json_answer
from airflow_provider_crew.local.dialects.dialect import Bodies, Dialect
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.scenario import Scenario


class ErrorBody(BaseModel):
    """What every error carries."""

    error: str
    message: str


class MissingInputs(BaseModel):
    """The names of the required inputs that a kickoff left out."""

    missing_inputs: list[str]


class MissingInputsBody(ErrorBody):
    """Why a kickoff was refused."""

    details: MissingInputs


class InputsAnswer(BaseModel):
    """The inputs the crew asks for, in one of the shapes that are in the field."""

    inputs: list[str] | list[dict[str, JsonValue]] | dict[str, JsonValue]


class KickoffAnswer(BaseModel):
    """The identifier of the execution that was started."""

    kickoff_id: str = Field(json_schema_extra={"format": "uuid"})


class Progress(BaseModel):
    """How many of the crew's tasks are done."""

    completed_tasks: int
    total_tasks: int


class Running(BaseModel):
    """An execution in progress."""

    status: Literal["running"] = "running"
    current_task: str | None
    progress: Progress


class TaskResult(BaseModel):
    """What one task put out."""

    task_id: str
    output: str
    agent: str | None
    execution_time: float


class Result(BaseModel):
    """What the crew put out."""

    output: str
    tasks: list[TaskResult]


class Completed(BaseModel):
    """An execution that ended well."""

    status: Literal["completed"] = "completed"
    result: Result
    execution_time: float


class Failed(BaseModel):
    """An execution that failed."""

    status: Literal["error"] = "error"
    error: str
    execution_time: float


def documented(execution: Execution, now: float) -> Running | Completed | Failed:
    """Tell how an execution stands. One that is queued, or waits for a person, goes on as running."""
    at = execution.standing(now)
    if not at.over:
        # Of a flow nobody knows how many steps are to come: at least the one that it is at.
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
    """How the reference of the service says that crews talk."""

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
        """Shapes that cannot call an input optional leave those out."""
        required = [wanted for wanted in scenario.inputs if wanted.required]
        if scenario.inputs_shape == "names":
            return {"inputs": [wanted.name for wanted in required]}
        if scenario.inputs_shape == "mapping":
            return {"inputs": {wanted.name: wanted.description for wanted in required}}
        return {"inputs": [wanted.model_dump() for wanted in scenario.inputs]}

    def standing(self, execution: Execution, now: float, /) -> JsonValue:
        body: JsonValue = documented(execution, now).model_dump()
        return body


DOCUMENTED: Dialect = _Documented()
