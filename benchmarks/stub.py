"""
A service that answers every poll with "still running", as cheaply as it can, in a process of its own.

It knows each contestant's way of asking and counts connections and polls; a second port tells the counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import ssl
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"

_BACKLOG = 4096
_BODY_LENGTH = re.compile(rb"\ncontent-length: *(\d+)", re.IGNORECASE)
_TASKS = ("research_task", "writing_task", "editing_task")
# So many polls of an execution in a row get the same answer.
_POLLS_A_TASK = 10
_STILL_RUNNING: dict[bytes, list[object]] = {
    b"/status/": [
        {
            "status": "running",
            "current_task": task,
            "progress": {"completed_tasks": number, "total_tasks": len(_TASKS)},
        }
        for number, task in enumerate(_TASKS)
    ],
    b"/api/v2/": [{"data": {"id": 1, "status": 3}, "status": {"code": 200}}],
    b"/api/2.": [{"run_id": 1, "state": {"life_cycle_state": "RUNNING", "state_message": "In run"}}],
}


@dataclass(frozen=True, slots=True)
class Counts:
    """What the stub has seen so far."""

    connections: int
    polls: int


@dataclass(frozen=True, slots=True)
class Stub:
    """A running stub, seen from another process."""

    scheme: str
    port: int
    counts_port: int
    authority: str = ""

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"{self.scheme}://{HOST}:{self.port}"

    async def counts(self) -> Counts:
        """Ask what it has seen, without blocking the loop that is measured."""
        reader, writer = await asyncio.open_connection(HOST, self.counts_port)
        told = await reader.read()
        writer.close()
        return Counts(**json.loads(told))


@contextmanager
def running(scheme: str, folder: Path) -> Iterator[Stub]:
    """Run a stub; over TLS, make its certificate in the folder, signed by an authority of its own."""
    authority, certificate = _certificates(folder) if scheme == "https" else ("", "")
    command = [sys.executable, "-m", "benchmarks.stub", "--certificate", certificate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            ports = json.loads(process.stdout.readline())
            yield Stub(scheme, ports["answers"], ports["counts"], authority)
        finally:
            process.terminate()


def _certificates(folder: Path) -> tuple[str, str]:
    import trustme

    authority = trustme.CA()
    trusted, own = folder / "authority.pem", folder / "stub.pem"
    authority.cert_pem.write_to_path(str(trusted))
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(own))
    return str(trusted), str(own)


class _Seen:
    def __init__(self) -> None:
        self.connections = 0
        self.polls = Counter[bytes]()

    @property
    def counts(self) -> Counts:
        return Counts(self.connections, self.polls.total())


class _Connection(asyncio.Protocol):
    """Answers what comes over one connection, and keeps it open."""

    def __init__(self, seen: _Seen) -> None:
        self._seen = seen
        self._pending = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - it carries bytes
        self._transport = transport
        self._seen.connections += 1

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while (end := self._end_of_request()) is not None:
            request, self._pending = self._pending[:end], self._pending[end:]
            path = request[: request.index(b"\r")].split(b" ")[1]
            self._seen.polls[path] += 1
            if self._transport is not None:
                self._transport.write(_answer(path, self._seen.polls[path]))

    def _end_of_request(self) -> int | None:
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _BODY_LENGTH.search(self._pending, 0, end + 2)
        end += 4 + (int(length[1]) if length else 0)
        return end if len(self._pending) >= end else None


def _answer(path: bytes, polls: int) -> bytes:
    answers = next((answers for start, answers in _ANSWERS.items() if path.startswith(start)), [_NOT_FOUND])
    return answers[polls // _POLLS_A_TASK % len(answers)]


def _written(status: str, answer: object) -> bytes:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_ANSWERS = {start: [_written("200 OK", answer) for answer in answers] for start, answers in _STILL_RUNNING.items()}
_NOT_FOUND = _written("404 Not Found", {"error": "Not found", "message": "No such execution"})


async def _serve(certificate: str) -> None:
    seen = _Seen()

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(asdict(seen.counts)).encode())
        writer.close()

    answers = await asyncio.get_running_loop().create_server(
        lambda: _Connection(seen), HOST, 0, ssl=_context(certificate), backlog=_BACKLOG
    )
    counts = await asyncio.start_server(tell, HOST, 0)
    ports = {"answers": answers.sockets[0].getsockname()[1], "counts": counts.sockets[0].getsockname()[1]}
    print(json.dumps(ports), flush=True)
    # The pipe ends when the process that started this one ends, in whatever way.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _context(certificate: str) -> ssl.SSLContext | None:
    if not certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stub")
    parser.add_argument("--certificate", default="")
    asyncio.run(_serve(parser.parse_args().certificate))


if __name__ == "__main__":
    _main()
