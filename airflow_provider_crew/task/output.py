"""Output of a task besides its result: progress and other XComs, links, metrics, spans, and asset event extras."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any

from airflow_provider_crew import versions
from airflow_provider_crew.client import errors, progress
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.progress import PROGRESS, Pace, ProgressReport
from airflow_provider_crew.client.text import core_of
from airflow_provider_crew.exceptions import CutShort, EndedByAirflow
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import KICKOFF_ID, Record
from airflow_provider_crew.task.result import USAGE, without_reserved_keys
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.verdict import Verdict

# Beginning of the XCom key of a reason.
REASON = "crew_reason_"
# Ends in the metrics. All others count as "broken".
_METRICS: dict[type[CrewError], str] = {
    errors.ExecutionFailed: "failed",
    errors.ExecutionStopped: "stopped",
    errors.ExecutionCancelled: "timeout",
    errors.ExecutionUnknown: "unknown",
    errors.WaitedTooLong: "timeout",
    errors.WaitStopped: "timeout",
    errors.NotCancelled: "timeout",
    CutShort: "timeout",
    EndedByAirflow: "timeout",
    errors.LostContact: "lost",
}


class Output:
    """
    Output of one attempt of a task. The execution is billed already, so an error here is only logged.

    :param record: Kickoff record of the task, for the span of an execution.
    """

    def __init__(self, record: Record) -> None:
        self.task = task = record.task
        self.record = record
        self.progress = TaskProgress(task)
        self._link: str | None = None

    def push(self, key: str, value: Any, *, what: str) -> None:
        """Push a value to XCom."""
        try:
            self.task.ti.xcom_push(key=key, value=value)
        except Exception as error:  # noqa: BLE001
            self.task.warn(f"{what} was not pushed to XCom: {error}")

    def push_kickoff_id(self, kickoff_id: str) -> None:
        """Push the kickoff ID, and the link to the execution."""
        self.push(KICKOFF_ID, kickoff_id, what=f"Kickoff ID {kickoff_id}")
        self.push_link(kickoff_id)

    def push_link(self, kickoff_id: str | None = None) -> None:
        """Push the dashboard URL, unless this process has pushed the same one."""
        url = self.task.page(kickoff_id)
        if url and url != self._link:
            self._link = url
            self.push(DASHBOARD_KEY, url, what="The link to the crew's dashboard")

    def measure(self, metric: str, count: int = 1, *, seconds: float | None = None) -> None:
        """Count a metric, or record a duration. Plain StatsD does not receive the tags."""
        ti = self.task.ti
        tags = {"crew_conn_id": self.task.options.crew_conn_id, "dag_id": ti.dag_id, "task_id": ti.task_id}
        try:
            from airflow.providers.common.compat.sdk import Stats

            if seconds is not None:
                Stats.timing(f"crew.{metric}", timedelta(seconds=seconds), tags=tags)
            else:
                Stats.incr(f"crew.{metric}", count, tags=tags)
        except Exception as error:  # noqa: BLE001 - metrics are best effort
            self.task.warn(f"Metrics were not sent, but the task continues: {error}")

    def count_end(self, error: CrewError | None, took: float | None, usage: Mapping[str, Any] | None) -> None:
        """Count the end of an execution and its tokens, and record its duration."""
        end = _METRICS.get(type(error), "broken") if error else "completed"
        self.measure(f"execution.{end}")
        if took is not None:
            self.measure("execution.duration", seconds=took)
        for name in ("prompt", "completion", "total"):
            if isinstance(count := (usage or {}).get(f"{name}_tokens"), int) and count > 0:
                self.measure(f"tokens.{name}", count)

    def push_usage(self, kickoff_id: str, usage: Mapping[str, Any] | None) -> None:
        """Push the token usage of an execution that has ended."""
        if usage:
            about = {"kickoff_id": kickoff_id, "try_number": self.task.ti.try_number}
            value = {**without_reserved_keys(dict(usage)), **about}
            self.push(USAGE, value, what=f"The token usage of execution {kickoff_id}")

    def trace(  # noqa: PLR0913 - the facts of a span
        self,
        kickoff_id: str,
        took: float | None,
        usage: Mapping[str, Any] | None,
        error: CrewError | None = None,
        *,
        row: int | None = None,
        sent_at: float = 0.0,
    ) -> None:
        """
        Record the span of an execution that has ended, once, if Airflow traces its tasks.

        :param took: Seconds, as the crew reports them.
        :param error: Error of the task. ``None`` if the execution has completed.
        :param row: Index of the row of a batch, which was sent at ``sent_at``.
        """
        last = self.record.last if row is None else KickoffRecord(0, sent_at)
        is_traced_by_sensor = last is not None and last.delivered
        if kickoff_id == self.record.ended_id or is_traced_by_sensor or not versions.is_traced():
            return
        about = {} if row is None else {"crew.row": row}
        about |= {_USAGE[name]: count for name, count in (usage or {}).items() if name in _USAGE}
        try:
            self._record_span(_common(self.task.ti, kickoff_id), about, error, took, last)
        except Exception as failure:  # noqa: BLE001 - traces are best effort
            self.task.warn(f"Execution {kickoff_id} was not traced, but the task continues: {failure}")

    def _record_span(self, common: Any, about: Any, error: Any, took: float | None, last: Any) -> None:
        """
        Record an execution and its tasks, below Airflow's span for this process of the task.

        A crew reads no ``traceparent``, but CrewAI keys its own spans by the kickoff ID. So the attribute
        ``crewai.execution_uuid`` joins the trace of a DAG run with the crew's. No attribute holds an input or an
        output. Names follow OpenTelemetry's GenAI conventions. The connection ID replaces the crew's name, which
        is unknown.
        """
        from opentelemetry import trace  # slow to import, and loaded if there is a tracer

        tracer, name = trace.get_tracer(__name__), self.task.options.crew_conn_id
        seen = {} if "crew.row" in about else self.progress.last
        ended_at = seen.get("polled_at") or time.time()
        started_at = last.kicked_off_at if last else seen.get("started_at", ended_at)
        # Version 0.1.0 of the conventions renamed the first name to the second. Tools read either.
        names = dict.fromkeys(("gen_ai.workflow.name", "gen_ai.agent.name", "crew.conn_id"), name)
        own = {"gen_ai.operation.name": "invoke_workflow", "crew.cost": Cost.ENDED.value, **names, **about}
        title, start = f"invoke_workflow {name}", _nanoseconds(min(started_at, ended_at - (took or 0.0)))
        kind = trace.SpanKind.CLIENT
        span = tracer.start_span(title, kind=kind, attributes=common | own, start_time=start)
        if error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
        below = trace.set_span_in_context(span)
        for step in seen.get("steps", ()):
            own = {"gen_ai.operation.name": "invoke_agent", "crew.task": step["task_id"]}
            own |= {"gen_ai.agent.name": step["agent"]} if step["agent"] else {}
            title = " ".join(filter(None, ("invoke_agent", step["agent"])))
            start = _nanoseconds(step["started_at"])
            child = tracer.start_span(title, below, attributes=common | own, start_time=start)
            child.end(_nanoseconds(step["ended_at"] or ended_at))
        span.end(_nanoseconds(ended_at))

    def show_end(self, kickoff_id: str, end: Verdict) -> None:
        """Push the error that ends the task, with what may follow. Log it if Airflow logs another."""
        shown = end.as_dict()
        if end.action == "retry" and self.task.ti.try_number > (self.task.ti.max_tries or 0):
            shown["action"] = "fail"
        self.progress.ended(kickoff_id, end.failure, shown)
        # Tasks with the same reason share the key, since lists of XComs have no values.
        kind = type(end.failure).__name__, end.failure.cost, end.if_retried, end.if_cleared
        key = sha256(repr((*kind, core_of(end.failure.event))).encode()).hexdigest()[:16]
        tokens = (getattr(end.failure, "usage", None) or {}).get("total_tokens")
        self.push(f"{REASON}{key}", {**(self.progress.last.get("end") or {}), "tokens": tokens}, what="The reason")
        if end.action == "pass on":
            self.task.log.error("%s", end.failure)

    def add_asset_extras(self, kickoff_id: str, value: Any) -> None:
        """Add the execution to the asset events of the task's outlets. A user's extra takes precedence."""
        result = value if isinstance(value, Mapping) else {}
        extra = {name: result[name] for name in ("usage", "execution_time") if name in result}
        from airflow.sdk.definitions.asset import Asset, AssetRef

        try:
            for outlet in self.task.context.get("outlets") or ():
                if isinstance(outlet, (Asset, AssetRef)):
                    event = self.task.context["outlet_events"][outlet]
                    event.extra = {"kickoff_id": kickoff_id, **extra, **event.extra}
        except Exception as error:  # noqa: BLE001 - the execution is billed already
            self.task.warn(f"The execution was not added to the asset event extras: {error}")


class TaskProgress:
    """Progress of one task's execution, or of a batch, in XCom. Its methods never fail the task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.pace = Pace()
        self.is_left_to_trigger = False
        """Whether only the trigger pushes the progress between polls."""
        self.choices: Mapping[str, str] = {}
        """Sentences for the Crew tab about what a user may do while the task waits."""
        self.if_lost: Callable[[], Mapping[str, Any]] = dict
        """Returns the sentences for the Crew tab and alerts if the task leaves no report."""
        self.last: dict[str, Any] = {}
        """Last known progress, pushed or not."""
        self._has_failed = False

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Push the progress after a poll, if it is due."""
        if not report.has_content:
            return
        seen = report.as_dict()
        # The trigger may have seen tasks that the last poll does not list.
        self.last = seen | {"tasks": max(seen["tasks"], self.last.get("tasks", []), key=len)}
        if self.pace.is_due(is_news) and not self.is_left_to_trigger:
            self.repeat()

    def deferring(self, kickoff_id: str) -> None:
        """Push what is known before a deferral, because the trigger pushes only after its first poll."""
        self.last = progress.begun(kickoff_id, self._task.started_at) | self.last
        self.repeat()

    @property
    def cost(self) -> Cost:
        """Cost of the execution so far."""
        return Cost((self.last.get("end") or self.if_lost())["cost"])

    def repeat(self) -> None:
        """Push what is known, with the sentences for its user."""
        waits = self.last.get("state") != "completed" and not self.last.get("end")
        self.push(self.last | {"if_lost": self.if_lost()} | ({"choices": self.choices} if waits else {}))

    def heard(self, seen: Mapping[str, Any] | None) -> None:
        """Set the progress that the trigger has seen."""
        self.last = dict(seen or {})

    def completed(self, kickoff_id: str, result: Mapping[str, Any], *, is_returned: bool) -> None:
        """Push that the execution has completed, unless the return value shows the same."""
        has_times = all(task.get("execution_time") is not None for task in result.get("tasks") or ())
        if not (is_returned and has_times):
            self.ended(kickoff_id, result)

    def ended(
        self, kickoff_id: str, end: Mapping[str, Any] | CrewError, shown: Mapping[str, Any] | None = None
    ) -> None:
        """
        Push the result or the error that ended the task.

        :param shown: Sentences for the Crew tab.
        """
        try:
            seen, now = progress.begun(kickoff_id, self._task.started_at) | self.last, time.time()
            if isinstance(end, CrewError):
                self.last = progress.ended(seen, end, now)
                self.last["end"] = {**(shown or {}), **self.last["end"]}
            else:
                self.last = progress.completed(seen, end, now)
        except Exception as error:  # noqa: BLE001 - the trigger's progress may be from another version
            self._warn(error)
        else:
            self.repeat()

    def push(self, value: Mapping[str, Any]) -> None:
        """Push a progress."""
        try:
            own = {"try_number": self._task.ti.try_number}
            self._task.ti.xcom_push(key=PROGRESS, value={**value, **own})
        except Exception as error:  # noqa: BLE001
            self._warn(error)
        self.pace.pushed()

    def _warn(self, error: Exception) -> None:
        if not self._has_failed:
            self._task.warn(f"Progress was not pushed to XCom, but the task continues: {error}")
        self._has_failed = True


# Attributes of token counts, by the crew's names for them.
_USAGE = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_prompt_tokens": "gen_ai.usage.cache_read.input_tokens",
}


def _common(ti: Any, kickoff_id: str) -> dict[str, Any]:
    return {
        "crewai.execution_uuid": kickoff_id,
        "gen_ai.provider.name": "crewai",
        "airflow.dag_id": ti.dag_id,
        "airflow.task_id": ti.task_id,
        "airflow.dag_run.run_id": ti.run_id,
        "airflow.task_instance.try_number": ti.try_number,
        "airflow.task_instance.map_index": -1 if ti.map_index is None else ti.map_index,
        "airflow.task_instance.id": str(ti.id),
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
