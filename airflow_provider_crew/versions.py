"""All branches on Airflow's version and all uses of its private names, each with its reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.providers.common.compat.sdk import Context

_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])

# Airflow deletes the task state when the task is cleared, unless the user keeps it.
CLEARING_DELETES_TASK_STATE = _RELEASE >= (3, 4)
# A retry may be resumed with the event of the previous attempt: https://github.com/apache/airflow/issues/56704
_KEEPS_OLD_EVENTS = _RELEASE < (3, 2)

# The task state store outlives an attempt.
HAS_STORE = _RELEASE >= (3, 3)
HOW_TO_FORGET = (
    "on the page of {}, under Storage, Task State Store, delete crew_kickoff"
    if HAS_STORE
    else "under Admin, Variables, delete the one whose description names {}"
)
"""Instructions to delete a task's kickoff record."""
# A deferred task resumes when a user answers its request under Required Actions.
HAS_REQUIRED_ACTIONS = _RELEASE >= (3, 3)
# A trigger learns that a user has marked its task, and can cancel the execution.
TRIGGERS_CANCEL = _RELEASE >= (3, 3)

KEEP = " with 'Keep task state and resume'"
KEEPING = KEEP if CLEARING_DELETES_TASK_STATE else ""

# The scheduler sometimes fails a task that starts again within about a second of its deferral or reschedule,
# because it has not yet recorded the end of the previous process.
MIN_DEFERRAL_SECONDS = 10.0

# Method that Airflow calls if a trigger ended without an event.
TRIGGER_FAILED = "__fail__"
# States of a task whose process exists, and that has not been cleared.
_STATES_OF_ITS_OWN = frozenset({"running", "success", "failed", "up_for_retry"})
# Only clearing a task in these states runs it again. Airflow may restore a removed one.
LAST_STATES = frozenset({"success", "failed", "skipped"})


def resumed_with_old_error(next_kwargs: Mapping[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event that failed an earlier attempt."""
    return resumed_with_old_event(next_kwargs, ti) and "error" in (next_kwargs.get("event") or ())


def resumed_with_old_event(next_kwargs: Mapping[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event of an earlier attempt, instead of running it."""
    return _KEEPS_OLD_EVENTS and next_kwargs.get("try_number", ti.try_number) != ti.try_number


def lacks_event(next_kwargs: Mapping[str, Any]) -> bool:
    """Whether the task was cleared during its deferral, so that its trigger neither fired nor failed."""
    return not {"event", "error"} & next_kwargs.keys()


def trigger_timed_out(next_kwargs: Mapping[str, Any]) -> bool:
    """Whether Airflow resumed a task because no event came in time."""
    return next_kwargs.get("error") in {"Trigger timeout", "Trigger/execution timeout"}


def api_server_is_away(error: Exception) -> bool:
    """
    Whether Airflow's API server did not respond, or failed. A rejected request would be rejected again.

    Every request of a task goes to the API server. During an outage, Airflow repeats a request for about ten
    seconds before it fails.
    """
    status = _api_status(error)
    return status is not None and status not in range(1, 500)


def _api_status(error: Exception) -> int | None:
    """Return the HTTP status with which Airflow's API server failed. 0: no answer. None: another error."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

    # In `airflow dags test`, a task gets the error of the API itself.
    if isinstance(status := getattr(getattr(error, "response", None), "status_code", None), int):
        return status
    if not isinstance(error, AirflowRuntimeError) or error.error.error != ErrorType.API_SERVER_ERROR:
        return None
    return (error.error.detail or {}).get("status_code") or 0


def reads_connections_as_commands_do() -> None:
    """
    Make this process read connections as Airflow's own commands do.

    Outside a task, Airflow skips the database unless this variable is set.
    """
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"


def xcom_keys_left_behind(ti: Any) -> Sequence[str]:
    """
    Return the keys of the XComs that Airflow deleted at the start of this attempt.

    After Airflow 3.3 has replaced a process, that process can no longer write to the store, but it can push XComs.
    """
    from_server: Any = getattr(ti, "_ti_context_from_server", None)
    return (from_server and from_server.xcom_keys_to_clear) or ()


def was_rescheduled(ti: Any) -> bool:
    """Whether this attempt has run before. Airflow 3.1 and 3.2 restart an attempt whose DAG cannot be loaded."""
    from_server: Any = getattr(ti, "_ti_context_from_server", None)
    return bool(from_server and from_server.task_reschedule_count)


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
    """
    Return the state of a task in a set, which may be empty if the task has not ended.

    In a task loop, Airflow 3.4 reports the state of the latest iteration, which may not be this one.
    """
    if getattr(getattr(ti, "_ti_context_from_server", None), "loop", None) is None:
        return _states_of(ti)
    own = (ti.task_id, str(ti.region_id), ti.region_index)
    try:
        ends = ti.get_task_breadcrumbs(ti.dag_id, ti.run_id)
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return set()
    return {it["state"] for it in ends if (it["task_id"], it.get("region_id"), it.get("region_index")) == own}


def _states_of(ti: Any) -> set[Any]:
    """Return the state of a task in a set, which is empty if it is unknown."""
    which = {"dag_id": ti.dag_id, "task_ids": [ti.task_id], "run_ids": [ti.run_id]}
    try:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # a trigger's ti lacks the method

        found = RuntimeTaskInstance.get_task_states(**which, map_index=None if ti.map_index < 0 else ti.map_index)
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return set()
    return {state for states in found.values() for state in states.values()}


def _send(request: str, **fields: Any) -> Any:
    """Send a request to the API server through the supervisor. Airflow's own functions do more, or hide errors."""
    from airflow.sdk.execution_time import comms, task_runner

    return task_runner.SUPERVISOR_COMMS.send(getattr(comms, request)(**fields))


def start_run(dag_id: str, run_id: str, conf: dict[str, Any]) -> bool:
    """
    Start a run of a DAG. Return whether it is the first one with this ID.

    This is the only request of a task that fails if another task was faster, because run IDs are unique in
    Airflow's database. Variables, XComs and task states are overwritten.
    """
    answer = _send("TriggerDagRun", dag_id=dag_id, run_id=run_id, conf=conf)
    return bool(answer.type != "ErrorResponse")


def conf_of_run(dag_id: str, run_id: str) -> dict[str, Any] | None:
    """Return the configuration of a DAG run."""
    if not HAS_STORE:  # such a run counts one kickoff
        return None
    conf: dict[str, Any] | None = _send("GetDagRun", dag_id=dag_id, run_id=run_id).conf
    return conf


def refuses_runs(error: Exception) -> bool:
    """Whether Airflow rejects runs of a DAG, because it is missing or cannot be loaded."""
    return _api_status(error) is not None and not api_server_is_away(error)


def never_expires() -> dict[str, Any]:
    """Return the arguments that keep a store entry as long as its run. Airflow deletes other entries earlier."""
    if not HAS_STORE:
        return {}
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    return {"retention": NEVER_EXPIRE}


def keeps_record(durable: bool) -> bool:  # noqa: FBT001 - the operator's own argument
    """Whether attempts of a task share a kickoff record."""
    return durable and (HAS_STORE or conf.getboolean("crew", "kickoff_records_in_variables", fallback=False))


def variable(name: str) -> str | None:
    """
    Return a variable from Airflow's database, or None if it does not exist.

    Airflow's own API asks other backends first, and reports a missing variable even if the request failed.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

    answer = _send("GetVariable", key=name)
    if answer.type != "ErrorResponse":
        return str(answer.value)
    if answer.error == ErrorType.VARIABLE_NOT_FOUND:
        return None
    raise AirflowRuntimeError(answer)


def set_variable(name: str, value: str, about: str) -> None:
    """Set a variable in Airflow's database, even if another backend has a variable of that name."""
    _send("PutVariable", key=name, value=value, description=about)


def delete_variable(name: str) -> None:
    """Delete a variable from Airflow's database, if it exists."""
    _send("DeleteVariable", key=name)


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


def close_required_action(ti: Any, option: str) -> None:
    """Answer a task's own request under Required Actions, from its trigger."""
    from airflow.sdk.execution_time.hitl import update_hitl_detail_response

    update_hitl_detail_response(ti.id, chosen_options=[option], params_input={})


def change_xcom(task: Mapping[str, Any], key: str, change: Callable[[Any], Any]) -> None:
    """
    Change an XCom of a running or deferred task, and delete the task's request under Required Actions.

    Only a plugin in the API server may call this, because it uses Airflow's database. The request is deleted
    because Airflow 3.3 would keep its text.

    :param task: Columns that identify the task instance, or instead the name and value of one of its XComs.
    :param change: Takes the XCom, or None if there is no such task. Returns None to change nothing.
    """
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from airflow.utils.state import State
    from sqlalchemy import delete, select

    names = ("dag_id", "run_id", "task_id", "map_index")
    goes_on = TaskInstance.state.in_(State.unfinished - {None, "up_for_retry"})
    with create_session() as session:
        if len(task) == 1:
            ((name, value),) = task.items()
            pushed = session.scalars(select(XComModel).join(XComModel.task).where(XComModel.key == name, goes_on))
            its = next((each for each in pushed if each.value == value), None)
            task = {each: getattr(its, each, None) for each in names}
        # Locked, so that two deliveries change it one after the other.
        instances = session.scalars(
            select(TaskInstance.id).filter_by(**task).where(goes_on).with_for_update()
        ).all()
        its_xcom = select(XComModel).filter_by(key=key, **task)
        is_one = len(instances) == 1  # a task loop has more
        found = session.scalars(its_xcom).first() if is_one else None
        if (changed := change(found and found.value)) is not None:
            XComModel.set(key, changed, **task, serialize=False, session=session)
            session.execute(delete(HITLDetail).where(HITLDetail.ti_id == instances[0]))


def call_on_success(operator: Any, note: Callable[[], None]) -> None:
    """
    Call a function as soon as Airflow has recorded the success of the task, when success callbacks run.

    Call this while the task runs, so that neither a cluster policy nor an assignment replaces the list. The
    callback is the first, so it does not depend on the author's callbacks.
    """
    own = operator.on_success_callback or []
    own = [*own] if isinstance(own, Sequence) else [own]
    operator.on_success_callback = [lambda _: note(), *own]


def task_states(context: Context) -> dict[tuple[str, int], str]:
    """Return the states of a run by task ID and map index, for a callback. Empty if they are unreadable."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    tasks, run_id = context["dag"].task_dict, context["run_id"]
    try:
        named = RuntimeTaskInstance.get_task_states(dag_id=context["dag"].dag_id, run_ids=[run_id])[run_id]
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return {}
    states = {}
    for name, state in named.items():
        task_id, _, index = name.rpartition("_")  # Airflow appends the map index to the name of a mapped task
        is_mapped = name not in tasks and index.isdigit()
        states[(task_id, int(index)) if is_mapped else (name, -1)] = state
    return states


def read_xcom(context: Context, task_id: str, map_index: int, key: str) -> Any:
    """Return an XCom of a task, for a callback. None if there is none or it is unreadable."""
    from airflow.providers.common.compat.sdk import XCom

    dag_id, run_id = context["dag"].dag_id, context["run_id"]
    try:
        return XCom.get_one(key=key, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return None


def read_xcoms(context: Context, task_id: str, key: str) -> list[Any]:
    """Return the XComs of all rows of a mapped task, for a callback. Empty if they are unreadable."""
    from airflow.providers.common.compat.sdk import XCom

    dag_id, run_id = context["dag"].dag_id, context["run_id"]
    try:
        return list(XCom.get_all(key=key, dag_id=dag_id, run_id=run_id, task_id=task_id) or ())
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return []


def is_traced() -> bool:
    """Whether this process has a tracer. Airflow 3.1 sets none in a task's process. This imports nothing."""
    api = sys.modules.get("opentelemetry.trace")
    none = (api.ProxyTracerProvider, api.NoOpTracerProvider) if api else ()
    return api is not None and not isinstance(api.get_tracer_provider(), none)
