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
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from airflow_provider_crew.service.errors import CrewError, Unreachable
from airflow_provider_crew.service.messages import CONNECTION_IN_DOUBT
from airflow_provider_crew.service.network import load_async_client
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.text import warn

if TYPE_CHECKING:
    from airflow_provider_crew.service.async_client import AsyncCrewClient

T = TypeVar("T")

log = logging.getLogger(__name__)

# For so long what a connection said is used again; after that it is read anew.
_FRESH = 60.0
# A rejected token is rejected for all, each at its own next poll.
_FRESH_AFTER_REJECTION = 5.0
# A watch waits no longer for the connection: a secrets backend may hang, and the watch has a deadline.
_LOOK_UP = 10.0


class SharedCrew:
    """
    The crew behind a connection, for all who watch executions of it on one event loop.

    The connection is looked up in a task of its own, one at a time, and all watches that wait take its answer. A
    watch keeps its client unless the token is rejected: if a connection is pointed to another crew, executions of
    the first are still watched. A client is closed with its last user.

    :param name: how messages name the connection
    :param ask: reads the connection
    """

    def __init__(self, name: str, ask: Callable[[], Awaitable[ServiceSettings]]) -> None:
        self._name = name
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._answer: ServiceSettings | Exception | None = None
        self._answered_at = -math.inf
        self._clients: dict[tuple[ServiceSettings, int | None], AsyncCrewClient] = {}

    async def take(self, largest: int | None = None) -> "AsyncCrewClient":
        """
        Return a client, after reading the connection if nobody has done so lately.

        :param largest: the most that is read of an answer, in bytes; None: as much as anybody reads
        """
        return await self._client(await self._settings(_FRESH), largest)

    async def reach(self, largest: int | None) -> "AsyncCrewClient":
        """Take a client for a poll: a connection that cannot be read just now is an outage like any other."""
        try:
            return await self.take(largest)
        except (ImportError, Unreachable):  # no outage, but an incomplete installation; or told already
            raise
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            words = {"connection": self._name, "why": _reason(error)}
            raise Unreachable.saying(CONNECTION_IN_DOUBT, words, sent=False, lacks_connection=True) from None

    async def renewed(self, old: "AsyncCrewClient") -> "AsyncCrewClient | None":
        """Take a client of what the connection says now; None where it cannot be read."""
        try:
            return await self._client(await self._settings(_FRESH_AFTER_REJECTION), old.largest)
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            warn(log, f"The connection {self._name} could not be read anew: {_reason(error)}")
            return None

    async def give_back(self, client: "AsyncCrewClient") -> None:
        """Close what nobody else uses."""
        client.users -= 1
        if not client.users:
            del self._clients[client.settings, client.largest]
            await client.close()

    async def _client(self, settings: ServiceSettings, largest: int | None) -> "AsyncCrewClient":
        wanted = settings, largest
        if wanted not in self._clients:
            await asyncio.to_thread(load_async_client, settings)
        if not (client := self._clients.get(wanted)):
            from airflow_provider_crew.service.async_client import AsyncCrewClient

            client = self._clients[wanted] = AsyncCrewClient(settings, largest=largest)
        client.users += 1
        return client

    async def _settings(self, fresh: float) -> ServiceSettings:
        """Read the connection, unless it was read lately, or could not be read while this one waited."""
        if not self._asking:
            is_fresh = time.monotonic() - self._answered_at < fresh
            if is_fresh and isinstance(self._answer, ServiceSettings):
                return self._answer
            self._asking = asyncio.create_task(self._look_up())
        done, _ = await asyncio.wait({self._asking}, timeout=_LOOK_UP)
        if not done:
            raise TimeoutError(f"Airflow has not returned it within {_LOOK_UP:g} s")
        if isinstance(self._answer, ServiceSettings):
            return self._answer
        raise cast("Exception", self._answer).with_traceback(None)

    async def _look_up(self) -> None:
        try:
            self._answer = await self._ask()
        except Exception as error:  # noqa: BLE001 - told to all who wait
            self._answer = error
        finally:
            self._answered_at, self._asking = time.monotonic(), None


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, CrewError) else str(error)


def shared_here(key: str, make: Callable[[], T]) -> T:
    """Return what all share on this event loop under a key: made for the first of them, gone with the last."""
    here = _shared.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    shared = here.get(key)
    if shared is None:
        shared = here[key] = make()
    return cast("T", shared)


# By event loop, and by key.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, Any]] = WeakKeyDictionary()
