"""What the tests of tasks begin with. They ask for it with ``pytest_plugins``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.exchange import Exchange
from tests.integration.tasks import CONNECTION, Log, TaskStateStore, Variables, WatchedService
from tests.supported import AIRFLOW


@pytest.fixture
def task_log(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Log:
    return Log(capfd, caplog)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TaskStateStore:
    return TaskStateStore() if AIRFLOW >= (3, 3) else Variables(monkeypatch)


@pytest.fixture
def each_look_takes(live_crew: WatchedService, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let deadlines come nearer by some seconds at each poll from now on. The crew has a clock of its own."""
    clock, passed = time.time, [0.0]

    def start(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: clock() + sum(passed))
        live_crew.after = lambda request: passed.append(seconds) if request.operation == "status" else None

    return start


@pytest.fixture
def live_crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedService]:
    """A crew, its connection, and an Airflow that lets operators be called and does not dawdle."""
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    monkeypatch.setattr("airflow_provider_crew.client.api._wait", lambda *_: 0.0)
    monkeypatch.setattr("airflow_provider_crew.client.api._WAKING_PAUSE", 0.05)
    monkeypatch.setattr("airflow_provider_crew.task.checks.WAKING_UP", 0.3)
    monkeypatch.setattr("airflow_provider_crew.client.watch._WHILE_PEOPLE_DECIDE", 0.05)
    for module in ("triggers.crew", "task.sensor"):
        monkeypatch.setattr(f"airflow_provider_crew.{module}.MIN_DEFERRAL_SECONDS", 0.0)
    monkeypatch.setattr("airflow_provider_crew.task.sensor.LONGEST_INTERVAL", 0.01)
    monkeypatch.setattr("airflow_provider_crew.task.progress.PAUSE", 0.0)
    for pause in ("PAUSE", "_PAUSE_FOR_ALL"):
        monkeypatch.setattr(f"airflow_provider_crew.triggers.progress.{pause}", 0.0)
    monkeypatch.setattr("airflow_provider_crew.task.record._TIME_TO_CLEAR", 0.0)
    monkeypatch.setattr("airflow_provider_crew.api_server.has_succeeded", lambda _: True)
    with WatchedService() as running:
        send = Exchange.send

        async def told(exchange: Exchange, answer: Answer) -> None:
            exchange.request.status = answer.status
            running.answers(exchange.request)
            await send(exchange, answer)

        monkeypatch.setattr(Exchange, "send", told)
        monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom.set", classmethod(running.xcoms.take))
        actions = running.required_actions
        monkeypatch.setattr(
            "airflow_provider_crew.api_server.open_required_action", lambda *told, **_: actions.append(told[1:])
        )
        monkeypatch.setattr(
            "airflow_provider_crew.triggers.watching.close_required_action", lambda *_: actions.append("closed")
        )
        monkeypatch.setenv(CONNECTION, running.connection_uri)
        yield running
