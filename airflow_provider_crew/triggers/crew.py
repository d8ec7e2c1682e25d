"""Trigger that watches one execution from the triggerer."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_crew.client import timing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping

    from airflow_provider_crew.client.models import Completed
    from airflow_provider_crew.client.progress import ProgressReport

# Cancellations under way. The event loop itself keeps only weak references.
_cancelling: set[asyncio.Task[None]] = set()


class _Event(dict[str, Any]):
    """Event whose values stay out of the log, where Airflow writes each event: they may hold the crew's output."""

    def __repr__(self) -> str:
        return ", ".join(self)


class CrewExecutionTrigger(BaseTrigger):
    """
    Watch one execution until it ends, log its progress, and fire one event.

    The arguments are plain data without secrets, because Airflow stores them in its database.

    :param kickoff_id: Kickoff ID of the execution.
    :param crew_conn_id: Connection to the crew.
    :param rules: WatchRules as plain data, including the deadline.
    :param webhook_conn_id: Connection with the secret of the crew's webhooks, which is masked in messages.
    :param deferred_at: Time at which the task was deferred. ``None`` never cancels.
    :param memory: WatchState of the task before it was deferred, as plain data.
    :param asked: Whether a request of the task is open under Required Actions.
    :param cancel_on_kill: Whether to cancel the execution if someone marks the task (Airflow 3.3 and later).
    :param shown: Sentences of the task for the Crew tab, alerts and the request, while it waits and afterwards.
    """

    implementation = "airflow_provider_crew.triggers.watching"
    closes_as = "No answer is needed any longer"
    """What Airflow's record of an open request says when the trigger closes it."""
    stored = "kickoff_id crew_conn_id rules webhook_conn_id deferred_at memory asked cancel_on_kill shown"

    def __init__(  # noqa: PLR0913 - stored by name
        self,
        kickoff_id: str,
        crew_conn_id: str,
        *,
        rules: Mapping[str, Any],
        webhook_conn_id: str | None = None,
        deferred_at: float | None = None,
        memory: Mapping[str, Any] | None = None,
        asked: bool = False,
        cancel_on_kill: bool = False,
        shown: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.rules = rules
        self.webhook_conn_id = webhook_conn_id
        self.deferred_at = deferred_at
        self.memory = memory
        self.asked = asked
        self.cancel_on_kill = cancel_on_kill
        self.shown = shown or {}
        self.report: ProgressReport | None = None  # set by the watch, for on_kill()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments to store."""
        stored = {name: getattr(self, name) for name in self.stored.split()}
        return f"{type(self).__module__}.{type(self).__qualname__}", stored

    @property
    def subject(self) -> str:
        """Execution that is polled, for the log."""
        return f"execution {self.kickoff_id}"

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the execution until it ends, then fire."""
        # Each deferral of a task starts a new log file, so the first line names the execution.
        self.log.info("Polling %s.", self.subject)
        try:
            # Import in a thread: the first import is slow enough to block all other triggers.
            watching = await asyncio.to_thread(import_module, self.implementation)
            event = await watching.watched(self)
            await asyncio.sleep(self._too_early_by())
        except asyncio.CancelledError:
            if self.cancel_on_kill:
                raise
            # Airflow takes an answer under Required Actions, or a handover to another triggerer, for a user's
            # action, and would log one. Without its message, it does not, and does not call on_kill() either.
            raise asyncio.CancelledError from None
        yield TriggerEvent(_Event(event))  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel the execution if wanted. Airflow 3.3 and later call this if someone marks or clears the task."""
        if self.cancel_on_kill and self.task_instance:  # there is none in dag.test()
            watching = await asyncio.to_thread(import_module, self.implementation)
            # Shielded, because Airflow cancels on_kill() about a second after it has called it.
            cancelling = asyncio.create_task(watching.cancel_if_unwanted(self))
            _cancelling.add(cancelling)
            cancelling.add_done_callback(_cancelling.discard)
            await asyncio.shield(cancelling)

    async def end_of(self, wait: Coroutine[Any, Any, Completed]) -> Completed:
        """Return what ends the wait. A subclass may end it earlier, with a CrewError."""
        return await wait

    def _too_early_by(self) -> float:
        """Seconds until the event may fire. Bounded, because the worker's clock may be ahead of this one."""
        shortest = timing.SHORTEST_DEFERRAL
        since = shortest if self.deferred_at is None else time.time() - self.deferred_at
        return min(max(shortest - since, 0.0), shortest)
