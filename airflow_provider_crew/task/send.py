"""Kickoff of one execution: the request, and sending it once. The same for a run, a row, and a call."""

import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import CrewError, UncertainKickoff
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Task


def webhook_secret(task: Task) -> Any:
    """Return the secret that the crew sends with events, or None."""
    conn_id = task.options.webhook_conn_id
    return load_secret(conn_id) if conn_id else None


def request_of(task: Task, inputs: Any, secret: Any, record: str, **about: Any) -> KickoffRequest:
    """
    Return the kickoff request for some inputs.

    :param record: Key of its kickoff record.
    :param about: What the meta says besides the task.
    """
    options: Any = dict(task.options.kickoff)
    if options.get("meta") is None:
        options["meta"] = {"airflow": task.origin() | about}
    request = KickoffRequest.of(inputs, webhook_secret=secret, **options)
    if is_on("settle_kickoffs", task.log):
        from airflow_provider_crew.settle.kickoff import asking

        return asking(task, request, record)
    return request


def kick_off(
    task: Task, kickoff: Callable[[KickoffRequest], str], request: KickoffRequest, interrupted: Event
) -> str:
    """Send a kickoff, and return the kickoff ID in the response, or else in the call of its crew."""
    sent_at = time.time()
    try:
        return kickoff(request)
    except UncertainKickoff as error:
        if error.kickoff_id:  # whatever its status, a response that names an execution has started one
            task.warn(error.event)
            return error.kickoff_id
        if not request.call:
            raise
        found = called(task, {request.call: sent_at}, interrupted, must_know=False)
        if not found:
            raise error.replace(f"{error.event} Airflow got no call from the crew.") from None
        return found[request.call]


def called(
    task: Task, calls: Mapping[str, float], interrupted: Event, *, must_know: bool = True
) -> Mapping[str, str]:
    """Return the kickoff IDs of kickoffs without a response. See ``wait_for_calls()``."""
    from airflow_provider_crew.settle.kickoff import wait_for_calls

    return wait_for_calls(task, calls, interrupted, must_know=must_know)


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
    attempt reports an uncertain kickoff instead of sending another. The kickoff is sent again only if the crew
    certainly did not receive it.

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
