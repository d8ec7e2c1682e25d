"""What a task leaves in XCom of how its execution is doing, while it polls by itself, and at its end."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from airflow_provider_crew.compat import leave_encoded_xcom, leaves_progress
from airflow_provider_crew.hooks.encoding import encoding
from airflow_provider_crew.service import progress
from airflow_provider_crew.service.errors import CrewError
from airflow_provider_crew.service.progress import PAUSE, PAUSE_AFTER_FAILURE, PROGRESS, ProgressReport
from airflow_provider_crew.service.text import warn

# How long a task waits for its XCom backend: once while that is stuck, and before it ends.
_PATIENCE = 2.0


class TaskProgress:
    """
    Leaves the progress of one task's execution. Nothing here may fail the task, or hold it up for long.

    A backend of XComs may block. So it works in a thread, one at a time, and what is new meanwhile replaces what
    waits. Airflow itself is asked in the task's own thread: before 3.2 no other may.
    """

    def __init__(self, ti: Any, log: Any, started_at: float) -> None:
        self._ti = ti
        self._log = log
        self._started_at = started_at
        self._leaves = leaves_progress()
        self._known: dict[str, Any] = {}
        """What was known last, told or not."""
        self._waiting: dict[str, Any] | None = None
        self._under_way: Future[Any] | None = None
        self._not_before = 0.0
        self._has_left = False
        self._has_complained = False

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - as an observer of polls
        """Leave what a poll has brought, if it is news."""
        if not (self._leaves and report.tells):
            return
        told = report.told()
        # Whoever only reads the end has not seen the tasks that the trigger has seen.
        self._known = told | {"tasks": max(told["tasks"], self._known.get("tasks", []), key=len)}
        if is_news:
            self._waiting = self._known
        if time.monotonic() >= self._not_before:
            self._leave(_PATIENCE if self._under_way is None else 0.0)

    def leave_again(self) -> None:
        """Leave it once more: Airflow deletes it before each poke of a rescheduled sensor."""
        if self._known and not self._has_left:
            self._waiting = self._known
            self._leave(_PATIENCE)

    def heard(self, told: Mapping[str, Any] | None) -> None:
        """Take note of what the trigger knew last."""
        self._known = dict(told or {})

    def completed(self, kickoff_id: str, result: Mapping[str, Any]) -> None:
        """Leave that the execution has completed."""
        self._end(kickoff_id, lambda told, now: progress.completed(told, result, now))

    def ended(self, kickoff_id: str, error: CrewError) -> None:
        """Leave how the wait has ended otherwise."""
        self._end(kickoff_id, lambda told, now: progress.ended(told, error, now))

    def _end(self, kickoff_id: str, told_at: Callable[[dict[str, Any], float], dict[str, Any]]) -> None:
        if not self._leaves:
            return
        try:
            self._known = told_at(progress.begun(kickoff_id, self._started_at) | self._known, time.time())
            self._waiting = self._known
            self._leave(_PATIENCE)
        except Exception as error:  # noqa: BLE001 - what the trigger told may be of another version
            self._complain(error)

    def _leave(self, patience: float) -> None:
        """Leave what waits, or begin to: when the backend takes longer, it is left after a later poll."""
        until = time.monotonic() + patience
        while self._waiting or self._under_way:
            if self._under_way is None:
                self._under_way, self._waiting = encoding(self._ti, self._waiting or {}), None
            if not wait([self._under_way], max(until - time.monotonic(), 0.0)).done:
                return
            done, self._under_way = self._under_way, None
            try:
                leave_encoded_xcom(self._ti, PROGRESS, done.result())
                self._not_before, self._has_left = time.monotonic() + PAUSE, True
            except Exception as error:  # noqa: BLE001
                self._complain(error)
                self._not_before = time.monotonic() + PAUSE_AFTER_FAILURE

    def _complain(self, error: Exception) -> None:
        """Say once that the progress is not to be seen."""
        if not self._has_complained:
            warn(self._log, f"Progress was not pushed to XCom. The task continues: {error}")
        self._has_complained = True
