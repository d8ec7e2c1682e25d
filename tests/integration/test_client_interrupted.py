"""Clients whose caller is interrupted, or forks: nothing is sent later, no ID is lost, no answer mixed up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenacity
from aiohttp.client_proto import ResponseHandler

from airflow_provider_crew.client.api import retry_policy
from airflow_provider_crew.client.async_client import AsyncCrewClient
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import INPUTS, KICKOFF, TOKEN
from tests.integration.sent_server import ACCEPTED, Arrived, SentServer, Step, Talk, answer, says, tls

pytest_plugins = ["tests.integration.sent_clients"]

POLICY = {**retry_policy(only_if_not_started=True), "sleep": lambda _: None}


async def no_pause(_: float) -> None:
    """Go on at once."""


class TestFork:
    """A process that forks has the client twice, and each polls with its own."""

    POLLS = 300

    @staticmethod
    def echo(talk: Talk) -> None:
        """Answer each question on a connection with the ID that it asks after."""
        while head := talk.read_request():
            asked = head.split(b" ", 2)[1].rpartition(b"/")[2]
            body = b'{"status": "completed", "result": {"output": "%b"}}' % asked
            talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def polls_well(self, crew: CrewClient, name: str) -> bool:
        try:
            return all(crew.status(f"{name}-{poll}").output == f"{name}-{poll}" for poll in range(self.POLLS))
        except CrewError:
            return False

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_client_used_before_fork_reads_its_own_answers(self, server, trust, scheme):
        server.play(*([tls(trust.known)] if scheme == "https" else []), self.echo)
        address = f"{scheme}://127.0.0.1:{server.port}"
        settings = ServiceSettings(
            address=address, token=TOKEN, request_timeout=5, status_path="status_first", verify=trust.authority
        )
        with CrewClient(settings) as crew:
            assert crew.status("before").output == "before"
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # there are threads, which the child leaves alone
                child = os.fork()
            if not child:
                self._be_the_child(crew)
            parent_is_well = self.polls_well(crew, "parent")
            _, status = os.waitpid(child, 0)

            assert parent_is_well
            assert os.waitstatus_to_exitcode(status) == 0
            assert crew.status("after").output == "after"

    def _be_the_child(self, crew: CrewClient) -> None:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            if self.polls_well(crew, "child"):
                code = 0
            crew.close()
        finally:
            os._exit(code)


class Caller:
    """A caller that wants to stop at a certain point of a kickoff. The server says when that is reached."""

    def __init__(self) -> None:
        self.stop: Callable[[], object] = lambda: None
        self.has_left = threading.Event()
        self._is_first = True

    def interrupted(self, talk: Talk) -> None:
        """Stop the caller when something of it has arrived, and go on after it has left. Once."""
        if self._is_first:
            self._is_first = False
            talk.wait_for_bytes()
            self.stop()
            self.has_left.wait(10)


class TestTimeoutOfTheCaller:
    """A TimeoutError that the caller raises is the caller's, and no reason to try again."""

    @pytest.fixture
    def caller(self) -> Caller:
        return Caller()

    @pytest.fixture(params=["handshake", "answer"])
    def place(self, request, server, trust, caller) -> tuple[Arrived, int]:
        """Return what arrives, and how many kickoffs may have gone out when the caller stops."""
        steps: dict[str, list[Step]] = {
            "handshake": [caller.interrupted, tls(trust.known), says(answer(200, ACCEPTED))],
            "answer": [tls(trust.known), caller.interrupted, says(answer(200, ACCEPTED))],
        }
        arrived = server.play(*steps[request.param])
        return arrived, {"handshake": 0, "answer": 1}[request.param]

    @pytest.fixture
    def settings(self, server, trust) -> ServiceSettings:
        address = f"https://127.0.0.1:{server.port}"
        return ServiceSettings(address=address, token=TOKEN, request_timeout=10, verify=trust.authority)

    async def test_of_an_event_loop_reaches_the_caller(self, server, place, settings, caller):
        arrived, sent = place
        loop = asyncio.get_running_loop()

        async with AsyncCrewClient(settings) as crew:
            scope = asyncio.timeout(None)
            caller.stop = lambda: loop.call_soon_threadsafe(scope.reschedule, loop.time())
            kick_off = tenacity.AsyncRetrying(**POLICY | {"sleep": no_pause})
            with pytest.raises(TimeoutError):
                async with scope:
                    await kick_off(crew.kickoff, KICKOFF)
            caller.has_left.set()
        await asyncio.to_thread(server.settle)

        assert scope.expired()
        assert arrived.connections == 1
        assert len(arrived.posts) <= sent


class TestCancelledAfterTheAnswer:
    """An ID that has arrived is told, in whichever turn of the event loop the task is cancelled."""

    @pytest.fixture
    def log(self) -> Iterator[Callable[[], str]]:
        lines: list[str] = []

        class Lines(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                lines.append(record.getMessage())

        handler = Lines(logging.DEBUG)
        # Airflow's loggers may keep what they are told from the root.
        names = ["", *(name for name in logging.root.manager.loggerDict if "airflow" in name)]
        for name in names:
            logging.getLogger(name).addHandler(handler)
        yield lambda: "\n".join(lines)
        for name in names:
            logging.getLogger(name).removeHandler(handler)

    @pytest.fixture
    def cancel_after(self, monkeypatch) -> Callable[[asyncio.Task[Any], int], None]:
        """Cancel a task so many turns of the event loop after the answer has arrived."""
        arrive = ResponseHandler.data_received

        def cancel(task: asyncio.Task[Any], turns: int) -> None:
            loop = asyncio.get_running_loop()

            def turn(left: int) -> None:
                if left:
                    loop.call_soon(turn, left - 1)
                else:
                    task.cancel()

            def arrived(protocol: ResponseHandler, data: bytes) -> None:
                arrive(protocol, data)
                if b"kickoff_id" in data:
                    loop.call_soon(turn, turns)

            monkeypatch.setattr(ResponseHandler, "data_received", arrived)

        return cancel

    @pytest.mark.parametrize("turns", range(8))
    @pytest.mark.parametrize("scheme", ["http", "https"])
    async def test_kickoff_async_logs_or_returns_the_id(
        self, server: SentServer, trust, monkeypatch, capfd, log, cancel_after, turns, scheme
    ):
        from airflow_provider_crew.hooks.crew import CrewHook

        accepted = b'{"kickoff_id": "the-id-that-was-paid-for"}'
        arrived = server.play(*([tls(trust.known)] if scheme == "https" else []), says(answer(200, accepted)))
        uri = f"crew://:{TOKEN}@127.0.0.1:{server.port}/{scheme}"
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", uri)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", trust.authority)
        told = ""

        task = asyncio.ensure_future(CrewHook().kickoff_async(INPUTS))
        cancel_after(task, turns)
        try:
            told = await task
        except asyncio.CancelledError as error:
            told = f"{error} {vars(error)} {getattr(error, '__notes__', '')}"
        told += log() + "".join(capfd.readouterr())

        assert "the-id-that-was-paid-for" in told
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(server.settle), 5)
        assert len(arrived.posts) == 1
