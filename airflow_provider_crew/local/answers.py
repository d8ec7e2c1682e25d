"""The bodies of the documented dialect: as models for its description, and built from an execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, JsonValue

from airflow_provider_crew.local.scenario import filled

if TYPE_CHECKING:
    from airflow_provider_crew.local.executions import Execution


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
    current_task: str
    progress: Progress


class TaskResult(BaseModel):
    """What one task put out."""

    task_id: str
    output: str
    agent: str
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
    """Tell how an execution stands. One that waits for a person goes on as running."""
    at = execution.standing(now)
    tasks = execution.scenario.tasks
    if not at.over:
        progress = Progress(completed_tasks=at.done, total_tasks=len(tasks))
        return Running(current_task=tasks[at.done].name, progress=progress)
    if at.error is not None:
        return Failed(error=at.error, execution_time=at.seconds)
    results = [
        TaskResult(
            task_id=task.name,
            output=filled(task.output, execution.inputs),
            agent=task.agent,
            execution_time=task.seconds,
        )
        for task in tasks
    ]
    return Completed(result=Result(output=_output(execution), tasks=results), execution_time=at.seconds)


def _output(execution: Execution) -> str:
    return filled(execution.scenario.final_output(), execution.inputs)
