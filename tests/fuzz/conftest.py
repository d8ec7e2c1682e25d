"""The world in which bad input is tried: one for all cases of a module."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from unittest.mock import patch

import pytest
from airflow.providers.common.compat.sdk import mask_secret

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.client.timing import replaced
from tests.async_crew import AsyncCrew
from tests.fuzz.bad_values import TOKEN
from tests.fuzz.world import LogReader, World
from tests.integration.hostile import hostile_service


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # Close sockets that earlier tests left behind. In a deep recursion the garbage collector could not.
    gc.collect()
    log, reader = logging.getLogger("airflow_provider_crew"), LogReader()
    with ExitStack() as stack:
        # pytest would keep every line until the end of a test.
        stack.enter_context(patch.object(log, "propagate", False))
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.DEBUG)
        stack.callback(log.removeHandler, reader)
        log.addHandler(reader)
        service = stack.enter_context(hostile_service())
        stack.enter_context(replaced(longest_back_off=0.0, longest_retry_after=0.0))
        # Airflow keeps, and looks for, every secret that it has ever been told.
        masker = import_module(mask_secret.__module__)._secrets_masker()
        stack.enter_context(patch.object(type(masker), "add_mask", lambda *_, **__: None))
        connection = f"crew://:{TOKEN}@127.0.0.1:{service.port}/http"
        stack.enter_context(patch.dict("os.environ", AIRFLOW_CONN_CREW_DEFAULT=connection))
        settings = ServiceSettings(address=service.url, token=TOKEN, request_timeout=60)
        crews = CrewClient(settings), AsyncCrew(settings)
        for crew in crews:
            stack.callback(crew.close)
        yield World(service, crews, reader.faults)
