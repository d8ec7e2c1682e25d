"""A batch of a thousand rows beside a thousand mapped tasks, and a batch of ten thousand rows."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import certifi
import psutil
import trustme

from benchmarks.batch_rows import (
    LAG,
    LONG,
    LONG_SECONDS,
    MANY,
    MANY_ACTIVE,
    MANY_SECONDS,
    MAX_ACTIVE,
    ROWS,
    SECONDS,
)
from benchmarks.cost import _connect, _requests
from benchmarks.remote import RemoteService
from benchmarks.report import Table
from benchmarks.rounds import IDLE_SECONDS, cpu
from benchmarks.stack import started

if TYPE_CHECKING:
    from dev.stack import AirflowStack

_WAYS = {
    "batch_rows": "`CrewBatchOperator(deferrable=True)`",
    "mapped_rows": "mapped `CrewRunOperator(deferrable=True)`",
}
_MEGABYTE = 2**20
_PATIENCE = 3600


@dataclass
class Memory:
    """Samples the memory of an Airflow's task processes and of its triggerer."""

    airflow: AirflowStack
    worker: float = 0.0
    triggerer: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(1.0):
            for name in ("scheduler", "triggerer"):
                each = self.airflow.processes[name]
                sizes = [_rss(child) for child in psutil.Process(each.pid).children(recursive=True)]
                setattr(
                    self,
                    "worker" if name == "scheduler" else name,
                    max(getattr(self, "worker" if name == "scheduler" else name), *sizes, 0.0),
                )


def _rss(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss / _MEGABYTE)
    except psutil.NoSuchProcess:
        return 0.0


@dataclass(frozen=True, slots=True)
class Played:
    """What one DAG run showed."""

    cpu: float
    requests: int
    lasted: float
    worker: float
    triggerer: float


def measure(rounds: int) -> list[Table]:  # noqa: ARG001 - one round takes long enough
    """Let both ways run once, and then the large batch."""
    with _airflow(SECONDS) as (airflow, idle):
        found = {way: _play(airflow, way, idle) for way in _WAYS}
    mapped = found["mapped_rows"]
    rows = [
        [
            name,
            f"{found[way].cpu / ROWS:.3f}",
            f"{found[way].cpu / mapped.cpu:.3f}",
            f"{found[way].requests / ROWS:.2f}",
            f"{found[way].lasted:.0f}",
        ]
        for way, name in _WAYS.items()
    ]
    large = [
        _large("many_rows", MANY, MANY_SECONDS),
        _large("long_rows", LONG, LONG_SECONDS),
    ]
    text = (
        f"{ROWS} rows, each of which takes {SECONDS} s at a service with TLS, at most {MAX_ACTIVE} at a time, on "
        "LocalExecutor with PostgreSQL and Airflow's default settings. _CPU_ is the time of all Airflow processes "
        "for each row, less that of the idle Airflow. _Requests_ are those to Airflow's API server for each row."
    )
    text_of_many = (
        f"At most {MANY_ACTIVE} at a time. _Ideal_: rows x seconds / max_active. _Lag_: how late the triggerer's "
        "event loop is, measured 20 times a second by a trigger of its own, as the 99th percentile and at most."
    )
    columns = ("", "CPU per row, s", "relative to mapped tasks", "requests per row", "lasted, s")
    columns_of_many = (
        "rows", "seconds per row", "lasted, s", "ideal, s", "ratio", "CPU per row, s", "requests per row",
        "memory of a worker, MB", "memory of the triggerer, MB", "lag, 99 %, ms", "lag, longest, ms",
    )  # fmt: skip
    return [
        Table("A batch beside mapped tasks", text, columns, rows),
        Table("Large batches", text_of_many, columns_of_many, large),
    ]


def _large(way: str, rows: int, seconds: float) -> list[str]:
    """Run a large batch, and return its figures."""
    lags = Path(LAG)
    lags.touch()
    with _airflow(seconds) as (airflow, idle):
        airflow.api.trigger("loop_lag")
        played = _play(airflow, way, idle)
        found = sorted(map(float, lags.read_text().split()))
        lags.unlink()
    ideal = rows * seconds / MANY_ACTIVE
    return [
        f"{rows}",
        f"{seconds}",
        f"{played.lasted:.0f}",
        f"{ideal:.0f}",
        f"{played.lasted / ideal:.2f}",
        f"{played.cpu / rows:.3f}",
        f"{played.requests / rows:.2f}",
        f"{played.worker:.0f}",
        f"{played.triggerer:.0f}",
        f"{1000 * found[len(found) * 99 // 100]:.0f}",
        f"{1000 * found[-1]:.0f}",
    ]


class _airflow:  # noqa: N801 - a context manager
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> tuple[AirflowStack, float]:
        from contextlib import ExitStack

        self._stack = stack = ExitStack()
        authority = trustme.CA()
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = stack.enter_context(RemoteService(authority, self._seconds))
        trusted = Path(folder) / "authority.pem"
        trusted.write_bytes(Path(certifi.where()).read_bytes() + authority.cert_pem.bytes())
        trust = {"SSL_CERT_FILE": str(trusted), "REQUESTS_CA_BUNDLE": str(trusted)}
        airflow = stack.enter_context(started("batch", trust)).airflow
        _connect(airflow, service)
        for way in (*_WAYS, "many_rows", "long_rows", "loop_lag"):
            airflow.api.wait_for_dag(way)
        before = cpu(airflow)
        time.sleep(IDLE_SECONDS)
        return airflow, (cpu(airflow) - before) / IDLE_SECONDS

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        shutil.rmtree("/tmp/bench-batch", ignore_errors=True)  # noqa: S108


def _play(airflow: AirflowStack, way: str, idle: float) -> Played:
    requests, used, began = _requests(airflow), cpu(airflow), time.monotonic()
    run_id = airflow.api.trigger(way)
    with Memory(airflow) as memory:
        while (state := airflow.api.run_state(way, run_id)) != "success":
            if state == "failed" or time.monotonic() - began > _PATIENCE:
                raise RuntimeError(f"The run of {way} is {state}")
            time.sleep(2.0)
    lasted = time.monotonic() - began
    return Played(
        cpu(airflow) - used - idle * lasted, _requests(airflow) - requests, lasted, memory.worker, memory.triggerer
    )
