"""Faults of Airflow itself, each caused once for all rows that test it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import psutil

from dev.postgres import PostgresServer
from dev.stack import AirflowStack, StackError

Harm = Callable[[AirflowStack, PostgresServer], AbstractContextManager[None]]
"""Causes the fault on entering, and repairs it on leaving."""

# Rows get ready for the fault at different times.
_PATIENCE = 900
_LONGEST_START = 90
_LONGEST_REPAIR = 600


class Incident:
    """One fault, with this many rows at a time."""

    def __init__(self, harm: AbstractContextManager[None], rows: int) -> None:
        self._begin = Barrier(rows, action=harm.__enter__, timeout=_PATIENCE)

        def make_good() -> None:
            harm.__exit__(None, None, None)

        self._end = Barrier(rows, action=make_good, timeout=_PATIENCE)
        self._failed: BaseException | None = None

    @contextmanager
    def suffered(self) -> Iterator[None]:
        """Wait until all rows are ready for the fault, and leave when all have finished their part."""
        self._wait(self._begin)
        yield
        self._wait(self._end)

    def call_off(self, error: BaseException) -> None:
        """Release the rows that wait for a failed one."""
        self._failed = self._failed or error
        self._begin.abort()
        self._end.abort()

    def _wait(self, barrier: Barrier) -> None:
        try:
            barrier.wait()
        except BrokenBarrierError:
            raise AssertionError(f"Another row of the same harm failed: {self._failed!r}") from self._failed


def whole(airflow: AirflowStack, database: PostgresServer) -> None:
    """Restart processes that have ended or are unhealthy, as a supervisor does."""
    if not database.running:
        database.start()
    until = time.monotonic() + _LONGEST_REPAIR
    while not _is_well(airflow, give_up=time.monotonic() > until):
        # Such as a scheduler that has lost its database, and waits for the tasks of its workers.
        for process in airflow.ill():
            process.kill()


def without(name: str, *, grace: float = 0) -> Harm:
    """Return the harm that kills all of Airflow's processes of a kind, or shuts them down in this time."""

    @contextmanager
    def harm(airflow: AirflowStack, database: PostgresServer) -> Iterator[None]:
        for process in airflow.all_of(name):
            process.stop(grace=grace) if grace else process.kill()
        yield
        whole(airflow, database)

    return harm


def suspended(name: str) -> Harm:
    """Return the harm that lets all of Airflow's processes of a kind hang."""

    @contextmanager
    def harm(airflow: AirflowStack, database: PostgresServer) -> Iterator[None]:
        parents = [psutil.Process(process.pid) for process in airflow.all_of(name)]
        with ExitStack() as stack:
            for process in (each for parent in parents for each in (parent, *parent.children(recursive=True))):
                process.suspend()
                stack.callback(process.resume)
            yield
        whole(airflow, database)

    return harm


def xcoms_hang(airflow: AirflowStack, database: PostgresServer) -> AbstractContextManager[None]:
    """Let the XCom backend of the only triggerer hang for the first of each mapped task."""

    @contextmanager
    def harm() -> Iterator[None]:
        for process in airflow.all_of("triggerer"):
            process.kill()
        surroundings = {
            "AIRFLOW__CORE__XCOM_BACKEND": "tests.faults.xcoms.HangingXComs",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        another = airflow.start_another("triggerer", surroundings)
        yield
        another.kill()  # its threads never end
        whole(airflow, database)

    return harm()


def nothing() -> Harm:
    """Return the harm of a row that needs the whole Airflow for itself."""
    return lambda *_: nullcontext()


no_api_server, no_triggerer = without("api-server"), without("triggerer")


def _is_well(airflow: AirflowStack, *, give_up: bool) -> bool:
    airflow.start_what_has_ended()
    try:
        airflow.wait_until_healthy(_LONGEST_START)
    except StackError:
        if give_up:
            raise
        return False
    return True
