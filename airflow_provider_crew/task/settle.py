"""
Kickoffs without a response that settle themselves, because the crew calls an address that only one kickoff knows.

The receiver in the API server keeps what it hears beside the kickoff record. Silence proves nothing.
"""

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.calls import new_address
from airflow_provider_crew.client.wording import duration
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.task import Task

T = TypeVar("T")

HEARD = "crew_heard"
"""Start of the key of what a crew has called, followed by the hash of its address."""


def signing_key(task: Task) -> str:
    """Return the key of the addresses that crews call. Empty if the kickoffs of a task don't settle themselves."""
    if not (
        is_on("settle_kickoffs", task.log) and conf.get("crew", "events_url", fallback="") and task.keeps_records
    ):
        return ""
    try:
        return load_secret(conf.get("crew", "webhook_conn_id")).password
    except Exception as error:  # noqa: BLE001 - a kickoff needs no call
        task.warn(f"Without a response, a kickoff of this task will not settle itself: {error}")
        return ""


def address_of(task: Task, key: str, record: str) -> tuple[str, str]:
    """Return the address for the calls of a kickoff, and its hash."""
    names = ("dag_id", "run_id", "task_id", "map_index")
    own = {name: getattr(task.ti, name) for name in names}
    return new_address(conf.get("crew", "events_url"), key, own, record)


def settles_until(kicked_off_at: float) -> float:
    """Return the time until which an uncertain kickoff waits for a call. Clocks of workers may differ."""
    within: float = conf.getfloat("crew", "settle_within", fallback=120.0)
    return min(kicked_off_at, time.time()) + within


def wait_for_call(task: Task, look: Callable[[], T], until: float, interrupted: Event) -> T:
    """Return what a look finds, in time. Call this where no signal interrupts it."""
    until = min(until, task.deadline())
    while not (found := look()) and time.time() < until and not task.is_told_to_end():
        if interrupted.wait(timing.current().settle_look):
            break
    return found


def silence(record: KickoffRecord | None) -> str:
    """Return the sentence about a call that was asked for and not found. It proves nothing."""
    if record is None or not record.call:
        return ""
    return f" Airflow got no call from the crew within {duration(max(time.time() - record.kicked_off_at, 0.0))}."
