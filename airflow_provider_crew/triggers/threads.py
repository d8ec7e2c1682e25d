"""Threads in which triggers ask Airflow, so that an Airflow that hangs stops no poll."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor as Threads
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from airflow_provider_crew.client import timing

# A custom XCom backend may take any amount of time, and may hang.
XCOMS = Threads(8, "crew-xcom")
REQUESTS = Threads(4, "crew-request")
T = TypeVar("T")


async def in_thread(threads: Threads, function: Callable[..., T], *args: Any, is_limited: bool = True) -> T:
    """Call a function that asks Airflow. Raise TimeoutError after a while, in which the function may run on."""
    # The triggerer of Airflow 3.1 takes requests from the threads of asgiref only. Shielded, because it would
    # confuse responses if a request was cancelled.
    call = sync_to_async(function, thread_sensitive=False, executor=threads)(*args)
    return await asyncio.wait_for(asyncio.shield(call), timing.AIRFLOW_RESPONSE if is_limited else None)
