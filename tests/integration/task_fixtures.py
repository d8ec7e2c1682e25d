"""What the tests of tasks begin with. They ask for it with ``pytest_plugins``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Stats
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.task import send
from tests.integration.batches import rows
from tests.integration.live import PAUSES, crew_of_a_task
from tests.integration.tasks import Ledger, Log, Task, TaskInstance, TaskStateStore, WatchedService


@pytest.fixture
def task_log(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Log:
    return Log(capfd, caplog)


@pytest.fixture
def counted(mocker: Any) -> Counter[str]:
    """Count metrics."""
    counts: Counter[str] = Counter()
    mocker.patch.object(Stats, "incr", side_effect=lambda name, by=1, **_: counts.update({name: by}))
    return counts


@pytest.fixture
def store() -> TaskStateStore:
    return TaskStateStore()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def batch(out: Path, store: TaskStateStore) -> Any:
    """Return what makes the task of a batch, for so many rows or for these."""

    def make(given: Any = 10, **options: Any) -> Task:
        inputs = rows(given) if isinstance(given, int) else given
        named: Any = {"task_id": "crew", "result_path": str(out), "poll_interval": 0.02, "key": "topic"}
        return Task(lambda: CrewBatchOperator(inputs=inputs, **named | options), store=store)

    return make


@pytest.fixture
def each_look_takes(live_crew: WatchedService, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let deadlines come nearer by some seconds at each poll from now on. The crew has a clock of its own."""
    clock, passed = time.time, [0.0]

    def start(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: clock() + sum(passed))
        monkeypatch.setattr("airflow_provider_crew.hooks.polling.SteadyClock.__call__", lambda _: time.time())
        live_crew.after = lambda request: passed.append(seconds) if request.operation == "status" else None

    return start


@pytest.fixture
def live_crew(monkeypatch: pytest.MonkeyPatch, timing: Callable[..., None]) -> Iterator[WatchedService]:
    """A crew, its connection, and an Airflow that does not dawdle and in which every task succeeds."""
    timing(**PAUSES)
    with crew_of_a_task(monkeypatch) as running:
        monkeypatch.setattr("airflow.sdk.bases.xcom.BaseXCom.set", classmethod(running.xcoms.take))
        actions = running.required_actions
        parts = {
            "REQUESTS": ThreadPoolExecutor(1),
            "has_succeeded": lambda _: True,
            "open_required_action": lambda _, **told: actions.append([*told.values()][:3]),
            "close_required_action": lambda _, why: actions.append(why),
            "read_required_action": lambda _: running.stored_answer,
        }
        for name, part in parts.items():
            monkeypatch.setattr(f"airflow_provider_crew.api_server.{name}", part)
        yield running


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    counted = Ledger()
    monkeypatch.setattr(TaskInstance, "get_dr_count", lambda _, **which: counted.count(**which), raising=False)
    monkeypatch.setattr(send, "start_run", counted.start)
    monkeypatch.setattr(send, "conf_of_run", lambda run_id: counted.runs[run_id])
    return counted


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A tracer provider, as Airflow sets one if its traces are on."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return kept
