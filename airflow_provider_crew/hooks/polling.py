"""Polling one execution through a connection until it has ended."""

import asyncio
import copy
import random
import time
from concurrent.futures import Future, wait
from typing import Any, Protocol

from asgiref.sync import sync_to_async

from airflow_provider_crew.hooks.connection import TokenType, load_connection
from airflow_provider_crew.hooks.threads import in_thread
from airflow_provider_crew.service.client import CrewClient
from airflow_provider_crew.service.errors import CallError, CrewError
from airflow_provider_crew.service.models import Completed, Execution
from airflow_provider_crew.service.progress import ProgressReport
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.shared import SharedClient, SharedCrew, not_polled, shared_here
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.service.watch import Watch
from airflow_provider_crew.service.watch_state import Step, WatchMemory, WatchRules

# For how long a poll waits for the connection, before it counts as one that brought no answer.
_LOOK_UP = 10.0
# aiohttp rounds a time limit up to a whole second. What it says itself tells more.
_LATE = 1.0


class Hook(Protocol):
    """What reads the connection, and a copy of it anew."""

    crew_conn_id: str
    token_type: TokenType | None

    @property
    def log(self) -> Any:
        """Where it says what it does."""

    def get_conn(self) -> CrewClient:
        """Return the client for the crew."""


class Observer(Protocol):
    """Who looks on."""

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - two words about one poll
        """Hear after each poll what there is to tell, and whether that is news."""


class Poller:
    """
    Feeds a watch with what the polls bring, and does what it says.

    The connection is read anew when the token is rejected.
    """

    def __init__(
        self,
        hook: Hook,
        kickoff_id: str,
        rules: WatchRules,
        memory: WatchMemory | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._hook = hook
        self._fresh = hook
        self._is_connected = False
        self.watch = Watch(kickoff_id, rules, clock=time.time, random=random.random, memory=memory)
        self.report = ProgressReport(self.watch)
        self.client: SharedClient | None = None
        """Who polls asynchronously has one from the first poll to the end."""
        self._observer = observer
        self._polling: asyncio.Task[Execution] | None = None
        self._is_sent = False
        self._reached: asyncio.Future[None] | None = None
        self._looking_up: Future[CrewClient] | None = None

    def to_end(self) -> Completed:
        """Poll until the execution has completed; raise what ends the watch otherwise."""
        while not (step := self.poll()).completed:
            self.pause(step)
        return step.completed

    def poll(self) -> Step:
        """Poll once, log what is new, and raise what ends the watch. The step says when to poll again."""
        execution = None
        try:
            execution = self._connected().status(self.watch.kickoff_id)
            step = self.watch.saw(execution)
        except CallError as error:
            step = self.watch.failed(error)
        return self._told(step, execution)

    def pause(self, step: Step) -> None:
        """Do what a step says is to be done before the next poll."""
        time.sleep(step.poll_again_in)
        if step.renew_token:
            self._renew()

    async def to_end_async(self, crew: SharedCrew, *, largest: int | None = None) -> Completed:
        """Poll until the execution has completed, like to_end(). ``largest``: the most to read of an answer."""
        renew_token = False
        try:
            while not (step := await self._poll_async(crew, largest, renew_token)).completed:
                pause, renew_token = step.poll_again_in, step.renew_token
                del step  # thousands of pauses would keep what nobody needs, and the garbage collector walks it
                await asyncio.sleep(pause)
            return step.completed
        finally:
            if self._polling:
                self._polling.cancel()
                await asyncio.gather(self._polling, return_exceptions=True)
            client, self.client = self.client, None
            if client:
                await crew.give_back(client)

    def shared_crew(self) -> SharedCrew:
        """Return the crew behind the connection, shared by all that poll it on this event loop."""
        conn_id, token_type = self._hook.crew_conn_id, self._hook.token_type

        async def settings() -> ServiceSettings:
            return (await sync_to_async(load_connection)(conn_id, token_type)).settings

        return shared_here(self._name, lambda: SharedCrew(self._name, settings))

    @property
    def _name(self) -> str:
        """How messages name the connection: as text, since what a trigger was stored with may be anything."""
        token_type = self._hook.token_type
        return f"{self._hook.crew_conn_id!r}{f' ({token_type!r} token)' if token_type else ''}"

    async def _poll_async(self, crew: SharedCrew, largest: int | None, renew_token: bool) -> Step:  # noqa: FBT001
        """Poll once, like poll()."""
        execution = None
        try:
            execution = await self._answer(crew, largest, renew_token)
            step = self.watch.saw(execution)
        except CallError as error:
            step = self.watch.failed(error)
        return self._told(step, execution)

    async def _answer(self, crew: SharedCrew, largest: int | None, renew_token: bool) -> Execution:  # noqa: FBT001
        """
        Wait for an answer, but no longer than the watch may.

        A look-up of the connection may hang, and a hundred polls of others may get no answer. A poll that has to
        wait keeps its place in the queue until the watch ends, and meanwhile counts as one without an answer.
        """
        if self._polling is None:
            self._is_sent, self._reached = False, asyncio.get_running_loop().create_future()
            self._polling = asyncio.create_task(self._ask(crew, largest, renew_token))
        polling, began = self._polling, time.monotonic()
        while not polling.done():
            now, longest = time.monotonic(), self._longest()
            left = began + longest - now
            if self._is_sent:
                # Then it ends by itself. But one that was sent late may not outlast the watch by more than that.
                left = max(left, self.watch.ends_at - time.time() + longest) + _LATE
            if left <= 0:
                raise not_polled(crew.name, longest, is_read=bool(self.client))
            awaited = [each for each in (polling, self._reached) if each and not each.done()]
            await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        self._polling = self._reached = None
        return polling.result()

    async def _ask(self, crew: SharedCrew, largest: int | None, renew_token: bool) -> Execution:  # noqa: FBT001
        if renew_token:
            await self._renew_async(crew)
        self.client = self.client or await crew.reach(largest)
        self.watch.request_timeout = self._longest()
        if self._reached:
            self._reached.set_result(None)  # from now on it is the crew's time that counts
        async with self.client.places:
            self._is_sent = True
            return await self.client.status(self.watch.kickoff_id)

    def _longest(self) -> float:
        return self.client.settings.request_timeout if self.client else _LOOK_UP

    def _told(self, step: Step, execution: Execution | None) -> Step:
        for line in step.lines:
            self._hook.log.log(line.level, "%s", line.text)
        if self._observer:
            try:
                self._observer.saw(self.report, self.report.saw(execution))
            except Exception as error:  # noqa: BLE001 - nobody who looks on may end the watch of a paid execution
                self._hook.log.debug("How the execution is doing could not be told: %s", error)
        if step.error:
            raise step.error
        return step

    async def _renew_async(self, crew: SharedCrew) -> None:
        """Read the connection anew, like _renew()."""
        old = self.client
        if old and (fresh := await crew.renewed(old)):
            self.client = fresh
            await crew.give_back(old)
            if fresh.settings.token != old.settings.token:
                self.watch.token_renewed()

    def _renew(self) -> None:
        """Read the connection anew. One that cannot be read just now leaves the old one in place."""
        old = self._hook
        if not self._looking_up:
            self._fresh = copy.copy(old)
        try:
            client = self._looked_up(self._fresh)
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            reason = error.reason if isinstance(error, CrewError) else error
            warn(old.log, f"The connection {old.crew_conn_id!r} could not be read anew: {reason}")
            return
        self._hook, self.watch.request_timeout = self._fresh, client.settings.request_timeout
        old.get_conn().close()
        if client.settings.token != old.get_conn().settings.token:
            self.watch.token_renewed()

    def _connected(self) -> CrewClient:
        """Return the client. Only the first time is the connection looked up."""
        if self._is_connected:
            return self._hook.get_conn()
        client = self._looked_up(self._hook)
        self._is_connected, self.watch.request_timeout = True, client.settings.request_timeout
        return client

    def _looked_up(self, hook: Hook) -> CrewClient:
        """
        Return the client of a hook that may have to look its connection up.

        Not without a limit: a secrets backend may hang. Nothing else is looked up before that is back.
        """
        looking_up = self._looking_up = self._looking_up or in_thread("crew-connection", hook.get_conn)
        wait((looking_up,), _LOOK_UP)
        if not looking_up.done():
            raise not_polled(self._name, _LOOK_UP, is_read=False)
        self._looking_up = None
        return looking_up.result()
