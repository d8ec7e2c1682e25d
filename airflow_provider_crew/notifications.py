"""Alerts about crew tasks that fail, for the callbacks of DAGs and tasks."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from airflow.providers.common.compat.sdk import BaseNotifier, XCom, context_merge, redact

from airflow_provider_crew.client.errors import Cost, CrewError, recorded_error
from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.exceptions import EndedTask
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.task.record import KICKOFF_ID
from airflow_provider_crew.task.result import RETURN_VALUE
from airflow_provider_crew.task.verdict import AFTER_REMOVAL, AFTER_UPSTREAM, UNREPORTED, command
from airflow_provider_crew.triggers.events import DEFERRAL
from airflow_provider_crew.versions import HAS_STORE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

# XCom key of the subject, which a task pushes once its channel has the alert.
SENT = "crew_alert"
# Seconds for the reads of all alerts of a process. Airflow kills a DAG processor after 50, with its other alerts.
# The first read of a DAG processor took 15 on a busy machine.
_TIME_TO_READ = 25.0
# Failures that an alert describes. It counts the others.
_MOST_DESCRIBED = 20
_LOST = "The task was cleared, or its process was killed or lost."
# What has happened to a task that has not reported its end, by its state.
_EVENTS = {
    "failed": "The task failed without a report: its process was lost, a user marked it, or its own code failed.",
    "skipped": "The task was skipped before the execution ended: by dagrun_timeout, fail_fast, or a user.",
    "upstream_failed": "The task did not run because an upstream task failed.",
    "success": "The task was marked as successful while it waited.",
    "removed": "The task was removed from the run while it waited: its mapped list, or the DAG, has changed.",
}


class CrewAlert(BaseNotifier):
    """
    Callback that sends the event, the cost, the next step and the links of crew tasks that failed.

    For a task, it sends an alert about that task at once. For a DAG, it sends one alert about all crew tasks that
    failed in the run and have not sent their own. That includes tasks whose process was killed, or that
    ``dagrun_timeout`` stopped: Airflow may not call their callbacks.

    As ``on_success_callback``, it reports a batch that succeeded with uncertain or running rows. It ignores tasks
    without a crew, and never waits: Airflow runs the callbacks of a DAG file one after the other, and parses it
    after that.

    :param channel: Function that sends a subject and a text, or an Airflow notifier whose templates contain
        ``{{ crew_alert.subject }}`` and ``{{ crew_alert.text }}``.
    """

    def __init__(self, channel: Callable[[str, str], Any] | BaseNotifier) -> None:
        super().__init__()
        self.channel = channel

    def __call__(self, context: Context) -> None:
        """Send the alert. The base class would render templates, which fails in ``dag.test()``."""
        self.notify(context)

    def notify(self, context: Context) -> None:
        """Send the alert."""
        found = _failures_of_run(context) if "reason" in context else _failures_of_task(context)
        if not (failures := [each for each in found if each]):
            return
        subject, text = _message(context, failures)
        if isinstance(self.channel, BaseNotifier):
            context_merge(context, {"crew_alert": {"subject": subject, "text": text}})
            copy.copy(self.channel)(context)  # a notifier replaces its templates with the rendered values
        else:
            self.channel(subject, text)
        # Only now, because the process may be killed while it sends. The DAG's alert then reports the task.
        ti: Any = context.get("ti")
        # A push from the DAG processor would never return. There is no exception, not even None.
        if "reason" not in context and "exception" in context and ti.state in {"failed", "success"}:
            with suppress(Exception):
                ti.xcom_push(key=SENT, value=subject)


class _Failure(NamedTuple):
    task: str
    error: CrewError
    more: Sequence[str] = ()
    is_being_cancelled: bool = False
    is_unread: bool = False


def _message(context: Context, failures: Sequence[_Failure]) -> tuple[str, str]:
    """Return the subject and the text of an alert."""
    failures = sorted(failures, key=lambda failure: (failure.is_unread, failure.error.cost.rank))
    tasks = failures[0].task if len(failures) == 1 else f"{len(failures)} crew tasks"
    worst = min((failure.error.cost for failure in failures), key=lambda cost: cost.rank)
    kind = "being cancelled" if all(each.is_being_cancelled for each in failures) else worst
    page = getattr(context.get("ti"), "log_url", None) or ""
    page = page.partition("/tasks/")[0] if "reason" in context else page
    text = ["\n".join([f"{each.task}: {_shown(each.error)}", *each.more]) for each in failures[:_MOST_DESCRIBED]]
    if len(failures) > _MOST_DESCRIBED:
        text.append(f"Further failed tasks: {len(failures) - _MOST_DESCRIBED}.")
    subject = f"[{kind}] {context['dag'].dag_id}: {tasks} in {context['run_id']}"
    return str(redact(subject)), str(redact("\n\n".join([*text, page]).strip()))


def _shown(error: CrewError) -> str:
    return error.story if type(error) is CrewError else str(error)  # no page tells more about that class


def _exception(context: Context) -> BaseException | None:
    found = context.get("exception")
    return found if isinstance(found, BaseException) else None


def _fields(context: Context, task_id: str) -> Sequence[str]:
    return getattr(context["dag"].task_dict.get(task_id), "template_fields", ())


def _conn_id(context: Context, task_id: str) -> str:
    """Return the connection of a task, or a placeholder if it is mapped or a template."""
    own = getattr(context.get("ti"), "task", None)  # rendered, if it is this task
    task = own if getattr(own, "task_id", None) == task_id else context["dag"].task_dict.get(task_id)
    conn_id = getattr(task, "crew_conn_id", getattr(task, "partial_kwargs", {}).get("crew_conn_id"))
    return conn_id if isinstance(conn_id, str) and "{{" not in conn_id else "CONN_ID"


def _failures_of_task(context: Context) -> list[_Failure | None]:
    ti: Any = context["ti"]
    state = ti.state or _state_of_lost(context)
    is_run = state == "success" and "result_path" not in _fields(context, ti.task_id)
    is_left = is_run or _is_left_to_dag(context, state)
    return [] if is_left else [_failure(context, ti.task_id, ti.map_index, state)]


def _state_of_lost(context: Context) -> str:
    """Return the state of a task whose process was lost. A DAG processor calls its callback, without ti.state."""
    ti: Any = context["ti"]
    state = task_states(context).get((ti.task_id, ti.map_index), "running")
    if state == "running":  # Airflow is about to fail the task, or a user has cleared it and it runs again
        runs_again = ti.try_number <= ti.max_tries or getattr(context.get("dag_run"), "clear_number", 0)
        return "up_for_retry" if runs_again else "failed"
    return state or ""


def _is_left_to_dag(context: Context, state: str) -> bool:
    """Whether the DAG's alert reports a task: Airflow has ended it, or has lost its process."""
    ti, own = cast("Any", context["ti"]), context["dag"].on_failure_callback
    if not any(isinstance(each, CrewAlert) for each in (own if isinstance(own, Sequence) else [own])):
        return False
    if not _exception(context):  # Airflow may call the callback of a lost process twice, and that of its DAG once
        return state == "failed"
    is_told_to_end = getattr(ti.task, "is_told_to_end", False)
    return is_told_to_end and task_states(context).get((ti.task_id, ti.map_index)) in {"failed", "skipped"}


def _failures_of_run(context: Context) -> list[_Failure | None]:
    states = task_states(context)
    if not states and context["reason"] != "success":
        event = "Airflow did not return the states of the tasks."
        return [_Failure("crew tasks", CrewError(event, next_step="Check each failed crew task of the run."))]
    found = list[_Failure | None]()
    # Another task may be an agent that called a crew, which only its XComs show.
    for task_id, index in sorted(states, key=lambda each: "crew_conn_id" not in _fields(context, each[0])):
        state, fields = states[task_id, index], _fields(context, task_id)
        may_report = (
            state in {"failed", "removed"}
            or (state == "skipped" and ("crew_conn_id" in fields or context["reason"] == "timed_out"))
            or {"success": "result_path", "upstream_failed": "kickoff_id"}.get(state) in fields
        )
        if may_report and _has_time():
            found.append(_failure(context, task_id, index, state))
        elif may_report and "crew_conn_id" in fields:
            unread = CrewError("There was no time to read how the task ended.", next_step=UNREPORTED)
            found.append(_Failure(_name(task_id, index), unread, is_unread=True))
    return found


def _failure(context: Context, task_id: str, map_index: int, state: str) -> _Failure | None:
    """Return the failure of a task. None if it has no crew, or nothing to report, or has sent its own alert."""
    if left := _left_to_sensor(context, task_id, map_index, state):
        which = one_line(", ".join(left), 1_000)
        left_over = CrewError(_EVENTS[state], cost=Cost.RUNNING, next_step=AFTER_UPSTREAM, kickoff_id=which)
        return _Failure(_name(task_id, map_index), left_over)
    if state == "upstream_failed":  # a cleared task keeps its XComs until it runs again
        return None
    read: Callable[[str], Any] = partial(read_xcom, context, task_id, map_index)
    progress, is_of_run = read(PROGRESS) or {}, "reason" in context
    is_crew_task, batch = "crew_conn_id" in _fields(context, task_id), progress.get("batch") or {}
    # That of an agent may be from an earlier call.
    kickoff_id = progress.get("kickoff_id") or (is_crew_task and not batch and read(KICKOFF_ID)) or ""
    error = _reported(_exception(context), progress.get("end") or {}, kickoff_id)
    is_silent = not (progress or error or is_crew_task) or _has_ended_well(state, progress, kickoff_id, read)
    if is_silent or (is_of_run and read(SENT)):
        return None
    # A trigger that has not polled yet never learns that Airflow has ended its task.
    deferral = read(DEFERRAL) if is_of_run and progress and not error and state != "removed" else None
    is_being_cancelled = deferral is not None and (progress.get("polled_at") or 0.0) > deferral
    error = error or _unreported(context, progress, state, is_being_cancelled=is_being_cancelled)
    error = error if error.kickoff_id else error.replace(kickoff_id=kickoff_id)
    spent = [f"{batch[name]:,} {name}" for name in ("executions", "tokens") if batch.get(name)]
    more = [f"Batch: {', '.join([progress['doing'], *spent])}."] if batch else []
    can_adopt = HAS_STORE and is_crew_task and "kickoff_id" not in _fields(context, task_id)
    if can_adopt and error.cost is Cost.UNKNOWN and " adopt " not in error.next_step:
        more += _adopting(context, task_id, map_index, error.kickoff_id, batch)
    if error.kickoff_id and (dashboard := read(DASHBOARD_KEY)):
        more.append(f"Dashboard: {dashboard}")
    own = {} if is_of_run else cast("dict[str, Any]", context)
    loop, row = own.get("loop"), getattr(own.get("ti"), "rendered_map_index", None)  # the first in Airflow 3.4
    names = [loop and f"iteration {loop.index}", row]
    return _Failure(_name(task_id, map_index, ", ".join(filter(None, names))), error, more, is_being_cancelled)


def _has_ended_well(state: str, progress: Any, kickoff_id: str, read: Callable[[str], Any]) -> bool:
    """Whether a task that has not failed skips itself, has started nothing, or is over."""
    if state not in {"skipped", "removed", "success"}:
        return False
    if end := progress.get("end"):
        return bool(state == "removed" or end.get("action") == "skip")
    is_over = progress.get("state") == "completed" or read(RETURN_VALUE) is not None
    return is_over or not (kickoff_id or progress.get("batch"))


def _left_to_sensor(context: Context, task_id: str, index: int, state: str) -> list[str]:
    """Return the executions that kickoff tasks started for a sensor that has not run."""
    reason: Any = context.get("reason", "success")
    is_stopped = reason == "timed_out" or (reason != "success" and getattr(context["dag"], "fail_fast", False))
    has_not_run = state == "upstream_failed" or (state == "skipped" and is_stopped)
    if not has_not_run or "kickoff_id" not in _fields(context, task_id):
        return []
    tasks, states, found = context["dag"].task_dict, task_states(context), list[Any]()
    ended = {each for each, state in states.items() if state in {"success", "failed"}}
    sensors = [other for other in tasks if "kickoff_id" in _fields(context, other) and (other, index) in ended]
    waited_for = set[str]().union(*(_kickoffs_for(tasks, other) for other in sensors))
    which = {"dag_id": context["dag"].dag_id, "run_id": context["run_id"], "key": KICKOFF_ID}
    for name in sorted(_kickoffs_for(tasks, task_id) & {other for other, _ in ended} - waited_for):
        # The rows of a mapped sensor exist only if all those of its kickoff task have succeeded.
        rows = _answer(lambda: list(XCom.get_all(task_id=name, **which) or ())) if index < 0 else []  # noqa: B023
        found += rows or [read_xcom(context, name, index, KICKOFF_ID)]
    own = read_xcom(context, task_id, index, PROGRESS) if state == "skipped" else None
    return [] if own and own.get("kickoff_id") in found else [each for each in found if each]


def _kickoffs_for(tasks: Mapping[str, Any], sensor: str) -> set[str]:
    """Return the kickoff tasks directly upstream of a sensor, or else those whose ID its template may name."""
    kinds = {name: getattr(task, "operator_class", type(task)) for name, task in tasks.items()}
    kickoffs = {name for name, kind in kinds.items() if issubclass(kind, CrewKickoffOperator)}
    direct: set[str] = tasks[sensor].upstream_task_ids & kickoffs
    return direct or tasks[sensor].get_flat_relative_ids(upstream=True) & kickoffs


def _adopting(context: Context, task_id: str, index: int, kickoff_id: str, batch: Mapping[str, Any]) -> list[str]:
    """Return the commands that give a task the executions of its uncertain kickoffs."""
    where = context["dag"].dag_id, context["run_id"], task_id, index
    found = [kickoff_id or "KICKOFF_ID", "--conn-id", _conn_id(context, task_id)]
    uncertain = [group["keys"] for group in batch.get("reasons", ()) if group["status"] == "uncertain"]
    rows = [[f"--row={key}"] for keys in uncertain for key in keys] if batch else [[]]
    return [f"Adopt: {command('adopt', where, *found, *row)}" for row in rows]


def _name(task_id: str, map_index: int, row: str | None = None) -> str:
    number = f"[{map_index}]" if map_index >= 0 else ""
    return f"{task_id}{number} ({one_line(row, 100)})" if row else f"{task_id}{number}"


def _reported(exception: BaseException | None, end: Mapping[str, Any], kickoff_id: str) -> CrewError | None:
    """Return the reported error of a task. The callbacks of a DAG and of a killed task receive no exception."""
    ended_by = exception.failure if isinstance(exception, EndedTask) else exception
    errors = [ended_by] if isinstance(ended_by, CrewError) else []
    match end:
        case {"error": str(kind), "event": str(event), "cost": cost, "next_step": str(step)}:
            facts = {"at": end.get("at", ""), "cost": cost, "next_step": step, "kickoff_id": kickoff_id}
            errors.append(recorded_error({"kind": kind, "message": event, "facts": facts}))
    # A parallel call of an agent may have ended after the one that failed the task.
    return min(errors, key=lambda error: error.cost.rank, default=None)


def _unreported(context: Context, progress: Any, state: str, *, is_being_cancelled: bool) -> CrewError:
    """Return the error of a task that has not reported its end, with the last sentences that it has pushed."""
    event, lost = _EVENTS.get(state, _LOST), progress.get("if_lost") or {}
    cost, step = Cost(lost.get("cost", Cost.UNKNOWN)), lost.get("next_step", UNREPORTED)
    if exception := _exception(context):
        event = f"The task raised {type(exception).__name__}: {one_line(str(exception), 1_000)}"
    if is_being_cancelled:
        event, cost, step = f"{event} The task's executions are being cancelled.", Cost.RUNNING, UNREPORTED
    return CrewError(event, cost=cost, next_step=AFTER_REMOVAL if state == "removed" else step)


def task_states(context: Context) -> dict[tuple[str, int], str]:
    """Return the states of a run by task ID and map index, for a callback. Empty if they are unreadable."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    dag_id, tasks, run_id = context["dag"].dag_id, context["dag"].task_dict, context["run_id"]

    def states_of(*only: str) -> dict[tuple[str, int], str]:
        ask = partial(RuntimeTaskInstance.get_task_states, dag_id=dag_id, run_ids=[run_id])
        found = (_answer(partial(ask, task_ids=[*only] or None)) or {}).get(run_id, {})
        return {_instance(name, only or tasks): state for name, state in found.items()}

    states = states_of()
    for name in tasks:
        if (mapped := _instance(name)[0]) != name and mapped in tasks:  # both may have the same name
            states |= states_of(mapped) | states_of(name)
    return states


def _instance(name: str, tasks: Collection[str] = ()) -> tuple[str, int]:
    """Return the task and the map index of a name from Airflow, which appends the index to that of the task."""
    task_id, _, index = name.rpartition("_")
    return (task_id, int(index)) if name not in tasks and index.isdecimal() else (name, -1)


def read_xcom(context: Context, task_id: str, map_index: int, key: str) -> Any:
    """Return an XCom of a task, for a callback. None if there is none or it is unreadable."""
    which = {"dag_id": context["dag"].dag_id, "run_id": context["run_id"], "task_id": task_id, "key": key}
    return _answer(partial(XCom.get_one, map_index=map_index, **which))


_reads = {"until": 0.0, "left": 0.0}


def _has_time() -> bool:
    """Whether this process, which may be a DAG processor with many alerts to send, has time left for a read."""
    if (now := time.monotonic()) > _reads["until"]:
        _reads.update(until=now + 60, left=_TIME_TO_READ)
    return _reads["left"] > 0


def _answer(ask: Callable[[], Any]) -> Any:
    """Return Airflow's answer, or None if there is none, or no time left to ask."""
    if not _has_time():
        return None
    began = time.monotonic()
    try:
        return ask()
    except Exception:  # noqa: BLE001 - Airflow does not answer
        return None
    finally:
        _reads["left"] -= time.monotonic() - began
