"""What a run costs a whole Airflow, beside tasks of Airflow's own that do nothing."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import certifi
import trustme

from benchmarks.cost_lanes import LANES, LATER, POLL_INTERVAL, SECONDS, WORKERS
from benchmarks.remote import RemoteService
from benchmarks.report import Figure, Table
from benchmarks.rounds import IDLE_SECONDS, in_turn, succeed, warm_up
from benchmarks.stack import cpu_seconds, own_cpu_seconds, started
from dev.rest import seconds_since_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dev.stack import AirflowStack

_ONE, _TWO = "airflow_waits", "airflow_returns_and_waits"
# Each with the way of Airflow's own that it is compared with.
WAYS = {
    "airflow_returns": ("a task that returns a value", ""),
    _ONE: ("`TimeDeltaSensor(deferrable=True)`, which only waits", _ONE),
    "ours_run": ("ours: `CrewRunOperator(deferrable=True)`", _ONE),
    "dbt_cloud_run": ("`DbtCloudRunJobOperator(deferrable=True)`", _ONE),
    _TWO: ("a task that returns a value, then `TimeDeltaSensor(deferrable=True)`", _TWO),
    "ours_split": ("ours: `CrewKickoffOperator`, `CrewExecutionSensor(deferrable=True)`", _TWO),
    "http_split": ("`HttpOperator`, `HttpSensor(deferrable=True)`", _TWO),
}
_TEXT = """\
Each variant has its own DAG file. It runs {lanes} times in one DAG run, on LocalExecutor with {workers} workers, \
PostgreSQL and otherwise Airflow's default settings. Each run at a service with TLS takes {seconds} s, and every \
variant polls every {interval} s. Tasks that only wait do so until {later} s after the start of their DAG run. A \
crew has three tasks, and our tasks push its progress, usage and result to XCom. `DbtCloudRunJobOperator` returns \
the number of its run, and `HttpSensor` nothing. The variants take turns for {rounds} rounds, after one that is \
not counted, so that each worker is warm. _CPU_ is the time of all Airflow processes, including tasks, without \
the database, and less the CPU time of the idle Airflow ({idle} CPU s per minute). _Relative to Airflow's own_ is \
the ratio to Airflow's own one or two tasks in the same round. _Requests_ are those of tasks and their \
supervisors to Airflow's API server. _Success after_ is the average time from the end of the run to the success \
of its task."""
_COLUMNS = ("", "CPU, s", "relative to Airflow's own", "requests", "success after, s")
_PARTS = ("task processes", "API server", "triggerer", "scheduler, DAG processor")
_TEXT_OF_PARTS = """\
CPU seconds of the same rounds. The task processes include LocalExecutor's supervisors."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one DAG run showed, for each time that a way ran in it."""

    cpu_of_parts: tuple[float, ...]
    requests: float
    succeeded_after: float | None

    @property
    def cpu(self) -> float:
        """What all of Airflow used."""
        return sum(self.cpu_of_parts)


def measure(rounds: int) -> list[Table]:
    """Let the ways take turns."""
    found, idle = play(rounds, WAYS)
    text = _TEXT.format(
        lanes=LANES,
        workers=WORKERS,
        seconds=SECONDS,
        interval=POLL_INTERVAL,
        later=LATER,
        rounds=rounds,
        idle=Figure.of(sum(each) * 60 for each in idle),
    )
    rows = [_row(way, found) for way in WAYS]
    parts = [_row_of_parts(way, found[way]) for way in WAYS]
    return [
        Table("A run compared with Airflow's own tasks", text, _COLUMNS, rows),
        Table("CPU time by process", _TEXT_OF_PARTS, ("", *_PARTS), parts),
    ]


def play(rounds: int, ways: Iterable[str]) -> tuple[dict[str, list[Round]], list[tuple[float, ...]]]:
    """Return the rounds of each way, and what Airflow used per second while nothing ran, by part."""
    authority = trustme.CA()
    found: dict[str, list[Round]] = {way: [] for way in ways}
    idle = []
    with tempfile.TemporaryDirectory() as folder, RemoteService(authority, SECONDS) as service:
        trusted = Path(folder) / "authority.pem"
        # Among as many others as in production: reading them takes time.
        trusted.write_bytes(Path(certifi.where()).read_bytes() + authority.cert_pem.bytes())
        trust = {"SSL_CERT_FILE": str(trusted), "REQUESTS_CA_BUNDLE": str(trusted)}
        with started("cost", trust | {"AIRFLOW__CORE__PARALLELISM": str(WORKERS)}) as benched:
            airflow = benched.airflow
            _connect(airflow, service)
            warm_up(airflow, found)
            for number in range(rounds):
                before = _cpu_of_parts(airflow)
                time.sleep(IDLE_SECONDS)
                idle.append(tuple(each / IDLE_SECONDS for each in _since(before, airflow)))
                for way in in_turn(found, number):
                    found[way].append(_play(airflow, service, way, idle[-1]))
    return found, idle


def _row(way: str, found: dict[str, list[Round]]) -> list[object]:
    rounds, (name, own) = found[way], WAYS[way]
    after = [each.succeeded_after for each in rounds if each.succeeded_after is not None]
    return [
        name,
        Figure.of(each.cpu for each in rounds),
        Figure.of(each.cpu / its.cpu for each, its in zip(rounds, found[own], strict=True)) if own else "-",
        Figure.of(each.requests for each in rounds),
        Figure.of(after) if after else "-",
    ]


def _row_of_parts(way: str, rounds: list[Round]) -> list[object]:
    return [WAYS[way][0], *map(Figure.of, zip(*(each.cpu_of_parts for each in rounds), strict=True))]


def _cpu_of_parts(airflow: AirflowStack) -> tuple[float, ...]:
    """Return what each part of Airflow has used so far, with all that it has started."""
    pids = {name: process.pid for name, process in airflow.processes.items()}
    scheduler, *named = (pids.pop(name) for name in ("scheduler", "api-server", "triggerer"))
    its_own = own_cpu_seconds(scheduler)
    others = its_own + cpu_seconds(pids.values())
    return cpu_seconds([scheduler]) - its_own, *(cpu_seconds([pid]) for pid in named), others


def _since(before: tuple[float, ...], airflow: AirflowStack) -> tuple[float, ...]:
    return tuple(now - then for now, then in zip(_cpu_of_parts(airflow), before, strict=True))


def _connect(airflow: AirflowStack, service: RemoteService) -> None:
    """Store the connections where production has them, so that every look-up costs what it costs there."""
    host, _, port = service.address.partition(":")
    api = airflow.api
    api.set_connection(
        "crew_default", {"conn_type": "crew", "host": f"https://{service.address}", "password": "bench-token"}
    )
    api.set_connection("dbt_cloud_default", {"conn_type": "dbt_cloud", "host": service.address, "password": "t"})
    headers = json.dumps({"Authorization": "Bearer t"})
    http = {"conn_type": "http", "schema": "https", "host": host, "port": int(port), "extra": headers}
    api.set_connection("http_default", http)


def _play(airflow: AirflowStack, service: RemoteService, way: str, idle: tuple[float, ...]) -> Round:
    service.ends()
    asked, before, began = _requests(airflow), _cpu_of_parts(airflow), time.monotonic()
    run_id = airflow.api.trigger(way)
    time.sleep(SECONDS)
    succeed(airflow, way, run_id)
    used, lasted = _since(before, airflow), time.monotonic() - began
    parts = tuple((each - at_rest * lasted) / LANES for each, at_rest in zip(used, idle, strict=True))
    requests = _requests(airflow) - asked
    return Round(parts, requests / LANES, _succeeded_after(airflow, service, way, run_id))


def _succeeded_after(airflow: AirflowStack, service: RemoteService, way: str, run_id: str) -> float | None:
    """Return how long after the end of what they wait for the tasks succeeded, on average."""
    tasks = [task for task in airflow.api.task_instances(way, run_id) if task["task_id"].startswith("result_")]
    ends = service.ends() or [seconds_since_epoch(task["run_after"]) + LATER for task in tasks]
    succeeded = [seconds_since_epoch(task["end_date"]) for task in tasks]
    after = statistics.fmean(succeeded) - statistics.fmean(ends)
    return after if WAYS[way][1] else None


def _requests(airflow: AirflowStack) -> int:
    """Return how many requests of tasks and their supervisors the API server has had so far."""
    log = (airflow.logs / "api-server.log").read_text(encoding="utf-8", errors="replace")
    return log.count(" path=/execution/")
