"""Attempt of a sensor, which knows only the kickoff ID of its execution."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from airflow.exceptions import AirflowRescheduleException

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.options import LONGEST_INTERVAL
from airflow_provider_crew.client.payload import checked_kickoff_id
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.client.watch import WatchState
from airflow_provider_crew.task.attempt import Attempt, Options, is_nothing
from airflow_provider_crew.task.result import adapter_of
from airflow_provider_crew.task.verdict import Facts, while_waiting
from airflow_provider_crew.triggers.events import lacks_event
from airflow_provider_crew.versions import MIN_DEFERRAL_SECONDS

log = logging.getLogger(__name__)


class SensorAttempt(Attempt):
    """
    Attempt of a sensor. It starts nothing, and has no kickoff record.

    :param given_id: Kickoff ID of the execution, as rendered.
    :param skips: Argument because of which the sensor is skipped instead of failed.
    :param attempt: As for Attempt.
    """

    is_sensor = True

    def __init__(
        self,
        options: Options,
        context: Any,
        log: Any,
        *,
        given_id: Any,
        skips: Literal["", "soft_fail", "never_fail"],
        **attempt: Any,
    ) -> None:
        super().__init__(options, context, log, **attempt)
        if lacks_event(self.next_kwargs or {}):
            self.next_kwargs = None  # it starts, or starts again
        self._given_id = given_id
        self._skips = skips

    def find(self) -> None:
        """Take note of the execution, and reject an unusable kickoff ID, output type or connection early."""
        self._seen = SeenBefore(self.context, self._has(self._checked_id()))
        if self.next_kwargs is None:
            _ = self.hook
            if self.options.output_type is not None:
                adapter_of(self.options.output_type)
            self.push_name()
            self.push_link(self.kickoff_id)
        elif self.event and self.event.seen and not self.event.result:
            self.note_seen(WatchState(time.time(), seen=True))

    def result(self) -> dict[str, Any]:
        """Return the result of the execution, which the first line of the log names."""
        if self.next_kwargs is None:
            self._log_wait()
        return super().result()

    def _log_wait(self) -> None:
        self.log.info("Waiting for execution %s.", self.kickoff_id)

    def poll_or_reschedule(self) -> dict[str, Any]:
        """Poll once per process. On Airflow 3.3 and later, the state of the watch is stored between pokes."""
        seen, ti = self._seen, self.ti
        if (first := ti.get_first_reschedule_date(self.context)) is None:
            self._log_wait()
        began = (first or ti.start_date).timestamp()
        memory = seen.recall()
        origin = {"kicked_off_at": began}
        if not seen.lasts:  # without a store, each poke starts a new watch
            origin, memory = {}, WatchState(began, said_at=time.time())
        poller = self.poller(self.rules(began + self.options.timeout, **origin), memory)
        # Between two polls, no process would cancel the execution.
        self.progress.choices = while_waiting(is_sensor=True, reattachable=True, cancels=False)["choices"]
        step = poller.poll()
        # Without a store, keep polling in this process while only a quick next poll can settle the doubt.
        while not seen.lasts and (step.renew_token or poller.watch.is_in_doubt):
            self.pause(poller, step)
            step = poller.poll()
        if step.completed:
            return self._finish(step.completed.result())
        seen.keep(poller.watch.memory)
        # Without a store, every "unknown" looks like the first one, so polling sooner does not help.
        is_first = not seen.lasts and "unknown" in poller.watch.memory.troubles
        least = LONGEST_INTERVAL if is_first else MIN_DEFERRAL_SECONDS
        pause = timedelta(seconds=max(step.poll_again_in, least))
        raise AirflowRescheduleException(datetime.now(tz=UTC) + pause)  # type: ignore[no-untyped-call]

    def origin(self) -> dict[str, Any]:
        """Return the facts about the kickoff. The upstream task may have started the execution just now."""
        return {"kicked_off_at": time.time(), "exists": self._seen.exists}

    def note_seen(self, memory: WatchState) -> None:
        """Store that the execution exists once the crew knows it, so a later NOT FOUND means unknown."""
        if memory.seen and not self._seen.exists:
            self._seen.keep(memory)

    def facts(self, *, is_reported: bool = False) -> Facts:
        """Return the facts for the verdict on this attempt."""
        return replace(super().facts(is_reported=is_reported), skips=self._skips)

    def _checked_id(self) -> str:
        given = self._given_id
        if self.event:
            return self.event.kickoff_id  # the kickoff task may have been cleared since the deferral
        if type(given) is int:  # not isinstance, because True is an int
            given = str(given)  # native rendering turns a numeric kickoff ID into an int
        if not isinstance(given, str) or is_nothing(given):
            template = self._template("kickoff_id", given)
            raise errors.InvalidKickoffId(f"kickoff_id {given!r} is not a kickoff ID. Its template: {template}.")
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
        self._kept: dict[str, Any] = {}
        try:
            match self._store and self._store.get(_KEY):
                case {"try": {"kickoff_id": known}, "seen": Mapping()} as kept if known == kickoff_id:
                    self._kept = kept
        except Exception as error:  # noqa: BLE001
            warn(log, f"The stored state of the wait is unreadable: {error}")

    @property
    def exists(self) -> bool:
        """Whether the crew has known the execution in this attempt or an earlier one."""
        return bool(self._kept.get("seen", {}).get("seen"))

    def recall(self) -> WatchState | None:
        """Return the watch stored by the previous poke of this attempt, or None."""
        return WatchState.recalled(self._kept["seen"]) if self._kept.get("try") == self._try else None

    def keep(self, memory: WatchState) -> None:
        """Store the watch for the next process, unless it has not changed."""
        # A new attempt starts a new watch, but an execution that an earlier attempt has seen still exists.
        kept = {"try": self._try, "seen": memory.carried() | {"seen": memory.seen or self.exists}}
        if not self.lasts or kept == self._kept:
            return
        self._kept = kept
        try:
            self._store.set(_KEY, kept)
        except Exception as error:  # noqa: BLE001
            warn(log, f"The state of the wait was not stored for the next process: {error}")
