"""Every fault of the local server, as a plain client meets it."""

import contextlib
import http.client
import json
import socket
import threading
import time
from email.utils import parsedate_to_datetime

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario
from tests.airflow_runs import eventually
from tests.integration.local_client import INPUTS

GET_INPUTS = b"GET /inputs HTTP/1.1\r\nHost: crew\r\n\r\n"


@pytest.fixture
def client(serve):
    return serve(Scenario().without_waiting())


@pytest.fixture
def service(client):
    return client.service


@pytest.fixture
def faults(service):
    return service.faults


@pytest.fixture
def kickoff(client):
    """Return a call that kicks off the way every library does below: one connection, the raw exceptions."""

    def call(timeout=60.0):
        connection = http.client.HTTPConnection("127.0.0.1", client.service.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("POST", "/kickoff", json.dumps({"inputs": INPUTS}), client.headers)
            answer = connection.getresponse()
            return answer, answer.read()

    return call


def connected(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=60)


class TestAnswer:
    def test_retry_after_is_seconds_or_a_date(self, faults, kickoff):
        faults.answer(429, retry_after=7)
        faults.answer(503, retry_after=30, retry_after_date=True)
        began = time.time()

        assert kickoff()[0].headers["retry-after"] == "7"
        date = parsedate_to_datetime(kickoff()[0].headers["retry-after"]).timestamp()
        assert began + 29 <= date <= time.time() + 30

    def test_execution_exists_after_an_answer_that_replaced_its_own(self, service, faults, kickoff):
        faults.answer(500, on="kickoff", after_taken=True)

        assert kickoff()[0].status == 500
        assert [taken.inputs for taken in service.kickoffs] == [INPUTS]


class TestHang:
    @pytest.mark.parametrize(("fault", "options"), [("hang", {}), ("huge", {"size": 10**12})])
    def test_service_stops_during_a_fault(self, fault, options):
        with LocalCrewService() as service:
            getattr(service.faults, fault)(**options)
            with connected(service) as waiting:
                waiting.sendall(GET_INPUTS)
                eventually(lambda: len(service.requests) == 1, pause=0.01)
                stopping = threading.Thread(target=service.stop, daemon=True)
                stopping.start()
                stopping.join(60)

                assert not stopping.is_alive()


class TestBody:
    @pytest.mark.parametrize(("options", "whole_head"), [({}, False), ({"part": "body"}, True)])
    def test_drip_sends_byte_by_byte(self, service, faults, options, whole_head):
        faults.drip(pause=0.001, **options)
        with connected(service) as connection:
            connection.sendall(GET_INPUTS)
            pieces = list(iter(lambda: connection.recv(65536), b""))

        answer = b"".join(pieces)
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert answer.endswith(b'is missing or invalid."}')
        assert len(pieces) > 10
        assert (b"\r\n\r\n" in pieces[0]) is whole_head
        assert service.requests[0].status == 401

    def test_truncate_breaks_the_json_of_a_complete_answer(self, service, faults, kickoff):
        faults.truncate()
        faults.truncate(keep=3)

        answer, body = kickoff()

        assert int(answer.headers["content-length"]) == len(body) == 27
        assert body.startswith(b'{"kickoff_id": "')
        assert len(service.kickoffs) == 1
        assert kickoff()[1] == b'{"k'


class TestRefuse:
    def test_connections_are_refused_until_cleared(self, client, service, faults, kickoff):
        with requests.Session() as session:
            session.get(f"{service.url}/inputs", headers=client.headers, timeout=60)
            faults.refuse()
            faults.refuse()
            with pytest.raises(requests.ConnectionError):
                session.get(f"{service.url}/inputs", headers=client.headers, timeout=60)
        with pytest.raises(ConnectionRefusedError):
            kickoff()

        faults.clear()

        assert kickoff()[0].status == 200

    def test_connections_are_accepted_again_after_some_seconds(self, faults, kickoff):
        def is_accepted():
            with contextlib.suppress(ConnectionError):
                return kickoff()[0].status == 200

        faults.refuse(0.1)

        eventually(is_accepted, pause=0.05)


class TestExtent:
    @pytest.fixture
    def statuses(self, client):
        return lambda count: [client.get("/inputs").status_code for _ in range(count)]

    def test_first_limit_ends_a_fault_and_the_next_begins(self, statuses, faults, clock):
        faults.answer(503, times=2, for_seconds=10)
        faults.answer(502, times=5, for_seconds=10)

        assert statuses(3) == [503, 503, 502]
        clock.now += 10
        assert statuses(1) == [200]

    def test_faults_of_the_scenario_come_first(self, serve):
        faults = [{"kind": "answer", "status": 503, "on": "inputs"}, {"kind": "reset"}]
        client = serve(Scenario.model_validate({"faults": faults}))

        assert client.get("/inputs").status_code == 503
        with pytest.raises(requests.ConnectionError, match="reset by peer"):
            client.get("/inputs")
        assert client.get("/inputs").status_code == 200
