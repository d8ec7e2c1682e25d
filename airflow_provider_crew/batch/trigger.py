"""Trigger that watches all running rows of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

if TYPE_CHECKING:
    from collections.abc import Sequence


class CrewBatchTrigger(CrewExecutionTrigger):
    """
    Watch the running rows of a batch, and fire when a quarter of the window has ended, or after 30 s if any has.

    :param running: Name, kickoff ID, address, kickoff time, begin, troubles and first poll of each row.
    :param window: Number of executions that may run concurrently.

    The other arguments are those of CrewExecutionTrigger.
    """

    implementation = "airflow_provider_crew.batch.watching"
    stored = "running window crew_conn_id rules webhook_conn_id deferred_at cancel_on_kill shown"

    def __init__(
        self, running: Sequence[Sequence[Any]], crew_conn_id: str, *, window: int, **arguments: Any
    ) -> None:
        super().__init__("", crew_conn_id, **arguments)
        self.running = running
        self.window = window

    @property
    def subject(self) -> str:
        """Executions that are polled, for the log."""
        return f"running rows of the batch: {len(self.running)}"
