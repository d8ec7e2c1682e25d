"""Attempt of a sensor, which knows only the kickoff ID of its execution."""

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.payload import checked_kickoff_id
from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.client.watch import WatchState
from airflow_provider_crew.task.attempt import Attempt
from airflow_provider_crew.task.task import Task, is_nothing, rendered_to
from airflow_provider_crew.task.wait import Wait, may_ask
from airflow_provider_crew.triggers.events import lacks_event

log = logging.getLogger(__name__)


class SensorWait(Wait):
    """Wait of a sensor, whose execution an upstream task may have started just now."""

    seen: "SeenBefore"
    is_issued = False
    """Whether a kickoff task has returned the kickoff ID, so that the execution exists."""
    is_rescheduled = False

    def origin(self) -> dict[str, Any]:
        """Return the facts about the kickoff."""
        return {"kicked_off_at": time.time(), "exists": self.is_issued or self.seen.exists}

    def cancels(self) -> bool:
        """Whether a mark cancels the execution. Between two polls of a rescheduled sensor, no process would."""
        return not self.is_rescheduled and super().cancels()

    def note_seen(self, memory: WatchState) -> None:
        """Store that the execution exists once the crew knows it, so a later NOT FOUND means unknown."""
        if memory.seen and not (self.is_issued or self.seen.exists):
            self.seen.keep(memory)

    def unpolled(self) -> TaskDeferred | None:
        """Return a deferral without a poll, which imports much. None if the connection is unusable."""
        try:
            self.address = self.task.hook.connection.settings.address
        except errors.InvalidSettings:  # the watch reads the connection again for a while
            return None
        rules = self.rules(self.task.deadline(), stops_for_input=may_ask(self.task))
        return self.deferral(rules, {"started_at": time.time()}, question=None)


class SensorAttempt(Attempt):
    """
    Attempt of a sensor, which never starts an execution and has no kickoff record.

    :param given_id: Kickoff ID of the execution, as rendered.
    :param is_issued: Whether a kickoff task has returned it.
    :param skips: Argument because of which the sensor is skipped instead of failed.
    """

    wait_class = SensorWait
    waiting: SensorWait

    def __init__(
        self,
        task: Task,
        *,
        given_id: Any,
        is_issued: bool,
        skips: Literal["", "soft_fail", "never_fail"],
        next_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if lacks_event(next_kwargs or {}):
            next_kwargs = None  # it starts, or starts again
        super().__init__(task, next_kwargs=next_kwargs, is_sensor=True, skips=skips)
        self._given_id = given_id
        self.waiting.is_issued = is_issued

    def find(self) -> None:
        """Take note of the execution, and reject an unusable kickoff ID, output type or connection early."""
        self._has(self._checked_id())
        self.waiting.seen = SeenBefore(self.task.context, self.kickoff_id)
        if self.next_kwargs is None:
            _ = self.task.hook
            self.task.check_output_type()
            self.output.push_link(self.kickoff_id)
            self.task.log.info("Waiting for execution %s.", self.kickoff_id)
        elif self.event and self.event.seen and not self.event.result:
            self.waiting.note_seen(WatchState(time.time(), seen=True))

    def result(self) -> dict[str, Any]:
        """Return the result of the execution. Defer if there is none."""
        if self.next_kwargs is None and self.task.ti.try_number == 1:
            self.waiting.seen.stored = {}  # no earlier process has stored anything
            # A later attempt polls first, because the execution may have ended.
            is_unpolled = self.task.options.deferrable and self.waiting.is_issued
            if deferral := is_unpolled and self.waiting.unpolled():
                raise deferral
        return super().result()

    def poll_or_reschedule(self) -> dict[str, Any]:
        """Poll once per process. On Airflow 3.3 and later, the state of the watch is stored between pokes."""
        waiting, seen, ti = self.waiting, self.waiting.seen, self.task.ti
        began = (ti.get_first_reschedule_date(self.task.context) or ti.start_date).timestamp()
        memory = seen.recall()
        origin = {"kicked_off_at": began}
        if not seen.lasts:  # without a store, each poke starts a new watch
            origin, memory = {}, WatchState(began, said_at=time.time())
        waiting.is_rescheduled = True
        poller = waiting.poller(waiting.rules(began + self.task.options.timeout, **origin), memory)
        step = poller.poll()
        # Without a store, keep polling in this process while only a quick next poll can settle the doubt.
        while not seen.lasts and (step.renew_token or poller.watch.is_in_doubt):
            waiting.pause(poller, step)
            step = poller.poll()
        if step.completed:
            return self._finish(step.completed.result())
        seen.keep(poller.watch.memory)
        # Without a store, every "unknown" looks like the first one, so polling sooner does not help.
        is_first = not seen.lasts and "unknown" in poller.watch.memory.troubles
        least = timing.PEOPLE_POLL if is_first else timing.SHORTEST_DEFERRAL
        pause = timedelta(seconds=max(step.poll_again_in, least))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def _checked_id(self) -> str:
        given = self._given_id
        if self.event:
            return self.event.kickoff_id  # the kickoff task may have been cleared since the deferral
        if self.next_kwargs is not None:  # the same, but resumed without an event that names the execution
            ti = self.task.ti
            match ti.xcom_pull(task_ids=ti.task_id, key=PROGRESS, map_indexes=ti.map_index):
                case {"kickoff_id": str(pushed)} if pushed:
                    given = pushed
        if type(given) is int:  # not isinstance, because True is an int
            given = str(given)  # native rendering turns a numeric kickoff ID into an int
        if is_nothing(given):
            template = self.task.options.given.get("kickoff_id", given)
            raise errors.InvalidKickoffId(rendered_to("kickoff_id", given, template))
        return checked_kickoff_id(given)


_KEY = "crew_watch"


class SeenBefore:
    """
    State of a sensor between pokes and attempts, stored on Airflow 3.3 and later.

    It stores the watch of one attempt and, for all attempts, whether the crew has known the execution. Losing this
    state never fails the task.
    """

    def __init__(self, context: Any, kickoff_id: str) -> None:
        self._store: Any = context.get("task_state_store")
        self.lasts = self._store is not None
        """Whether the next process can read the state of this one."""
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}

    @cached_property
    def stored(self) -> dict[str, Any]:
        """State that an earlier process stored. A process whose trigger returns the result needs none of it."""
        try:
            match self._store and self._store.get(_KEY):
                case {"try": {"kickoff_id": of_id}, "seen": Mapping()} as stored if (
                    of_id == self._try["kickoff_id"]
                ):
                    return dict(stored)
        except Exception as error:  # noqa: BLE001
            warn(log, f"The stored state of the wait is unreadable: {error}")
        return {}

    @property
    def exists(self) -> bool:
        """Whether the crew has known the execution in this attempt or an earlier one."""
        return bool(self.stored.get("seen", {}).get("seen"))

    def recall(self) -> WatchState | None:
        """Return the watch stored by the previous poke of this attempt, or None."""
        return WatchState.recalled(self.stored["seen"]) if self.stored.get("try") == self._try else None

    def keep(self, memory: WatchState) -> None:
        """Store the watch for the next process, unless it has not changed."""
        # A new attempt starts a new watch, but an execution that an earlier attempt has seen still exists.
        stored = {"try": self._try, "seen": memory.carried() | {"seen": memory.seen or self.exists}}
        if not self.lasts or stored == self.stored:
            return
        self.stored = stored
        try:
            self._store.set(_KEY, stored)
        except Exception as error:  # noqa: BLE001
            warn(log, f"The state of the wait was not stored for the next process: {error}")
