"""
One client for all who watch executions of one crew on one event loop.

A thousand executions then need one look-up of the connection, and as many connections as there are looks under
way, instead of a thousand of each. A look-up costs a triggerer tens of milliseconds, and they go one by one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from airflow_provider_crew.service.async_client import AsyncCrewClient
from airflow_provider_crew.service.errors import Unreachable
from airflow_provider_crew.service.network import tls_context

if TYPE_CHECKING:
    from types import TracebackType

    from airflow_provider_crew.hooks.crew import CrewHook
    from airflow_provider_crew.service.settings import ServiceSettings

    # Whose client, and the most that it reads of an answer.
    _Wanted = tuple[ServiceSettings, int | None]

# Whoever begins later than that after a connection was changed, begins with what it says now.
_FRESH = 60.0
# A rejected token is rejected for all, each at its own next look.
_FRESH_AFTER_REJECTION = 5.0


class SharedCrew:
    """
    The crew behind a connection, for one who watches. Use it as an asynchronous context manager.

    Each keeps to what the connection said when it began, unless the token is rejected: a connection that is
    pointed to another crew leaves the executions of the first to be watched.

    :param hook: reads the connection
    :param largest: the most that is read of an answer, in bytes; None: as much as anybody reads
    """

    def __init__(self, hook: CrewHook, *, largest: int | None = None) -> None:
        self._hook = hook
        self._largest = largest
        self._here = _shared.setdefault(asyncio.get_running_loop(), _Shared())
        self._look_up = self._here.join(hook)
        self.client: AsyncCrewClient | None = None

    async def connect(self) -> AsyncCrewClient:
        """Return the client that is shared, after reading the connection if nobody has done so lately."""
        if self.client is None:
            self.client = await self._client_for(await self._look_up.settings(self._hook, fresh=_FRESH))
        return self.client

    async def reach(self) -> AsyncCrewClient:
        """Connect for a look: a connection that cannot be read just now is an outage like any other."""
        try:
            return await self.connect()
        except ImportError:  # no outage, but an incomplete installation
            raise
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            told = f"The connection {self._hook.crew_conn_id!r} cannot be read: {str(error).rstrip('.')}."
            raise Unreachable(told, sent=False) from None

    async def renew(self) -> bool:
        """Read the connection anew, and say whether it holds another token. One that cannot be read stays."""
        old = self.client
        if old is None:
            return False
        try:
            settings = await self._look_up.settings(self._hook, fresh=_FRESH_AFTER_REJECTION)
            self.client = await self._client_for(settings)
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            self._hook.log.warning("The connection %r could not be read anew: %s", self._hook.crew_conn_id, error)
            return False
        await self._here.give_back(old)
        return settings.token != old.settings.token

    async def _client_for(self, settings: ServiceSettings) -> AsyncCrewClient:
        if not self._here.has(settings, self._largest):
            # Loading the authorities takes long enough to hold up all others.
            await asyncio.to_thread(tls_context, settings)
        return self._here.take(settings, self._largest)

    async def __aenter__(self) -> Self:
        """Return the crew itself. Nothing is read or opened before the first look."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what nobody else uses."""
        client, self.client = self.client, None
        self._here.leave(self._look_up)
        if client:
            await self._here.give_back(client)


class _LookUp:
    """What one connection says. One asks at a time; who has waited meanwhile takes the same answer."""

    def __init__(self) -> None:
        self.users = 0
        self._asking = asyncio.Lock()
        self._answer: ServiceSettings | Exception | None = None
        self._answered_at = -math.inf

    async def settings(self, hook: CrewHook, *, fresh: float) -> ServiceSettings:
        """Ask, unless somebody was told so lately, or was told while this one waited that it cannot be read."""
        asked_at = time.monotonic()
        async with self._asking:
            if isinstance(self._answer, Exception):
                if self._answered_at >= asked_at:
                    raise self._answer.with_traceback(None)
            elif self._answer and time.monotonic() - self._answered_at < fresh:
                return self._answer
            try:
                settings = await hook.settings_async()
            except Exception as error:
                self._note(error)
                raise
            self._note(settings)
            return settings

    def _note(self, answer: ServiceSettings | Exception) -> None:
        self._answer, self._answered_at = answer, time.monotonic()


class _Shared:
    """What is shared on one event loop, each with the number of those who use it."""

    def __init__(self) -> None:
        self._look_ups: dict[str, _LookUp] = {}
        self._clients: dict[_Wanted, AsyncCrewClient] = {}
        self._users: Counter[AsyncCrewClient] = Counter()

    def join(self, hook: CrewHook) -> _LookUp:
        # As text: what a trigger was stored with may be anything.
        look_up = self._look_ups.setdefault(f"{hook.crew_conn_id!r} {hook.token_type!r}", _LookUp())
        look_up.users += 1
        return look_up

    def leave(self, look_up: _LookUp) -> None:
        look_up.users -= 1
        if not look_up.users:
            self._look_ups = {key: kept for key, kept in self._look_ups.items() if kept is not look_up}

    def has(self, settings: ServiceSettings, largest: int | None) -> bool:
        return (settings, largest) in self._clients

    def take(self, settings: ServiceSettings, largest: int | None) -> AsyncCrewClient:
        wanted = settings, largest
        if wanted not in self._clients:
            self._clients[wanted] = AsyncCrewClient(settings, largest=largest)
        client = self._clients[wanted]
        self._users[client] += 1
        return client

    async def give_back(self, client: AsyncCrewClient) -> None:
        self._users[client] -= 1
        if not self._users[client]:
            del self._users[client]
            self._clients = {wanted: kept for wanted, kept in self._clients.items() if kept is not client}
            await client.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()
