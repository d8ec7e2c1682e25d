"""Clients whose caller is interrupted, or forks: nothing is sent later, no ID is lost, no answer mixed up."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings

import pytest

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.hooks.crew import CrewHook
from tests.airflow_runs import PATIENCE
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.hostile import Talk, answer, completed

pytest_plugins = ["tests.integration.task_fixtures"]


def echo(talk: Talk) -> None:
    """Answer each question on a connection with the ID that it asks after."""
    while head := talk.read_request():
        asked = head.split(b" ", 2)[1].rpartition(b"/")[2]
        talk.layer.sendall(answer(completed(asked.decode())))


def test_client_used_before_fork_opens_a_connection_of_its_own(hostile):
    hostile.steps = [echo]
    with CrewClient(ServiceSettings(address=hostile.url, token=TOKEN, request_timeout=60)) as crew:
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
    assert hostile.connections == 2


@pytest.fixture
def hook(hostile, monkeypatch) -> CrewHook:
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", f"crew://:{TOKEN}@127.0.0.1:{hostile.port}/http")
    return CrewHook()


async def test_cancelled_kickoff_async_logs_the_id(hostile, hook, task_log):
    loop, has_arrived, may_respond = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def respond(talk: Talk) -> None:
        talk.read_request()
        loop.call_soon_threadsafe(has_arrived.set)
        may_respond.wait(PATIENCE)
        talk.layer.sendall(answer(b'{"kickoff_id": "the-id-that-was-paid-for"}'))

    hostile.steps = [respond]
    task = asyncio.ensure_future(hook.kickoff_async(INPUTS))
    await has_arrived.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_respond.set()

    async with asyncio.timeout(PATIENCE):
        while "the-id-that-was-paid-for" not in task_log.text:  # noqa: ASYNC110 - a thread logs it
            await asyncio.sleep(0.02)
    assert len(hostile.requests) == 1


async def test_cancelled_kickoff_async_sends_nothing_more(live_crew, timing):
    timing(longest_retry_after=30.0)
    live_crew.faults.answer(429, on="kickoff", headers={"retry-after": "30"})
    loop, has_sent = asyncio.get_running_loop(), asyncio.Event()
    live_crew.after = lambda request: request.operation == "kickoff" and loop.call_soon_threadsafe(has_sent.set)
    task = asyncio.ensure_future(CrewHook().kickoff_async(INPUTS))
    await has_sent.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await loop.shutdown_default_executor()

    assert len(live_crew.requests.on("kickoff")) == 1
