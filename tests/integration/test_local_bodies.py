"""What the local service reads and keeps of a request: nothing of a stranger's body, and no more than fits."""

import contextlib
import socket

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.record import MOST_OF_STRANGERS
from airflow_provider_crew.local.wire.front import LARGEST_BODY

PATIENCE = 60
PATHS = ["/kickoff", "/resume", "/local/"]


@pytest.fixture
def service():
    with LocalCrewService(Scenario(inputs=()).without_waiting()) as running:
        yield running


class Wire:
    """A request of which the head is sent first, and the body in parts."""

    def __init__(self, service, path, *headers, token=None):
        self._connection = socket.create_connection((service.host, service.port), timeout=PATIENCE)
        lines = [f"POST {path} HTTP/1.1", f"Host: {service.host}:{service.port}", *headers]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        self.send("\r\n".join([*lines, "", ""]).encode())

    def send(self, raw):
        self._connection.sendall(raw)

    def head(self):
        """Read up to the end of the next head: a status line and headers in lower case."""
        read = b""
        while not read.endswith(b"\r\n\r\n"):
            byte = self._connection.recv(1)
            assert byte, read
            read += byte
        status, *headers = read.decode("latin-1").strip().split("\r\n")
        return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in headers)

    def close(self):
        self._connection.close()


@pytest.fixture
def post(service):
    with contextlib.ExitStack() as stack:

        def start(path, *headers, token=None):
            return stack.enter_context(contextlib.closing(Wire(service, path, *headers, token=token)))

        yield start


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", [None, "wrong"])
@pytest.mark.parametrize(
    "body",
    ["Content-Length: 1000000000000", "Transfer-Encoding: chunked", "Content-Length: 9\r\nExpect: 100-continue"],
)
def test_stranger_is_answered_before_the_body(service, post, path, token, body):
    status, headers = post(path, body, token=token).head()

    assert (status, headers["connection"]) == (401, "close")
    assert [(each.path, each.status, each.body) for each in service.requests] == [(path, 401, b"")]
    assert service.kickoffs == ()


def test_chunked_body_is_read_up_to_the_limit(service, post):
    wire = post("/kickoff", "Transfer-Encoding: chunked", token=service.token)
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    for _ in range(LARGEST_BODY // 0x100000):
        wire.send(piece)
    wire.send(b"1\r\n \r\n")  # which is one byte too many, and not the last chunk

    assert wire.head()[0] == 413
    assert [(each.status, each.body) for each in service.requests] == [(413, b"")]


def test_requests_of_strangers_are_kept_up_to_a_size(service):
    known = {"Authorization": f"Bearer {service.token}"}
    with requests.Session() as session:
        session.get(f"{service.url}/inputs", headers=known, timeout=PATIENCE)
        for number in range(2 * MOST_OF_STRANGERS // 60_000):
            large = {"X-Large": "x" * 60_000, "X-Number": f"{number}"}
            answer = session.post(f"{service.url}/kickoff", headers=large, timeout=PATIENCE)
            assert answer.status_code == 401

    of_strangers = [each for each in service.requests if each.header("x-large")]
    assert sum(each.size for each in of_strangers) <= MOST_OF_STRANGERS
    assert of_strangers[-1].header("x-number") == f"{number}"
    assert service.requests[0].status == 200

    service.requests.clear()
    assert session.post(f"{service.url}/kickoff", timeout=PATIENCE).status_code == 401
    assert len(service.requests) == 1
