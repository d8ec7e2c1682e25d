"""Polling one execution through a connection until it has ended."""

import asyncio
import copy
import random
import time
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async

from airflow_provider_crew.hooks.connection import TokenType, load_connection
from airflow_provider_crew.service.errors import CallError, CrewError
from airflow_provider_crew.service.models import Completed, Execution
from airflow_provider_crew.service.progress import ProgressReport
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.shared import SharedCrew, shared_here
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.service.watch import Watch
from airflow_provider_crew.service.watch_state import Step, WatchMemory, WatchRules

if TYPE_CHECKING:
    from airflow_provider_crew.service.async_client import AsyncCrewClient
    from airflow_provider_crew.service.client import CrewClient


class Hook(Protocol):
    """What reads the connection, and a copy of it anew."""

    crew_conn_id: str
    token_type: TokenType | None

    @property
    def log(self) -> Any:
        """Where it says what it does."""

    def get_conn(self) -> "CrewClient":
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
        self.watch = Watch(kickoff_id, rules, clock=time.time, random=random.random, memory=memory)
        self.report = ProgressReport(self.watch)
        self.client: AsyncCrewClient | None = None
        """Who polls asynchronously has one from the first poll to the end."""
        self._observer = observer

    def to_end(self) -> Completed:
        """Poll until the execution has completed; raise what ends the watch otherwise."""
        while not (step := self.poll()).completed:
            self.pause(step)
        return step.completed

    def poll(self) -> Step:
        """Poll once, log what is new, and raise what ends the watch. The step says when to poll again."""
        execution = None
        try:
            client = self._hook.get_conn()
            self.watch.request_timeout = client.settings.request_timeout
            execution = client.status(self.watch.kickoff_id)
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
        try:
            while not (step := await self._poll_async(crew, largest)).completed:
                pause, renew_token = step.poll_again_in, step.renew_token
                del step  # thousands of pauses would keep what nobody needs, and the garbage collector walks it
                await asyncio.sleep(pause)
                if renew_token:
                    await self._renew_async(crew)
            return step.completed
        finally:
            client, self.client = self.client, None
            if client:
                await crew.give_back(client)

    def shared_crew(self) -> SharedCrew:
        """Return the crew behind the connection, shared by all that poll it on this event loop."""
        conn_id, token_type = self._hook.crew_conn_id, self._hook.token_type

        async def settings() -> ServiceSettings:
            return (await sync_to_async(load_connection)(conn_id, token_type)).settings

        # As text: what a trigger was stored with may be anything.
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
            step = self.watch.saw(execution)
        except CallError as error:
            step = self.watch.failed(error)
        return self._told(step, execution)

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
        old, fresh = self._hook, copy.copy(self._hook)
        try:
            client = fresh.get_conn()
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            reason = error.reason if isinstance(error, CrewError) else error
            warn(old.log, f"The connection {old.crew_conn_id!r} could not be read anew: {reason}")
            return
        self._hook = fresh
        old.get_conn().close()
        if client.settings.token != old.get_conn().settings.token:
            self.watch.token_renewed()
