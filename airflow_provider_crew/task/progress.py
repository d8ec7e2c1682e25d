"""Progress of an execution in XCom, pushed by a task that polls and at the end of every wait."""

import time
from collections.abc import Mapping
from typing import Any

from airflow_provider_crew.client import progress, timing
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.progress import PROGRESS, ProgressReport
from airflow_provider_crew.client.text import warn


class TaskProgress:
    """Progress of one task's execution. Its methods never fail the task."""

    def __init__(self, ti: Any, log: Any, started_at: float) -> None:
        self._ti = ti
        self._log = log
        self._started_at = started_at
        self.is_left_to_trigger = False
        """Whether only the trigger pushes the progress between polls."""
        self.choices: Mapping[str, str] = {}
        """Sentences for the Crew tab about what a user may do while the task waits."""
        self.known: dict[str, Any] = {}
        """Last known progress, pushed or not."""
        self._more: dict[str, Any] = {}
        self._is_new = self._has_failed = False
        self._not_before, self._old_at = 0.0, time.monotonic() + timing.current().progress_refresh

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Push the progress after a poll, if it has changed or the last push was long ago."""
        if not report.has_content:
            return
        known = report.as_dict()
        # The trigger may have seen tasks that the last poll does not list.
        self.known = known | {"tasks": max(known["tasks"], self.known.get("tasks", []), key=len)}
        now = time.monotonic()
        self._is_new = self._is_new or is_news or now >= self._old_at
        if self._is_new and not self.is_left_to_trigger and now >= self._not_before:
            self._push(choices=self.choices)

    def deferring(self, kickoff_id: str) -> None:
        """Push what is known before a deferral, because the trigger pushes only after its first poll."""
        self.known = progress.begun(kickoff_id, self._started_at) | self.known
        self._push(choices=self.choices)

    @property
    def cost(self) -> Cost:
        """Cost of the execution so far."""
        if end := self.known.get("end"):
            return Cost(end["cost"])
        return Cost.ENDED if self.known.get("state") == "completed" else Cost.RUNNING

    def repeat(self) -> None:
        """Push what is known again."""
        self._push(**self._more)

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
            self._push()

    def _push(self, **more: Any) -> None:
        self._more = more
        try:
            self._ti.xcom_push(key=PROGRESS, value=self.known | more)
        except Exception as error:  # noqa: BLE001
            self._warn(error)
        self._is_new, now, pace = False, time.monotonic(), timing.current()
        self._not_before, self._old_at = now + pace.progress_pause, now + pace.progress_refresh

    def _warn(self, error: Exception) -> None:
        if not self._has_failed:
            warn(self._log, f"Progress was not pushed to XCom, but the task continues: {error}")
        self._has_failed = True
