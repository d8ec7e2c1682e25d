"""Alerts about crew tasks that fail, for the callbacks of DAGs and tasks."""

from __future__ import annotations

import copy
import shlex
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from airflow.providers.common.compat.sdk import BaseNotifier, XCom, context_merge, redact

from airflow_provider_crew.client.errors import Cost, CrewError, recorded_error
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.exceptions import EndedTask
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.task.decide import KickoffRecord, Next
from airflow_provider_crew.task.record import ROW
from airflow_provider_crew.task.result import RETURN_VALUE
from airflow_provider_crew.task.verdict import AFTER_REMOVAL, AFTER_UPSTREAM, UNREPORTED, if_lost, while_cancelled
from airflow_provider_crew.triggers.events import DEFERRAL
from airflow_provider_crew.versions import HAS_STORE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_States = Mapping[tuple[str, int], str]
# XCom key of the subject, which a task pushes before it sends its alert. None if the channel failed.
SENT = "crew_alert"
# Seconds for the reads of all alerts of a process. Airflow kills a DAG processor after 50, with its other alerts.
# The first read of a DAG processor took 15 on a busy machine.
_TIME_TO_READ = 25.0
# Failures that an alert describes. It counts the others.
_MOST_DESCRIBED = 20
_LONGEST_NAME = 100


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
        states = task_states(context) if "reason" in context else {}
        failures = _failures_of_run(context, states) if "reason" in context else _failures_of_task(context)
        if not failures:
            return
        subject, text = _message(context, failures, _summaries(context, states))
        # Before the alert, which may take longer than Airflow needs to call the DAG's callback.
        _claim(context, subject)
        try:
            if isinstance(self.channel, BaseNotifier):
                context_merge(context, {"crew_alert": {"subject": subject, "text": text}})
                copy.copy(self.channel)(context)  # a notifier replaces its templates with the rendered values
            else:
                self.channel(subject, text)
        except Exception:
            _claim(context, None)
            raise


def _claim(context: Context, subject: str | None) -> None:
    """Push for the DAG's alert that the task sends its own, or that it could not."""
    ti: Any = context.get("ti")
    # A push from the DAG processor would never return. There is no exception, not even None.
    if "reason" not in context and "exception" in context and ti.state in {"failed", "success"}:
        with suppress(Exception):
            ti.xcom_push(key=SENT, value=subject)


class _Failure(NamedTuple):
    task: str
    cost: Cost
    text: str
    is_being_cancelled: bool = False
    is_unread: bool = False


def _message(context: Context, failures: Sequence[_Failure], summaries: Sequence[str]) -> tuple[str, str]:
    """Return the subject and the text of an alert."""
    failures = sorted(failures, key=lambda failure: (failure.is_unread, failure.cost.rank))
    tasks = failures[0].task if len(failures) == 1 else f"{len(failures)} crew tasks"
    worst = min((failure.cost for failure in failures), key=lambda cost: cost.rank)
    kind = "being cancelled" if all(each.is_being_cancelled for each in failures) else worst
    page = getattr(context.get("ti"), "log_url", None) or ""
    page = page.partition("/tasks/")[0] if "reason" in context else page
    described = [f"{failure.task}: {failure.text}" for failure in failures[:_MOST_DESCRIBED]]
    if len(failures) > _MOST_DESCRIBED:
        described.append(f"Further failed tasks: {len(failures) - _MOST_DESCRIBED}.")
    text = "\n\n".join([*described, *summaries, page])
    subject = f"[{kind}] {context['dag'].dag_id}: {tasks} in {context['run_id']}"
    return str(redact(subject)), str(redact(text.strip()))


def _summaries(context: Context, states_of_run: _States) -> list[str]:
    """Return a sentence about all rows of each mapped crew task, for the alert of a DAG."""
    rows: dict[str, list[str | None]] = {}
    for (task_id, map_index), state in states_of_run.items():
        if map_index >= 0 and _is_crew_task(context, task_id):
            rows.setdefault(task_id, []).append(state)
    summaries = []
    for task_id, states in rows.items():
        ends = [f"{count} {state or 'without a state'}" for state, count in Counter(states).most_common()]
        known = []
        if started := len(read_xcoms(context, task_id, "kickoff_id")):  # none for a sensor
            known.append(f"{started} executions")
        if tokens := sum(map(_tokens, read_xcoms(context, task_id, "usage"))):
            known.append(f"{tokens:,} tokens")
        about = f" Reported by their last attempts: {', '.join(known)}." if known else ""
        summaries.append(f"{task_id} has {len(states)} rows: {', '.join(ends)}.{about}")
    return summaries


def _tokens(usage: Any) -> int:
    count = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return count if isinstance(count, int) else 0


def _exception(context: Context) -> BaseException | None:
    found = context.get("exception")
    return found if isinstance(found, BaseException) else None


def _fields(context: Context, task_id: str) -> Sequence[str]:
    return getattr(context["dag"].task_dict.get(task_id), "template_fields", ())


def _is_crew_task(context: Context, task_id: str) -> bool:
    return "crew_conn_id" in _fields(context, task_id)


def _is_durable(context: Context, task_id: str) -> bool:
    """Whether a task has a kickoff record that the next attempt reads. That of an agent depends on its inputs."""
    starts = _is_crew_task(context, task_id) and "kickoff_id" not in _fields(context, task_id)
    return HAS_STORE and starts and bool(_argument(_task(context, task_id), "durable", default=True))


def _task(context: Context, task_id: str) -> Any:
    """Return a task, which may be mapped. It is rendered only in its own process."""
    own = getattr(context.get("ti"), "task", None)
    return own if getattr(own, "task_id", None) == task_id else context["dag"].task_dict.get(task_id)


def _argument(task: Any, name: str, default: object) -> Any:
    return getattr(task, "partial_kwargs", {}).get(name, getattr(task, name, default))


def _conn_id(task: Any) -> str:
    """Return the connection of a task, or a placeholder if it is mapped or a template."""
    conn_id = _argument(task, "crew_conn_id", "crew_default")
    rows = getattr(task, "expand_input", None)
    is_mapped = rows and not (isinstance(rows.value, Mapping) and "crew_conn_id" not in rows.value)
    return conn_id if isinstance(conn_id, str) and "{{" not in conn_id and not is_mapped else "CONN_ID"


def _failures_of_task(context: Context) -> list[_Failure]:
    ti: Any = context["ti"]
    state = ti.state or _state_of_lost(context)
    is_run = state == "success" and "result_path" not in _fields(context, ti.task_id)
    if is_run or _is_left_to_dag(context, state):
        return []
    failure = _failure(context, ti.task_id, ti.map_index, state)
    return [failure] if failure else []


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


def _failures_of_run(context: Context, states: _States) -> list[_Failure]:
    if not states and context["reason"] != "success":
        unread = CrewError("Airflow did not return the states of the tasks.", next_step=UNREPORTED)
        return [_Failure("crew tasks", unread.cost, str(unread))]
    found = []
    # Another task may be an agent that called a crew, which only its XComs show.
    for task_id, index in sorted(states, key=lambda each: not _is_crew_task(context, each[0])):
        state, fields = states[task_id, index], _fields(context, task_id)
        is_stopped = state == "skipped" and ("crew_conn_id" in fields or context["reason"] == "timed_out")
        may_report = is_stopped or state == "failed" or (state == "success" and "result_path" in fields)
        may_report = may_report or state == "removed" or (state == "upstream_failed" and "kickoff_id" in fields)
        if may_report and _has_time():
            found.append(_failure(context, task_id, index, state))
        elif may_report and "crew_conn_id" in fields:
            unread = CrewError("There was no time to read how the task ended.", next_step=UNREPORTED)
            found.append(_Failure(_name(task_id, index), unread.cost, str(unread), is_unread=True))
    return [failure for failure in found if failure]


def _failure(context: Context, task_id: str, map_index: int, state: str) -> _Failure | None:
    """Return the failure of a task. None if it has no crew, or nothing to report, or has sent its own alert."""
    read: Callable[[str], Any] = partial(read_xcom, context, task_id, map_index)
    left, progress = _left_to_sensor(context, task_id, map_index, state), read("crew_progress") or {}
    if state == "upstream_failed" or (left and progress.get("kickoff_id") not in left):
        read, progress = _nothing, {}  # a cleared task keeps its XComs until it runs again
    else:
        left = []  # it has run
    is_of_run = "reason" in context
    end, batch = progress.get("end") or {}, progress.get("batch") or {}
    is_crew_task = _is_crew_task(context, task_id)
    if not (progress or is_crew_task or _error(_exception(context), {}, "")):
        return None
    # That of an agent may be from an earlier call.
    kickoff_id = progress.get("kickoff_id") or (is_crew_task and not batch and read("kickoff_id")) or ""
    kickoff_id = next(iter(left), kickoff_id)
    is_silent = state in {"skipped", "upstream_failed"} and not (end or kickoff_id or batch)
    is_silent = is_silent or (state == "skipped" and end.get("action") == "skip")
    is_silent = is_silent or (state == "success" and not (_is_uncertain(batch) or batch.get("running")))
    is_silent = is_silent or (state == "removed" and (not kickoff_id or _is_over(progress, read)))
    if is_silent or (is_of_run and read(SENT)):
        return None
    # A trigger that has not polled yet never learns that Airflow has ended its task.
    may_cancel = is_of_run and (kickoff_id or batch) and not end and state != "removed"
    deferral = read(DEFERRAL) if may_cancel else None
    is_being_cancelled = deferral is not None and (progress.get("polled_at") or 0.0) > deferral
    error = _error(_exception(context), end, kickoff_id) or _unreported(
        context, task_id, {**progress, "kickoff_id": kickoff_id}, state, is_being_cancelled=is_being_cancelled
    )
    error = error if error.kickoff_id else error.replace(kickoff_id=kickoff_id)
    known_id, lines = error.kickoff_id, [str(error)]
    if len(left) > 1:
        lines.append(f"{len(left)} executions were started, and no sensor waited for any of them.")
    if batch:
        lines.append(f"Batch: {progress['doing']}.")
    if error.cost is Cost.UNKNOWN and _is_durable(context, task_id):
        lines += _adopting(context, task_id, map_index, known_id, batch)
    if known_id and (dashboard := read(DASHBOARD_KEY)):
        lines.append(f"Dashboard: {dashboard}")
    loop = None if is_of_run else cast("dict[str, Any]", context).get("loop")  # Airflow 3.4
    names: list[Any] = [loop and f"iteration {loop.index}", map_index >= 0 and read(ROW)]
    name = _name(task_id, map_index, ", ".join(filter(None, names)))
    return _Failure(name, error.cost, "\n".join(lines), is_being_cancelled)


def _is_over(progress: Mapping[str, Any], read: Callable[[str], Any]) -> bool:
    """Whether a task has ended, as far as its XComs tell."""
    return bool(progress.get("end")) or progress.get("state") == "completed" or read(RETURN_VALUE) is not None


def _nothing(_key: str) -> None:
    """Return no XCom."""


def _left_to_sensor(context: Context, task_id: str, index: int, state: str) -> list[str]:
    """Return the executions that kickoff tasks started for a sensor that may never have run."""
    has_not_run = state == "upstream_failed" or (state == "skipped" and _are_stopped(context))
    if not has_not_run or "kickoff_id" not in _fields(context, task_id):
        return []
    tasks, states, found = context["dag"].task_dict, task_states(context), list[Any]()
    others = [other for other in tasks if "kickoff_id" in _fields(context, other)]
    have_run = [other for other in others if states.get((other, index)) in {"success", "failed"}]
    started = {other for (other, _), state in states.items() if state in {"success", "failed"}}
    waited_for = set[str]().union(*(_kickoffs_for(tasks, other) for other in have_run))
    for name in sorted(_kickoffs_for(tasks, task_id) & started - waited_for):
        # The rows of a mapped sensor exist only if all those of its kickoff task have succeeded.
        rows = read_xcoms(context, name, "kickoff_id") if index < 0 else []
        found += rows or [read_xcom(context, name, index, "kickoff_id")]
    return [each for each in found if each]


def _are_stopped(context: Context) -> bool:
    """Whether Airflow skips the unfinished tasks of a run, because of its time or another failure."""
    reason: Any = context.get("reason", "success")
    return reason == "timed_out" or (reason != "success" and getattr(context["dag"], "fail_fast", False))


def _kickoffs_for(tasks: Mapping[str, Any], sensor: str) -> set[str]:
    """Return the kickoff tasks directly upstream of a sensor, or else those whose ID its template may name."""
    kinds = {name: getattr(task, "operator_class", type(task)) for name, task in tasks.items()}
    kickoffs = {name for name, kind in kinds.items() if issubclass(kind, CrewKickoffOperator)}
    upstream, unread = set[str](), {sensor}
    while unread:
        unread |= tasks[unread.pop()].upstream_task_ids - upstream
        upstream |= unread
    return tasks[sensor].upstream_task_ids & kickoffs or upstream & kickoffs


def _is_uncertain(batch: Mapping[str, Any]) -> bool:
    """Whether a batch has uncertain rows, perhaps among those that are no longer in its inputs."""
    return bool(batch.get("uncertain")) or any(each["status"] == "uncertain" for each in batch.get("reasons", ()))


def _adopting(context: Context, task_id: str, index: int, kickoff_id: str, batch: Mapping[str, Any]) -> list[str]:
    """Return the commands that give a task the executions of its uncertain kickoffs."""
    where = [context["dag"].dag_id, context["run_id"], task_id, kickoff_id or "KICKOFF_ID"]
    where += ["--conn-id", _conn_id(_task(context, task_id))]
    where += ["--map-index", str(index)] if index >= 0 else []
    uncertain = [group["keys"] for group in batch.get("reasons", ()) if group["status"] == "uncertain"]
    rows = [[f"--row={key}"] for keys in uncertain for key in keys] if batch else [[]]
    return [f"Adopt: python -m airflow_provider_crew adopt {shlex.join([*where, *row])}" for row in rows]


def _name(task_id: str, map_index: int, row: str | None = None) -> str:
    number = f"[{map_index}]" if map_index >= 0 else ""
    return f"{task_id}{number} ({one_line(row, _LONGEST_NAME)})" if row else f"{task_id}{number}"


def _error(exception: BaseException | None, end: Mapping[str, Any], kickoff_id: str) -> CrewError | None:
    """Return the reported error of a task. The callbacks of a DAG and of a killed task receive no exception."""
    ended_by = exception.failure if isinstance(exception, EndedTask) else exception
    errors = [ended_by] if isinstance(ended_by, CrewError) else []
    match end:
        case {"error": str(kind), "event": str(event), "cost": cost, "next_step": str(step)}:
            facts = {"at": end.get("at", ""), "cost": cost, "next_step": step, "kickoff_id": kickoff_id}
            errors.append(recorded_error({"kind": kind, "message": event, "facts": facts}))
    # A parallel call of an agent may have ended after the one that failed the task.
    return min(errors, key=lambda error: error.cost.rank, default=None)


def _unreported(
    context: Context, task_id: str, progress: Mapping[str, Any], state: str, *, is_being_cancelled: bool
) -> CrewError:
    """Return the error of a task that has not reported how it ended."""
    kickoff_id = progress["kickoff_id"]
    is_sensor = "kickoff_id" in _fields(context, task_id)
    is_late = context.get("reason") == "timed_out"
    late = "Airflow stopped the task because the run exceeded its dagrun_timeout."
    skipped = late if is_late else "The task was skipped before the execution ended: by fail_fast, or by a user."
    ended = "ended without a report: its process was lost, or a user marked it as failed"
    event = {
        "failed": f"The task {ended if _is_crew_task(context, task_id) else 'has failed. It had called a crew'}.",
        "skipped": skipped,
        "upstream_failed": "The task did not run because an upstream task failed.",
        "removed": "The task was removed from the run while it waited: its mapped list, or the DAG, has changed.",
        "success": "The batch succeeded, but some of its executions may be running.",
    }.get(state, "The task was cleared, or its process was killed or lost.")
    mark = (progress.get("choices") or {}).get("mark")
    # A process may still be cancelling the execution.
    if mark and state not in {"success", "removed"} and not is_being_cancelled:
        event += f" If a user marked it, {mark}." if state == "failed" else f" {mark[0].upper()}{mark[1:]}."
    if exception := _exception(context):
        event = f"The task raised {type(exception).__name__}: {one_line(str(exception), 1_000)}"
    of_batch, has_completed = progress.get("if_lost"), progress.get("state") == "completed"
    found = KickoffRecord(0, 0.0, kickoff_id or None, "completed" if has_completed else None)
    lost = of_batch or if_lost(Next(found))
    is_known = kickoff_id and (is_sensor or _is_durable(context, task_id))
    next_step = lost["next_step"] if is_known or of_batch else UNREPORTED
    next_step = {"upstream_failed": AFTER_UPSTREAM, "removed": AFTER_REMOVAL}.get(state, next_step)
    if is_being_cancelled:
        event += f" {'Its executions are' if of_batch else 'The execution is'} being cancelled."
        next_step = next_step if of_batch else while_cancelled(is_sensor)
    is_running = is_being_cancelled or (state == "success" and not _is_uncertain(progress["batch"]))
    cost = Cost.RUNNING if is_running else Cost(lost["cost"])
    return CrewError(event, cost=cost, next_step=next_step, kickoff_id=kickoff_id)


def task_states(context: Context) -> dict[tuple[str, int], str]:
    """Return the states of a run by task ID and map index, for a callback. Empty if they are unreadable."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    dag_id, tasks, run_id = context["dag"].dag_id, context["dag"].task_dict, context["run_id"]
    ask = partial(RuntimeTaskInstance.get_task_states, dag_id=dag_id, run_ids=[run_id])
    states = {}
    for name, state in (_answer(ask) or {}).get(run_id, {}).items():
        task_id, _, index = name.rpartition("_")  # Airflow appends the map index to the name of a mapped task
        is_mapped = name not in tasks and index.isdigit()
        states[(task_id, int(index)) if is_mapped else (name, -1)] = state
    return states


def read_xcom(context: Context, task_id: str, map_index: int, key: str) -> Any:
    """Return an XCom of a task, for a callback. None if there is none or it is unreadable."""
    which = {"dag_id": context["dag"].dag_id, "run_id": context["run_id"], "task_id": task_id, "key": key}
    return _answer(partial(XCom.get_one, map_index=map_index, **which))


def read_xcoms(context: Context, task_id: str, key: str) -> list[Any]:
    """Return the XComs of all rows of a mapped task, for a callback. Empty if they are unreadable."""
    which = {"dag_id": context["dag"].dag_id, "run_id": context["run_id"], "task_id": task_id, "key": key}
    return _answer(lambda: list(XCom.get_all(**which) or ())) or []


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
