"""Trigger that watches one execution from the triggerer."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_crew.versions import MIN_DEFERRAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_provider_crew.client.progress import ProgressReport
    from airflow_provider_crew.hooks.connection import TokenType

_STORED = (
    "kickoff_id crew_conn_id rules token_type webhook_conn_id deferred_at memory log_output asked cancel_on_kill"
)

# Cancellations under way. The event loop itself keeps only weak references.
_cancelling: set[asyncio.Task[None]] = set()


class CrewExecutionTrigger(BaseTrigger):
    """
    Watch one execution until it has ended, log its progress, and fire one event.

    The arguments are plain data without secrets, because Airflow stores them in its database.

    :param kickoff_id: Kickoff ID of the execution.
    :param crew_conn_id: Connection to the crew.
    :param rules: WatchRules as plain data, including the deadline.
    :param token_type: Token of the connection to use. ``None`` uses the connection's setting.
    :param webhook_conn_id: Connection with the secret of the crew's webhooks, which is masked in responses.
    :param deferred_at: Time at which the task was deferred. ``None`` never cancels.
    :param memory: WatchState of the task before it was deferred, as plain data.
    :param log_output: Whether the event may contain the crew's output, because Airflow logs each event.
    :param asked: Whether a request of the task is open under Required Actions.
    :param cancel_on_kill: Whether to cancel the execution if someone marks the task (Airflow 3.3 and later).
    """

    def __init__(  # noqa: PLR0913 - stored by name
        self,
        kickoff_id: str,
        crew_conn_id: str,
        *,
        rules: Mapping[str, Any],
        token_type: TokenType | None = None,
        webhook_conn_id: str | None = None,
        deferred_at: float | None = None,
        memory: Mapping[str, Any] | None = None,
        log_output: bool = True,
        asked: bool = False,
        cancel_on_kill: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.rules = rules
        self.token_type = token_type
        self.webhook_conn_id = webhook_conn_id
        self.deferred_at = deferred_at
        self.memory = memory
        self.log_output = log_output
        self.asked = asked
        self.cancel_on_kill = cancel_on_kill
        self.report: ProgressReport | None = None  # set by the watch, for on_kill()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments to store."""
        stored = {name: getattr(self, name) for name in _STORED.split()}
        return f"{type(self).__module__}.{type(self).__qualname__}", stored

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the execution until it has ended, then fire."""
        try:
            # Import in a thread: the first import is slow enough to block all other triggers.
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

    async def on_kill(self) -> None:
        """Cancel the execution if wanted. Airflow 3.3 and later call this if someone marks or clears the task."""
        if self.cancel_on_kill and self.task_instance:  # there is none in dag.test()
            watching = await asyncio.to_thread(import_module, "airflow_provider_crew.triggers.watching")
            # Shielded, because Airflow cancels on_kill() about a second after it has called it.
            cancelling = asyncio.create_task(watching.cancel_if_unwanted(self))
            _cancelling.add(cancelling)
            cancelling.add_done_callback(_cancelling.discard)
            await asyncio.shield(cancelling)

    def _too_early_by(self) -> float:
        """Seconds until the event may fire. Bounded, because the worker's clock may be ahead of this one."""
        since = MIN_DEFERRAL_SECONDS if self.deferred_at is None else time.time() - self.deferred_at
        return min(max(MIN_DEFERRAL_SECONDS - since, 0.0), MIN_DEFERRAL_SECONDS)
