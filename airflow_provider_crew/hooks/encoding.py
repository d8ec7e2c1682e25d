"""Encodes with the XCom backend in a thread, so that nobody has to wait for a slow one."""

from concurrent.futures import Future
from functools import partial
from typing import Any

from airflow_provider_crew.compat import encoded_xcom
from airflow_provider_crew.hooks.threads import in_thread
from airflow_provider_crew.service.progress import PROGRESS


def encoding(ti: Any, told: dict[str, Any]) -> Future[Any]:
    """Begin to encode what is told of an execution, and return where it will be."""
    return in_thread("crew-progress", partial(encoded_xcom, ti, PROGRESS, told))
