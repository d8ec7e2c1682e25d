"""Alerts about crew tasks that fail, for the callbacks of DAGs and tasks."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from airflow.providers.common.compat.sdk import BaseNotifier, context_merge, redact

from airflow_provider_crew.client.errors import Cost, CrewError, recorded_error
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.exceptions import EndedTask
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.task.record import ROW
from airflow_provider_crew.task.verdict import UNREPORTED, if_lost, while_cancelled
from airflow_provider_crew.triggers.events import DEFERRAL
from airflow_provider_crew.versions import HAS_STORE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_MOST_URGENT_FIRST = (Cost.UNKNOWN, Cost.RUNNING, Cost.ENDED, Cost.NONE)
# XCom key of the subject, which a task pushes after it has sent its alert.
SENT = "crew_alert"
# Airflow calls the callback of a lost process about a second before it fails the task.
_TIME_TO_FAIL = 10
# Seconds for a process or a trigger to cancel its execution and report that, after Airflow has ended the task.
# Airflow kills the process sooner. It also kills a callback that takes longer than 50 seconds.
_TIME_TO_REPORT = 15.0
_TIME_TO_READ = 30.0
# Failures that an alert describes. It counts the others.
_MOST_DESCRIBED = 20
_LONGEST_NAME = 100


class CrewAlert(BaseNotifier):
    """
    Failure callback that sends the event, the cost, the next step and the links of crew tasks.

    For a task, it sends an alert about that task at once. For a DAG, it sends one alert about all crew tasks that
    failed in the run and have not sent their own. That includes tasks whose process was killed, or that
    ``dagrun_timeout`` stopped: Airflow may not call their callbacks.

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
        failures = _failures_of_run(context) if "reason" in context else _failures_of_task(context)
        if not failures:
            return
        subject, text = _message(context, failures)
        if isinstance(self.channel, BaseNotifier):
            context_merge(context, {"crew_alert": {"subject": subject, "text": text}})
            copy.copy(self.channel)(context)  # a notifier replaces its templates with the rendered values
        else:
            self.channel(subject, text)
        # A push from the DAG processor, where there is no exception, would never return.
        if _exception(context) and context["ti"].state == "failed":
            with suppress(Exception):
                context["ti"].xcom_push(key=SENT, value=subject)


class _Failure(NamedTuple):
    task: str
    cost: Cost
    text: str
    is_being_cancelled: bool = False
    is_unread: bool = False


def _message(context: Context, failures: Sequence[_Failure]) -> tuple[str, str]:
    """Return the subject and the text of an alert."""
    failures = sorted(failures, key=lambda failure: (failure.is_unread, _MOST_URGENT_FIRST.index(failure.cost)))
    tasks = failures[0].task if len(failures) == 1 else f"{len(failures)} crew tasks"
    worst = min((failure.cost for failure in failures), key=_MOST_URGENT_FIRST.index)
    kind = "being cancelled" if all(each.is_being_cancelled for each in failures) else worst
    page = getattr(context.get("ti"), "log_url", None) or ""
    page = page.partition("/tasks/")[0] if "reason" in context else page
    described = [f"{failure.task}: {failure.text}" for failure in failures[:_MOST_DESCRIBED]]
    if len(failures) > _MOST_DESCRIBED:
        described.append(f"Further failed tasks: {len(failures) - _MOST_DESCRIBED}.")
    text = "\n\n".join([*described, *_summaries(context), page])
    subject = f"[{kind}] {context['dag'].dag_id}: {tasks} in {context['run_id']}"
    return str(redact(subject)), str(redact(text.strip()))


def _summaries(context: Context) -> list[str]:
    """Return a sentence about all rows of each mapped crew task, for the alert of a DAG."""
    rows: dict[str, list[str | None]] = {}
    for (task_id, map_index), state in (task_states(context) if "reason" in context else {}).items():
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


def _has_alert(node: Any) -> bool:
    """Whether a DAG or a task sends an alert when it fails."""
    own = getattr(node, "on_failure_callback", None)
    return any(isinstance(each, CrewAlert) for each in (own if isinstance(own, Sequence) else [own]))


def _is_crew_task(context: Context, task_id: str) -> bool:
    return "crew_conn_id" in getattr(context["dag"].task_dict.get(task_id), "template_fields", ())


def _argument(context: Context, task_id: str, name: str, default: object) -> Any:
    """Return an argument of a task, which may be mapped."""
    task = context["dag"].task_dict.get(task_id)
    return getattr(task, "partial_kwargs", {}).get(name, getattr(task, name, default))


def _failures_of_task(context: Context) -> list[_Failure]:
    ti: Any = context["ti"]
    state = ti.state or _state_of_lost(context)
    # Airflow may call the callback of a lost process twice, and that of its DAG once.
    if _has_alert(context["dag"]) and state == "failed" and not _exception(context):
        return []
    failure = _failure(context, ti.task_id, ti.map_index, state)
    return [failure] if failure else []


def _state_of_lost(context: Context) -> str:
    """Return the state of a task whose process was lost. A DAG processor calls its callback, without ti.state."""
    ti: Any = context["ti"]
    until = time.monotonic() + _TIME_TO_FAIL
    while (state := task_states(context).get((ti.task_id, ti.map_index), "")) == "running":
        if time.monotonic() > until:
            break
        time.sleep(1)
    return state


def _failures_of_run(context: Context) -> list[_Failure]:
    states, now, known = task_states(context), time.monotonic(), cast("dict[str, Any]", context)
    if not states and context["reason"] != "success":
        unread = CrewError("Airflow did not return the states of the tasks.", next_step=UNREPORTED)
        return [_Failure("crew tasks", unread.cost, str(unread))]
    until = known.setdefault("crew_alert_until", now + _TIME_TO_REPORT)  # all alerts of a run wait together
    failures = []
    for (task_id, map_index), state in states.items():
        if state not in {"failed", "skipped"} or not _is_crew_task(context, task_id):
            continue
        if time.monotonic() > now + _TIME_TO_READ:
            unread = CrewError("There was no time to read how the task ended.", next_step=UNREPORTED)
            failures.append(_Failure(_name(task_id, map_index), unread.cost, str(unread), is_unread=True))
        elif failure := _failure(context, task_id, map_index, state, until):
            failures.append(failure)
    return failures


def _failure(
    context: Context, task_id: str, map_index: int, state: str, until: float | None = None
) -> _Failure | None:
    """
    Return the failure of a task. None if there is nothing to report, or if the task has sent its own alert.

    :param until: Time until which to wait for the report of the task, for the alert of a DAG: Airflow may have
        ended the task a moment ago, and its process or trigger may be cancelling the execution.
    """
    read = partial(read_xcom, context, task_id, map_index)
    while True:
        progress = read("crew_progress") or {}
        end = progress.get("end") or {}
        kickoff_id = progress.get("kickoff_id") or read("kickoff_id") or ""
        started = kickoff_id or progress.get("batch")
        if until is not None and read(SENT):
            return None
        may_cancel = started and _argument(context, task_id, "cancel_on_kill", default=False) is not False
        is_by_choice = end.get("action") == "skip"
        is_ending = _has_alert(context["dag"].task_dict[task_id]) and not is_by_choice if end else may_cancel
        if until is None or not is_ending or time.monotonic() > until:
            break
        time.sleep(1)
    if state == "skipped" and (is_by_choice or not (end or started)):
        return None
    # A trigger that has not polled yet never learns that Airflow has ended its task.
    deferral = read(DEFERRAL) if until and not end else None
    is_being_cancelled = deferral is not None and (progress.get("polled_at") or 0.0) > deferral
    error = _error(_exception(context), end, kickoff_id) or _unreported(
        context, task_id, {**progress, "kickoff_id": kickoff_id}, state, is_being_cancelled=is_being_cancelled
    )
    text = str(error)
    if error.kickoff_id not in text:
        text += f"\nExecution: {error.kickoff_id}"
    if progress.get("batch"):
        text += f"\nBatch: {progress['doing']}."
    if dashboard := read(DASHBOARD_KEY):
        text += f"\nDashboard: {dashboard}"
    loop = None if until else cast("dict[str, Any]", context).get("loop")  # Airflow 3.4
    row = read(ROW) if map_index >= 0 else None
    which = ", ".join(filter(None, (loop and f"iteration {loop.index}", row)))
    return _Failure(_name(task_id, map_index, which), error.cost, text, is_being_cancelled)


def _name(task_id: str, map_index: int, row: str | None = None) -> str:
    number = f"[{map_index}]" if map_index >= 0 else ""
    return f"{task_id}{number} ({one_line(row, _LONGEST_NAME)})" if row else f"{task_id}{number}"


def _error(exception: BaseException | None, end: Mapping[str, Any], kickoff_id: str) -> CrewError | None:
    """Return the reported error of a task. The callbacks of a DAG and of a killed task receive no exception."""
    ended_by = exception.failure if isinstance(exception, EndedTask) else exception
    if isinstance(ended_by, CrewError):
        return ended_by
    match end:
        case {"error": str(kind), "event": str(event), "cost": cost, "next_step": str(step)}:
            facts = {"cost": cost, "next_step": step, "kickoff_id": kickoff_id}
            return recorded_error({"kind": kind, "message": event, "facts": facts})
    return None


def _unreported(
    context: Context, task_id: str, progress: Mapping[str, Any], state: str, *, is_being_cancelled: bool
) -> CrewError:
    """Return the error of a task that has not reported how it ended."""
    kickoff_id = progress["kickoff_id"]
    is_sensor = "kickoff_id" in context["dag"].task_dict[task_id].template_fields
    event = {
        "failed": "The task's process was killed or lost, or a user marked the task as failed.",
        "skipped": "Airflow stopped the task because the run exceeded its dagrun_timeout.",
    }.get(state, "The task was cleared, or its process was killed or lost.")
    mark = (progress.get("choices") or {}).get("mark")
    if mark and not is_being_cancelled:  # the process may still be cancelling the execution
        event += f" If a user marked it, {mark}." if state == "failed" else f" {mark[0].upper()}{mark[1:]}."
    if exception := _exception(context):
        event = f"The task raised {type(exception).__name__}: {one_line(str(exception), 1_000)}"
    end = "completed" if progress.get("state") == "completed" else None
    of_batch = progress.get("if_lost")
    lost = of_batch or if_lost(kickoff_id or None, end)
    reattaches = HAS_STORE and _argument(context, task_id, "durable", default=True)
    is_known = kickoff_id and (is_sensor or reattaches)
    next_step = lost["next_step"] if is_known or of_batch else UNREPORTED
    if is_being_cancelled:
        event += f" {'Its executions are' if of_batch else f'Execution {kickoff_id} is'} being cancelled."
        next_step = next_step if of_batch else while_cancelled(is_sensor)
        return CrewError(event, cost=Cost.RUNNING, next_step=next_step, kickoff_id=kickoff_id)
    return CrewError(event, cost=Cost(lost["cost"]), next_step=next_step, kickoff_id=kickoff_id)


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
