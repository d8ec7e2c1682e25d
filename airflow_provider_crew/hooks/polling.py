"""Poll one execution through a connection until it has ended."""

import asyncio
import copy
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from asgiref.sync import sync_to_async

from airflow_provider_crew.client.errors import CallError, Cost, CrewError, Unreachable
from airflow_provider_crew.client.models import Completed, Execution
from airflow_provider_crew.client.progress import ProgressReport
from airflow_provider_crew.client.settings import ServiceSettings, tls_context
from airflow_provider_crew.client.text import warn
from airflow_provider_crew.client.watch import Step, Watch, WatchMemory, WatchRules
from airflow_provider_crew.hooks.connection import load_connection

if TYPE_CHECKING:
    from airflow_provider_crew.client.async_client import AsyncCrewClient
    from airflow_provider_crew.hooks.crew import CrewHook

T = TypeVar("T")

log = logging.getLogger(__name__)

# Seconds before a connection is read again.
_FRESH = 60.0
# Shorter, because a rejected token affects all watches, each at its own next poll.
_FRESH_AFTER_REJECTION = 5.0
# Maximum wait for the connection: a secrets backend may hang, and the watch has a deadline.
_LOOK_UP = 10.0


class SharedCrew:
    """
    Crew behind a connection, shared by all watches on one event loop.

    The connection is looked up in a separate task, one at a time, and all waiting watches use the result. A watch
    keeps its client unless the token is rejected. If a connection is pointed to another crew, executions of the
    first are therefore still polled. A client is closed when its last user returns it.

    :param name: Name of the connection in messages.
    :param ask: Function that reads the connection.
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
        Return a client, after reading the connection unless it was read recently.

        :param largest: Maximum size of an answer in bytes. ``None`` uses the default limit of the clients.
        """
        return await self._client(await self._settings(_FRESH), largest)

    async def reach(self, largest: int | None) -> "AsyncCrewClient":
        """Return a client for a poll. Treat an unreadable connection as an outage."""
        try:
            return await self.take(largest)
        except (ImportError, Unreachable):  # an incomplete installation, or wrapped already
            raise
        except Exception as error:  # noqa: BLE001 - a failed look-up must not end the watch
            raise Unreachable(
                f"Connection {self._name} is unreadable: {_reason(error)}",
                cost=Cost.RUNNING,
                sent=False,
                lacks_connection=True,
            ) from None

    async def renewed(self, old: "AsyncCrewClient") -> "AsyncCrewClient | None":
        """Return a client after reading the connection again, or None if the connection is unreadable."""
        try:
            return await self._client(await self._settings(_FRESH_AFTER_REJECTION), old.largest)
        except Exception as error:  # noqa: BLE001 - a failed look-up must not end the watch
            warn(log, f"Connection {self._name} is unreadable, so the old token is used: {_reason(error)}")
            return None

    async def give_back(self, client: "AsyncCrewClient") -> None:
        """Release a client, and close it after its last user."""
        client.users -= 1
        if not client.users:
            del self._clients[client.settings, client.largest]
            await client.close()

    async def _client(self, settings: ServiceSettings, largest: int | None) -> "AsyncCrewClient":
        wanted = settings, largest
        if wanted not in self._clients:
            await asyncio.to_thread(load_async_client, settings)
        if not (client := self._clients.get(wanted)):
            from airflow_provider_crew.client.async_client import AsyncCrewClient

            client = self._clients[wanted] = AsyncCrewClient(settings, largest=largest)
        client.users += 1
        return client

    async def _settings(self, fresh: float) -> ServiceSettings:
        """Return the connection's settings, read again unless recent. Concurrent callers share one look-up."""
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
        except Exception as error:  # noqa: BLE001 - raised in all waiting watches
            self._answer = error
        finally:
            self._answered_at, self._asking = time.monotonic(), None


def _reason(error: Exception) -> str:
    return error.event if isinstance(error, CrewError) else str(error)


def load_async_client(settings: ServiceSettings) -> None:
    """Import the modules of the asynchronous client. Call this in a thread: it would block an event loop."""
    import_module("airflow_provider_crew.client.async_client")
    import_module("requests.utils")
    tls_context(settings)


def shared_here(key: str, make: Callable[[], T]) -> T:
    """Return the object shared under a key on this event loop. It is created for its first user."""
    here = _shared.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    shared = here.get(key)
    if shared is None:
        shared = here[key] = make()
    return cast("T", shared)


# Shared objects by event loop and key.
_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, Any]] = WeakKeyDictionary()


# Receives the progress after each poll, and whether it has changed.
Observer = Callable[[ProgressReport, bool], None]


class Poller:
    """
    Poller that passes the outcome of each poll to a watch and follows the returned steps.

    If the token is rejected, the connection is read again.
    """

    def __init__(
        self,
        hook: "CrewHook",
        kickoff_id: str,
        rules: WatchRules,
        memory: WatchMemory | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._hook = hook
        self.watch = Watch(kickoff_id, rules, clock=time.time, random=random.random, memory=memory)
        self.report = ProgressReport(self.watch)
        self.client: AsyncCrewClient | None = None
        """Asynchronous client, set from the first poll to the end."""
        self.observer = observer

    def to_end(self) -> Completed:
        """Poll until the execution has completed. Raise the error that ends the watch otherwise."""
        while not (step := self.poll()).completed:
            self.pause(step)
        return step.completed

    def poll(self) -> Step:
        """Poll once, log what is new, and raise any error that ends the watch. The step holds the pause."""
        execution = None
        try:
            client = self._hook.get_conn()
            self.watch.request_timeout = client.settings.request_timeout
            execution = client.status(self.watch.kickoff_id)
            step = self.watch.on_status(execution)
        except CallError as error:
            step = self.watch.on_error(error)
        return self._told(step, execution)

    def pause(self, step: Step, sleep: Callable[[float], object] = time.sleep) -> None:
        """Sleep until the next poll, then renew the token if the step requires it."""
        sleep(step.poll_again_in)
        if step.renew_token:
            self._renew()

    async def to_end_async(self, crew: SharedCrew, *, largest: int | None = None) -> Completed:
        """Poll until the execution has completed, like to_end(). ``largest``: maximum answer size in bytes."""
        try:
            while not (step := await self._poll_async(crew, largest)).completed:
                pause, renew_token = step.poll_again_in, step.renew_token
                del step  # free it during the pause: thousands of watches slow down the garbage collector
                await asyncio.sleep(pause)
                if renew_token:
                    await self._renew_async(crew)
            return step.completed
        finally:
            client, self.client = self.client, None
            if client:
                await crew.give_back(client)

    def shared_crew(self) -> SharedCrew:
        """Return the crew behind the connection, shared by all pollers on this event loop."""
        conn_id, token_type = self._hook.crew_conn_id, self._hook.token_type

        async def settings() -> ServiceSettings:
            return (await sync_to_async(load_connection)(conn_id, token_type)).settings

        # Format it with repr, because a stored trigger may hold any type.
        token = f" ({token_type!r} token)" if token_type else ""
        name = f"{conn_id!r}{token}"
        return shared_here(name, lambda: SharedCrew(name, settings))

    async def _poll_async(self, crew: SharedCrew, largest: int | None) -> Step:
        """Poll once, like poll()."""
        execution = None
        try:
            self.client = self.client or await crew.reach(largest)
            self.watch.request_timeout = self.client.settings.request_timeout
            execution = await self.client.status(self.watch.kickoff_id)
            step = self.watch.on_status(execution)
        except CallError as error:
            step = self.watch.on_error(error)
        return self._told(step, execution)

    def _told(self, step: Step, execution: Execution | None) -> Step:
        for line in step.lines:
            self._hook.log.log(line.level, "%s", line.text)
        if self.observer:
            try:
                self.observer(self.report, self.report.update(execution))
            except Exception as error:  # noqa: BLE001 - an observer must not end the watch
                self._hook.log.debug("Progress was not reported: %s", error)
        if step.error:
            raise step.error
        return step

    async def _renew_async(self, crew: SharedCrew) -> None:
        """Read the connection again, like _renew()."""
        old = self.client
        if old and (fresh := await crew.renewed(old)):
            self.client = fresh
            await crew.give_back(old)
            if fresh.settings.token != old.settings.token:
                self.watch.token_renewed()

    def _renew(self) -> None:
        """Read the connection again. If it is unreadable, keep the current client."""
        old, fresh = self._hook, copy.copy(self._hook)
        try:
            client = fresh.get_conn()
        except Exception as error:  # noqa: BLE001 - a failed look-up must not end the watch
            reason = error.event if isinstance(error, CrewError) else error
            warn(old.log, f"Connection {old.crew_conn_id!r} is unreadable, so the old token is used: {reason}")
            return
        self._hook = fresh
        old.get_conn().close()
        if client.settings.token != old.get_conn().settings.token:
            self.watch.token_renewed()
