"""An answer that comes when a test says so, however long everything else takes."""

from __future__ import annotations

from threading import Event

from pydantic import PrivateAttr

from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.faults.kinds import HangFault

_PAUSE = 0.1


class HeldAnswer(HangFault):
    """Do the work at once, and hold the answer back until it is released."""

    _released: Event = PrivateAttr(default_factory=Event)

    def release(self) -> None:
        """Let the answer go."""
        self._released.set()

    async def happen(self, exchange: Exchange) -> None:
        """Wait for the release; a client that has hung up in the meantime is not served."""
        answer = await exchange.take()
        while not self._released.is_set():
            await exchange.pause(_PAUSE)
        await exchange.send(answer)
