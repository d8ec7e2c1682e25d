"""The bodies of the deployed dialect: as models for its description, and built from an execution."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, JsonValue

from airflow_provider_crew.local.scenario import filled

if TYPE_CHECKING:
    from airflow_provider_crew.local.executions import Execution, Standing
    from airflow_provider_crew.local.scenario import ScenarioTask


class Detail(BaseModel):
    """What every error carries."""

    detail: str


class InputNames(BaseModel):
    """The bare names of the inputs, which do not say whether they are needed."""

    inputs: list[str]


class DeployedProgress(BaseModel):
    """How far the execution is. Of a flow nobody knows how many steps are to come."""

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
    """The last task that is done, the only one whose output is told."""

    name: str
    description: str
    output: str
    kickoff_id: str
    meta: dict[str, JsonValue] | None


class Deployed(BaseModel):
    """An execution. ``status`` is a sentence for people, of a failed one the reason."""

    state: Literal["STARTED", "RUNNING", "SUCCESS", "FAILED", "NOT FOUND", "PAUSED", "REVOKED"]
    status: str | None
    result: str | None = None
    result_json: JsonValue = None
    usage_metrics: dict[str, int] | None = None
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


def deployed(execution: Execution, now: float) -> Deployed:
    """Tell how an execution stands. While a crew waits for a person, nobody knows it."""
    at = execution.standing(now)
    if at.waiting and not execution.scenario.is_flow:
        return unknown()
    if at.revoked:
        body = Deployed(state="REVOKED", status="Task was revoked")
    elif at.error is not None:
        body = Deployed(state="FAILED", status=at.error, usage_metrics=_usage(execution))
    elif at.over:
        body = _success(execution)
    elif at.waiting:
        body = Deployed(state="PAUSED", status="Task is Paused")
    else:
        body = Deployed(state="RUNNING" if at.done else "STARTED", status="Task is Running")
    body.last_executed_task = _last_executed_task(execution, at)
    if at.error is None:
        body.progress = _progress(execution, at, now)
    return body


def unknown() -> Deployed:
    """Tell that there is no such execution, which is what is also said of a crew that waits for a person."""
    return Deployed(state="NOT FOUND", status="Task not found or Invalid kickoff id")


def _success(execution: Execution) -> Deployed:
    output = _text(execution.scenario.final_output(), execution)
    told = execution.scenario.result_json
    return Deployed(
        state="SUCCESS",
        status=None,
        result=output,
        result_json=_json_object(output) if told is None else told,
        usage_metrics=_usage(execution),
    )


def _progress(execution: Execution, at: Standing, now: float) -> DeployedProgress:
    tasks, is_flow = execution.scenario.tasks, execution.scenario.is_flow
    current: ScenarioTask | None = None if at.over else tasks[at.done]
    begin = execution.started_at
    return DeployedProgress(
        unit="step" if is_flow else "task",
        completed=at.done,
        total=None if is_flow else len(tasks),
        remaining=None if is_flow else len(tasks) - at.done,
        current=current.name if current else None,
        current_agent=current.agent if current and not is_flow else None,
        started_at=_timestamp(begin),
        updated_at=_timestamp(begin + at.since),
        duration_seconds=at.since if at.over else now - begin,
    )


def _last_executed_task(execution: Execution, at: Standing) -> ExecutedTask | None:
    if execution.scenario.is_flow or not at.done:
        return None
    task = execution.scenario.tasks[at.done - 1]
    return ExecutedTask(
        name=task.name,
        description=_text(task.description, execution),
        output=_text(task.output, execution),
        kickoff_id=execution.kickoff_id,
        meta=execution.meta,
    )


def _usage(execution: Execution) -> dict[str, int] | None:
    return dict(execution.scenario.usage) or None


def _text(template: str, execution: Execution) -> str:
    return filled(template, execution.inputs, text=str)


def _json_object(output: str) -> JsonValue:
    try:
        found: JsonValue = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
