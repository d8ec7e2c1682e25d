"""
One client for all who watch executions of one crew on one event loop.

A thousand executions then need one look-up of the connection, and as many connections as there are polls under
way, instead of a thousand of each. A look-up costs a triggerer tens of milliseconds, and they go one by one.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from airflow_provider_crew.service.async_client import AsyncCrewClient
from airflow_provider_crew.service.errors import CrewError, Unreachable
from airflow_provider_crew.service.messages import CONNECTION_IN_DOUBT
from airflow_provider_crew.service.network import tls_context
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.text import warn

log = logging.getLogger(__name__)

# Whoever begins later than that after a connection was changed, begins with what it says now.
_FRESH = 60.0
# A rejected token is rejected for all, each at its own next poll.
_FRESH_AFTER_REJECTION = 5.0


class _Client(AsyncCrewClient):
    users = 0


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
        here = _shared.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        self._shared = here.setdefault(key, _Shared())
        self.client: _Client | None = None

    async def connect(self) -> _Client:
        """Return the client that is shared, after reading the connection if nobody has done so lately."""
        if self.client is None:
            self.client = await self._new_client(_FRESH)
        return self.client

    async def reach(self) -> _Client:
        """Connect for a poll: a connection that cannot be read just now is an outage like any other."""
        try:
            return await self.connect()
        except (ImportError, Unreachable):  # no outage, but an incomplete installation; or told already
            raise
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            words = {"connection": self._key, "why": _reason(error)}
            raise Unreachable.saying(CONNECTION_IN_DOUBT, words, sent=False, lacks_connection=True) from None

    async def renew(self) -> bool:
        """Read the connection anew, and say whether it holds another token. One that cannot be read stays."""
        old = await self.connect()
        try:
            self.client = await self._new_client(_FRESH_AFTER_REJECTION)
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            warn(log, f"The connection {self._key} could not be read anew: {_reason(error)}")
            return False
        await self._shared.give_back(old)
        return self.client.settings.token != old.settings.token

    async def _new_client(self, fresh: float) -> _Client:
        return await self._shared.client(await self._shared.settings(self._settings, fresh), self._largest)

    async def __aenter__(self) -> Self:
        """Return the crew itself. Nothing is read or opened before the first poll."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close what nobody else uses."""
        client, self.client = self.client, None
        if client:
            await self._shared.give_back(client)


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, CrewError) else str(error)


class _Shared:
    """
    What one connection says on one event loop, and the clients of what it has said.

    One asks at a time; who has waited meanwhile takes the same answer. A client is closed with its last user.
    """

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._answer: ServiceSettings | Exception | None = None
        self._answered_at = -math.inf
        self._clients: dict[tuple[ServiceSettings, int | None], _Client] = {}

    async def settings(self, ask: Callable[[], Awaitable[ServiceSettings]], fresh: float) -> ServiceSettings:
        """Ask, unless somebody was told so lately, or was told while this one waited that it cannot be read."""
        asked_at = time.monotonic()
        async with self._asking:
            age = asked_at - self._answered_at
            if self._answer is None or age >= (0.0 if isinstance(self._answer, Exception) else fresh):
                try:
                    self._answer = await ask()
                except Exception as error:  # noqa: BLE001 - told to all who wait
                    self._answer = error
                self._answered_at = time.monotonic()
            if isinstance(self._answer, Exception):
                raise self._answer.with_traceback(None)
            return self._answer

    async def client(self, settings: ServiceSettings, largest: int | None) -> _Client:
        """Take a client, which has to be given back."""
        wanted = settings, largest
        if wanted not in self._clients:
            # Loading the authorities takes long enough to hold up all others.
            await asyncio.to_thread(tls_context, settings)
        client = self._clients.get(wanted) or self._clients.setdefault(wanted, _Client(settings, largest=largest))
        client.users += 1
        return client

    async def give_back(self, client: _Client) -> None:
        client.users -= 1
        if not client.users:
            del self._clients[client.settings, client.largest]
            await client.close()


# By event loop, and by the key of the connection.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, _Shared]] = WeakKeyDictionary()
