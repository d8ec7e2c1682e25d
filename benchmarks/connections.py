"""
Count the connections of PostgreSQL that an Airflow on Celery holds.

Run ``.venv-executors/bin/python -m benchmarks.connections`` by itself: the others' environment has no Celery.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_crew.local import LocalCrewService, Scenario
from benchmarks.sizing import connections_to, family_of
from dev.distributed import CeleryStack
from dev.postgres import PostgresServer
from dev.stack import component_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUNS = 3
_EACH = 16
_DAG = f"""
from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewRunOperator

with DAG("busy", schedule=None):
    for number in range({_EACH}):
        for deferrable in (True, False):
            CrewRunOperator(
                task_id=f"{{'deferred' if deferrable else 'waiting'}}_{{number}}",
                inputs={{"topic": "ferries"}},
                deferrable=deferrable,
                poll_interval=5,
            )
"""
_CREW = {"inputs": [{"name": "topic"}], "tasks": [{"name": "report_task", "seconds": 30, "output": "Done"}]}
_IDLE_SECONDS = 30
_LONGEST = 900.0


def main() -> None:
    """Let many tasks run, and print the most connections that each component held at any one time."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        PostgresServer() as database,
        LocalCrewService(Scenario.model_validate(_CREW)) as crew,
    ):
        dags = Path(folder) / "dags"
        dags.mkdir()
        (dags / "busy.py").write_text(_DAG)
        with CeleryStack(Path(folder) / "airflow", dags, database.settings) as airflow:
            airflow.api.set_connection("crew_default", json.loads(crew.connection_json))
            airflow.api.wait_for_dag("busy", timeout=240)
            idle = _most(airflow, database, _seconds(_IDLE_SECONDS))
            run_ids = [airflow.api.trigger("busy") for _ in range(_RUNS)]
            busy = _most(airflow, database, _until_over(airflow, run_ids))
    for name in busy:
        print(f"| {name} | {idle[name]} | {busy[name]} |")
    print(f"| all | {sum(idle.values())} | {sum(busy.values())} |")


def _most(airflow: CeleryStack, database: PostgresServer, moments: Iterator[None]) -> dict[str, int]:
    most = dict.fromkeys(airflow.processes, 0)
    for _ in moments:
        for name, process in airflow.processes.items():
            most[name] = max(most[name], connections_to(database, family_of(process)))
    return {name: number for name, number in most.items() if not component_of(name).endswith("-logs")}


def _seconds(seconds: int) -> Iterator[None]:
    for _ in range(seconds):
        time.sleep(1)
        yield


def _until_over(airflow: CeleryStack, run_ids: list[str]) -> Iterator[None]:
    until = time.monotonic() + _LONGEST
    while {airflow.api.run_state("busy", run_id) for run_id in run_ids} - {"success", "failed"}:
        if time.monotonic() > until:
            raise TimeoutError(f"{_RUNS} runs were not over within {_LONGEST:.0f} s")
        time.sleep(1)
        yield


if __name__ == "__main__":
    main()
