"""Polling one execution through a connection until it has ended."""

import asyncio
import copy
import random
import time
from collections.abc import Callable
from typing import Any, Protocol

from asgiref.sync import sync_to_async

from airflow_provider_crew.hooks.connection import TokenType, load_connection
from airflow_provider_crew.service.client import CrewClient
from airflow_provider_crew.service.errors import CallError, CrewError
from airflow_provider_crew.service.models import Completed, Execution
from airflow_provider_crew.service.progress import ProgressReport
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.shared import SharedCrew
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.service.watch import Watch
from airflow_provider_crew.service.watch_state import Step, WatchMemory, WatchRules


class Hook(Protocol):
    """What reads the connection, and a copy of it anew."""

    crew_conn_id: str
    token_type: TokenType | None

    @property
    def log(self) -> Any:
        """Where it says what it does."""

    def get_conn(self) -> CrewClient:
        """Return the client for the crew."""


# Is told after each poll what there is to tell, and whether that is news.
Observer = Callable[[ProgressReport, bool], None]


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
            execution = self._hook.get_conn().status(self.watch.kickoff_id)
            step = self.watch.saw(execution)
        except CallError as error:
            step = self.watch.failed(error)
        return self._told(step, execution)

    def pause(self, step: Step) -> None:
        """Do what a step says is to be done before the next poll."""
        time.sleep(step.poll_again_in)
        if step.renew_token:
            self._renew()

    async def to_end_async(self, crew: SharedCrew) -> Completed:
        """Poll until the execution has completed, like to_end()."""
        watch = self.watch
        while True:
            execution = None
            try:
                client = crew.client or await crew.reach()
                execution = await client.status(watch.kickoff_id)
                step = watch.saw(execution)
            except CallError as error:
                step = watch.failed(error)
            if completed := self._told(step, execution).completed:
                return completed
            await asyncio.sleep(step.poll_again_in)
            if step.renew_token and await crew.renew():
                watch.token_renewed()

    def shared_crew(self, *, largest: int | None = None) -> SharedCrew:
        """Return the crew behind the connection, shared by all that poll it on this event loop."""
        conn_id, token_type = self._hook.crew_conn_id, self._hook.token_type

        async def settings() -> ServiceSettings:
            return (await sync_to_async(load_connection)(conn_id, token_type)).settings

        # As text: what a trigger was stored with may be anything.
        token = f" ({token_type!r} token)" if token_type else ""
        return SharedCrew(f"{conn_id!r}{token}", settings, largest=largest)

    def _told(self, step: Step, execution: Execution | None) -> Step:
        for line in step.lines:
            self._hook.log.log(line.level, "%s", line.text)
        if self._observer:
            try:
                self._observer(self.report, self.report.saw(execution))
            except Exception as error:  # noqa: BLE001 - nobody who looks on may end the watch of a paid execution
                self._hook.log.debug("How the execution is doing could not be told: %s", error)
        if step.error:
            raise step.error
        return step

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
