"""Runs the rows side by side in one Airflow, except those that harm Airflow itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.record import ReceivedRequest
from dev.postgres import PostgresServer
from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN
from tests.faults.facts import WITHOUT_ID, failures_of, kickoff_record, named_in, record_state
from tests.faults.harm import Incident, whole
from tests.faults.rows import ANY, Ends, Row
from tests.faults.scenes import TOPIC, Scene, standing
from tests.integration.batches import faults_of, lines
from tests.supported import AIRFLOW

_AT_A_TIME = 14


class Stage:
    """
    Runs rows.

    ``rows`` are all rows of the test run, so that the first one also starts the others.
    """

    def __init__(self, airflow: AirflowStack, database: PostgresServer, dags: Path, rows: Iterable[Row]) -> None:
        self._airflow = airflow
        self._database = database
        self._dags = dags
        self._rows = list(rows)
        self.keeps_task_state = False
        self._pool = ThreadPoolExecutor(_AT_A_TIME)
        self._played: dict[str, Future[None]] = {}

    def play(self, row: Row) -> None:
        """Run a row with all others of its harm, or wait for the end of a running one, and check its outcome."""
        if row.dag_id not in self._played:
            whole(self._airflow, self._database)
            together = [other for other in self._rows if other.harm is row.harm]
            incident = None
            if row.harm:
                assert len(together) <= _AT_A_TIME, "they would wait for each other for ever"
                incident = Incident(row.harm(self._airflow, self._database), len(together))
            played = {other.dag_id: self._pool.submit(self._play, other, incident) for other in together}
            self._played |= played
            if row.harm:
                wait(played.values())
        self._played[row.dag_id].result()

    def close(self) -> None:
        """Start no more rows, and wait for the running ones."""
        self._pool.shutdown(cancel_futures=True)

    def _play(self, row: Row, incident: Incident | None) -> None:
        def after_request(request: ReceivedRequest) -> None:
            scene.after_request(request)

        with LocalCrewService(row.scenario, token=TOKEN, on_request=after_request, call_webhooks=True) as crew:
            own = (row.dag_id, row.way, row.mapped, row.batch, self.keeps_task_state, incident)
            scene = Scene(self._airflow, self._database, crew, self._dags, *own)
            ends = row.forgotten if scene.forgets and row.forgotten else row.ends
            try:
                scene.connect()
                scene.write_dag(row.options)
                row.play(scene)
                scene.wait_until_over(finishing=bool(row.batch) or ends is row.forgotten)
                if row.batch:
                    check_batch(scene, ends, row.uncertain)
                elif row.mapped:
                    check_each(scene, ends)
                else:
                    scene.wait_until_noted()
                    check(scene, ends, row.cost if AIRFLOW == (3, 3) else ANY)
            except BaseException as error:
                if incident:
                    incident.call_off(error)
                error.add_note(row.dag_id)
                with suppress(Exception):  # the error of the row is the one that counts
                    error.add_note(f"{scene.task}\n{scene.log()}")
                raise


def check(scene: Scene, ends: Ends, cost: str) -> None:
    """Compare the outcome of a row with the expected one, and the cost that its last failure states."""
    task, log = scene.task, scene.log()
    kickoffs = scene.crew.kickoffs
    ids = [kickoff.kickoff_id for kickoff in kickoffs]
    assert len(kickoffs) == ends.kickoffs, ids
    assert (task["state"], task["try_number"]) == (ends.state, ends.tries)
    assert standing(kickoffs[-1]) == ends.crew
    pushed, kickoff_id = scene.xcom(), scene.xcom("kickoff_id")
    match ends.xcom:
        case "the result":
            assert pushed["kickoff_id"] in ids
        case "the kickoff ID":
            assert pushed == ids[-1]
        case "only the kickoff ID":
            assert (pushed, kickoff_id) == (None, ids[-1])
        case "nothing":
            assert (pushed, kickoff_id) == (None, None)
    assert TOKEN not in log
    record, failures = kickoff_record(scene.run, scene.task_id), failures_of(scene.run, scene.task_id)
    stated = [str(failure.cost) for failure in failures if failure and failure.cost]
    assert cost in {ANY, *(stated[-1:] or [""])}, failures
    named = {name for value in (pushed, kickoff_id, scene.xcom("crew_result"), record) for name in named_in(value)}
    unnamed = [kickoff_id for kickoff_id in ids if kickoff_id not in named and kickoff_id not in log]
    # If clearing deletes the kickoff record, an attempt cannot know the execution of the earlier one.
    forgotten = task["try_number"] - 1 if scene.forgets else 0
    reports = sum(failure is not None and failure.is_uncertain for failure in failures)
    uncertain = max(reports, int(record_state(record) in WITHOUT_ID))
    assert len(unnamed) <= uncertain + forgotten, f"paid for, and named nowhere: {unnamed}"


def faults_of_batch(scene: Scene) -> list[str]:
    """Return outcomes of a batch that must not occur."""
    reports = Counter(re.findall(rf"Row ({TOPIC} \d+), uncertain: ", scene.log()))
    return faults_of(lines(scene.results), scene.crew.kickoffs, reports, scene.batch)


def check_batch(scene: Scene, ends: Ends, uncertain: int) -> None:
    """Compare the outcome of a batch with the expected one."""
    task, counts = scene.task, Counter(line["status"] for line in lines(scene.results))
    assert (task["state"], task["try_number"]) == (ends.state, ends.tries)
    assert len(scene.crew.kickoffs) == ends.kickoffs
    assert counts == Counter({"success": scene.batch - uncertain, "uncertain": uncertain})
    assert (told := scene.xcom()["counts"]) == {status: counts[status] for status in told}
    assert not faults_of_batch(scene)


def check_each(scene: Scene, ends: Ends) -> None:
    """Compare the outcome of each instance with the expected one."""
    kickoffs = scene.crew.kickoffs
    assert len(kickoffs) == ends.kickoffs
    assert len(scene.tasks) == scene.mapped
    odd = [
        (task["map_index"], task["state"], task["try_number"])
        for task in scene.tasks
        if task["state"] != ends.state or task["try_number"] != ends.tries
    ]
    assert not odd, odd
    sent: list[tuple[Any, str]] = [(kickoff.meta, kickoff.kickoff_id) for kickoff in kickoffs if kickoff.meta]
    own = {meta["airflow"]["map_index"]: kickoff_id for meta, kickoff_id in sent}
    assert sorted(own) == list(range(scene.mapped))
    for index, kickoff_id in own.items():
        result = scene.run.xcom(scene.task_id, map_index=index)
        assert (result["kickoff_id"], result["output"]) == (kickoff_id, f"Briefing: {TOPIC} {index}")
