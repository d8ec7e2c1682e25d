"""An answer that a test holds back and releases."""

from __future__ import annotations

from threading import Event

from pydantic import PrivateAttr

from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.faults.kinds import HangFault

_PAUSE = 0.1


class HeldAnswer(HangFault):
    """Start the execution at once, and hold the answer back until it is released."""

    _released: Event = PrivateAttr(default_factory=Event)
    _held: Event = PrivateAttr(default_factory=Event)

    @property
    def is_held(self) -> bool:
        """Whether an answer was held."""
        return self._held.is_set()

    def release(self) -> None:
        """Release the answer."""
        self._released.set()

    async def happen(self, exchange: Exchange) -> None:
        """Wait for the release. A client that has disconnected meanwhile gets no answer."""
        answer = await exchange.take()
        self._held.set()
        while not self._released.is_set():
            await exchange.pause(_PAUSE)
        await exchange.send(answer)
