"""The deployed dialect: its bodies as models for the OpenAPI description, and its status of an execution."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, JsonValue

from airflow_provider_crew.local.answer import Answer, json_answer, text_answer
from airflow_provider_crew.local.dialects.dialect import Bodies, Dialect
from airflow_provider_crew.local.dialects.documented import KickoffAnswer, StopAnswer
from airflow_provider_crew.local.executions import Execution, Standing
from airflow_provider_crew.local.scenario import Scenario


class Detail(BaseModel):
    """Body of every error."""

    detail: str


class InputNames(BaseModel):
    """The names of the inputs, and since crewai 1.15.38 of those that the crew needs."""

    inputs: list[str]
    required_inputs: list[str] = []


class DeployedProgress(BaseModel):
    """Progress of the execution. The total number of steps of a flow is unknown."""

    unit: Literal["task", "step"]
    completed: int
    total: int | None
    remaining: int | None
    current: str | None
    current_agent: str | None
    started_at: str = Field(json_schema_extra={"format": "date-time"})
    updated_at: str = Field(json_schema_extra={"format": "date-time"})
    duration_seconds: float


class ExecutedTask(BaseModel):
    """The last completed task, the only one whose output is returned."""

    name: str
    description: str
    output: str
    kickoff_id: str
    meta: dict[str, JsonValue] | None


class DeployedStatus(BaseModel):
    """An execution. ``status`` is a sentence for a human reader; if the execution failed, it gives the reason."""

    state: Literal["PENDING", "STARTED", "RUNNING", "SUCCESS", "FAILED", "NOT FOUND", "PAUSED", "REVOKED"]
    status: str | None
    result: str | None = None
    result_json: JsonValue = None
    usage_metrics: Mapping[str, JsonValue] | None = None
    progress: DeployedProgress | None = None
    last_event: None = None
    events: None = None
    events_count: None = None
    events_by_type: None = None
    triggered_by: None = None
    execution_origin: None = None
    last_step: None = None
    last_executed_task: ExecutedTask | None = None
    flow_id: None = None
    source: None = None


_UNKNOWN = DeployedStatus(state="NOT FOUND", status="Task not found or Invalid kickoff id")


def deployed(execution: Execution, now: float) -> DeployedStatus:
    """Return the status of an execution. A crew that waits for human input is unknown."""
    at = execution.standing(now)
    is_flow = execution.scenario.is_flow
    if at.waiting and not is_flow:
        return _UNKNOWN
    body = _state(at)
    if at.over and not at.revoked:
        body.usage_metrics = at.usage
    if at.tasks and not is_flow:
        last = at.tasks[-1]
        body.last_executed_task = ExecutedTask(
            name=last.name,
            description=last.description,
            output=last.output,
            kickoff_id=execution.kickoff_id,
            meta=execution.meta,
        )
    if at.error is None:
        body.progress = _progress(execution, at, now)
    return body


def _state(at: Standing) -> DeployedStatus:
    if at.revoked:
        return DeployedStatus(state="REVOKED", status="Task was revoked")
    if at.error is not None:
        return DeployedStatus(state="FAILED", status=at.error)
    if at.over:
        return DeployedStatus(state="SUCCESS", status=None, result=at.output, result_json=at.json)
    if at.waiting:
        return DeployedStatus(state="PAUSED", status="Task is Paused")
    if at.queued:
        return DeployedStatus(state="PENDING", status="Task is pending")
    return DeployedStatus(state="RUNNING" if at.done else "STARTED", status="Task is Running")


def _progress(execution: Execution, at: Standing, now: float) -> DeployedProgress:
    is_flow = execution.scenario.is_flow
    total = None if is_flow else at.total
    begin = execution.started_at
    return DeployedProgress(
        unit="step" if is_flow else "task",
        completed=at.done,
        total=total,
        remaining=None if total is None else total - at.done,
        current=at.current,
        current_agent=None if is_flow else at.agent,
        started_at=_timestamp(begin),
        updated_at=_timestamp(begin + at.since),
        duration_seconds=at.since if at.over else now - begin,
    )


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class _Deployed:
    """The dialect observed in deployed crews."""

    bodies: ClassVar[Bodies] = {
        "inputs": {200: InputNames, 401: Detail},
        "kickoff": {200: KickoffAnswer, 401: Detail, 403: Detail, 422: Detail, 500: str},
        "status": {200: DeployedStatus, 401: Detail},
        "stop": {200: StopAnswer, 400: Detail, 401: Detail, 403: Detail, 404: Detail},
    }

    def refusal(self, status: int, _: str, message: str, /) -> Answer:
        return json_answer(status, {"detail": message})

    def no_json(self, _: str, /) -> Answer:
        return text_answer(500, "Internal Server Error")

    def no_kickoff(self, reason: str, /) -> Answer:
        return json_answer(422, {"detail": reason})

    def missing_inputs(self, names: Sequence[str], /) -> Answer:
        return json_answer(422, {"detail": f"Missing inputs: {', '.join(sorted(names))}"})

    def unknown_execution(self, _: str, /) -> Answer:
        return json_answer(200, _UNKNOWN.model_dump())

    def inputs(self, scenario: Scenario, /) -> JsonValue:
        return scenario.listed()

    def standing(self, execution: Execution, now: float, /) -> JsonValue:
        body: JsonValue = deployed(execution, now).model_dump()
        return body

    def state(self, execution: Execution, now: float, /) -> str:
        return deployed(execution, now).state


DEPLOYED: Dialect = _Deployed()
