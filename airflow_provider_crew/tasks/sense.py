"""A task that waits for an execution which was kicked off elsewhere."""

from __future__ import annotations

import reprlib
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowRescheduleException

from airflow_provider_crew.compat import SETTLING_TIME
from airflow_provider_crew.service.errors import InvalidKickoffId
from airflow_provider_crew.service.limits import LONGEST_INTERVAL
from airflow_provider_crew.service.watch_state import WatchMemory
from airflow_provider_crew.tasks.seen import SeenBefore
from airflow_provider_crew.tasks.wait import Origin, Resumed, Wait, how_resumed
from airflow_provider_crew.triggers.events import read_event

if TYPE_CHECKING:
    from airflow_provider_crew.tasks.ends import SensorEnds
    from airflow_provider_crew.tasks.running import RunningTask
    from airflow_provider_crew.tasks.wait import Patience


class Sense:
    """One task's wait for an execution of which it knows no more than the id."""

    def __init__(self, task: RunningTask, patience: Patience, ends: SensorEnds, kickoff_id: Any) -> None:
        self._task = task
        self._patience = patience
        self._ends = ends
        task.waits_again = "A retry of this task, or clearing it, waits again. "
        self._kickoff_id = self._checked(kickoff_id)
        self._seen = SeenBefore(task.context, self._kickoff_id)
        self._wait = Wait(task, patience, ends, seen=self._seen)

    def result(self) -> dict[str, Any]:
        """Wait in the worker or in the triggerer, and return the result."""
        self._leave_link()
        # Perhaps it was kicked off just now, by the task before.
        return self._wait.result(self._kickoff_id, Origin(time.time(), exists=self._seen.exists), {})

    def result_or_reschedule(self) -> dict[str, Any]:
        """Poll in a process of its own, which remembers the polls before it where Airflow lets it (from 3.3)."""
        self._leave_link()
        seen = self._seen
        result, poll_again_in, memory = self._poll(seen.begun_at, seen.recall())
        if result is not None:
            return result
        seen.keep(memory)
        # A poke that remembers none takes every unknown for the first.
        is_at_leisure = not seen.lasts and "unknown" in memory.troubles
        pause = timedelta(seconds=max(poll_again_in, LONGEST_INTERVAL if is_at_leisure else SETTLING_TIME))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def poke(self) -> dict[str, Any] | None:
        """Poll once; return the result, or None while there is none."""
        return self._poll(time.time(), None)[0]

    def resume(self, next_method: str, told: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral."""
        how = how_resumed(next_method, told, self._task.ti)
        if how in (Resumed.AS_RETRY, Resumed.BY_CLEAR):
            return self.result()
        end = read_event(told.get("event")) if how is Resumed.BY_EVENT else None
        if end is None:
            return self._wait.poll_after_all(self._kickoff_id, told)
        if end.seen and not end.result:
            self._seen.keep_that_it_exists(WatchMemory(time.time(), seen=True))
        return self._wait.resume(end)

    def _poll(self, began: float, memory: WatchMemory | None) -> tuple[dict[str, Any] | None, float, WatchMemory]:
        seen = self._seen
        rules = self._patience.rules(began + self._patience.timeout, Origin(seen.grace_from, exists=seen.exists))
        result, poll_again_in, watch = self._wait.poll_once(self._kickoff_id, rules, memory, insist=not seen.lasts)
        return result, poll_again_in, watch.memory

    def _leave_link(self) -> None:
        with self._wait.ending(self._kickoff_id):
            self._task.leave_link()

    def _checked(self, given: Any) -> str:
        """Return the kickoff id as text: native rendering makes a number of one that looks like one."""
        if isinstance(given, int) and not isinstance(given, bool):
            given = str(given)
        if not isinstance(given, str):
            told = InvalidKickoffId(
                f"kickoff_id is {reprlib.repr(given)}, which is no kickoff id. Did the task that kicks off return "
                "one? Map the sensor over a mapped kickoff: .expand(kickoff_id=kickoff.output)."
            )
            self._ends.give_up(told)
        return str(given)
