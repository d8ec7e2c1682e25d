"""The hook: a connection becomes a client."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import tenacity
from airflow.providers.common.compat.sdk import BaseHook
from asgiref.sync import sync_to_async

from airflow_provider_crew.client.api import KickoffRequest, repeating, some_names
from airflow_provider_crew.client.errors import CrewError, InvalidSettings
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution
from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT, KickoffOptions
from airflow_provider_crew.client.settings import load_async_client
from airflow_provider_crew.client.watch import WatchRules
from airflow_provider_crew.hooks import form
from airflow_provider_crew.hooks.connection import CrewConnection, TokenType, load_connection, load_secret
from airflow_provider_crew.hooks.polling import Poller

if TYPE_CHECKING:
    from airflow_provider_crew.client.async_client import AsyncCrewClient
    from airflow_provider_crew.client.client import CrewClient


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
        # What was read from the connection holds the token. Another process, or a copy, reads it by itself.
        return {name: value for name, value in vars(self).items() if name not in {"connection", "_client"}}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Describe the connection's own fields to Airflow up to 3.1."""
        return form.widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Describe the standard fields to Airflow up to 3.1."""
        return form.behaviour()

    @cached_property
    def connection(self) -> CrewConnection:
        """What the connection says, read once."""
        return load_connection(self.crew_conn_id, self.token_type)

    def get_conn(self) -> "CrewClient":
        """Return the client for the crew, the same one for the life of the hook."""
        return self._client

    async def get_async_conn(self) -> "AsyncCrewClient":
        """Return a new asynchronous client. Use it as an asynchronous context manager, or close it."""
        settings = (await sync_to_async(load_connection)(self.crew_conn_id, self.token_type)).settings
        await asyncio.to_thread(load_async_client, settings)
        from airflow_provider_crew.client.async_client import AsyncCrewClient

        return AsyncCrewClient(settings)

    def test_connection(self) -> tuple[bool, str]:
        """Answer with what was found at the address, or with exactly what is wrong."""
        try:
            inputs = self._client.inputs()
        except CrewError as error:
            # The page names the connection.
            error = error.replace(conn_id="") if isinstance(error, InvalidSettings) else error
            return False, f"{error.event} {error.next_step}".rstrip()
        listed = [f"{name} (optional)" if name in inputs.optional else name for name in inputs.names]
        return True, f"Connected. This crew expects: {some_names(listed) or 'no inputs'}"

    def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        return tenacity.Retrying(**repeating("GET /inputs"))(self._client.inputs)

    async def inputs_async(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        async with await self.get_async_conn() as crew:
            return await tenacity.AsyncRetrying(**repeating("GET /inputs"))(crew.inputs)

    def kickoff(  # noqa: PLR0913 - what a user sets by name
        self,
        inputs: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        task_webhook_url: str | None = None,
        step_webhook_url: str | None = None,
        crew_webhook_url: str | None = None,
        human_input_webhook_url: str | None = None,
        webhooks: Mapping[str, Any] | None = None,
        webhook_conn_id: str | None = None,
        restore_from_state_id: str | None = None,
    ) -> str:
        """
        Start an execution and return its kickoff id. Each call starts one, and each one is paid for.

        It is sent again only when the service certainly did not take it. Raises UncertainKickoff when it cannot be
        known whether one started.

        :param inputs: what the crew works on, names and JSON values
        :param meta: any object, passed to the crew
        :param task_webhook_url: called by the service after each task of the crew
        :param step_webhook_url: called after each step of an agent
        :param crew_webhook_url: called at the end
        :param human_input_webhook_url: called when a task of the crew waits for a person
        :param webhooks: which ``events`` the service sends to which ``url``
        :param webhook_conn_id: the connection whose password is sent along with what ``webhooks`` asks for
        :param restore_from_state_id: the kickoff id of an earlier run of a flow, with whose state to begin
        """
        request = KickoffRequest.of(
            inputs,
            webhook_secret=load_secret(webhook_conn_id) if webhook_conn_id else None,
            meta=meta,
            task_webhook_url=task_webhook_url,
            step_webhook_url=step_webhook_url,
            crew_webhook_url=crew_webhook_url,
            human_input_webhook_url=human_input_webhook_url,
            webhooks=webhooks,
            restore_from_state_id=restore_from_state_id,
        )
        policy = tenacity.Retrying(**repeating("POST /kickoff", only_if_not_taken=True))
        return self._note(policy(self._client.kickoff, request))

    async def kickoff_async(
        self, inputs: Mapping[str, Any], *, webhook_conn_id: str | None = None, **options: Unpack[KickoffOptions]
    ) -> str:
        """Start an execution and return its kickoff id, like kickoff()."""
        secret = await sync_to_async(load_secret)(webhook_conn_id) if webhook_conn_id else None
        request = KickoffRequest.of(inputs, webhook_secret=secret, **options)
        policy = tenacity.AsyncRetrying(**repeating("POST /kickoff", only_if_not_taken=True))
        async with await self.get_async_conn() as crew:
            return self._note(await policy(crew.kickoff, request))

    def status(self, kickoff_id: str) -> Execution:
        """Ask how an execution is doing."""
        return tenacity.Retrying(**repeating("GET status"))(self._client.status, kickoff_id)

    async def status_async(self, kickoff_id: str) -> Execution:
        """Ask how an execution is doing."""
        async with await self.get_async_conn() as crew:
            return await tenacity.AsyncRetrying(**repeating("GET status"))(crew.status, kickoff_id)

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
        :param poll_interval: seconds between two polls; None: 5 to 60, the more the longer the execution has run
        :param timeout: seconds after which to stop waiting; the execution goes on
        :param max_outage: seconds for which the service may give no usable answer; None: for ever
        :param human_input: the crew may wait for a person's answer, until timeout if need be

        Raises ExecutionFailed when the crew failed, and WaitedTooLong, LostContact, WatchBroken, ExecutionUnknown
        or ExecutionNotFound when the wait ended without its end.
        """
        rules = {"poll_interval": poll_interval, "max_outage": max_outage, "human_input": human_input}
        with self._watching(kickoff_id, timeout, **rules) as poller:
            return poller.to_end()

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
        rules = {"poll_interval": poll_interval, "max_outage": max_outage, "human_input": human_input}
        with self._watching(kickoff_id, timeout, **rules) as poller:
            crew = poller.shared_crew()
            poller.client = await crew.take()
            return await poller.to_end_async(crew)

    @cached_property
    def _client(self) -> "CrewClient":
        from airflow_provider_crew.client.client import CrewClient

        return CrewClient(self.connection.settings)

    def _note(self, kickoff_id: str) -> str:
        """Note when the execution started: a service may need a moment to know it."""
        self._kicked_off_at[kickoff_id] = time.time()
        return kickoff_id

    @contextmanager
    def _watching(self, kickoff_id: str, timeout: float, **rules: Any) -> Iterator[Poller]:
        """Provide for a wait, and say what goes on when a time-out, a kill or a cancelled task ends it."""
        kicked_off_at = self._kicked_off_at.get(kickoff_id)
        known: dict[str, Any] = {"kicked_off_at": kicked_off_at, "exists": kicked_off_at is not None}
        try:
            yield Poller(self, kickoff_id, WatchRules(deadline=time.time() + timeout, **known, **rules))
        except Exception:
            raise
        except BaseException:
            self.log.warning(
                "Interrupted while waiting for execution %s, which is still running and billed. Wait for it again "
                "with its kickoff ID.",
                kickoff_id,
            )
            raise
