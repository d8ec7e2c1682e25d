"""Alerts about crew tasks that fail, for the callbacks of DAGs and tasks."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import BaseNotifier, context_merge, redact

from airflow_provider_crew.attempt.verdict import UNREPORTED
from airflow_provider_crew.client.errors import Cost, CrewError, recorded_error
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.exceptions import EndedTask
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.versions import read_xcom, task_states

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_MOST_URGENT_FIRST = (Cost.UNKNOWN, Cost.RUNNING, Cost.ENDED, Cost.NONE)
# XCom key of the subject, which a task pushes after it has sent its alert.
SENT = "crew_alert"
# Airflow calls the callback of a lost process about a second before it fails the task.
_TIME_TO_FAIL = 10


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


def _message(context: Context, failures: Sequence[_Failure]) -> tuple[str, str]:
    """Return the subject and the text of an alert."""
    tasks = failures[0].task if len(failures) == 1 else f"{len(failures)} crew tasks"
    cost = min((failure.cost for failure in failures), key=_MOST_URGENT_FIRST.index)
    page = getattr(context.get("ti"), "log_url", None) or ""
    page = page.partition("/tasks/")[0] if "reason" in context else page
    text = "\n\n".join([*(f"{failure.task}: {failure.text}" for failure in failures), page])
    return f"[{cost}] {context['dag'].dag_id}: {tasks} in {context['run_id']}", str(redact(text.strip()))


def _exception(context: Context) -> BaseException | None:
    found = context.get("exception")
    return found if isinstance(found, BaseException) else None


def _failures_of_task(context: Context) -> list[_Failure]:
    ti: Any = context["ti"]
    state = ti.state or _state_of_lost(context)
    of_dag: Any = context["dag"].on_failure_callback
    has_alert = any(isinstance(each, CrewAlert) for each in (of_dag if isinstance(of_dag, Sequence) else [of_dag]))
    # Airflow may call the callback of a lost process twice, and that of its DAG once.
    if has_alert and state == "failed" and not _exception(context):
        return []
    return _failures(context, ti.task_id, ti.map_index, state)


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
    states, tasks = task_states(context), context["dag"].task_dict
    if not states and context["reason"] != "success":
        unread = CrewError("Airflow did not return their states.", next_step=UNREPORTED)
        return [_Failure("crew tasks", unread.cost, str(unread))]
    return [
        failure
        for (task_id, map_index), state in states.items()
        if state in {"failed", "skipped"}
        and "crew_conn_id" in getattr(tasks.get(task_id), "template_fields", ())
        and not read_xcom(context, task_id, map_index, SENT)
        for failure in _failures(context, task_id, map_index, state)
    ]


def _failures(context: Context, task_id: str, map_index: int, state: str) -> list[_Failure]:
    """Return the failure of a task, or nothing for a task that was skipped while no execution was running."""
    progress = read_xcom(context, task_id, map_index, "crew_progress") or {}
    kickoff_id = read_xcom(context, task_id, map_index, "kickoff_id") or progress.get("kickoff_id") or ""
    if state == "skipped" and (progress.get("end") or not kickoff_id):
        return []
    error = _error(_exception(context), progress, kickoff_id, state)
    text = str(error)
    if error.kickoff_id not in text:
        text += f"\nExecution: {error.kickoff_id}"
    if dashboard := read_xcom(context, task_id, map_index, DASHBOARD_KEY):
        text += f"\nDashboard: {dashboard}"
    return [_Failure(f"{task_id}[{map_index}]" if map_index >= 0 else task_id, error.cost, text)]


def _error(exception: BaseException | None, progress: Mapping[str, Any], kickoff_id: str, state: str) -> CrewError:
    """Return the error that ended a task. The callbacks of a DAG and of a killed task receive no exception."""
    end = exception.failure if isinstance(exception, EndedTask) else exception
    if isinstance(end, CrewError):
        return end
    match progress.get("end"):
        case {"error": str(kind), "event": str(event), "cost": cost, "next_step": str(step)}:
            facts = {"cost": cost, "next_step": step, "kickoff_id": kickoff_id}
            return recorded_error({"kind": kind, "message": event, "facts": facts})
    event = {
        "failed": "The task's process was killed or lost, or a user marked the task as failed.",
        "skipped": "Airflow stopped the task, because the run exceeded its dagrun_timeout.",
    }.get(state, "The task was cleared, or its process was killed or lost.")
    if exception:
        event = f"The task raised {type(exception).__name__}: {one_line(str(exception), 1_000)}"
    cost = Cost.ENDED if progress.get("state") == "completed" else Cost.RUNNING if kickoff_id else Cost.UNKNOWN
    return CrewError(event, cost=cost, next_step=UNREPORTED, kickoff_id=kickoff_id)
