"""One alert is sent about a crew task, even if its process ends before it can call a callback."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import DASHBOARD, TOKEN, Run, eventually
from tests.faults.rows import LONG, Way
from tests.faults.scenes import Code, Scene, waiting

CODE = """\
import json

from airflow.providers.common.compat.sdk import task

from airflow_provider_crew.notifications import CrewAlert


def keep(subject, text):
    time.sleep(0.3)
    if pathlib.Path(__file__).with_suffix(".kills").exists():
        killed_once()
    with pathlib.Path(__file__).with_suffix(".alerts").open("a") as file:
        file.write(json.dumps([subject, text]) + "\\n")


alert = CrewAlert(keep)


@task
def after():
    pass

"""
ALERT = Code("alert")
OF_TASK = {"on_failure_callback": ALERT, "on_retry_callback": ALERT}
OF_DAG = {"on_failure_callback": ALERT, "on_success_callback": ALERT}
TIMEOUT = Code("datetime.timedelta(seconds=75)")
# Airflow may call the callback of a lost process twice, 10 seconds apart.
TIME_FOR_ANOTHER = 25
RUNS_OF_A_STORM = 40
# If more begin together on a busy machine, Airflow takes some for stuck and starts them again.
AT_ONCE = 8


def wait_for_alerts(scene, count=1):
    """
    Wait for alerts, and return each with its subject.

    If a callback comes while Airflow reads the DAG's file, it is executed when that file is read next.
    """
    file = scene.file.with_suffix(".alerts")

    def look():
        scene.file.touch()
        return file.exists() and len(file.read_text().splitlines()) >= count

    eventually(look, pause=5)
    return [json.loads(line) for line in file.read_text().splitlines()]


def kill(scene):
    scene.kill()


def kill_with_supervisor(scene):
    process = scene.process()
    process.parent().kill()
    process.kill()


def clear(scene):
    scene.run.clear(scene.task_id)
    wait_for_alerts(scene)
    scene.finish()


def wait(_):
    pass


def fail(scene):
    scene.crew.set_status(scene.execution(), {"state": "FAILED", "status": "no credit"})


def fail_and_kill_alert(scene):
    scene.file.with_suffix(".kills").touch()
    fail(scene)


def mark(scene):
    scene.mark("failed")


class Case(NamedTuple):
    """
    Harm to a task, and its alert.

    :param options: Arguments of the task.
    :param of_dag: Arguments of the DAG.
    :param callbacks: Callbacks that send alerts. If both do, only one may send one.
    :param kinds: Possible starts of the subject. The DAG's alert doesn't wait for a cancellation.
    :param batch: Number of rows, if the task is a batch.
    """

    harm: Callable[[Scene], None]
    way: Way = "sync"
    options: Mapping[str, Any] = {}
    of_dag: Mapping[str, Any] = {}
    callbacks: str = "dag and task"
    kinds: tuple[str, ...] = ("running",)
    batch: int = 0

    def scene(self, airflow, database, crew, dags, dag_id):
        """Return its scene, whose DAG Airflow knows."""
        of_dag = {**self.of_dag, **(OF_DAG if "dag" in self.callbacks else {})}
        then = " >> after.override(trigger_rule='all_done')()" if dag_id in SUCCESSFUL else " >> after()"
        own = (dag_id, self.way, 0, self.batch)
        scene = Scene(airflow, database, crew, dags, *own, code=CODE, of_dag=of_dag, then=then)
        scene.connect()
        of_batch = {"max_failed": 0} if self.batch else {}
        scene.write_dag({**of_batch, **self.options, **(OF_TASK if "task" in self.callbacks else {})})
        airflow.api.wait_for_dag(dag_id)
        return scene


TIMED_OUT: dict[str, Any] = {"harm": wait, "of_dag": {"dagrun_timeout": TIMEOUT}}
CANCELS = {"cancel_on_kill": True}
CANCELLED: dict[str, Any] = {"options": CANCELS, "kinds": ("running", "ended")}
# Airflow 3.4 stores no XCom of a trigger whose task has ended.
BY_TRIGGER: dict[str, Any] = {
    "way": "deferred",
    "options": CANCELS,
    "kinds": ("being cancelled", "ended"),
}
CASES: dict[str, Case] = {
    "alert_killed_in_successful_run": Case(kill),
    "alert_killed_while_it_is_sent": Case(fail_and_kill_alert, kinds=("ended",)),
    "alert_lost": Case(kill_with_supervisor),
    "alert_cleared": Case(clear),
    "alert_execution_timeout": Case(wait, options={"execution_timeout": TIMEOUT}),
    "alert_dagrun_timeout_deferred": Case(way="deferred", **TIMED_OUT),
    "alert_cancelled_mark": Case(mark, **CANCELLED),
    "alert_cancelled_dagrun_timeout": Case(**TIMED_OUT, **CANCELLED),
    "alert_cancelled_mark_deferred": Case(mark, **BY_TRIGGER),
    "alert_cancelled_dagrun_timeout_deferred": Case(**TIMED_OUT, **BY_TRIGGER),
    # Airflow ends a deferred task without a callback of the task.
    "alert_dag_cancelled_mark_deferred": Case(mark, **BY_TRIGGER, callbacks="dag"),
    "alert_task_cancelled_mark": Case(mark, options=CANCELS, callbacks="task", kinds=("ended",)),
}
EACH: dict[str, tuple[Way, Way, int]] = {
    "run": ("deferred", "sync", 0),
    "sensor": ("sensor deferred", "sensor poke", 0),
    "batch": ("deferred", "sync", 1),
}
for each, (deferred, waiting_in_worker, rows) in EACH.items():
    # Unless the process of a batch could report its end, a kickoff may be in flight.
    lost: dict[str, Any] = {"batch": rows, "kinds": ("running", "unknown") if rows else ("running",)}
    CASES |= {
        f"alert_{each}_deferred_failed": Case(fail, deferred, batch=rows, kinds=("ended",)),
        f"alert_{each}_deferred_marked": Case(mark, deferred, **lost),
        f"alert_{each}_killed": Case(kill, waiting_in_worker, **lost),
    }
SUCCESSFUL = {"alert_cleared", "alert_killed_in_successful_run"}


def play(scene, case):
    """Run a DAG, do the harm to its task, and return the scene and the alerts."""
    waiting(scene)
    case.harm(scene)
    scene.wait_until_over()
    wait_for_alerts(scene)
    time.sleep(TIME_FOR_ANOTHER)
    return scene, wait_for_alerts(scene)


@pytest.fixture(scope="module")
def played(request, airflow, database, dags):
    """Play all selected cases, some side by side."""
    own = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    cases = {each.params["dag_id"] for each in own if each and "dag_id" in each.params}
    with ExitStack() as stack:
        crews = {dag_id: stack.enter_context(LocalCrewService(LONG, token=TOKEN)) for dag_id in cases}
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))

        def begin(dag_id: str) -> Any:
            case = CASES[dag_id]
            return play(case.scene(airflow, database, crews[dag_id], dags, dag_id), case)

        yield {dag_id: pool.submit(begin, dag_id) for dag_id in crews}


@pytest.mark.parametrize("dag_id", CASES)
def test_crew_task_is_alerted_about_once(played, dag_id):
    case = CASES[dag_id]

    scene, alerts = played[dag_id].result()

    assert scene.run.state == ("success" if dag_id in SUCCESSFUL else "failed")
    (execution,) = scene.crew.kickoffs
    ((subject, text),) = alerts
    kind = subject[1:].partition("]")[0]
    assert kind in case.kinds
    assert subject == f"[{kind}] {dag_id}: {scene.task_id} in {scene.run.run_id}"
    assert Cost("running" if kind == "being cancelled" else kind).sentence in text or kind == "unknown"
    if not case.batch:  # its executions are in the result files
        assert DASHBOARD.format(kickoff_id=execution.kickoff_id) in text
    assert f"{scene.airflow.url}/dags/{dag_id}/" in text.splitlines()[-1]
    assert TOKEN not in text


def test_storm_of_runs_is_alerted_about_once_each(airflow, database, dags):
    case = Case(mark, "deferred", of_dag={"max_active_runs": RUNS_OF_A_STORM}, callbacks="dag")
    with LocalCrewService(LONG, token=TOKEN) as crew:
        scene = case.scene(airflow, database, crew, dags, "alert_storm")
        runs = [Run.start(airflow, "alert_storm") for _ in range(RUNS_OF_A_STORM)]
        # A busy Airflow may have failed one by itself, which is alerted about as well.
        eventually(lambda: all(run.task("report")["state"] in {"deferred", "failed"} for run in runs), pause=5)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda run: run.mark("report", "failed"), runs))

        wait_for_alerts(scene, RUNS_OF_A_STORM)
        time.sleep(TIME_FOR_ANOTHER)
    subjects = [subject for subject, _ in wait_for_alerts(scene)]
    assert Counter(subject.rpartition(" ")[2] for subject in subjects) == Counter(run.run_id for run in runs)
    # The cost is unknown if there was no time to look.
    assert {subject.partition(" ")[0] for subject in subjects} <= {"[running]", "[unknown]"}
    for process in airflow.all_of("dag-processor"):
        assert "Killing it!" not in process.log.read_text(errors="replace")
