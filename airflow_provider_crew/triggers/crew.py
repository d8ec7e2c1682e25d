"""The trigger: watches one execution from the triggerer."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_crew.compat import SETTLING_TIME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_provider_crew.hooks.connection import TokenType

_STORED = ("kickoff_id", "crew_conn_id", "rules", "token_type", "deferred_at", "memory", "log_output")


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
    :param log_output: the event may hold what the crew has put out: Airflow logs each event
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
        log_output: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.rules = rules
        self.token_type = token_type
        self.deferred_at = deferred_at
        self.memory = memory
        self.log_output = log_output

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what is stored."""
        stored = {name: getattr(self, name) for name in _STORED}
        return f"{type(self).__module__}.{type(self).__qualname__}", stored

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch to the end and fire."""
        try:
            # In a thread: the first import takes long enough to hold up all other triggers.
            watching = await asyncio.to_thread(import_module, "airflow_provider_crew.triggers.watching")
            event = await watching.watched(self)
        except asyncio.CancelledError:
            self.log.info(
                "This triggerer no longer polls execution %s, which was running when last polled: the triggerer "
                "stops or hands over, or the task was changed. If no task waits for it, use CrewExecutionSensor.",
                self.kickoff_id,
            )
            raise
        await asyncio.sleep(self._too_early_by())
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    def _too_early_by(self) -> float:
        """Seconds until the event may fire; bounded, because the clock of the worker may be ahead of this one."""
        since = SETTLING_TIME if self.deferred_at is None else time.time() - self.deferred_at
        return min(max(SETTLING_TIME - since, 0.0), SETTLING_TIME)
