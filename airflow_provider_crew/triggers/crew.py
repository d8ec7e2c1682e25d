"""The trigger: watches one execution from the triggerer."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_crew.defaults import MAX_OUTAGE, SETTLING_TIME
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.service.errors import AnswerTooLarge, CrewError, WatchBroken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.service.watch import Watch

_NEEDED_TO_WATCH = (
    "airflow_provider_crew.hooks.connection",
    "airflow_provider_crew.service.shared",
    "airflow_provider_crew.service.watch",
    "airflow_provider_crew.triggers.events",
)


class CrewExecutionTrigger(BaseTrigger):
    """
    Watch one execution until it has ended, log its progress, and fire one event.

    Arguments are plain and hold no secret: they are stored in Airflow's database.

    :param kickoff_id: the execution to watch
    :param crew_conn_id: the connection to its crew
    :param poll_interval: seconds between two looks; None: what suits the age of the execution
    :param deadline: when to stop waiting, in seconds since the epoch, so that it survives a restart
    :param token_type: which token of the connection to use, if not the one it says
    :param max_outage: seconds for which the service may give no usable answer; None: for ever
    :param kicked_off_at: when the execution was started, if that is known
    :param exists: whether the execution certainly exists, although the service may say that it does not know it
    :param address: where the execution was started, if that is known
    :param human_input: whether the crew may wait for a person
    :param deferred_at: when the task was deferred
    :param memory: what the task has seen before it was deferred
    """

    def __init__(  # noqa: PLR0913 - plain values, each of them a column of what is stored
        self,
        kickoff_id: str,
        crew_conn_id: str,
        poll_interval: float | None,
        *,
        deadline: float,
        token_type: TokenType | None = None,
        max_outage: float | None = MAX_OUTAGE,
        kicked_off_at: float | None = None,
        exists: bool = False,
        address: str = "",
        human_input: bool = False,
        deferred_at: float | None = None,
        memory: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.poll_interval = poll_interval
        self.deadline = deadline
        self.token_type = token_type
        self.max_outage = max_outage
        self.kicked_off_at = kicked_off_at
        self.exists = exists
        self.address = address
        self.human_input = human_input
        self.deferred_at = deferred_at
        self.memory = memory

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what is stored."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "kickoff_id": self.kickoff_id,
                "crew_conn_id": self.crew_conn_id,
                "poll_interval": self.poll_interval,
                "deadline": self.deadline,
                "token_type": self.token_type,
                "max_outage": self.max_outage,
                "kicked_off_at": self.kicked_off_at,
                "exists": self.exists,
                "address": self.address,
                "human_input": self.human_input,
                "deferred_at": self.deferred_at,
                "memory": self.memory,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch to the end and fire."""
        hook = CrewHook(self.crew_conn_id, token_type=self.token_type)
        watch: Watch | None = None
        try:
            await asyncio.to_thread(_import_what_watching_needs)
            from airflow_provider_crew.triggers.events import LARGEST_ANSWER, completed_event

            watch = self._new_watch(hook)
            await asyncio.sleep(watch.spread().poll_again_in)
            async with hook.shared(largest=LARGEST_ANSWER) as crew:
                event = completed_event(await hook.watch_async(watch, crew), self.deadline)
        except CrewError as error:
            event = self._end_by(error)
        except asyncio.CancelledError:
            self.log.info(
                "Execution %s: not watched any more by this triggerer: it stops or hands over, or the task was "
                "changed. The execution goes on and is paid for. When nothing waits for it any more: "
                'CrewExecutionSensor(kickoff_id="%s").',
                self.kickoff_id,
                self.kickoff_id,
            )
            raise
        await asyncio.sleep(self._too_early_by())
        yield TriggerEvent(event | _looks_of(watch))  # type: ignore[no-untyped-call]

    def _new_watch(self, hook: CrewHook) -> Watch:
        from airflow_provider_crew.service.watch_state import WatchMemory, WatchRules

        rules = WatchRules(
            deadline=self.deadline,
            poll_interval=self.poll_interval,
            max_outage=self.max_outage,
            kicked_off_at=self.kicked_off_at,
            exists=self.exists,
            address=self.address,
            human_input=self.human_input,
        )
        return hook.new_watch(self.kickoff_id, rules, WatchMemory.recalled(self.memory))

    def _end_by(self, error: CrewError) -> dict[str, Any]:
        from airflow_provider_crew.triggers.events import LARGEST_ANSWER, failed_event, unread_event

        cause = error.cause if isinstance(error, WatchBroken) else None
        if isinstance(cause, AnswerTooLarge) and cause.limit == LARGEST_ANSWER:
            self.log.info("Execution %s: the answer is large, and the task itself reads it", self.kickoff_id)
            return unread_event(self.kickoff_id, self.deadline)
        return failed_event(self.kickoff_id, self.deadline, error)

    def _too_early_by(self) -> float:
        """Bounded, because the clock of the worker may be ahead of this one."""
        from airflow_provider_crew.service.watch_state import is_time

        since = time.time() - self.deferred_at if is_time(self.deferred_at) else SETTLING_TIME
        return min(max(SETTLING_TIME - since, 0.0), SETTLING_TIME)


def _looks_of(watch: Watch | None) -> dict[str, int | bool]:
    from airflow_provider_crew.triggers.events import looks_told

    return looks_told(watch.polls, seen=watch.memory.seen) if watch else {}


def _import_what_watching_needs() -> None:
    """Import it in a thread: the first time takes long enough to hold up all other triggers."""
    for module in _NEEDED_TO_WATCH:
        import_module(module)
