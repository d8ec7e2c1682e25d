"""A task that waits for an execution which was kicked off elsewhere."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import Context

from airflow_provider_crew.compat import SETTLING_TIME, first_poke, lacks_event, resumed_with_old_error
from airflow_provider_crew.service.errors import (
    Cost,
    CrewError,
    InvalidKickoffId,
    InvalidOutputType,
    InvalidSettings,
)
from airflow_provider_crew.service.kickoff_id import checked_kickoff_id
from airflow_provider_crew.service.limits import LONGEST_INTERVAL
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.service.watch_state import WatchMemory
from airflow_provider_crew.tasks.options import is_nothing, template_text
from airflow_provider_crew.tasks.running import RunningTask
from airflow_provider_crew.tasks.typed import check_type
from airflow_provider_crew.tasks.wait import Wait, WaitArguments
from airflow_provider_crew.triggers.events import read_event

log = logging.getLogger(__name__)

_KEY = "crew_watch"


class Sense:
    """One task's wait for an execution of which it knows no more than the id."""

    def __init__(
        self, task: RunningTask, given: WaitArguments, kickoff_id: Any, give_up: Callable[[CrewError], NoReturn]
    ) -> None:
        task.waits_again = "Airflow's retry, or clearing this task, waits for the same execution."
        if type(kickoff_id) is int:  # True is none
            kickoff_id = str(kickoff_id)  # native rendering makes a number of one that looks like one
        if not isinstance(kickoff_id, str) or is_nothing(kickoff_id):
            template = template_text(task.templates.get("kickoff_id"), kickoff_id)
            give_up(
                InvalidKickoffId(
                    f"kickoff_id is {kickoff_id!r}, which is no kickoff ID. Its template: {template}.",
                    cost=Cost.UNKNOWN,
                    next_step="Check what the kickoff task returned, and clear this task. Over a mapped kickoff, "
                    "map the sensor: .expand(kickoff_id=kickoff.output).",
                )
            )
        try:
            checked_kickoff_id(kickoff_id)
        except InvalidKickoffId as error:
            give_up(error.replace(cost=Cost.UNKNOWN))
        self._kickoff_id = kickoff_id
        self._seen = SeenBefore(task.context, kickoff_id)
        self._wait = Wait(task, given, give_up, self._seen.keep_that_it_exists)

    def result(self) -> dict[str, Any]:
        """Wait in the worker or in the triggerer, and return the result."""
        self._check_given()
        self._wait.task.leave_link(self._kickoff_id)
        # Perhaps it was kicked off just now, by the task before.
        return self._wait.result(self._kickoff_id, kicked_off_at=time.time(), exists=self._seen.exists)

    def result_or_reschedule(self) -> dict[str, Any]:
        """Poll in a process of its own, which remembers the polls before it where Airflow lets it (from 3.3)."""
        self._check_given()
        self._wait.task.leave_link(self._kickoff_id)
        wait, seen = self._wait, self._seen
        began = first_poke(wait.task.context)
        if seen.lasts:
            kicked_off_at, memory = began, seen.recall()
        else:  # a poke that remembers none begins anew
            kicked_off_at, memory = time.time(), WatchMemory(began, said_at=time.time())
        rules = wait.rules(began + wait.given.timeout, kicked_off_at=kicked_off_at, exists=seen.exists)
        with wait.polling(self._kickoff_id, rules, memory) as poller:
            step = poller.poll()
            # A process that leaves nothing to the next polls on where only polling again soon can tell.
            while not seen.lasts and (step.renew_token or poller.watch.is_in_doubt):
                poller.pause(step)
                step = poller.poll()
        if step.completed:
            return wait.finish(step.completed.result())
        seen.keep(poller.watch.memory)
        wait.task.progress.leave_again()
        # Without a memory every "unknown" looks like the first one, so there is no hurry.
        is_at_leisure = not seen.lasts and "unknown" in poller.watch.memory.troubles
        pause = timedelta(seconds=max(step.poll_again_in, LONGEST_INTERVAL if is_at_leisure else SETTLING_TIME))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def poke(self) -> dict[str, Any] | None:
        """Poll once; return the result, or None while there is none."""
        self._check_given()
        wait, now = self._wait, time.time()
        rules = wait.rules(now + wait.given.timeout, kicked_off_at=now, exists=self._seen.exists)
        with wait.polling(self._kickoff_id, rules) as poller:
            completed = poller.poll().completed
        return wait.finish(completed.result()) if completed else None

    def resume(self, next_method: str, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral."""
        if resumed_with_old_error(next_kwargs, self._wait.task.ti) or lacks_event(next_method, next_kwargs):
            return self.result()
        end = read_event(next_kwargs.get("event"))
        if end is None:
            return self._wait.poll_after_all(self._kickoff_id, next_kwargs)
        if end.seen and not end.result:
            self._seen.keep_that_it_exists(WatchMemory(time.time(), seen=True))
        return self._wait.resume(end)

    def _check_given(self) -> None:
        """Reject a type, or a connection, that cannot be used before there is a long wait."""
        try:
            self._wait.task.check_connection()
            check_type(self._wait.given)
        except InvalidOutputType as error:
            self._wait.give_up(error)
        except InvalidSettings as error:
            self._wait.give_up(error.replace(cost=Cost.UNKNOWN))


class SeenBefore:
    """
    What a sensor remembers between two pokes and between tries, where Airflow lets it (from 3.3).

    It keeps what the watch of one try has seen, and for all tries that the service has known the execution. Losing
    it fails nothing.
    """

    def __init__(self, context: Context, kickoff_id: str) -> None:
        self._store: Any = context.get("task_state_store")
        self.lasts = self._store is not None
        """Whether the next process will know what this one saw."""
        self._kickoff_id = kickoff_id
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}
        self._kept = self._read()

    @property
    def exists(self) -> bool:
        """Whether the service has known the execution, in this try or in one before."""
        return bool(self._kept.get("seen", {}).get("seen"))

    def recall(self) -> WatchMemory | None:
        """Return what the poke before has kept, if it was one of this try."""
        return WatchMemory.recalled(self._kept["seen"]) if self._kept.get("try") == self._try else None

    def keep(self, memory: WatchMemory) -> None:
        """Keep it for the next process, which most of the time is to know what this one was told already."""
        # A new try begins a new watch, and what an earlier one has seen still exists.
        kept = {"try": self._try, "seen": memory.carried() | {"seen": memory.seen or self.exists}}
        if not self.lasts or kept == self._kept:
            return
        self._kept = kept
        try:
            self._store.set(_KEY, kept)
        except Exception as error:  # noqa: BLE001
            warn(log, f"What was seen of the execution cannot be kept for the next process: {error}")

    def keep_that_it_exists(self, memory: WatchMemory) -> None:
        """Keep it as soon as the service knows the execution: from then on, unknown is not gone."""
        if memory.seen and not self.exists:
            self.keep(memory)

    def _read(self) -> dict[str, Any]:
        if not self.lasts:
            return {}
        try:
            match self._store.get(_KEY):
                case {"try": {"kickoff_id": self._kickoff_id}, "seen": {}} as kept:
                    return dict(kept)
        except Exception as error:  # noqa: BLE001
            warn(log, f"What was seen of the execution before cannot be read: {error}")
        return {}
