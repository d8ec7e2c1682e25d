"""The hook: a connection becomes a client."""

from __future__ import annotations

import asyncio
import platform
import random
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from airflow.providers.common.compat.sdk import BaseHook, mask_secret

from airflow_provider_crew import __version__
from airflow_provider_crew.hooks import form
from airflow_provider_crew.service.errors import CallError, CrewError, InvalidSettings, UnreadableAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_crew.hooks.connection import CrewConnection, TokenType
    from airflow_provider_crew.service.async_client import AsyncCrewClient
    from airflow_provider_crew.service.client import CrewClient
    from airflow_provider_crew.service.models import Completed, CrewInputs, Failed, Running
    from airflow_provider_crew.service.payload import KickoffOptions
    from airflow_provider_crew.service.watch import Step, Watch

_DAY = 24 * 60 * 60.0


class CrewHook(BaseHook):
    """
    Talk to a deployed crew through a connection of type ``crew``.

    :param crew_conn_id: the connection that holds the crew's address and its bearer token
    :param token_type: ``organization`` or ``user``; by default what the connection says, or the only token
        that it has

    What the hook does goes over one connection kept alive. Each method ending in ``_async`` opens and closes
    its own; for many calls in a row use ``async with await hook.get_async_conn() as crew``.
    """

    conn_name_attr = "crew_conn_id"
    default_conn_name = "crew_default"
    conn_type = "crew"
    hook_name = "Crew"

    def __init__(self, crew_conn_id: str = default_conn_name, *, token_type: TokenType | None = None) -> None:
        super().__init__()
        self.crew_conn_id = crew_conn_id
        self.token_type = token_type
        self._kicked_off_at: dict[str, float] = {}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Describe the connection's own fields to Airflow up to 3.1."""
        return form.widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Describe the standard fields to Airflow up to 3.1."""
        return form.behaviour()

    def get_conn(self) -> CrewClient:
        """Return the client for the crew, the same one for the life of the hook."""
        return self._client

    async def get_async_conn(self) -> AsyncCrewClient:
        """Return a new asynchronous client. Use it as an asynchronous context manager, or close it."""
        from airflow.providers.common.compat.connection import get_async_connection

        from airflow_provider_crew.service.async_client import AsyncCrewClient

        return AsyncCrewClient(self._read(await get_async_connection(self.crew_conn_id)).settings)

    def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        return self._client.inputs()

    def kickoff(self, inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> str:
        """
        Start an execution and return its kickoff id. Each call starts one, and each one is paid for.

        Raises UncertainKickoff when it cannot be known whether one started.
        """
        return self._remember(self._client.kickoff(inputs, **options))

    def status(self, kickoff_id: str) -> Running | Completed | Failed:
        """Ask how an execution is doing."""
        return self._client.status(kickoff_id)

    def wait(
        self,
        kickoff_id: str,
        *,
        poll_interval: float = 10.0,
        timeout: float = _DAY,
        max_outage: float = 600.0,
    ) -> Completed:
        """
        Wait until an execution has completed, log its progress, and return it.

        :param kickoff_id: the id that the kickoff returned
        :param poll_interval: seconds between two looks
        :param timeout: seconds after which to stop waiting; the execution goes on
        :param max_outage: seconds for which the service may give no usable answer

        Raises ExecutionFailed when the crew failed, and WaitedTooLong, LostContact, WatchBroken or
        ExecutionNotFound when the wait ended without its end.
        """
        watch = self._new_watch(kickoff_id, poll_interval, timeout, max_outage)
        with self._telling_of_interruption(kickoff_id):
            return self._watched(kickoff_id, watch)

    def test_connection(self) -> tuple[bool, str]:
        """Answer with what was found at the address, or with exactly what is wrong."""
        try:
            inputs = self._client.inputs(repeat=False)
        except UnreadableAnswer as error:
            return False, f"There is something at the address, but not a crew. {error}"
        except InvalidSettings as error:
            return False, error.fault
        except CrewError as error:
            return False, str(error)
        listed = [known.name if known.required else f"{known.name} (optional)" for known in inputs.inputs]
        return True, f"Connected. This crew expects: {', '.join(listed) or 'no inputs'}"

    async def inputs_async(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        async with await self.get_async_conn() as crew:
            return await crew.inputs()

    async def kickoff_async(self, inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> str:
        """Start an execution and return its kickoff id, like kickoff()."""
        async with await self.get_async_conn() as crew:
            return self._remember(await crew.kickoff(inputs, **options))

    async def status_async(self, kickoff_id: str) -> Running | Completed | Failed:
        """Ask how an execution is doing."""
        async with await self.get_async_conn() as crew:
            return await crew.status(kickoff_id)

    async def wait_async(
        self,
        kickoff_id: str,
        *,
        poll_interval: float = 10.0,
        timeout: float = _DAY,  # noqa: ASYNC109 - a deadline on the wall clock, as in wait()
        max_outage: float = 600.0,
    ) -> Completed:
        """Wait until an execution has completed, like wait(), without blocking the event loop."""
        watch = self._new_watch(kickoff_id, poll_interval, timeout, max_outage)
        with self._telling_of_interruption(kickoff_id):
            return await self._watched_async(kickoff_id, watch)

    @cached_property
    def _client(self) -> CrewClient:
        from airflow_provider_crew.service.client import CrewClient

        return CrewClient(self._read(self.get_connection(self.crew_conn_id)).settings)

    def _read(self, connection: Connection) -> CrewConnection:
        from airflow import __version__ as airflow_version

        from airflow_provider_crew.hooks.connection import read_connection

        user_agent = (
            f"airflow-provider-crew/{__version__} Airflow/{airflow_version} Python/{platform.python_version()}"
        )
        read = read_connection(connection, token_type=self.token_type, user_agent=user_agent)
        for secret in read.secrets:
            mask_secret(secret)
        return read

    def _remember(self, kickoff_id: str) -> str:
        """Log the id at once, since it is paid for, and keep the time: a service may need a moment to know it."""
        self.log.info("Execution %s: kicked off", kickoff_id)
        self._kicked_off_at[kickoff_id] = time.time()
        return kickoff_id

    def _new_watch(self, kickoff_id: str, poll_interval: float, timeout: float, max_outage: float) -> Watch:
        from airflow_provider_crew.service.watch import Watch, WatchRules

        rules = WatchRules(
            deadline=time.time() + timeout,
            poll_interval=poll_interval,
            max_outage=max_outage,
            kicked_off_at=self._kicked_off_at.get(kickoff_id),
        )
        return Watch(kickoff_id, rules, clock=time.time, random=random.random)

    @contextmanager
    def _telling_of_interruption(self, kickoff_id: str) -> Iterator[None]:
        """Say what goes on when a time-out, a kill or a cancelled task ends the wait."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.log.warning(
                "Execution %s: no longer watched, interrupted. It goes on and is paid for. Wait for it again with "
                "its kickoff id; do not kick off again.",
                kickoff_id,
            )
            raise

    def _watched(self, kickoff_id: str, watch: Watch) -> Completed:
        while True:
            try:
                step = watch.saw(self._client.status(kickoff_id, repeat=False))
            except CallError as error:
                step = watch.failed(error)
            if completed := self._conclude(step):
                return completed
            time.sleep(step.look_again_in)
            if step.renew_token:
                self._renew_client(watch)

    async def _watched_async(self, kickoff_id: str, watch: Watch) -> Completed:
        crew = await self.get_async_conn()
        try:
            while True:
                try:
                    step = watch.saw(await crew.status(kickoff_id, repeat=False))
                except CallError as error:
                    step = watch.failed(error)
                if completed := self._conclude(step):
                    return completed
                await asyncio.sleep(step.look_again_in)
                if step.renew_token:
                    crew = await self._renewed_async(crew, watch)
        finally:
            await crew.close()

    def _conclude(self, step: Step) -> Completed | None:
        for line in step.lines:
            self.log.log(line.level, "%s", line.text)
        if step.error:
            raise step.error
        return step.completed

    def _renew_client(self, watch: Watch) -> None:
        """Read the connection anew. One that cannot be read just now leaves the old one in place."""
        old = self._client
        del self._client
        try:
            renewed = self._client
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            self.log.warning("The connection %s could not be read anew: %s", self.crew_conn_id, error)
            self._client = old
            return
        old.close()
        if renewed.settings.token != old.settings.token:
            watch.token_renewed()

    async def _renewed_async(self, old: AsyncCrewClient, watch: Watch) -> AsyncCrewClient:
        try:
            renewed = await self.get_async_conn()
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            self.log.warning("The connection %s could not be read anew: %s", self.crew_conn_id, error)
            return old
        await old.close()
        if renewed.settings.token != old.settings.token:
            watch.token_renewed()
        return renewed
