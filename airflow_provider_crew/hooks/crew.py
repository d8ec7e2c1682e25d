"""Airflow hook for a deployed crew."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from airflow.providers.common.compat.sdk import BaseHook
from asgiref.sync import sync_to_async

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import Cost, CrewError, InvalidSettings, NotCancelled, Unreachable
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution, Failed
from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT, KickoffOptions
from airflow_provider_crew.client.payload import KickoffRequest, checked_kickoff_id, some_names
from airflow_provider_crew.client.watch import WatchRules
from airflow_provider_crew.hooks.connection import CrewConnection, load_connection, load_secret, load_secrets
from airflow_provider_crew.hooks.polling import Poller, SharedConnection

if TYPE_CHECKING:
    from airflow_provider_crew.client.client import CrewClient

T = TypeVar("T")


class CrewHook(BaseHook):
    """
    Hook for a deployed crew, through a connection of type ``crew``.

    :param crew_conn_id: Connection that holds the crew's address and its bearer token.
    :param webhook_conn_id: Connection whose password the crew sends with events to its webhooks and with requests
        for human input. It is masked in messages.

    The methods reuse one keep-alive connection. ``wait_async`` polls on the event loop and shares connections
    with all other waits there. The other ``_async`` methods call the synchronous ones in a thread.
    """

    conn_name_attr = "crew_conn_id"
    default_conn_name = "crew_default"
    conn_type = "crew"
    hook_name = "Crew"

    def __init__(self, crew_conn_id: str = default_conn_name, *, webhook_conn_id: str | None = None) -> None:
        super().__init__()
        self.crew_conn_id = crew_conn_id
        self.webhook_conn_id = webhook_conn_id
        self._kicked_off_at: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Drop the connection's data and the client, which hold the token. A copy or another process reads them
        # again.
        left_out = {"connection", "_client"}
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @cached_property
    def connection(self) -> CrewConnection:
        """Connection of the hook, read once."""
        return load_connection(self.crew_conn_id)

    def get_conn(self) -> "CrewClient":
        """Return the client for the crew. It is created once per hook."""
        return self._client

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the crew responds, with the inputs that it expects or the reason of the failure."""
        try:
            inputs = self._client.inputs()
        except CrewError as error:
            # The form shows the connection's name already, and tests a copy that has another one.
            event = error.error if isinstance(error, InvalidSettings) else error.event
            return False, event
        listed = [f"{it.name} (optional)" if it.required is False else it.name for it in inputs.inputs]
        return True, f"Connected. This crew expects: {some_names(listed) or 'no inputs'}"

    def inputs(self) -> CrewInputs:
        """Return the inputs that the crew takes."""
        return resend(self._client.inputs)

    async def inputs_async(self) -> CrewInputs:
        """Return the inputs that the crew takes."""
        return await self._in_thread(self.inputs)

    def kickoff(self, inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> str:
        """
        Start an execution and return its kickoff ID. Each call starts one execution (billed).

        Resend the kickoff only if the crew certainly did not accept it. Raise UncertainKickoff if it is unknown
        whether an execution started.

        :param inputs: Inputs of the crew: names and JSON values.
        :param options: Options of the kickoff, as in ``KickoffOptions``.
        """
        return self._kickoff(inputs, options, threading.Event())

    async def kickoff_async(self, inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> str:
        """
        Start an execution and return its kickoff ID, like kickoff().

        If the caller is cancelled while a kickoff is under way, its thread finishes it and logs the kickoff ID.
        Nothing else is sent.
        """
        is_cancelled = threading.Event()
        try:
            return await self._in_thread(self._kickoff, inputs, options, is_cancelled)
        finally:
            is_cancelled.set()

    def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution."""
        with _about(kickoff_id):
            return resend(lambda: self._client.status(kickoff_id))

    async def status_async(self, kickoff_id: str) -> Execution:
        """Return the status of an execution."""
        return await self._in_thread(self.status, kickoff_id)

    def cancel(self, kickoff_id: str, continued_as: str = "", address: str = "") -> Completed | Failed:
        """
        Stop an execution and return its end. It may have completed or failed just before.

        Ask the crew up to three times. Raise NotCancelled if the execution is still running, or if that is
        unknown. The endpoint is undocumented, and a crew may lack it.

        :param continued_as: Another ID of the execution, from the crew's response to an answer. Both are stopped,
            and the execution has ended if both have.
        :param address: Address of the crew that started the execution, if known. If the connection points to
            another, nothing is sent.
        """
        from airflow_provider_crew.client.client import Cancelling

        with _about(kickoff_id):
            self.connection.require_address(address)
        asking = Cancelling(kickoff_id, continued_as)
        while True:
            try:
                return asking.ask(self._client.cancel)
            except NotCancelled:
                if not asking.is_open:
                    raise
            time.sleep(timing.CANCEL_PAUSE)

    async def cancel_async(self, kickoff_id: str, continued_as: str = "", address: str = "") -> Completed | Failed:
        """Stop an execution and return its end, like cancel()."""
        return await self._in_thread(self.cancel, kickoff_id, continued_as, address)

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
        Wait until an execution has completed, log its progress, and return the completed execution.

        :param kickoff_id: Kickoff ID of the execution.
        :param poll_interval: Seconds between two polls. ``None`` grows from 5 to 60 with the age of the execution.
        :param timeout: Seconds after which to stop waiting. The execution keeps running.
        :param max_outage: Seconds that the crew may give no usable response. ``None`` disables the limit.
        :param human_input: Whether the crew may wait for human input, until the timeout if necessary.

        Raise ExecutionFailed if the crew failed. Raise WaitedTooLong, LostContact, WatchBroken, ExecutionUnknown
        or ExecutionNotFound if the wait ended before the execution was seen to end.
        """
        rules = {"poll_interval": poll_interval, "max_outage": max_outage, "human_input": human_input}
        with _about(kickoff_id):
            self.get_conn()  # a missing connection is not an outage of the crew
            return self._poller(kickoff_id, timeout, rules).to_end()

    async def wait_async(
        self,
        kickoff_id: str,
        *,
        poll_interval: float | None = None,
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - a wall-clock deadline, as in wait()
        max_outage: float | None = MAX_OUTAGE,
        human_input: bool = False,
    ) -> Completed:
        """Wait until an execution has completed, like wait(), without blocking the event loop."""
        rules = {"poll_interval": poll_interval, "max_outage": max_outage, "human_input": human_input}
        with _about(kickoff_id):
            # A missing connection is not an outage of the crew.
            await SharedConnection.of(self).crew(timing.CONNECTION_AGE)
            return await self._poller(kickoff_id, timeout, rules).to_end_async()

    @cached_property
    def _client(self) -> "CrewClient":
        from airflow_provider_crew.client.client import CrewClient

        return CrewClient(self.connection.settings, load_secrets(self.webhook_conn_id))

    def _kickoff(self, inputs: Any, options: KickoffOptions, is_cancelled: threading.Event) -> str:
        secret = load_secret(self.webhook_conn_id) if self.webhook_conn_id else None
        request = KickoffRequest.of(inputs, webhook_secret=secret, **options)
        client = self._client

        def send() -> str:
            if is_cancelled.is_set():
                raise asyncio.CancelledError
            return client.kickoff(request)

        try:
            kickoff_id = resend(send, only_if_not_started=True, sleep=is_cancelled.wait)
        except CrewError as error:
            if is_cancelled.is_set():  # nothing else receives the error
                self.log.warning("%s", error)
            raise
        # The crew may need a moment to know the execution.
        self._kicked_off_at[kickoff_id] = time.time()
        return kickoff_id

    async def _in_thread(self, method: Callable[..., T], *args: Any) -> T:
        """Call a synchronous method in a thread from which Airflow can look up a connection."""
        return await sync_to_async(method, thread_sensitive=False)(*args)

    def _poller(self, kickoff_id: str, timeout: float, rules: Mapping[str, Any]) -> Poller:
        kicked_off_at = self._kicked_off_at.get(kickoff_id)
        origin: dict[str, Any] = {"kicked_off_at": kicked_off_at, "exists": kicked_off_at is not None}
        return Poller(self, kickoff_id, WatchRules(deadline=time.time() + timeout, **origin, **rules))


@contextmanager
def _about(kickoff_id: str) -> Iterator[None]:
    """Reject an impossible kickoff ID. An error of the connection must not say that nothing was started."""
    checked_kickoff_id(kickoff_id)
    try:
        yield
    except (InvalidSettings, Unreachable) as error:
        cost = Cost.RUNNING if error.cost is Cost.NONE else error.cost
        raise error.replace(cost=cost, kickoff_id=kickoff_id) from None
