"""What came of a task, as facts: errors, cost, requests and records."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow_provider_crew.service.errors import Cost
from dev.rest import ApiError
from tests.faults.scenes import Scene
from tests.supported import AIRFLOW

XCOMS = ("return_value", "kickoff_id", "crew_result", "usage")


def facts_of(scene: Scene) -> dict[str, Any]:
    """Return the facts of a task that is over."""
    tries = range(1, scene.task["try_number"] + 1)
    errors = [_error(scene, number) for number in tries]
    return {
        "errors": [kind for kind, _ in errors],
        "cost": next((cost for _, cost in reversed(errors) if cost), None),
        "record": _record(scene),
        "kickoffs": [request.status for request in scene.crew.requests.on("kickoff")],
        "started by": [_try_of(kickoff.meta) for kickoff in scene.crew.kickoffs],
        "xcoms": [key for key in XCOMS if scene.xcom(key) is not None],
    }


def _error(scene: Scene, number: int) -> tuple[str | None, str | None]:
    """Return the class that a try has failed with, and the cost that it tells."""
    events = scene.run.events(scene.task_id, number)
    raised = [event["error_detail"][-1] for event in events if event.get("error_detail")]
    if not raised:
        return None, None
    told = raised[-1]["exc_value"]
    return raised[-1]["exc_type"], next((money.value for money in Cost if money.sentence in told), None)


def _record(scene: Scene) -> str | None:
    """Return what the task's kickoff record tells, where there is a task state store."""
    if AIRFLOW < (3, 3):
        return None
    run_id = quote(scene.run.run_id, safe="")
    path = f"dags/{scene.dag_id}/dagRuns/{run_id}/taskInstances/{scene.task_id}/state-store/crew_kickoff"
    try:
        record = scene.airflow.api.get(f"{path}?map_index=-1")["value"]
    except ApiError:
        return "none"
    if record["kickoff_id"] is None:
        return "reported" if record["reported"] else "uncertain"
    return "delivered" if record["delivered"] else record["end"] or "running"


def _try_of(meta: Any) -> int | None:
    origin = meta.get("airflow") if isinstance(meta, dict) else None
    return origin["try_number"] if isinstance(origin, dict) else None
