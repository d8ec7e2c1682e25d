"""A real triggerer that watches many executions: what it uses, and how soon and how punctually it polls."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg2  # type: ignore[import-untyped]
import trustme

from benchmarks.poll_recorder import PollRecorder
from benchmarks.report import Figure, Table
from benchmarks.seeding import MOST, POLL_INTERVAL
from benchmarks.stack import started
from dev.loopback import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stack import Benched

_COUNTS = (200, MOST)
_PATIENCE = 240.0
_SLACK = 15.0
_PAUSE = 0.5
_MEGABYTE = 2**20
_TEXT = """\
Each trial has its own triggerer process, with Airflow's default settings and capacity (1,000). The rows of the \
deferred tasks are in PostgreSQL, and the connections in Airflow's database. A service with TLS always answers \
that the execution is running. Every trigger polls every {interval:.0f} s, in {rounds} rounds in turn. _All \
polled_ is the time from the start of the process until the service has received a poll for every execution. \
Airflow itself starts 50 triggers per loop. _CPU_ and _memory_ are those of the next {interval:.0f} s. _Loop_ is \
the process that runs the triggers. _Supervisor_ starts it and uses the database. Memory that they share is \
counted once. _Late_ is how much the time between the first two polls of an execution exceeds the interval: on \
average, and at most beyond the intended jitter (10 % for ours). _TLS connections_, _polls_ and _look-ups_ cover \
the whole trial. A look-up is a query for an Airflow connection."""
_COLUMNS = (
    "deferred tasks",
    "trigger",
    "all polled, s",
    "loop, CPU s per min",
    "supervisor, CPU s per min",
    "memory, MB",
    "late on average, s",
    "late at most, s",
    "TLS connections",
    "polls",
    "look-ups",
)


@dataclass(frozen=True, slots=True)
class _Contestant:
    name: str
    jitter: float


_CONTESTANTS = {
    "ours": _Contestant("ours: `CrewExecutionTrigger`", 0.1),
    "dbt_cloud": _Contestant("`DbtCloudRunJobTrigger`", 0.0),
}


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one life of a triggerer showed."""

    all_polled_after: float
    loop_cpu: float
    supervisor_cpu: float
    memory: float
    late_on_average: float
    late_at_most: float
    connections: int
    polls: int
    look_ups: int


def measure(rounds: int) -> list[Table]:
    """Let the triggers take turns, each time in a new triggerer."""
    rounds = max(rounds // 2, 1)  # each takes as long as several that need no Airflow
    found: dict[tuple[int, str], list[_Trial]] = {(count, kind): [] for count in _COUNTS for kind in _CONTESTANTS}
    with prepared() as (benched, service):
        for _ in range(rounds):
            for (count, kind), trials in found.items():
                trials.append(_trial(benched, service, kind, count))
    text = _TEXT.format(interval=POLL_INTERVAL, rounds=rounds)
    rows = [_row(count, kind, trials) for (count, kind), trials in found.items()]
    return [Table("Deferred tasks in a triggerer", text, _COLUMNS, rows)]


def _row(count: int, kind: str, trials: list[_Trial]) -> list[object]:
    return [
        f"{count:,}",
        _CONTESTANTS[kind].name,
        Figure.of(trial.all_polled_after for trial in trials),
        Figure.of(trial.loop_cpu for trial in trials),
        Figure.of(trial.supervisor_cpu for trial in trials),
        Figure.of(trial.memory for trial in trials),
        Figure.of(trial.late_on_average for trial in trials),
        Figure.of(trial.late_at_most for trial in trials),
        Figure.of(trial.connections for trial in trials),
        Figure.of(trial.polls for trial in trials),
        Figure.of(trial.look_ups for trial in trials),
    ]


@contextlib.contextmanager
def prepared() -> Iterator[tuple[Benched, PollRecorder]]:
    """Start an Airflow that has deferred tasks, and the service that they poll."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder, PollRecorder(authority) as service:
        trusted = Path(folder) / "authority.pem"
        authority.cert_pem.write_to_path(trusted)
        trust = {"SSL_CERT_FILE": str(trusted), "REQUESTS_CA_BUNDLE": str(trusted)}
        with started("deferred", trust) as benched:
            _prepare(benched, service)
            yield benched, service


def _prepare(benched: Benched, service: PollRecorder) -> None:
    """Let Airflow make the rows of the task instances, and stop what the triggerer does not need."""
    api, address = benched.airflow.api, f"{HOST}:{service.port}"
    api.set_connection("crew_default", {"conn_type": "crew", "host": f"https://{address}", "password": "token"})
    api.set_connection("dbt_cloud_default", {"conn_type": "dbt_cloud", "host": address, "password": "token"})
    api.wait_for_dag("deferred")
    api.trigger("deferred")
    for name in ("triggerer", "scheduler", "dag-processor", "log-server"):
        benched.airflow.processes[name].stop()


def seed(benched: Benched, kind: str, count: int) -> None:
    """Defer that many tasks for triggers of that kind."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks.seeding", kind, str(count)], env=benched.environment, check=True
    )


def _trial(benched: Benched, service: PollRecorder, kind: str, count: int) -> _Trial:
    triggerer = benched.airflow.processes["triggerer"]
    seed(benched, kind, count)
    service.forget()
    looked_up = _look_ups(benched)
    triggerer.start()
    try:
        return _watch(benched, service, kind, count, looked_up)
    except TimeoutError as error:
        raise RuntimeError(f"{kind}, {count}: {error}\n{triggerer.tail()}") from None
    finally:
        triggerer.stop()


def _watch(benched: Benched, service: PollRecorder, kind: str, count: int, looked_up: int) -> _Trial:
    triggerer = benched.airflow.processes["triggerer"]
    wait_for_polls(service, count, 1, _PATIENCE)
    supervisor = psutil.Process(triggerer.pid)
    loop = max(supervisor.children(), key=lambda child: child.memory_info().rss)
    before = cpu(supervisor), cpu(loop)
    time.sleep(POLL_INTERVAL)
    used = cpu(supervisor) - before[0], cpu(loop) - before[1]
    memory = sum(process.memory_full_info().pss for process in (supervisor, loop))
    with contextlib.suppress(TimeoutError):  # then it is late, which is what we measure
        wait_for_polls(service, count, 2, _SLACK)
    polls = service.polls()
    distances = [_distance(times) for times in polls]
    jitter = _CONTESTANTS[kind].jitter
    return _Trial(
        all_polled_after=max(times[0] for times in polls) - triggerer.started_at,
        supervisor_cpu=used[0] * 60 / POLL_INTERVAL,
        loop_cpu=used[1] * 60 / POLL_INTERVAL,
        memory=memory / _MEGABYTE,
        late_on_average=statistics.fmean(distances) - POLL_INTERVAL,
        late_at_most=max(0.0, max(distances) - POLL_INTERVAL * (1 + jitter)),
        connections=service.connections,
        polls=sum(map(len, polls)),
        look_ups=_look_ups(benched) - looked_up,
    )


def wait_for_polls(service: PollRecorder, executions: int, each: int, patience: float) -> None:
    """Wait until so many executions have been polled so many times."""
    until = time.monotonic() + patience
    while (there := sum(len(times) >= each for times in service.polls())) < executions:
        if time.monotonic() > until:
            raise TimeoutError(f"{there} of {executions} executions were polled within {patience:.0f} s")
        time.sleep(_PAUSE)


def _distance(times: list[float]) -> float:
    """Return how long the second poll came after the first; a missing one comes now at the earliest."""
    second = times[1] if len(times) > 1 else time.time()
    return second - times[0]


def cpu(process: psutil.Process) -> float:
    """Return what a process has used so far, in user and in system mode."""
    return float(sum(process.cpu_times()[:2]))


def _look_ups(benched: Benched) -> int:
    """Return how often the table of connections was read, as PostgreSQL counts it."""
    found = rows(benched, "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'connection'")
    looked_up: int = found[0][0]
    return looked_up


def rows(benched: Benched, query: str) -> list[tuple[Any, ...]]:
    """Ask the database of Airflow."""
    url = benched.database.settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "", 1)
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found
