"""Alerts about crew tasks that fail, for the callbacks of DAGs and tasks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import BaseNotifier, context_merge, redact

from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.compat import read_xcom, task_page, task_states
from airflow_provider_crew.exceptions import EndedTask
from airflow_provider_crew.links.crew import DASHBOARD_KEY

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_MOST_URGENT_FIRST = (Cost.UNKNOWN, Cost.RUNNING, Cost.ENDED, Cost.NONE)
_NEXT_STEP = "Check the crew's dashboard before you clear the task."
_LONGEST = 1_000


class Alert(NamedTuple):
    """Contents of an alert, which the templates of a notifier can use as ``crew_alert``."""

    subject: str
    text: str


class CrewAlert(BaseNotifier):
    """
    Failure callback that sends the event, the cost, the next step and the links of crew tasks.

    For a DAG, it sends one alert about all crew tasks of a failed run. That includes tasks whose process was
    killed, or that ``dagrun_timeout`` stopped: Airflow 3 may not call their own callbacks. For a task, it sends an
    alert about that task. It leaves a task that has failed to its DAG's CrewAlert if there is one.

    :param channel: Function that sends a subject and a text, or an Airflow notifier whose templates contain
        ``{{ crew_alert.subject }}`` and ``{{ crew_alert.text }}``.
    """

    def __init__(self, channel: Callable[[str, str], Any] | BaseNotifier) -> None:
        super().__init__()
        self.channel = channel

    def __call__(self, context: Context) -> None:
        """Send the alert. The base class would render templates, which fails in ``dag.test()`` on Airflow 3."""
        self.notify(context)

    def notify(self, context: Context) -> None:
        """Send the alert."""
        failures = _failures_of_run(context) if "reason" in context else _failures_of_task(context)
        if not failures:
            return
        alert = _alert(context, failures)
        if isinstance(self.channel, BaseNotifier):
            context_merge(context, {"crew_alert": alert})
            copy.copy(self.channel)(context)  # a notifier replaces its templates with the rendered values
        else:
            self.channel(*alert)


class _Failure(NamedTuple):
    task: str
    cost: Cost
    text: str


def _alert(context: Context, failures: Sequence[_Failure]) -> Alert:
    tasks = failures[0].task if len(failures) == 1 else f"{len(failures)} crew tasks"
    cost = min((failure.cost for failure in failures), key=_MOST_URGENT_FIRST.index)
    subject = f"[{cost}] {context['dag'].dag_id}: {tasks} in {context['run_id']}"
    return Alert(subject, str(redact("\n\n".join(failure.text for failure in failures))))


def _failures_of_task(context: Context) -> list[_Failure]:
    ti: Any = context["ti"]
    state = ti.state or task_states(context).get((ti.task_id, ti.map_index), "")  # a DAG processor has no ti.state
    callbacks = context["dag"].on_failure_callback or ()
    callbacks = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    if state == "failed" and any(isinstance(each, CrewAlert) for each in callbacks):
        return []
    return _failures(context, ti.task_id, ti.map_index, state)


def _failures_of_run(context: Context) -> list[_Failure]:
    states, tasks = task_states(context), context["dag"].task_dict
    if not states:
        unread = CrewError("The run has failed. Airflow did not return its tasks.", next_step=_NEXT_STEP)
        return [_Failure("crew tasks", unread.cost, str(unread))]
    return [
        failure
        for (task_id, map_index), state in states.items()
        if state in {"failed", "skipped"}
        and task_id in tasks  # unless it was removed from the DAG
        and "crew_conn_id" in tasks[task_id].template_fields
        for failure in _failures(context, task_id, map_index, state)
    ]


def _failures(context: Context, task_id: str, map_index: int, state: str) -> list[_Failure]:
    """Return the failure of a task, or nothing for a task that was skipped while no execution was running."""
    progress = read_xcom(context, task_id, map_index, "crew_progress") or {}
    kickoff_id = read_xcom(context, task_id, map_index, "kickoff_id") or progress.get("kickoff_id") or ""
    if state == "skipped" and (progress.get("end") or not kickoff_id):
        return []
    error = _error(context.get("exception"), progress, kickoff_id, state)
    links = {
        "Execution": error.kickoff_id,
        "Crew": read_xcom(context, task_id, map_index, DASHBOARD_KEY),
        "Task": task_page(context, task_id, map_index),
    }
    told = str(error)
    lines = [told, *(f"{name}: {link}" for name, link in links.items() if link and link not in told)]
    return [_Failure(f"{task_id}[{map_index}]" if map_index >= 0 else task_id, error.cost, "\n".join(lines))]


def _error(exception: object, progress: Mapping[str, Any], kickoff_id: str, state: str) -> CrewError:
    """Return the error that ended a task. The callbacks of a DAG and of a killed task receive no exception."""
    if isinstance(exception, EndedTask):
        return exception.failure
    if isinstance(exception, CrewError):
        return exception
    match progress.get("end"):
        case {"event": str(event), "cost": str(cost), "next_step": str(step)} if cost in list(Cost):
            return CrewError(event, cost=Cost(cost), next_step=step, kickoff_id=kickoff_id)
    event = "The task ended without an error: it was cleared, or its process was killed or lost."
    if isinstance(exception, BaseException):
        event = f"The task raised {type(exception).__name__}: {one_line(str(exception), _LONGEST)}"
    elif state == "skipped":
        event = "Airflow stopped the task, because the run exceeded its dagrun_timeout."
    cost = Cost.ENDED if progress.get("state") == "completed" else Cost.RUNNING if kickoff_id else Cost.UNKNOWN
    return CrewError(event, cost=cost, next_step=_NEXT_STEP, kickoff_id=kickoff_id)
