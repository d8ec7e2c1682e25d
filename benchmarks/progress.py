"""A real triggerer that watches many executions, all moving on, with and without their progress in XCom."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg2  # type: ignore[import-untyped]

from benchmarks.report import Figure, Table
from benchmarks.seeding import MOST, POLL_INTERVAL
from benchmarks.triggerer import cpu, prepared, seed, wait_for_polls

if TYPE_CHECKING:
    from benchmarks.poll_recorder import PollRecorder
    from benchmarks.stack import Benched

_PATIENCE = 240.0
_MEASURED = 3 * POLL_INTERVAL
_TEXT = """\
Each trial has its own triggerer process, as in section 3, with {count:,} deferred tasks that poll every \
{interval:.0f} s. Each poll reports new progress, so this is the highest possible cost. Progress is off and on \
in turn, in {rounds} rounds. _CPU_ is that of the {measured:.0f} s after each execution was polled once. _Loop_ \
is the process that runs the triggers. _Supervisor_ starts it and writes to the database. _XComs_ are those \
written during that time."""
_COLUMNS = ("progress_xcom", "loop, CPU s per min", "supervisor, CPU s per min", "both", "XComs per min")


@dataclass(frozen=True, slots=True)
class _Trial:
    loop_cpu: float
    supervisor_cpu: float
    xcoms: float


def measure(rounds: int) -> list[Table]:
    """Switch the progress off and on in turn, each time in a new triggerer."""
    found: dict[bool, list[_Trial]] = {False: [], True: []}
    with prepared() as (benched, service):
        service.moves_on = True
        for _ in range(rounds):
            for tells, trials in found.items():
                _switch(benched, tells=tells)
                trials.append(_trial(benched, service))
    text = _TEXT.format(count=MOST, interval=POLL_INTERVAL, rounds=rounds, measured=_MEASURED)
    return [Table("Progress in XCom", text, _COLUMNS, [*_rows(found), _ratio(found)])]


def _rows(found: dict[bool, list[_Trial]]) -> list[list[object]]:
    return [
        [
            tells,
            Figure.of(trial.loop_cpu for trial in trials),
            Figure.of(trial.supervisor_cpu for trial in trials),
            Figure.of(trial.loop_cpu + trial.supervisor_cpu for trial in trials),
            Figure.of(trial.xcoms for trial in trials),
        ]
        for tells, trials in found.items()
    ]


def _ratio(found: dict[bool, list[_Trial]]) -> list[object]:
    """Return what the progress adds, as a share of what watching costs."""
    pairs = list(zip(found[False], found[True], strict=True))
    loop = [on.loop_cpu / off.loop_cpu - 1 for off, on in pairs]
    both = [(on.loop_cpu + on.supervisor_cpu) / (off.loop_cpu + off.supervisor_cpu) - 1 for off, on in pairs]
    return ["adds", Figure.of(loop), "", Figure.of(both), ""]


def _switch(benched: Benched, *, tells: bool) -> None:
    """Set the option in the file that the next triggerer reads."""
    settings = Path(benched.environment["AIRFLOW_HOME"]) / "airflow.cfg"
    before = settings.read_text(encoding="utf-8").partition("\n[crew]")[0] if settings.exists() else ""
    settings.write_text(f"{before}\n[crew]\nprogress_xcom = {tells}\n", encoding="utf-8")


def _trial(benched: Benched, service: PollRecorder) -> _Trial:
    triggerer = benched.airflow.processes["triggerer"]
    seed(benched, "ours", MOST)
    service.forget()
    triggerer.start()
    try:
        wait_for_polls(service, MOST, 1, _PATIENCE)
        return _measured(benched, triggerer.pid)
    finally:
        triggerer.stop()


def _measured(benched: Benched, pid: int) -> _Trial:
    supervisor = psutil.Process(pid)
    loop = max(supervisor.children(), key=lambda child: child.memory_info().rss)
    before = cpu(loop), cpu(supervisor), _xcoms(benched)
    time.sleep(_MEASURED)
    after = cpu(loop), cpu(supervisor), _xcoms(benched)
    return _Trial(*((now - then) * 60 / _MEASURED for then, now in zip(before, after, strict=True)))


def _xcoms(benched: Benched) -> float:
    """Return how many XComs were ever written, as PostgreSQL counts them."""
    url = benched.database.settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "", 1)
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'xcom'")
        found: int = cursor.fetchone()[0]
    return float(found)
