"""The trigger: watches one execution from the triggerer."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_crew.compat import SETTLING_TIME
from airflow_provider_crew.service.errors import AnswerTooLarge, CrewError, WatchBroken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.hooks.polling import Poller

_NEEDED_TO_WATCH = (
    "airflow_provider_crew.hooks.crew",
    "airflow_provider_crew.triggers.events",
)


class CrewExecutionTrigger(BaseTrigger):
    """
    Watch one execution until it has ended, log its progress, and fire one event.

    Arguments are plain and hold no secret: they are stored in Airflow's database.

    :param kickoff_id: the execution to watch
    :param crew_conn_id: the connection to its crew
    :param rules: how it is watched, and until when: a record of WatchRules
    :param token_type: which token of the connection to use, if not the one it says
    :param deferred_at: when the task was deferred
    :param memory: what the task has seen before it was deferred: a record of WatchMemory
    """

    def __init__(  # noqa: PLR0913 - what is stored, each by its name
        self,
        kickoff_id: str,
        crew_conn_id: str,
        *,
        rules: Mapping[str, Any],
        token_type: TokenType | None = None,
        deferred_at: float | None = None,
        memory: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.rules = rules
        self.token_type = token_type
        self.deferred_at = deferred_at
        self.memory = memory

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what is stored."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "kickoff_id": self.kickoff_id,
                "crew_conn_id": self.crew_conn_id,
                "rules": self.rules,
                "token_type": self.token_type,
                "deferred_at": self.deferred_at,
                "memory": self.memory,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch to the end and fire."""
        poller: Poller | None = None
        try:
            await asyncio.to_thread(_import_what_watching_needs)
            poller = self._poller()
            event = await self._watch(poller)
        except CrewError as error:
            event = _failed(self.kickoff_id, error)
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
        yield TriggerEvent(event | _polls_told(poller))  # type: ignore[no-untyped-call]

    def _poller(self) -> Poller:
        from airflow_provider_crew.hooks.crew import CrewHook
        from airflow_provider_crew.hooks.polling import Poller
        from airflow_provider_crew.service.watch_state import WatchMemory, WatchRules

        hook = CrewHook(self.crew_conn_id, token_type=self.token_type)
        memory = WatchMemory.recalled(self.memory)
        return Poller(hook, self.kickoff_id, WatchRules.of(self.rules), memory)

    async def _watch(self, poller: Poller) -> dict[str, Any]:
        from airflow_provider_crew.triggers.events import LARGEST_ANSWER, completed_event, unread_event

        deadline = self.rules["deadline"]
        await asyncio.sleep(poller.watch.spread().poll_again_in)
        try:
            async with poller.shared_crew(largest=LARGEST_ANSWER) as crew:
                return completed_event(await poller.to_end_async(crew), deadline)
        except WatchBroken as error:
            if not (isinstance(error.cause, AnswerTooLarge) and error.cause.limit == LARGEST_ANSWER):
                raise
        self.log.info("Execution %s: the answer is large, and the task itself reads it", self.kickoff_id)
        return unread_event(self.kickoff_id, deadline)

    def _too_early_by(self) -> float:
        """Bounded, because the clock of the worker may be ahead of this one."""
        since = SETTLING_TIME if self.deferred_at is None else time.time() - self.deferred_at
        return min(max(SETTLING_TIME - since, 0.0), SETTLING_TIME)


def _failed(kickoff_id: str, error: CrewError) -> dict[str, Any]:
    from airflow_provider_crew.triggers.events import failed_event

    return failed_event(kickoff_id, error)


def _polls_told(poller: Poller | None) -> dict[str, Any]:
    from airflow_provider_crew.triggers.events import polls_told

    return polls_told(poller.watch) if poller else {}


def _import_what_watching_needs() -> None:
    """Import it in a thread: the first time takes long enough to hold up all other triggers."""
    for module in _NEEDED_TO_WATCH:
        import_module(module)
