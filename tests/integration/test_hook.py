"""The hook in plain Python, from a connection in the environment to the result of a crew."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from airflow.providers.common.compat.sdk import redact
from airflow.sdk.execution_time import comms, task_runner
from asgiref.sync import async_to_sync

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import Cost, InvalidKickoffId, InvalidSettings, Unreachable
from airflow_provider_crew.hooks.connection import load_connection_async, load_secret
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import SharedConnection
from tests.airflow_runs import eventually
from tests.integration.tasks import CONNECTION, INPUTS, TOKEN
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


class AsyncHook:
    """The hook's asynchronous methods, called like the others, so that one suite proves both."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(CrewHook(), f"{name}_async")
        return lambda *args, **options: asyncio.run(method(*args, **options))


@pytest.fixture(params=[CrewHook, AsyncHook], ids=["sync", "async"])
def hook(request, live_crew) -> Any:  # noqa: ARG001 - whose connection it is
    return request.param()


@pytest.mark.usefixtures("live_crew")
async def test_secrets_are_masked_outside_the_event_loop(monkeypatch):
    """A triggerer tells its supervisor so, and refuses to do that on the loop itself."""
    told: list[str] = []

    async def tell(secret: str) -> None:
        told.append(secret)

    monkeypatch.setattr("airflow_provider_crew.hooks.connection.mask_secret", async_to_sync(tell))

    assert (await load_connection_async("crew_default")).settings.token in told


@pytest.mark.parametrize("method", ["wait", "cancel", "status"])
@pytest.mark.parametrize("uri", ["", "crew://127.0.0.1/http"], ids=["no connection", "no token"])
def test_unusable_connection_proves_nothing_about_execution(hook, monkeypatch, method, uri):
    monkeypatch.setenv(CONNECTION, uri) if uri else monkeypatch.delenv(CONNECTION)

    with pytest.raises((InvalidSettings, Unreachable)) as caught:
        getattr(hook, method)("57a13a6e")

    assert (caught.value.cost, caught.value.kickoff_id) == (Cost.RUNNING, "57a13a6e")


@pytest.mark.parametrize("method", ["wait", "cancel", "status"])
@pytest.mark.parametrize("given", ["", None], ids=repr)
def test_missing_kickoff_id_sends_nothing(hook, live_crew, method, given):
    with pytest.raises(InvalidKickoffId) as caught:
        getattr(hook, method)(given)

    assert caught.value.cost is Cost.UNKNOWN
    assert not live_crew.requests


def test_deleted_connection_does_not_end_wait(hook, live_crew, monkeypatch, timing):
    timing(connection_age_if_rejected=0.0)
    kickoff_id = hook.kickoff(INPUTS)
    live_crew.faults.answer(401, on="status", times=2)
    live_crew.after = lambda request: request.status == 401 and monkeypatch.delenv(CONNECTION, raising=False)

    assert hook.wait(kickoff_id, poll_interval=0.05).status == "completed"

    assert [request.status for request in live_crew.requests.on("status")] == [401, 401, 200]


def test_both_kinds_of_methods_return_the_same(hook, live_crew):
    assert [each.name for each in hook.inputs().inputs] == [*INPUTS]
    kickoff_id = hook.kickoff(INPUTS)
    assert hook.wait(kickoff_id, poll_interval=0.05) == hook.status(kickoff_id) == hook.cancel(kickoff_id)
    assert [kickoff.kickoff_id for kickoff in live_crew.kickoffs] == [kickoff_id]


async def test_cancelled_kickoff_sends_nothing_more(live_crew, timing):
    timing(longest_retry_after=1.0)
    live_crew.faults.answer(429, on="kickoff", headers={"Retry-After": "1"})  # is sent again after the pause
    kickoff = asyncio.create_task(CrewHook().kickoff_async(INPUTS))
    await asyncio.to_thread(eventually, lambda: live_crew.requests.on("kickoff"))
    kickoff.cancel()
    await asyncio.wait([kickoff])
    await asyncio.sleep(1.5)
    assert kickoff.cancelled()
    assert len(live_crew.requests.on("kickoff")) == 1


def test_interrupted_kickoff_is_logged_and_not_repeated(live_crew, monkeypatch, task_log):
    exchange = CrewClient._exchange

    def interrupted(*given: Any) -> None:
        exchange(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(CrewClient, "_exchange", interrupted)

    with pytest.raises(KeyboardInterrupt):
        CrewHook().kickoff(INPUTS)

    assert len(live_crew.kickoffs) == 1
    assert "may have started" in task_log.warnings


@pytest.mark.parametrize(
    ("spoil", "shown"),
    [
        (lambda faults, _: faults.answer(401), "401"),
        (lambda faults, _: faults.answer(404), "404"),
        (lambda faults, _: faults.answer(200, body="<html>"), "<html>"),
        (lambda faults, _: faults.refuse(), "127.0.0.1"),
        (lambda _, patch: patch.setenv(CONNECTION, f"crew://:{TOKEN}@crew.example/http"), "allow_http"),
    ],
    ids=["401", "404", "HTML", "no crew", "wrong setting"],
)
def test_connection_test_shows_what_it_found(live_crew, monkeypatch, spoil, shown):
    assert CrewHook().test_connection()[0] is True
    spoil(live_crew.faults, monkeypatch)

    works, message = CrewHook().test_connection()

    assert works is False
    assert shown in message
    assert TOKEN not in message


def test_secrets_are_masked_and_not_shown(monkeypatch, live_crew, task_log):
    secrets = [TOKEN, "user-token-3141", "proxy-password-2718", "secret-of-webhooks"]
    extra = urlencode({"user_bearer_token": secrets[1], "proxy": f"http://somebody:{secrets[2]}@127.0.0.1:9"})
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{extra}")
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS", f"generic://:{secrets[3]}@")
    hook = CrewHook()

    assert load_secret("hooks") == secrets[3]
    hook.test_connection()

    for secret in (*secrets, base64.b64encode(f"somebody:{secrets[2]}".encode()).decode()):
        assert secret not in str(redact(f"it says {secret} here"))
        assert secret not in task_log.text
        assert secret not in repr(vars(hook)) + repr(vars(hook.get_conn()))


RESPONSE = {
    "type": "ConnectionResult",
    "conn_id": "c",
    "conn_type": "crew",
    "host": "crew.example",
    "password": "t",
}


class Supervisor:
    """Airflow's side of a worker's socket. It answers for a connection when it may."""

    def __init__(self) -> None:
        self.socket, self.others = socket.socketpair()
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        requests, decode = self.others.makefile("rb"), msgspec.msgpack.Decoder(comms._RequestFrame).decode
        while size := requests.read(4):
            frame = decode(requests.read(int.from_bytes(size)))
            body: dict[str, Any] | None = None
            if frame.body and frame.body["type"] == "GetConnection":
                self.is_asked.set()
                self.may_answer.wait(60)
                body = RESPONSE
            self.others.sendall(comms._ResponseFrame(id=frame.id, body=body).as_bytes())


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="Nothing polls on an event loop in a worker.")
def test_worker_talks_to_airflow_while_its_event_loop_stands_still(monkeypatch):
    supervisor = Supervisor()
    decoder: comms.CommsDecoder[Any, Any] = comms.CommsDecoder(socket=supervisor.socket)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", decoder, raising=False)

    async def watch() -> None:
        looking = asyncio.create_task(SharedConnection.of(CrewHook("c")).crew(60.0))
        while not supervisor.is_asked.is_set():
            await asyncio.wait({looking}, timeout=0.01)

    runner = asyncio.Runner()
    runner.run(watch())
    supervisor.may_answer.set()
    sent = threading.Event()

    def send() -> None:
        decoder.send(comms.DeleteVariable(key="any"))
        sent.set()

    threading.Thread(target=send, daemon=True).start()
    assert sent.wait(20)
    runner.close()
