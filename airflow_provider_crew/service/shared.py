"""
One client for all who watch executions of one crew on one event loop.

A thousand executions then need one look-up of the connection, and as many connections as there are polls under
way, instead of a thousand of each. A look-up costs a triggerer tens of milliseconds, and they go one by one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from airflow_provider_crew.service.async_client import AsyncCrewClient
from airflow_provider_crew.service.errors import Unreachable
from airflow_provider_crew.service.network import tls_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from airflow_provider_crew.service.settings import ServiceSettings

log = logging.getLogger(__name__)

# Whoever begins later than that after a connection was changed, begins with what it says now.
_FRESH = 60.0
# A rejected token is rejected for all, each at its own next poll.
_FRESH_AFTER_REJECTION = 5.0


class SharedCrew:
    """
    The crew behind a connection, for one who watches. Use it as an asynchronous context manager.

    Each keeps to what the connection said when it began, unless the token is rejected: a connection that is
    pointed to another crew leaves the executions of the first to be watched.

    :param key: by which all who use the connection are known to each other, and by which messages name it
    :param settings: reads the connection
    :param largest: the most that is read of an answer, in bytes; None: as much as anybody reads
    """

    def __init__(
        self, key: str, settings: Callable[[], Awaitable[ServiceSettings]], *, largest: int | None = None
    ) -> None:
        self._key = key
        self._settings = settings
        self._largest = largest
        self._here = _shared.setdefault(asyncio.get_running_loop(), _Shared())
        self._look_up = self._here.look_ups.setdefault(key, _LookUp())
        self.client: AsyncCrewClient | None = None

    async def connect(self) -> AsyncCrewClient:
        """Return the client that is shared, after reading the connection if nobody has done so lately."""
        if self.client is None:
            self.client = await self._new_client(_FRESH)
        return self.client

    async def reach(self) -> AsyncCrewClient:
        """Connect for a poll: a connection that cannot be read just now is an outage like any other."""
        try:
            return await self.connect()
        except ImportError:  # no outage, but an incomplete installation
            raise
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            told = f"The connection {self._key} cannot be read: {str(error).rstrip('.')}."
            raise Unreachable(told, sent=False) from None

    async def renew(self) -> bool:
        """Read the connection anew, and say whether it holds another token. One that cannot be read stays."""
        old = self.client
        if old is None:
            return False
        try:
            self.client = await self._new_client(_FRESH_AFTER_REJECTION)
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            log.warning("The connection %s could not be read anew: %s", self._key, error)
            return False
        await self._here.give_back(old)
        return self.client.settings.token != old.settings.token

    async def _new_client(self, fresh: float) -> AsyncCrewClient:
        settings = await self._look_up.settings(self._settings, fresh)
        if (settings, self._largest) not in self._here.clients:
            # Loading the authorities takes long enough to hold up all others.
            await asyncio.to_thread(tls_context, settings)
        return self._here.take(settings, self._largest)

    async def __aenter__(self) -> Self:
        """Return the crew itself. Nothing is read or opened before the first poll."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what nobody else uses."""
        client, self.client = self.client, None
        if client:
            await self._here.give_back(client)


class _LookUp:
    """What one connection says. One asks at a time; who has waited meanwhile takes the same answer."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._answer: ServiceSettings | Exception | None = None
        self._answered_at = -math.inf

    async def settings(self, ask: Callable[[], Awaitable[ServiceSettings]], fresh: float) -> ServiceSettings:
        """Ask, unless somebody was told so lately, or was told while this one waited that it cannot be read."""
        asked_at = time.monotonic()
        async with self._asking:
            if isinstance(self._answer, Exception):
                if self._answered_at >= asked_at:
                    raise self._answer.with_traceback(None)
            elif self._answer and time.monotonic() - self._answered_at < fresh:
                return self._answer
            try:
                settings = await ask()
            except Exception as error:
                self._note(error)
                raise
            self._note(settings)
            return settings

    def _note(self, answer: ServiceSettings | Exception) -> None:
        self._answer, self._answered_at = answer, time.monotonic()


class _Shared:
    """What is shared on one event loop. A client is closed with its last user; a look-up goes with them."""

    def __init__(self) -> None:
        self.look_ups: WeakValueDictionary[str, _LookUp] = WeakValueDictionary()
        self.clients: dict[tuple[ServiceSettings, int | None], _Client] = {}

    def take(self, settings: ServiceSettings, largest: int | None) -> _Client:
        if (settings, largest) not in self.clients:
            self.clients[settings, largest] = _Client(settings, largest=largest)
        client = self.clients[settings, largest]
        client.users += 1
        return client

    async def give_back(self, client: AsyncCrewClient) -> None:
        wanted = client.settings, client.largest
        self.clients[wanted].users -= 1
        if not self.clients[wanted].users:
            del self.clients[wanted]
            await client.close()


class _Client(AsyncCrewClient):
    users = 0


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()
