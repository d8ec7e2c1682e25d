"""
What the tasks of this package tell Airflow's own statistics, which pass it on to StatsD, Datadog or OpenTelemetry.

Only task processes tell: in the triggerer of some versions of Airflow nobody would hear it, so that what a trigger
has counted comes with its event.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from airflow.providers.common.compat.sdk import Context

from airflow_provider_crew.service import errors
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.service.watch_state import Polls

log = logging.getLogger(__name__)

_ENDS = {
    errors.ExecutionFailed: "failed",
    errors.ExecutionUnknown: "unknown",
    errors.WaitedTooLong: "timeout",
    errors.LostContact: "lost",
}


class TaskMetrics:
    """
    Tells of one task. Nothing here may fail it.

    The tags reach backends that have tags; StatsD itself has none.
    """

    def __init__(self, crew_conn_id: str, context: Context) -> None:
        ti = context["ti"]
        self._tags = {"crew_conn_id": crew_conn_id, "dag_id": ti.dag_id, "task_id": ti.task_id}

    def kickoff(self, end: Literal["started", "not_taken", "uncertain"]) -> None:
        """Tell what came of a kickoff."""
        self._count(f"kickoff.{end}")

    def gave_up(self, error: errors.CrewError) -> None:
        """Tell how else a wait ended."""
        end = next((name for kind, name in _ENDS.items() if isinstance(error, kind)), "broken")
        self.ended(end, error.execution_time if isinstance(error, errors.ExecutionFailed) else None)

    def polls(self, polls: Polls) -> None:
        """Tell how often an execution was polled."""
        self._count("polls", polls.all)
        self._count("failed_polls", polls.failed)
        self._count("execution.paused", polls.paused)

    def tokens(self, usage: Mapping[str, Any]) -> None:
        """Tell how many tokens an execution has spent."""
        for name in ("prompt", "completion", "total"):
            if isinstance(count := usage.get(f"{name}_tokens"), int) and count > 0:
                self._count(f"tokens.{name}", count)

    def ended(self, end: str, execution_time: float | None) -> None:
        """Tell how an execution ended for a task, and how long it took, if the crew says so."""
        self._count(f"execution.{end}")
        if execution_time is not None:
            self._tell("timing", "execution.duration", execution_time)

    def _count(self, name: str, by: int = 1) -> None:
        if by:
            self._tell("incr", name, by)

    def _tell(self, how: Literal["incr", "timing"], name: str, value: float) -> None:
        try:
            from airflow.providers.common.compat.sdk import Stats

            measured = timedelta(seconds=value) if how == "timing" else value
            getattr(Stats, how)(f"crew.{name}", measured, tags=self._tags)
        except Exception as error:  # noqa: BLE001 - an execution is worth more than a figure about it
            warn(log, f"Airflow's statistics do not take what happened to an execution. The task goes on: {error}")
