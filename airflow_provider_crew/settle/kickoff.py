"""Kickoff that asks its crew to call, and the wait for that call."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from threading import Event

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.answers.question import TaskColumns
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.options import SENT_AS
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.settle.address import HEARD, best_id, ids_in, new_address
from airflow_provider_crew.task.record import Store
from airflow_provider_crew.task.task import Task

# Of a crew and of a flow. A flow that runs crews sends one for each.
_FIRST_EVENTS = ("crew_kickoff_started", "flow_started")

# That of the client's lines about kickoffs, which a batch does not show.
log = logging.getLogger(CrewClient.__module__)


def asking(task: Task, request: KickoffRequest, record: str) -> KickoffRequest:
    """
    Return a kickoff that asks the crew to call when the execution starts and ends.

    It uses only webhooks that the options leave out, and none if the crew's call would repeat another kickoff ID.
    """
    sent = json.loads(request.body)
    at_start, at_end = SENT_AS["webhooks"].name, SENT_AS["crew_webhook_url"].name
    if sent.keys() >= {at_start, at_end} or ids_in({"meta": sent.get("meta")}) or not (key := _signing_key(task)):
        return request
    own = {name: getattr(task.ti, name) for name in TaskColumns.model_fields}
    url, call = new_address(conf.get("crew", "events_url"), key, own, record)
    asked = {at_start: {"events": _FIRST_EVENTS, "url": url, "realtime": False}, at_end: url}
    secrets = (*request.secrets, url.rpartition("/")[2])
    return replace(request, body=json.dumps(asked | sent).encode(), secrets=secrets, call=call)


@lru_cache(maxsize=1)  # a batch has many kickoffs
def _signing_key(task: Task) -> str:
    """Return the key of the addresses that crews call. Empty if nothing would keep or find their calls."""
    if not (conf.get("crew", "events_url", fallback="") and task.context.get("task_state_store") is not None):
        return ""
    try:
        return load_secret(conf.get("crew", "webhook_conn_id"))
    except Exception as error:  # noqa: BLE001 - a kickoff needs no call
        task.warn(f"Without a response, a kickoff of this task will not settle itself: {error}")
        return ""


def wait_for_calls(
    task: Task, calls: Mapping[str, float], interrupted: Event, *, must_know: bool
) -> dict[str, str]:
    """
    Return the kickoff IDs with which crews have called, by call. Wait for those that may still call.

    :param calls: Hashes of addresses, with the time of each kickoff.
    :param must_know: Whether to raise if Airflow does not return what the crews have called until the end.
    """
    store, now = Store(task.context["task_state_store"]), time.time()
    within = conf.getfloat("crew", "settle_within", fallback=120.0)
    # Clocks of workers may differ.
    until = min(max(min(at, now) for at in calls.values()) + within, task.deadline())
    found: dict[str, str] = {}
    while True:
        is_last = time.time() >= until or task.is_told_to_end() or interrupted.is_set()
        for call in [call for call in calls if call not in found]:
            try:
                kickoff_id = best_id(store.get(f"{HEARD}_{call}", is_patient=must_know and is_last))
            except Exception:
                if must_know and is_last:
                    raise
                break  # each may take Airflow seconds
            if kickoff_id:
                found[call] = kickoff_id
                log.info("Started execution %s, as its crew has called. The kickoff has no response.", kickoff_id)
        if is_last or len(found) == len(calls):
            return found
        interrupted.wait(timing.SETTLE_LOOK)
