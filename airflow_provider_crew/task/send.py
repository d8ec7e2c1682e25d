"""Kickoff of one execution: the request, and sending it once. The same for a run, a row, and a call."""

from collections.abc import Callable
from threading import Event
from typing import Any

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.calls import names_execution
from airflow_provider_crew.client.errors import CrewError, UncertainKickoff
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Task


def webhook_secret(task: Task) -> Any:
    """Return the secret that the crew sends with events, or None."""
    conn_id = task.options.webhook_conn_id
    return load_secret(conn_id) if conn_id else None


def request_of(
    task: Task, inputs: Any, secret: Any, address: tuple[str, str] | None = None, **about: Any
) -> KickoffRequest:
    """
    Return the kickoff request for some inputs.

    :param address: See ``KickoffRequest.of()``. Not used if the crew's call would repeat another kickoff ID.
    :param about: What the meta says besides the task.
    """
    options: Any = dict(task.options.kickoff)
    if options.get("meta") is None:
        options["meta"] = {"airflow": task.origin() | about}
    if address and names_execution(options["meta"]):
        address = None
    return KickoffRequest.of(inputs, webhook_secret=secret, address=address, **options)


def send(
    kickoff: Callable[[], str],
    stop: Stop,
    interrupted: Event,
    *,
    save_intent: Callable[[], object],
    delete_intent: Callable[[], object] = lambda: None,
) -> str:
    """
    Send a kickoff once, and return the kickoff ID. Call this where no signal interrupts it.

    Store the intent, look whether the task may still send, and send. A crash in between leaves a trace: the next
    attempt reports an uncertain kickoff and starts nothing. The kickoff is sent again only if the crew certainly
    did not receive it.

    :param kickoff: Sends the request once.
    :param save_intent: Records a kickoff that may have been sent from here on. If it raises, nothing is sent.
    :param delete_intent: Removes the record of a kickoff that certainly started nothing.
    """

    def once() -> str:
        save_intent()
        try:
            stop.look_before("kickoff", interrupted)
            return kickoff()
        except CrewError as error:
            if not isinstance(error, UncertainKickoff):
                delete_intent()
            raise

    return resend(once, only_if_not_started=True, sleep=interrupted.wait)
