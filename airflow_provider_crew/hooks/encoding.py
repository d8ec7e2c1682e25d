"""Encodes with the XCom backend in a thread, so that nobody has to wait for a slow one."""

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

from airflow_provider_crew.compat import encoded_xcom
from airflow_provider_crew.service.progress import PROGRESS


def encoding(ti: Any, told: dict[str, Any]) -> Future[Any]:
    """
    Begin to encode what is told of an execution, and return where it will be.

    Not in a thread of a pool: one that is stuck would be missing there, and keep its process from ending.
    """
    encoded: Future[Any] = Future()
    encoded.set_running_or_notify_cancel()  # so that who stops waiting cancels nothing
    threading.Thread(target=partial(_encode, encoded, ti, told), name="crew-progress", daemon=True).start()
    return encoded


def _encode(encoded: Future[Any], ti: Any, told: dict[str, Any]) -> None:
    try:
        encoded.set_result(encoded_xcom(ti, PROGRESS, told))
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits
        encoded.set_exception(error)
