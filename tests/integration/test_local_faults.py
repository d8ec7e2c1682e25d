"""Every fault of the local service, as a plain client meets it."""

import asyncio
import contextlib
import http.client
import json
import math
import os
import socket
import ssl
import threading
import time
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import requests
import trustme

from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.wire.listener import Listener
from tests.integration.clock import Clock

INPUTS = {"topic": "tides", "audience": "sailors"}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def service(clock):
    with LocalCrewService(Scenario().without_waiting(), clock=clock) as running:
        yield running


@pytest.fixture
def faults(service):
    return service.faults


@pytest.fixture
def kickoff(service):
    """Return a call that kicks off the way every library does below: one connection, the raw exceptions."""

    def call(timeout=60.0):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("POST", "/kickoff", json.dumps({"inputs": INPUTS}), headers(service))
            answer = connection.getresponse()
            return answer, answer.read()

    return call


def headers(service):
    return {"Authorization": f"Bearer {service.token}"}


def get_inputs(service, **more):
    return requests.get(f"{service.url}/inputs", headers=headers(service), timeout=60, **more)


def read_below_openssl(connection):
    """Read what really comes over the wire: OpenSSL calls a reset an unexpected end."""
    while os.read(connection.fileno(), 65536):
        pass


def is_refused(service):
    try:
        get_inputs(service)
    except requests.ConnectionError as error:
        return "refused" in str(error)
    return False


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not come true within a minute"
        time.sleep(0.01)


class TestAnswer:
    @pytest.mark.parametrize(
        ("status", "title"),
        [
            (401, "Unauthorized"),
            (500, "Internal Server Error"),
            (599, "Error"),
        ],
    )
    def test_an_error_carries_the_documented_body(self, service, faults, kickoff, status, title):
        faults.answer(status, on="kickoff")

        answer, body = kickoff()

        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(body) == {
            "error": title,
            "message": f"The local service was asked to answer {status}.",
        }
        assert service.kickoffs == ()
        assert (service.requests[0].fault, service.requests[0].status) == ("answer", status)

    @pytest.mark.parametrize(
        ("body", "sent", "content_type"),
        [
            ("", b"", None),
            (b"\xff{", b"\xff{", "application/json"),
            ("{'no': json", b"{'no': json", "application/json"),
            ("<html>Bad gateway</html>", b"<html>Bad gateway</html>", "text/html; charset=utf-8"),
            ({"detail": "Not Found"}, b'{"detail": "Not Found"}', "application/json"),
            (17, b"17", "application/json"),
        ],
    )
    def test_a_body_is_sent_as_it_is(self, faults, kickoff, body, sent, content_type):
        faults.answer(502, body=body)

        answer, received = kickoff()

        assert received == sent
        assert answer.headers["content-type"] == content_type

    def test_headers_are_sent_and_win(self, faults, kickoff):
        faults.answer(
            418, headers={"X-Why": "tea", "Content-Type": "application/problem+json"}, body={"title": "teapot"}
        )

        answer, _ = kickoff()

        assert answer.headers["x-why"] == "tea"
        assert answer.headers.get_all("content-type") == ["application/problem+json"]

    @pytest.mark.parametrize("status", [429, 503])
    def test_retry_after_in_seconds(self, faults, kickoff, status):
        faults.answer(status, retry_after=7)

        answer, _ = kickoff()

        assert (answer.status, answer.headers["retry-after"]) == (status, "7")

    def test_retry_after_as_a_date(self, faults, kickoff):
        faults.answer(503, retry_after=30, retry_after_date=True)
        began = time.time()

        answer, _ = kickoff()

        told = parsedate_to_datetime(answer.headers["retry-after"]).timestamp()
        assert began + 29 <= told <= time.time() + 30

    @pytest.mark.parametrize("status", [204, 304])
    def test_a_status_without_a_body(self, faults, kickoff, status):
        faults.answer(status)

        answer, body = kickoff()

        assert (answer.status, body, answer.headers["content-length"]) == (status, b"", None)

    def test_after_taken_the_execution_exists_and_its_answer_is_lost(self, service, faults, kickoff):
        faults.answer(500, on="kickoff", after_taken=True)

        answer, _ = kickoff()

        assert answer.status == 500
        assert [taken.inputs for taken in service.kickoffs] == [INPUTS]

    def test_a_redirect_leads_where_it_says(self, service, faults):
        faults.redirect(f"{service.url}/elsewhere", status=307)

        answer = get_inputs(service, allow_redirects=False)

        assert (answer.status_code, answer.headers["location"]) == (307, f"{service.url}/elsewhere")

    def test_the_connection_lives_on(self, service, faults):
        faults.answer(503)
        with requests.Session() as session:
            for _ in range(2):
                session.get(f"{service.url}/inputs", headers=headers(service), timeout=60)

        assert [request.status for request in service.requests] == [503, 200]
        assert len({request.client for request in service.requests}) == 1

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            ({"status": 204, "body": "x"}, "an answer 204 has no body"),
            ({"status": 503, "retry_after_date": True}, "retry_after_date needs retry_after"),
            ({"status": 100}, "greater than or equal to 200"),
            ({"status": 503, "times": 0}, "greater than or equal to 1"),
        ],
    )
    def test_what_cannot_be_is_refused_when_asked_for(self, faults, options, complaint):
        with pytest.raises(ValueError, match=complaint):
            faults.answer(**options)


class TestReset:
    @pytest.mark.parametrize(("after_taken", "taken"), [(False, 0), (True, 1)])
    def test_is_seen_as_one_and_counts_what_was_taken(self, service, faults, kickoff, after_taken, taken):
        faults.reset(on="kickoff", after_taken=after_taken)

        with pytest.raises(ConnectionResetError):
            kickoff()

        assert len(service.kickoffs) == taken
        assert (service.requests[0].fault, service.requests[0].status) == ("reset", None)

    def test_is_one_on_the_wire_over_tls_too(self, tmp_path):
        authority, context = trustme.CA(), ssl.create_default_context()
        authority.configure_trust(context)
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
        with LocalCrewService(tls=(tmp_path / "both.pem", tmp_path / "both.pem")) as service:
            service.faults.reset()
            plain = socket.create_connection(("127.0.0.1", service.port), timeout=60)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                connection.sendall(b"GET /inputs HTTP/1.1\r\nHost: crew\r\n\r\n")
                connection.settimeout(None)
                with pytest.raises(ConnectionResetError):
                    read_below_openssl(connection)


class TestHang:
    @pytest.mark.parametrize(("after_taken", "taken"), [(False, 0), (True, 1)])
    def test_never_answers(self, service, faults, kickoff, after_taken, taken):
        faults.hang(on="kickoff", after_taken=after_taken)

        with pytest.raises(TimeoutError):
            kickoff(timeout=0.2)

        until(lambda: service.requests)
        until(lambda: len(service.kickoffs) == taken)

    @pytest.mark.parametrize("after_taken", [False, True])
    def test_for_some_seconds_answers_in_the_end(self, service, faults, kickoff, after_taken):
        faults.hang(seconds=0.2, after_taken=after_taken)
        before = time.monotonic()

        answer, body = kickoff()

        assert time.monotonic() - before >= 0.2
        assert (answer.status, json.loads(body)) == (200, {"kickoff_id": service.kickoffs[0].kickoff_id})

    def test_a_client_that_has_hung_up_is_not_served(self):
        over = threading.Event()
        with LocalCrewService(Scenario().without_waiting(), on_request=lambda _: over.set()) as service:
            service.faults.hang(seconds=3600, on="kickoff")

            with pytest.raises(requests.Timeout):
                requests.post(
                    f"{service.url}/kickoff", json={"inputs": INPUTS}, headers=headers(service), timeout=0.2
                )
            assert over.wait(60)

            assert service.kickoffs == ()

    @pytest.mark.parametrize("fault", ["hang", "drip", "huge"])
    def test_does_not_hold_up_the_end_of_the_service(self, fault):
        with LocalCrewService() as service:
            asked: dict[str, Any] = {"hang": {}, "drip": {"pause": 3600.0}, "huge": {"size": 10**12}}
            getattr(service.faults, fault)(**asked[fault])
            with socket.create_connection(("127.0.0.1", service.port), timeout=60) as waiting:
                waiting.sendall(b"GET /inputs HTTP/1.1\r\nHost: crew\r\n\r\n")
                until(lambda: len(service.requests) == 1)
                stopping = threading.Thread(target=service.stop, daemon=True)
                stopping.start()
                stopping.join(60)

                assert not stopping.is_alive()


class TestDrip:
    @pytest.mark.parametrize(("options", "whole_head"), [({}, False), ({"part": "body"}, True)])
    def test_sends_everything_or_the_body_byte_by_byte(self, service, faults, options, whole_head):
        faults.drip(pause=0.001, **options)
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(b"GET /inputs HTTP/1.1\r\nHost: crew\r\n\r\n")
            pieces = list(iter(lambda: connection.recv(65536), b""))

        answer = b"".join(pieces)
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert answer.endswith(b'is missing or invalid."}')
        assert len(pieces) > 10
        assert (b"\r\n\r\n" in pieces[0]) is whole_head

    def test_is_a_good_answer_for_the_patient(self, service, faults, kickoff):
        faults.drip(pause=0.001)

        answer, body = kickoff()

        assert (answer.status, json.loads(body)) == (200, {"kickoff_id": service.kickoffs[0].kickoff_id})
        assert service.requests[0].status == 200


class TestTruncate:
    def test_breaks_the_json_of_a_complete_answer(self, service, faults, kickoff):
        faults.truncate()

        answer, body = kickoff()

        assert int(answer.headers["content-length"]) == len(body) == 27
        assert body.startswith(b'{"kickoff_id": "')
        assert len(service.kickoffs) == 1

    def test_keeps_as_much_as_asked(self, faults, kickoff):
        faults.truncate(keep=3)

        assert kickoff()[1] == b'{"k'

    def test_incomplete_closes_in_the_middle_of_the_body(self, service, faults, kickoff):
        faults.truncate(incomplete=True)

        with pytest.raises(http.client.IncompleteRead) as caught:
            kickoff()

        assert (len(caught.value.partial), caught.value.expected) == (27, 27)
        assert len(service.kickoffs) == 1


class TestHuge:
    def test_announces_its_length(self, service, faults, kickoff):
        faults.huge(3_000_000)

        answer, body = kickoff()

        assert int(answer.headers["content-length"]) == len(body) == 3_000_000
        assert json.loads(body)["kickoff_id"] == service.kickoffs[0].kickoff_id

    def test_in_chunks_announces_nothing(self, faults, kickoff):
        faults.huge(3_000_000, chunked=True)

        answer, body = kickoff()

        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.headers["content-length"] is None
        assert len(body) == 3_000_000

    def test_ends_when_the_client_has_had_enough(self):
        done = threading.Event()
        with LocalCrewService(on_request=lambda _: done.set()) as service:
            service.faults.huge(10**12)
            with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
                connection.sendall(b"GET /inputs HTTP/1.1\r\nHost: crew\r\n\r\n")
                assert connection.recv(10).startswith(b"HTTP/1.1")

            assert done.wait(60)


class TestRaw:
    def test_is_no_http(self, service, faults, kickoff):
        faults.raw(b"SSH-2.0-OpenSSH_9.6\r\n", on="kickoff")

        with pytest.raises(http.client.BadStatusLine, match=r"SSH-2\.0-OpenSSH_9\.6"):
            kickoff()

        assert service.kickoffs == ()


class TestRefuse:
    def test_for_some_seconds_and_back_on_the_same_port(self, service, faults, kickoff, monkeypatch):
        over, asked_for, reopen = threading.Event(), [], Listener._reopen

        async def reopen_when_over(listener, seconds):
            asked_for.append(seconds)
            await asyncio.to_thread(over.wait, 60)
            await reopen(listener, 0)

        monkeypatch.setattr(Listener, "_reopen", reopen_when_over)
        port = service.port
        faults.refuse(0.3)

        with pytest.raises(ConnectionRefusedError):
            kickoff()
        over.set()
        until(lambda: not is_refused(service))

        assert kickoff()[0].status == 200
        assert (service.port, asked_for) == (port, [0.3])

    def test_until_cleared(self, faults, kickoff):
        faults.refuse()
        faults.refuse()
        with pytest.raises(ConnectionRefusedError):
            kickoff()

        faults.clear()

        assert kickoff()[0].status == 200

    def test_closes_the_connections_there_are(self, service, faults):
        with requests.Session() as session:
            session.get(f"{service.url}/inputs", headers=headers(service), timeout=60)
            faults.refuse()
            with pytest.raises(requests.ConnectionError):
                session.get(f"{service.url}/inputs", headers=headers(service), timeout=60)

    def test_can_begin_with_a_request(self):
        running: LocalCrewService

        def go_away(_):
            running.faults.refuse()

        with LocalCrewService(on_request=go_away) as running:
            assert get_inputs(running).status_code == 200
            until(lambda: is_refused(running))


class TestExtent:
    def statuses(self, service, count):
        return [get_inputs(service).status_code for _ in range(count)]

    def test_can_be_both_and_ends_with_the_first(self, service, faults, clock):
        faults.answer(503, times=2, for_seconds=10)
        faults.answer(502, times=5, for_seconds=10)

        assert self.statuses(service, 3) == [503, 503, 502]
        clock.now += 10
        assert self.statuses(service, 1) == [200]

    def test_can_be_until_cleared(self, service, faults, clock):
        faults.answer(503, for_seconds=math.inf)
        clock.now += 1e9
        assert self.statuses(service, 2) == [503, 503]

        faults.clear()

        assert self.statuses(service, 1) == [200]

    def test_comes_in_the_order_asked_for(self, service, faults):
        faults.answer(503)
        faults.answer(429)

        assert self.statuses(service, 3) == [503, 429, 200]

    def test_can_begin_with_the_scenario(self):
        faults = [{"kind": "answer", "status": 503, "on": "inputs"}, {"kind": "reset"}]
        with LocalCrewService(Scenario.model_validate({"faults": faults})) as service:
            assert get_inputs(service).status_code == 503
            with pytest.raises(requests.ConnectionError, match="reset by peer"):
                get_inputs(service)
            assert get_inputs(service).status_code == 200
