"""What the clients make of answers that are no plain success, and how much of them they read."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import (
    Cost,
    NotAuthenticated,
    Rejected,
    UncertainKickoff,
    Unreachable,
    UnreadableResponse,
)
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import TOKEN
from tests.integration.sent_clients import NOT_SENT, STARTED, UNCERTAIN, send
from tests.integration.sent_server import ACCEPTED, SentServer, Step, Talk, answer, says

pytest_plugins = ["tests.integration.sent_fixtures"]

MIB = 1024 * 1024
GZIP = "Content-Encoding: gzip"


def settings_of(server: SentServer, **others: Any) -> ServiceSettings:
    settings = {"address": f"http://127.0.0.1:{server.port}", "token": TOKEN, "request_timeout": 60}
    return ServiceSettings(**settings | others)


@pytest.fixture
def crew(server: SentServer) -> Iterator[CrewClient]:
    with CrewClient(settings_of(server)) as client:
        yield client


class TestCompression:
    """A gateway may compress what nobody asked it to."""

    @pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip"])
    def test_gzip_of_inputs_is_understood(self, crew, server, coding):
        body = gzip.compress(json.dumps({"inputs": ["topic"]}).encode())
        server.play(says(answer(200, body, f"Content-Encoding: {coding}")))

        assert crew.inputs().names == ("topic",)

    def test_gzip_in_chunks_is_understood(self, server):
        body = gzip.compress(ACCEPTED)
        head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{GZIP}\r\n\r\n".encode()
        server.play(says(head, *(b"1\r\n%c\r\n" % byte for byte in body), b"0\r\n\r\n"))

        assert send(settings_of(server)).outcome == STARTED

    UNREADABLE = {  # noqa: RUF012 - never changed
        "br": (b"\x0b\x02\x80abc\x03", "br"),
        "zstd": (b"\x28\xb5\x2f\xfd", "zstd"),
        "unknown": (b"\x0b\x02\x80abc\x03", "sdch"),
        "no_gzip": (b"\x1f\x8b no gzip", "gzip"),
        "cut_off": (gzip.compress(ACCEPTED)[:-12], "gzip"),
        "empty": (b"", "gzip"),
    }

    @pytest.mark.parametrize("name", UNREADABLE)
    def test_unreadable_coding_leaves_a_kickoff_uncertain(self, crew, server, name):
        body, coding = self.UNREADABLE[name]
        arrived = server.play(says(answer(200, body, f"Content-Encoding: {coding}")))

        assert send(settings_of(server)).outcome == UNCERTAIN
        assert len(arrived.posts) == 1
        with pytest.raises((UnreadableResponse, Unreachable)):
            crew.inputs()


def floods(status: int, *, chunked: bool) -> Step:
    """Answer with 8 MiB of JSON, for as long as somebody reads."""
    items = b'{"error": [[[]]]},' * 3600  # just below 64 KiB
    pieces = [b"[", *[items] * (8 * MIB // len(items)), b"{}]"]
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {sum(map(len, pieces))}"
    head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{framing}\r\n\r\n".encode()

    def step(talk: Talk) -> None:
        # As little as possible lies between what was sent and what is read.
        talk.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        talk.read_request()
        talk.send(head)
        for piece in pieces:
            talk.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        talk.send(b"0\r\n\r\n" if chunked else b"")

    return step


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("status", "outcome"), [(422, NOT_SENT), (409, UNCERTAIN), (503, UNCERTAIN)])
def test_large_error_is_read_in_part(server, chunked, status, outcome):
    arrived = server.play(floods(status, chunked=chunked))

    sent = send(settings_of(server))
    server.settle()

    assert sent.outcome == outcome
    assert len(arrived.posts) == 1
    assert arrived.given_away < 4 * MIB  # with what the kernel takes without being asked


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
class TestEarlyAnswers:
    """A server need not read what it refuses."""

    LARGE = KickoffRequest.of({"topic": "x" * 5_000_000})

    @pytest.fixture
    def large_kickoff(self, crew, server) -> Callable[..., Any]:
        # Over TLS, requests cannot read an answer that came before the body was sent.
        def kick_off(*steps: Step) -> Any:
            server.play(*steps)
            return crew.kickoff(self.LARGE)

        return kick_off

    @pytest.mark.parametrize(("status", "error"), [(413, Rejected), (401, NotAuthenticated)])
    def test_refusal_of_an_unread_body_is_reported(self, large_kickoff, status, error):
        with pytest.raises(error) as caught:
            large_kickoff(Talk.read_head, lambda talk: talk.send(answer(status)))

        assert caught.value.http_status == status
        assert caught.value.cost is Cost.NONE

    def test_accepted_before_body_was_read_is_an_id(self, large_kickoff):
        assert large_kickoff(Talk.read_head, lambda talk: talk.send(answer(200, ACCEPTED))) == "k-1"

    def test_reset_within_a_large_body_is_uncertain(self, large_kickoff):
        with pytest.raises(UncertainKickoff):
            large_kickoff(Talk.read_head, Talk.reset)
