"""Every branch on Airflow's version and every private name of Airflow, each with its reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context

_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])

IS_AIRFLOW_2 = _RELEASE < (3,)
# In Airflow 2's form the button Test breaks off with an error in the page while the field Extra is hidden.
HIDES_EXTRA = not IS_AIRFLOW_2
# The page of a task instance has room for the tabs of others.
HAS_TABS = _RELEASE >= (3, 1)
# How long before Airflow's own end of a task its wait ends, which says what goes on. Airflow 2 enforces
# execution_timeout while a task is deferred, and then needs time to resume it.
TIME_TO_SAY_SO = 60.0 if IS_AIRFLOW_2 else 2.0
# It forgets what a task remembers whenever the task is cleared, unless the person who does so keeps it.
FORGETS_AT_CLEAR = _RELEASE >= (3, 4)
# Its wrapper of decorated tasks looks for a method of that name, and never calls it.
ASKS_FOR_XCOM_PUSH = _RELEASE == (3, 0)
# There a retry may be resumed with the event of the try before: https://github.com/apache/airflow/issues/56704
_KEEPS_OLD_EVENTS = (3,) <= _RELEASE < (3, 2)

# It has a store of task states, which outlives a try.
_HAS_STORE = _RELEASE >= (3, 3)
HOW_TO_FORGET = (
    "on the page of {}, under Storage, Task State Store, delete crew_kickoff"
    if _HAS_STORE
    else "under Admin, Variables, delete the one whose description names {}"
)
"""What somebody does who wants a task to forget its kickoff."""
# Its triggers may leave XComs, and its pages can show what they leave.
SHOWS_PROGRESS = _RELEASE >= (3, 1)
# There a thread that asks Airflow for something mixes up what all others in its process are answered.
_ASKS_IN_ONE_THREAD = _RELEASE < (3, 2)

KEEPING = " with 'Keep task state'" if FORGETS_AT_CLEAR else ""
CLEARING = f"clearing it{KEEPING}"

# A task that starts again within a second or so of its deferral, or of its reschedule, is sometimes failed by
# Airflow's scheduler: it has not yet taken note that the process before has ended.
SETTLING_TIME = 10.0

# What Airflow calls when a trigger has ended without an event.
_RESUMED_WITHOUT_EVENT = "__fail__"
# States of a task whose process is there, and that nobody has cleared.
_STATES_OF_ITS_OWN = frozenset({"running", "success", "failed", "up_for_retry"})
_TRIGGER_TIMED_OUT = frozenset({"Trigger timeout", "Trigger/execution timeout"})


def resumed_with_old_error(next_kwargs: dict[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event that an earlier try has failed for."""
    return resumed_with_old_event(next_kwargs, ti) and "error" in (next_kwargs.get("event") or ())


def resumed_with_old_event(next_kwargs: dict[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event of an earlier try, instead of running it."""
    return _KEEPS_OLD_EVENTS and next_kwargs.get("try_number", ti.try_number) != ti.try_number


def lacks_event(next_method: str, next_kwargs: Mapping[str, Any]) -> bool:
    """Whether the task was cleared in the very moment of its deferral: its trigger neither fired nor failed."""
    return next_method != _RESUMED_WITHOUT_EVENT and "event" not in next_kwargs


def trigger_timed_out(next_kwargs: Mapping[str, Any]) -> bool:
    """Whether Airflow has resumed a task because no event came in time."""
    return next_kwargs.get("error") in _TRIGGER_TIMED_OUT


def api_server_is_away(error: Exception) -> bool:
    """
    Whether Airflow's API server did not answer, or failed. What it refuses, it refuses again.

    Everything that a task of Airflow 3 asks of Airflow goes there. While it is away Airflow repeats a request for
    about ten seconds, and then fails it.
    """
    if IS_AIRFLOW_2:
        return False
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

    if not isinstance(error, AirflowRuntimeError) or error.error.error != ErrorType.API_SERVER_ERROR:
        return False
    status = (error.error.detail or {}).get("status_code")
    return status is None or status >= 500  # noqa: PLR2004 - the server's own failures


def denies_connection(conn_id: str) -> bool:
    """Whether there is no such connection; Airflow 3 says that there is none also when it could not ask."""
    try:
        from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS
    except ImportError:  # Airflow 2, or not in a task
        return True
    try:
        answer = SUPERVISOR_COMMS.send(GetConnection(conn_id=conn_id))
    except Exception as error:  # noqa: BLE001 - whatever else it is, Airflow's own answer stands
        return not api_server_is_away(error)
    return isinstance(answer, ErrorResponse)


def backend_may_hold(conn_id: str) -> bool:
    """
    Whether a secrets backend, asked once more, holds a connection, or fails to say.

    When it fails, Airflow only logs that, and says that there is no such connection.
    """
    from airflow.configuration import get_custom_secret_backend

    try:
        backend = get_custom_secret_backend(**({} if IS_AIRFLOW_2 else {"worker_mode": True}))
        return backend is not None and backend.get_connection(conn_id=conn_id) is not None
    except NotImplementedError:  # it holds something else
        return False
    except Exception:  # noqa: BLE001 - what it says may hold a secret
        return True


def reads_connections_as_commands_do() -> None:
    """
    Have this process read connections as Airflow's own commands do.

    Outside of a task, Airflow 3.1 and newer leave out their database, unless this says otherwise.
    """
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"


def broken_source_of(conn_id: str) -> str:
    """
    Name what broke while a command looked for a connection that no other source has; empty when nothing did.

    Airflow only logs that, and says that there is no such connection. What the error says may hold a secret.
    """
    from airflow.configuration import ensure_secrets_loaded

    broken = ""
    for source in ensure_secrets_loaded():
        try:
            found = source.get_connection(conn_id=conn_id)
            if found and found.get_uri():  # which needs the key of Airflow's database
                return ""
        except Exception as error:  # noqa: BLE001 - whatever it is
            broken = f"{type(source).__name__} raised {type(error).__name__}"
    return broken


def xcom_keys_left_behind(ti: Any) -> Sequence[str]:
    """
    Return the keys of the XComs that Airflow 3 has deleted at the beginning of this try.

    A process that Airflow 3.3 has cleared away may write no more to the store, but it may push XComs.
    """
    from_server: Any = getattr(ti, "_ti_context_from_server", None)
    return (from_server and from_server.xcom_keys_to_clear) or ()


def was_rescheduled(ti: Any) -> bool:
    """Whether this very try has run before: Airflow 3.1 and 3.2 begin one anew whose DAG cannot be loaded."""
    from_server: Any = getattr(ti, "_ti_context_from_server", None)
    return bool(from_server and from_server.task_reschedule_count)


def was_changed_from_outside(ti: Any) -> bool:
    """Whether somebody has marked or cleared the task. On Airflow 2 that ends it with an exception."""
    return hasattr(ti, "current_state") and ti.current_state() != "running"


def is_cleared_meanwhile(ti: Any) -> bool:
    """Whether somebody has cleared the task while this process runs. When Airflow does not say, it is not."""
    which = {"dag_id": ti.dag_id, "task_ids": [ti.task_id], "run_ids": [ti.run_id]}
    try:
        found = ti.get_task_states(**which, map_index=None if ti.map_index < 0 else ti.map_index)
    except Exception:  # noqa: BLE001 - then it is not known, and as likely as ever
        return False
    return any(state not in _STATES_OF_ITS_OWN for states in found.values() for state in states.values())


def has_run(ti: Any, dag_id: str, run_id: str) -> bool:
    """Whether a DAG has a run of that name."""
    if IS_AIRFLOW_2:
        from airflow.models.dagrun import DagRun

        return bool(DagRun.find(dag_id=dag_id, run_id=run_id))
    return bool(ti.get_dr_count(dag_id=dag_id, run_ids=[run_id]))


def start_run(dag_id: str, run_id: str, conf: dict[str, Any]) -> bool:
    """
    Start a run of a DAG; return whether it is the first one of that name.

    Of all that a task can ask of Airflow, only this is told no when another was faster: Airflow's database has a
    name once. Variables, XComs and the stores of states are overwritten.
    """
    if IS_AIRFLOW_2:
        return _start_run_of_airflow_2(dag_id, run_id, conf)
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    answer = SUPERVISOR_COMMS.send(TriggerDagRun(dag_id=dag_id, run_id=run_id, conf=conf))
    return not isinstance(answer, ErrorResponse)


def _start_run_of_airflow_2(dag_id: str, run_id: str, conf: dict[str, Any]) -> bool:
    from airflow.api.common.trigger_dag import trigger_dag

    try:
        trigger_dag(dag_id, run_id=run_id, conf=conf, replace_microseconds=False)  # type: ignore[call-arg]
    except Exception:
        if has_run(None, dag_id, run_id):  # found before, or by the database just now
            return False
        raise
    return True


def refuses_runs(error: Exception) -> bool:
    """Whether Airflow will not start runs of a DAG: it knows none of that name, or cannot load it."""
    if IS_AIRFLOW_2:
        from airflow.exceptions import DagNotFound

        return isinstance(error, DagNotFound)
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

    is_answer = isinstance(error, AirflowRuntimeError) and error.error.error == ErrorType.API_SERVER_ERROR
    return is_answer and not api_server_is_away(error)


def never_expires() -> dict[str, Any]:
    """Return how to keep an entry of the store for as long as its run: Airflow deletes others after a while."""
    if not _HAS_STORE:
        return {}
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    return {"retention": NEVER_EXPIRE}


def variable(name: str) -> str | None:
    """
    Return a variable of Airflow's database, None when there is none.

    Airflow's own way to read one asks other backends first, and says that there is none
    also when it could not ask.
    """
    if IS_AIRFLOW_2:
        from airflow.models import Variable
        from airflow.utils.session import create_session

        with create_session() as session:
            found = session.query(Variable).filter_by(key=name).one_or_none()  # noqa: AIR311 - Airflow 2's
            return found.val if found else None
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    answer: Any = SUPERVISOR_COMMS.send(GetVariable(key=name))
    if not isinstance(answer, ErrorResponse):
        return str(answer.value)
    if answer.error == ErrorType.VARIABLE_NOT_FOUND:
        return None
    raise AirflowRuntimeError(answer)


def set_variable(name: str, value: str, about: str) -> None:
    """Set a variable of Airflow's database, whatever other backends know by that name."""
    if IS_AIRFLOW_2:
        from airflow.models import Variable

        Variable.set(name, value, about)  # noqa: AIR311 - Airflow 2's
        return
    from airflow.sdk.execution_time.comms import PutVariable
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    SUPERVISOR_COMMS.send(PutVariable(key=name, value=value, description=about))


def delete_variable(name: str) -> None:
    """Delete a variable of Airflow's database, if it is there."""
    if IS_AIRFLOW_2:
        from airflow.models import Variable

        Variable.delete(name)  # noqa: AIR311 - Airflow 2's
        return
    from airflow.sdk.execution_time.comms import DeleteVariable
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    SUPERVISOR_COMMS.send(DeleteVariable(key=name))


def leaves_progress() -> bool:
    """Whether XComs may be left beside what a process does: the backend encodes them in a thread of its own."""
    if not (SHOWS_PROGRESS and _ASKS_IN_ONE_THREAD):
        return SHOWS_PROGRESS
    from airflow.sdk.bases.xcom import BaseXCom
    from airflow.sdk.execution_time.xcom import XCom

    # A backend of somebody's own may ask for a connection.
    return XCom.serialize_value is BaseXCom.serialize_value


def encoded_xcom(ti: Any, key: str, value: Any) -> Any:
    """Return what the XCom backend makes of a value. A custom one may take as long as it likes."""
    from airflow.sdk.execution_time.xcom import XCom

    return XCom.serialize_value(
        value, key=key, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index
    )


def leave_encoded_xcom(ti: Any, key: str, encoded: Any) -> None:
    """Leave in XCom what the backend has made of a value: Airflow itself would do both in one."""
    from airflow.sdk.bases.xcom import BaseXCom

    class Encoded(BaseXCom):
        @staticmethod
        def serialize_value(value: Any, **_: Any) -> Any:
            return value

    Encoded.set(key, encoded, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index)


def first_poke(context: Context) -> float:
    """Return when the first poke of this try began, which Airflow 2 has another place for."""
    ti: Any = context["ti"]
    if hasattr(ti, "get_first_reschedule_date"):
        first = ti.get_first_reschedule_date(context)
    else:
        from airflow.sensors.base import _orig_start_date

        first = _orig_start_date(ti.dag_id, ti.task_id, ti.run_id, ti.map_index, ti.try_number)
    return float((first or ti.start_date).timestamp())


def note_when_delivered(operator: Any) -> None:
    """
    Have a delivery recorded as soon as Airflow has noted the success of the task.

    On Airflow 3 the success callbacks come next. This is called after the author's code, so neither a cluster
    policy nor an assignment replaces the list any more. First in it, the note does not depend on the author's
    callbacks. On Airflow 2 callbacks come before the success is noted: there, a listener records the delivery.
    """
    if not IS_AIRFLOW_2:
        own = operator.on_success_callback or []
        own = [*own] if isinstance(own, Sequence) else [own]
        operator.on_success_callback = [lambda _: operator.note_crew_delivery(), *own]


def reads_names(dag: Any) -> bool:
    """Whether Airflow makes what a map_index_template says a value of Python, and perhaps no text."""
    return bool(dag.render_template_as_native_obj) and _RELEASE < (3, 4)


def show_name(ti: Any, name: str) -> None:
    """Have a mapped task called by its name already while it is deferred, where Airflow takes that (2.11, 3.2)."""
    if getattr(ti, "rendered_map_index", None) == name:
        return
    ti.rendered_map_index = name
    try:
        from airflow.sdk.execution_time.comms import SetRenderedMapIndex
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS
    except ImportError:  # before 3.2, or not in a task
        return
    SUPERVISOR_COMMS.send(SetRenderedMapIndex(rendered_map_index=name))


def asset_kinds() -> tuple[type, ...]:
    """Return the kinds of outlets that are assets. Airflow 2 calls them datasets, and has no references."""
    from airflow.providers.common.compat.sdk import Asset

    if IS_AIRFLOW_2:
        return (Asset,)
    from airflow.sdk.definitions.asset import AssetRef

    return (Asset, AssetRef)


def take_time_limit(operator: Any) -> timedelta | None:
    """
    Return the operator's execution_timeout, for the task to keep it by itself where Airflow would not let it.

    Airflow 2 fails a task that resumes too late before the task could say anything; a retry would start, and pay
    for, another execution.
    """
    limit: timedelta | None = operator.execution_timeout
    if IS_AIRFLOW_2:
        operator.execution_timeout = None
    return limit
