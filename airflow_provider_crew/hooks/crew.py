"""The hook: a connection becomes a client."""

from __future__ import annotations

import asyncio
import platform
import random
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret

from airflow_provider_crew import __version__
from airflow_provider_crew.api_server import denies_connection, is_away
from airflow_provider_crew.defaults import MAX_OUTAGE, TIMEOUT
from airflow_provider_crew.hooks import form
from airflow_provider_crew.hooks.check import check_kickoff
from airflow_provider_crew.service.errors import (
    CallError,
    CrewError,
    InvalidSettings,
    Unreachable,
    UnreadableAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_crew.hooks.check import ValidateInputs
    from airflow_provider_crew.hooks.connection import CrewConnection, TokenType
    from airflow_provider_crew.service.async_client import AsyncCrewClient
    from airflow_provider_crew.service.client import CrewClient
    from airflow_provider_crew.service.models import Completed, CrewInputs, Failed, Paused, Running
    from airflow_provider_crew.service.payload import KickoffOptions, KickoffRequest
    from airflow_provider_crew.service.settings import ServiceSettings
    from airflow_provider_crew.service.shared import SharedCrew
    from airflow_provider_crew.service.watch import Watch
    from airflow_provider_crew.service.watch_state import Step, WatchMemory, WatchRules


class CrewHook(BaseHook):
    """
    Talk to a deployed crew through a connection of type ``crew``.

    :param crew_conn_id: the connection that holds the crew's address and its bearer token
    :param token_type: ``organization`` or ``user``; by default what the connection says, or its only token

    What the hook does goes over one connection kept alive. Of the methods ending in ``_async``, ``wait_async``
    shares its connections with all that wait for the same crew on its event loop. Each of the others opens and
    closes its own; for many calls in a row use ``async with await hook.get_async_conn() as crew``.
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

    def __getstate__(self) -> dict[str, Any]:
        # What was read from the connection holds the token. Another process reads it by itself.
        return {name: value for name, value in vars(self).items() if name not in {"connection", "_client"}}

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
        from airflow_provider_crew.service.async_client import AsyncCrewClient

        return AsyncCrewClient(await self.settings_async())

    async def settings_async(self) -> ServiceSettings:
        """Return what the connection says about reaching the crew, read anew at every call."""
        from asgiref.sync import sync_to_async

        connection = await self._look_up_async(self.crew_conn_id)
        # Reading tells Airflow what to mask, which on the event loop of a triggerer of Airflow 3.0 cannot be done.
        return (await sync_to_async(self._read)(connection)).settings

    async def _look_up_async(self, conn_id: str) -> Connection:
        from airflow.providers.common.compat.connection import get_async_connection

        from airflow_provider_crew.hooks.connection import not_defined

        try:
            return await get_async_connection(conn_id)
        except AirflowNotFoundException:
            raise not_defined(conn_id) from None

    def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        return self._client.inputs()

    def kickoff(
        self,
        inputs: Mapping[str, Any],
        *,
        webhook_conn_id: str | None = None,
        **options: Unpack[KickoffOptions],
    ) -> str:
        """
        Start an execution and return its kickoff id. Each call starts one, and each one is paid for.

        Raises UncertainKickoff when it cannot be known whether one started.

        :param webhook_conn_id: the connection whose password is sent along with what ``webhooks`` asks for
        """
        return self.send(self.kickoff_request(inputs, webhook_conn_id=webhook_conn_id, **options))

    def kickoff_request(
        self,
        inputs: Mapping[str, Any],
        *,
        webhook_conn_id: str | None = None,
        **options: Unpack[KickoffOptions],
    ) -> KickoffRequest:
        """Put a kickoff together. Nothing is sent."""
        from airflow_provider_crew.hooks.connection import webhook_secret
        from airflow_provider_crew.service.payload import KickoffRequest

        secret = webhook_secret(self._defined(webhook_conn_id)) if webhook_conn_id else None
        return KickoffRequest.of(inputs, webhook_secret=secret, **options)

    def send(self, request: KickoffRequest, *, sleep: Callable[[float], None] = time.sleep) -> str:
        """Start an execution; what was certainly not taken is sent again after a pause."""
        import tenacity

        from airflow_provider_crew.service.repeating import repeating

        policy = tenacity.Retrying(**repeating("POST /kickoff", only_if_not_taken=True), sleep=sleep)
        return self._remember(policy(self._client.kickoff, request))

    def check(
        self,
        inputs: Mapping[str, Any],
        *,
        validate: ValidateInputs = True,
        webhook_conn_id: str | None = None,
        **options: Unpack[KickoffOptions],
    ) -> None:
        """
        Raise what would keep a kickoff with these inputs from starting. Nothing is started.

        The crew is asked which inputs it takes in any case: one that sleeps wakes up by that, in five minutes.

        :param validate: compare the inputs with what the crew lists; what merely may be wrong is a warning, and
            refused if this is ``strict``
        """
        self.check_request(
            self.kickoff_request(inputs, webhook_conn_id=webhook_conn_id, **options), validate=validate
        )

    def check_request(self, request: KickoffRequest, *, validate: ValidateInputs) -> None:
        """Raise what would keep a kickoff from starting."""
        check_kickoff(self._client, self.log.warning, request, validate)

    def status(self, kickoff_id: str) -> Running | Paused | Completed | Failed:
        """Ask how an execution is doing."""
        return self._client.status(kickoff_id)

    def wait(
        self,
        kickoff_id: str,
        *,
        poll_interval: float | None = None,
        timeout: float = TIMEOUT,
        max_outage: float | None = MAX_OUTAGE,
        human_input: bool = False,
    ) -> Completed:
        """
        Wait until an execution has completed, log its progress, and return it.

        :param kickoff_id: the id that the kickoff returned
        :param poll_interval: seconds between two looks; None: 5 to 60, the more the longer the execution has run
        :param timeout: seconds after which to stop waiting; the execution goes on
        :param max_outage: seconds for which the service may give no usable answer; None: for ever
        :param human_input: the crew may wait for a person's answer, until timeout if need be

        Raises ExecutionFailed when the crew failed, and WaitedTooLong, LostContact, WatchBroken, ExecutionUnknown
        or ExecutionNotFound when the wait ended without its end.
        """
        rules = self._rules(kickoff_id, poll_interval, timeout, max_outage, human_input=human_input)
        watch = self.new_watch(kickoff_id, rules)
        with self._telling_of_interruption(kickoff_id):
            return self.watch(watch)

    def new_watch(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory | None = None) -> Watch:
        """Begin to watch an execution, or go on with the memory of a watch in another process."""
        from airflow_provider_crew.service.watch import Watch

        return Watch(kickoff_id, rules, clock=time.time, random=random.random, memory=memory)

    def watch(self, watch: Watch) -> Completed:
        """Look until the execution has completed; raise what ends the watch otherwise."""
        while not (step := self.look(watch)).completed:
            self.pause(step, watch)
        return step.completed

    def pause(self, step: Step, watch: Watch) -> None:
        """Do what a step says is to be done before the next look."""
        time.sleep(step.poll_again_in)
        if step.renew_token:
            self.renew(watch)

    def look(self, watch: Watch) -> Step:
        """Look once, log what is new, and raise what ends the watch. The step says when to look again."""
        try:
            step = watch.saw(self._client.status(watch.kickoff_id, repeat=False))
        except CallError as error:
            step = watch.failed(error)
        return self._told(step)

    def test_connection(self) -> tuple[bool, str]:
        """Answer with what was found at the address, or with exactly what is wrong."""
        from airflow_provider_crew.service.payload import some_names

        try:
            inputs = self._client.inputs(repeat=False)
        except UnreadableAnswer as error:
            return False, f"There is something at the address, but not a crew. {error}"
        except InvalidSettings as error:
            return False, error.fault
        except CrewError as error:
            return False, str(error)
        optional = inputs.optional
        listed = [f"{name} (optional)" if name in optional else name for name in inputs.names]
        return True, f"Connected. This crew expects: {some_names(listed) or 'no inputs'}"

    async def inputs_async(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        async with await self.get_async_conn() as crew:
            return await crew.inputs()

    async def kickoff_async(
        self,
        inputs: Mapping[str, Any],
        *,
        webhook_conn_id: str | None = None,
        **options: Unpack[KickoffOptions],
    ) -> str:
        """Start an execution and return its kickoff id, like kickoff()."""
        import tenacity
        from asgiref.sync import sync_to_async

        from airflow_provider_crew.hooks.connection import webhook_secret
        from airflow_provider_crew.service.payload import KickoffRequest
        from airflow_provider_crew.service.repeating import repeating

        secret = None
        if webhook_conn_id:
            secret = await sync_to_async(webhook_secret)(await self._look_up_async(webhook_conn_id))
        request = KickoffRequest.of(inputs, webhook_secret=secret, **options)
        policy = tenacity.AsyncRetrying(**repeating("POST /kickoff", only_if_not_taken=True))
        async with await self.get_async_conn() as crew:
            return self._remember(await policy(crew.kickoff, request))

    async def status_async(self, kickoff_id: str) -> Running | Paused | Completed | Failed:
        """Ask how an execution is doing."""
        async with await self.get_async_conn() as crew:
            return await crew.status(kickoff_id)

    async def wait_async(
        self,
        kickoff_id: str,
        *,
        poll_interval: float | None = None,
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - a deadline on the wall clock, as in wait()
        max_outage: float | None = MAX_OUTAGE,
        human_input: bool = False,
    ) -> Completed:
        """Wait until an execution has completed, like wait(), without blocking the event loop."""
        rules = self._rules(kickoff_id, poll_interval, timeout, max_outage, human_input=human_input)
        watch = self.new_watch(kickoff_id, rules)
        with self._telling_of_interruption(kickoff_id):
            async with self.shared() as crew:
                await crew.connect()
                return await self.watch_async(watch, crew)

    def shared(self, *, largest: int | None = None) -> SharedCrew:
        """Return the crew, shared with all that wait for it on this event loop."""
        from airflow_provider_crew.service.shared import SharedCrew

        # As text: what a trigger was stored with may be anything.
        token = f" ({self.token_type!r} token)" if self.token_type else ""
        return SharedCrew(f"{self.crew_conn_id!r}{token}", self.settings_async, largest=largest)

    async def watch_async(self, watch: Watch, crew: SharedCrew) -> Completed:
        """Look until the execution has completed, like watch()."""
        while True:
            try:
                client = crew.client or await crew.reach()
                step = watch.saw(await client.status(watch.kickoff_id, repeat=False))
            except CallError as error:
                step = watch.failed(error)
            if completed := self._told(step).completed:
                return completed
            await asyncio.sleep(step.poll_again_in)
            if step.renew_token and await crew.renew():
                watch.token_renewed()

    @cached_property
    def connection(self) -> CrewConnection:
        """What the connection says, read once."""
        return self._read(self._defined(self.crew_conn_id))

    def _defined(self, conn_id: str) -> Connection:
        """Return a connection, told from one that is not there, and from an Airflow that cannot be asked."""
        from airflow_provider_crew.hooks.connection import not_defined

        try:
            return self.get_connection(conn_id)
        except AirflowNotFoundException:
            if denies_connection(conn_id):
                raise not_defined(conn_id) from None
        except Exception as error:
            if not is_away(error):
                raise
        told = f"The connection {conn_id!r} cannot be read: Airflow's API server did not answer."
        raise Unreachable(told, sent=False) from None

    @cached_property
    def _client(self) -> CrewClient:
        from airflow_provider_crew.service.client import CrewClient

        return CrewClient(self.connection.settings)

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

    def _rules(
        self,
        kickoff_id: str,
        poll_interval: float | None,
        timeout: float,
        max_outage: float | None,
        *,
        human_input: bool,
    ) -> WatchRules:
        from airflow_provider_crew.service.watch_state import WatchRules

        return WatchRules(
            deadline=time.time() + timeout,
            poll_interval=poll_interval,
            max_outage=max_outage,
            kicked_off_at=self._kicked_off_at.get(kickoff_id),
            exists=kickoff_id in self._kicked_off_at,
            human_input=human_input,
        )

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

    def _told(self, step: Step) -> Step:
        for line in step.lines:
            self.log.log(line.level, "%s", line.text)
        if step.error:
            raise step.error
        return step

    def renew(self, watch: Watch) -> None:
        """Read the connection anew. One that cannot be read just now leaves the old one in place."""
        connection, old = self.connection, self._client
        del self.connection, self._client
        try:
            renewed = self._client
        except Exception as error:  # noqa: BLE001 - nothing in the look-up may end the watch of a paid execution
            self.log.warning("The connection %r could not be read anew: %s", self.crew_conn_id, error)
            self.connection, self._client = connection, old
            return
        old.close()
        if renewed.settings.token != old.settings.token:
            watch.token_renewed()
