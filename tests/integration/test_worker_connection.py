"""A connection that a worker reads on an event loop, which stands still as soon as a watch ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import msgspec
import pytest
from airflow.sdk.execution_time import comms, task_runner

from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import SharedConnection
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Nothing polls on an event loop in a worker.")
CONNECTION = {
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
                body = CONNECTION | {"password": "token"}
            self.others.sendall(comms._ResponseFrame(id=frame.id, body=body).as_bytes())


def test_worker_talks_to_airflow_while_its_event_loop_stands_still(monkeypatch):
    supervisor = Supervisor()
    decoder: comms.CommsDecoder[Any, Any] = comms.CommsDecoder(socket=supervisor.socket)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", decoder, raising=False)

    async def watch() -> None:
        looking = asyncio.create_task(SharedConnection.of(CrewHook("c")).crew())
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
