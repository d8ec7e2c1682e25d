"""Airflow hook for a deployed crew."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

from airflow.providers.common.compat.sdk import BaseHook
from asgiref.sync import sync_to_async

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.cancelling import Cancelling
from airflow_provider_crew.client.errors import Cost, CrewError, InvalidSettings, NotCancelled, Unreachable
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution, Failed
from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT, KickoffOptions
from airflow_provider_crew.client.payload import KickoffRequest, checked_kickoff_id, some_names
from airflow_provider_crew.client.watch import WatchRules
from airflow_provider_crew.hooks.connection import CrewConnection, load_connection, load_secret, load_secrets
from airflow_provider_crew.hooks.polling import Poller

if TYPE_CHECKING:
    from airflow_provider_crew.client.client import CrewClient


class CrewHook(BaseHook):
    """
    Hook for a deployed crew, through a connection of type ``crew``.

    :param crew_conn_id: Connection that holds the crew's address and its bearer token.
    :param webhook_conn_id: Connection whose password the crew sends with events to its webhooks and with requests
        for human input. It is masked in messages.

    The methods reuse one keep-alive connection. On an event loop, call them in a thread.
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

    def kickoff(self, inputs: Mapping[str, Any], **options: Unpack[KickoffOptions]) -> str:
        """
        Start an execution and return its kickoff ID. Each call starts one execution (billed).

        Resend the kickoff only if the crew certainly did not accept it. Raise UncertainKickoff if it is unknown
        whether an execution started.

        :param inputs: Inputs of the crew: names and JSON values.
        :param options: Options of the kickoff, as in ``KickoffOptions``.
        """
        secret = load_secret(self.webhook_conn_id) if self.webhook_conn_id else None
        request = KickoffRequest.of(inputs, webhook_secret=secret, **options)
        kickoff_id = resend(partial(self._client.kickoff, request), only_if_not_started=True)
        # The crew may need a moment to know the execution.
        self._kicked_off_at[kickoff_id] = time.time()
        return kickoff_id

    def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution."""
        with _about(kickoff_id):
            return resend(lambda: self._client.status(kickoff_id))

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
        """Stop an execution in a thread from which Airflow can look up a connection, like cancel()."""
        return await sync_to_async(self.cancel, thread_sensitive=False)(kickoff_id, continued_as, address)

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
        since = self._kicked_off_at.get(kickoff_id)
        rules: Any = {"poll_interval": poll_interval, "max_outage": max_outage, "human_input": human_input}
        rules |= {"kicked_off_at": since, "exists": since is not None}
        with _about(kickoff_id):
            self.get_conn()  # a missing connection is not an outage of the crew
            return Poller(self, kickoff_id, WatchRules(deadline=time.time() + timeout, **rules)).to_end()

    @cached_property
    def _client(self) -> "CrewClient":
        from airflow_provider_crew.client.client import CrewClient

        return CrewClient(self.connection.settings, load_secrets(self.webhook_conn_id))


@contextmanager
def _about(kickoff_id: str) -> Iterator[None]:
    """Reject an impossible kickoff ID. An error of the connection must not say that nothing was started."""
    checked_kickoff_id(kickoff_id)
    try:
        yield
    except (InvalidSettings, Unreachable) as error:
        cost = Cost.RUNNING if error.cost is Cost.NONE else error.cost
        raise error.replace(cost=cost, kickoff_id=kickoff_id) from None
