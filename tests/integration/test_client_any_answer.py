"""Whatever bytes come back, both clients give a model or one of the package's own errors, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.models import Completed, CrewInputs, Failed, Running
from airflow_provider_crew.client.settings import ServiceSettings
from tests.async_crew import AsyncCrew
from tests.integration.clients import KICKOFF, TOKEN

BOUNDED = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

WORDS = st.sampled_from(["running", "completed", "error", "SUCCESS", "FAILED", "NOT FOUND", "queued", ""])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["status", "state", "result", "result_json", "tasks", "output", "error", "progress", "inputs", "kickoff_id"]
)
DOCUMENTS = JSON | st.dictionaries(KEYS, JSON | WORDS | st.dictionaries(KEYS, JSON, max_size=4), max_size=6)
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Location", "Content-Type", "Content-Encoding", "Transfer-Encoding"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), min_size=1, max_size=20)
    | st.sampled_from(
        ["gzip", "chunked", "deflate", "1e400", "99999999999999999999", "Sun, 99 Nov 9999 00:00:00 GMT"]
    ),
    max_size=3,
)


def every_call(crew: Any) -> None:
    kinds: dict[str, tuple[Callable[[], Any], Any]] = {
        "inputs": (crew.inputs, CrewInputs),
        "kickoff": (lambda: crew.kickoff(KICKOFF), str),
        "status": (lambda: crew.status("some-id"), (Running, Completed, Failed)),
    }
    for call, kind in kinds.values():
        try:
            assert isinstance(call(), kind)
        except CrewError as error:
            assert str(error)  # noqa: PT017 - an error is as good an outcome as a model


@pytest.fixture
def patient_crew(connect, service):
    return connect(service.url, request_timeout=2)


@pytest.fixture
def both_crews(service) -> Iterator[tuple[Any, Any]]:
    settings = ServiceSettings(address=service.url, token=TOKEN, request_timeout=60)
    crews = CrewClient(settings), AsyncCrew(settings)
    yield crews
    for crew in crews:
        crew.close()


@BOUNDED
@given(
    data=st.binary(max_size=300)
    | st.binary(max_size=200).map(lambda rest: b"HTTP/1.1 200 OK\r\n" + rest)
    | st.binary(max_size=200).map(lambda rest: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + rest)
    | st.binary(max_size=200).map(lambda rest: b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + rest)
)
def test_any_bytes_on_the_wire(patient_crew, service, data):
    service.faults.raw(data, times=8)
    every_call(patient_crew)
    service.faults.clear()


def outcome(call: Any) -> tuple[type, Any]:
    try:
        result = call()
    except CrewError as error:
        return type(error), error.args + tuple(vars(error).items())
    return type(result), repr(result)


@BOUNDED
@given(
    status=st.integers(200, 599).filter(lambda code: code not in {204, 304}),
    body=DOCUMENTS | st.binary(max_size=200),
    headers=HEADERS,
)
def test_both_clients_read_the_same(both_crews, service, status, body, headers):
    # Framing, and the decoding of headers beyond ASCII, is the transport library's own.
    headers = {name: value for name, value in headers.items() if name != "Transfer-Encoding" and value.isascii()}
    service.faults.answer(status, body=body, headers=headers, times=6)
    for call in (
        lambda crew: crew.inputs(),
        lambda crew: crew.kickoff(KICKOFF),
        lambda crew: crew.status("some-id"),
    ):
        sync, asynchronous = (outcome(lambda crew=crew, call=call: call(crew)) for crew in both_crews)
        assert sync == asynchronous
    service.faults.clear()
