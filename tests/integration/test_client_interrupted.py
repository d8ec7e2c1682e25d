"""Clients whose caller is interrupted, or forks: nothing is sent later, no ID is lost, no answer mixed up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tenacity
from aiohttp.client_proto import ResponseHandler

from airflow_provider_crew.client.api import retry_policy
from airflow_provider_crew.client.async_client import AsyncCrewClient
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import INPUTS, KICKOFF, TOKEN
from tests.integration.sent_server import ACCEPTED, SentServer, Talk, answer, says, tls

pytest_plugins = ["tests.integration.sent_fixtures", "tests.integration.task_fixtures"]


def echo(talk: Talk) -> None:
    """Answer each question on a connection with the ID that it asks after."""
    while head := talk.read_request():
        asked = head.split(b" ", 2)[1].rpartition(b"/")[2]
        body = b'{"status": "completed", "result": {"output": "%b"}}' % asked
        talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def test_client_used_before_fork_opens_a_connection_of_its_own(server):
    arrived = server.play(echo)
    address = f"http://127.0.0.1:{server.port}"
    with CrewClient(ServiceSettings(address=address, token=TOKEN, request_timeout=5)) as crew:
        assert crew.status("before").output == "before"
        with warnings.catch_warnings():
            # There are threads, which the child leaves alone.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            code = 1
            try:
                code = int(crew.status("child").output != "child")
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert crew.status("after").output == "after"
    assert arrived.connections == 2


@pytest.mark.parametrize("sent", [0, 1], ids=["in the handshake", "before the answer"])
async def test_timeout_of_the_caller_sends_nothing_more(server, trust, sent):
    """A TimeoutError that the caller raises is the caller's, and no reason to try again."""
    loop, scope, has_left = asyncio.get_running_loop(), asyncio.timeout(None), threading.Event()

    def interrupt(talk: Talk) -> None:
        talk.wait_for_bytes()
        loop.call_soon_threadsafe(scope.reschedule, loop.time())
        has_left.wait(10)

    steps = [tls(trust.known), says(answer(200, ACCEPTED))]
    steps.insert(sent, interrupt)
    arrived = server.play(*steps)
    address = f"https://127.0.0.1:{server.port}"
    settings = ServiceSettings(address=address, token=TOKEN, request_timeout=10, verify=trust.authority)
    kick_off = tenacity.AsyncRetrying(**retry_policy(only_if_not_started=True))

    async with AsyncCrewClient(settings) as crew:
        with pytest.raises(TimeoutError):
            async with scope:
                await kick_off(crew.kickoff, KICKOFF)
        has_left.set()
    await asyncio.to_thread(server.settle)

    assert scope.expired()
    assert arrived.connections == 1
    assert len(arrived.posts) <= sent


class TestCancelledAfterTheAnswer:
    """An ID that has arrived is told, in whichever turn of the event loop the task is cancelled."""

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
        self, server: SentServer, trust, monkeypatch, task_log, cancel_after, turns, scheme
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

        assert "the-id-that-was-paid-for" in told + task_log.text
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(server.settle), 5)
        assert len(arrived.posts) == 1
