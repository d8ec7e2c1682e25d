"""Requests to Airflow's API server that Airflow's public functions cannot make, and its errors."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor as Threads
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async

from airflow_provider_crew.client import timing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

# States of a task whose process exists, and that has not been cleared.
_STATES_OF_ITS_OWN = frozenset({"running", "success", "failed", "up_for_retry"})
# Only clearing a task in these states runs it again. Airflow may restore a removed one.
LAST_STATES = frozenset({"success", "failed", "skipped"})


def is_cleared_meanwhile(ti: Any) -> bool:
    """Whether the task was cleared while this process runs. Defaults to False if Airflow does not answer."""
    return not _states_of(ti) <= _STATES_OF_ITS_OWN


def has_succeeded(ti: Any) -> bool:
    """Whether Airflow has recorded the success of the task. Defaults to False if Airflow does not answer."""
    return _end_of(ti) == {"success"}


def has_ended(ti: Any) -> bool:
    """Whether Airflow has recorded the end of the task, and no retry follows. Defaults to False."""
    states = _end_of(ti)
    return bool(states) and states <= LAST_STATES


def _end_of(ti: Any) -> set[Any]:
    """Return the state of a task in a set. In a task loop, Airflow 3.4 reports that of the latest iteration."""
    is_looped = getattr(getattr(ti, "_ti_context_from_server", None), "loop", None) is not None
    return set() if is_looped else _states_of(ti)


def _states_of(ti: Any) -> set[Any]:
    """Return the state of a task in a set, which is empty if it is unknown."""
    which = {"dag_id": ti.dag_id, "task_ids": [ti.task_id], "run_ids": [ti.run_id]}
    try:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # a trigger's ti lacks the method

        found = RuntimeTaskInstance.get_task_states(**which, map_index=None if ti.map_index < 0 else ti.map_index)
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return set()
    return {state for states in found.values() for state in states.values()}


def is_away(error: Exception) -> bool:
    """
    Whether Airflow's API server did not respond, or failed. A rejected request would be rejected again.

    Every request of a task goes to the API server. During an outage, Airflow repeats a request for about ten
    seconds before it fails.
    """
    status = api_status(error)
    return status is not None and status not in range(1, 500)


def api_status(error: Exception) -> int | None:
    """Return the HTTP status with which Airflow's API server failed. 0: no answer. None: another error."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

    # In `airflow dags test`, a task gets the error of the API itself.
    if isinstance(status := getattr(getattr(error, "response", None), "status_code", None), int):
        return status
    if not isinstance(error, AirflowRuntimeError) or error.error.error != ErrorType.API_SERVER_ERROR:
        return None
    return (error.error.detail or {}).get("status_code") or 0


def push_xcom(ti: Any, key: str, value: Any) -> None:
    """Push an XCom from a trigger, whose task instance has no method for that."""
    from airflow.sdk.execution_time.xcom import XCom

    XCom.set(key, value, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index)


def read_own_xcom(ti: Any, key: str) -> Any:
    """Return an XCom of a trigger's own task, or None. Its task instance has no method for that."""
    from airflow.sdk.execution_time.xcom import XCom

    return XCom.get_one(key=key, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index)


def open_required_action(ti: Any, subject: str, body: str, options: Sequence[str], **more: Any) -> None:
    """Ask a user under Required Actions, again if there is an answer. Airflow 3.3 keeps the text of the first."""
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    upsert_hitl_detail(ti.id, options=list(options), subject=subject, body=body, **{"params": {}, **more})


def read_required_action(ti: Any) -> dict[str, Any] | None:
    """Return the response to a task's own request under Required Actions, from its trigger. None: no response."""
    from airflow.sdk.execution_time.hitl import get_hitl_detail_content_detail

    response = get_hitl_detail_content_detail(ti.id)
    if not response.response_received:
        return None
    at = response.responded_at
    return response.model_dump(mode="json") | {"responded_at": at and at.isoformat()}


def close_required_action(ti: Any, option: str) -> None:
    """Answer a task's own request under Required Actions, from its trigger."""
    from airflow.sdk.execution_time.hitl import update_hitl_detail_response

    update_hitl_detail_response(ti.id, chosen_options=[option], params_input={})


# Threads in which triggers ask Airflow, so that an Airflow that hangs stops no poll.

# A custom XCom backend may take any amount of time, and may hang.
XCOMS = Threads(8, "crew-xcom")
REQUESTS = Threads(4, "crew-request")


async def in_thread(threads: Threads, function: Callable[..., T], *args: Any, is_limited: bool = True) -> T:
    """Call a function that asks Airflow. Raise TimeoutError after a while, in which the function may run on."""
    # The triggerer of Airflow 3.1 takes requests from the threads of asgiref only. Shielded, because it would
    # confuse responses if a request was cancelled.
    call = sync_to_async(function, thread_sensitive=False, executor=threads)(*args)
    return await asyncio.wait_for(asyncio.shield(call), timing.AIRFLOW_RESPONSE if is_limited else None)
