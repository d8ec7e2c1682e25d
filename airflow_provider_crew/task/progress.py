"""Progress of an execution in XCom, pushed by a task that polls and at the end of every wait."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_crew.client import progress
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.progress import PROGRESS, Pace, ProgressReport
from airflow_provider_crew.client.text import warn


class TaskProgress:
    """Progress of one task's execution, or of a batch. Its methods never fail the task."""

    def __init__(self, ti: Any, log: Any, started_at: float) -> None:
        self._ti = ti
        self._log = log
        self._started_at = started_at
        self.pace = Pace()
        self.is_left_to_trigger = False
        """Whether only the trigger pushes the progress between polls."""
        self.choices: Mapping[str, str] = {}
        """Sentences for the Crew tab about what a user may do while the task waits."""
        self.if_lost: Callable[[], Mapping[str, Any]] = dict
        """Returns the sentences for the Crew tab and alerts if the task leaves no report."""
        self.known: dict[str, Any] = {}
        """Last known progress, pushed or not."""
        self._has_failed = False

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Push the progress after a poll, if it is due."""
        if not report.has_content:
            return
        known = report.as_dict()
        # The trigger may have seen tasks that the last poll does not list.
        self.known = known | {"tasks": max(known["tasks"], self.known.get("tasks", []), key=len)}
        if self.pace.is_due(is_news) and not self.is_left_to_trigger:
            self.repeat()

    def deferring(self, kickoff_id: str) -> None:
        """Push what is known before a deferral, because the trigger pushes only after its first poll."""
        self.known = progress.begun(kickoff_id, self._started_at) | self.known
        self.repeat()

    @property
    def cost(self) -> Cost:
        """Cost of the execution so far."""
        return Cost((self.known.get("end") or self.if_lost())["cost"])

    def repeat(self) -> None:
        """Push what is known, with the sentences for its user."""
        waits = self.known.get("state") != "completed" and not self.known.get("end")
        self.push(self.known | {"if_lost": self.if_lost()} | ({"choices": self.choices} if waits else {}))

    def heard(self, known: Mapping[str, Any] | None) -> None:
        """Set the progress last known to the trigger."""
        self.known = dict(known or {})

    def completed(self, kickoff_id: str, result: Mapping[str, Any], *, is_returned: bool) -> None:
        """Push that the execution has completed, unless the return value shows the same."""
        has_times = all(task.get("execution_time") is not None for task in result.get("tasks") or ())
        if not (is_returned and has_times):
            self._end(kickoff_id, result)

    def ended(self, kickoff_id: str, error: CrewError, shown: Mapping[str, Any]) -> None:
        """
        Push the error that ended the task.

        :param shown: Sentences for the Crew tab.
        """
        self._end(kickoff_id, error, shown)

    def _end(
        self, kickoff_id: str, end: Mapping[str, Any] | CrewError, shown: Mapping[str, Any] | None = None
    ) -> None:
        try:
            known, now = progress.begun(kickoff_id, self._started_at) | self.known, time.time()
            if isinstance(end, CrewError):
                self.known = progress.ended(known, end, now)
                self.known["end"] = {**(shown or {}), **self.known["end"]}
            else:
                self.known = progress.completed(known, end, now)
        except Exception as error:  # noqa: BLE001 - the trigger's progress may be from another version
            self._warn(error)
        else:
            self.repeat()

    def push(self, value: Mapping[str, Any]) -> None:
        """Push a progress."""
        try:
            self._ti.xcom_push(key=PROGRESS, value=value)
        except Exception as error:  # noqa: BLE001
            self._warn(error)
        self.pace.pushed()

    def _warn(self, error: Exception) -> None:
        if not self._has_failed:
            warn(self._log, f"Progress was not pushed to XCom, but the task continues: {error}")
        self._has_failed = True
