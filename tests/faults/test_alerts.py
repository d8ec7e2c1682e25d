"""One alert is sent about a crew task, even if its process ends before it can call a callback."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import psutil
import pytest

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService
from tests.airflow_runs import DASHBOARD, TOKEN, Run, eventually
from tests.faults.rows import LONG
from tests.supported import AIRFLOW

DAG = """
import datetime
import json
import pathlib
import time

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor


def keep(subject, text):
    time.sleep(0.3)
    with pathlib.Path(__file__).with_suffix(".alerts").open("a") as file:
        file.write(json.dumps([subject, text]) + "\\n")


timeout = datetime.timedelta(seconds=75)
alert = CrewAlert(keep)
of_task = {"on_failure_callback": alert, "on_retry_callback": alert} if "task" in "<callbacks>" else {}
of_dag = {"on_failure_callback": alert, "on_success_callback": alert} if "dag" in "<callbacks>" else {}


@task(trigger_rule="all_done" if "successful" in "<dag_id>" else "all_success")
def after():
    pass


with DAG(
    "<dag_id>",
    schedule=None,
    default_args=of_task,
    **of_dag,
    <of_dag>
):
    <kind> >> after()
"""
_INPUTS = 'inputs={"topic": "tides"}'
KINDS = {
    "run": f'CrewRunOperator(task_id="report", crew_conn_id="<dag_id>", poll_interval=2, {_INPUTS}, <of_task>)',
    "sensor": f"""CrewExecutionSensor(
        task_id="report", crew_conn_id="<dag_id>", poke_interval=2, <of_task>,
        kickoff_id=CrewKickoffOperator(task_id="kickoff", crew_conn_id="<dag_id>", {_INPUTS}).output,
    )""",
    "batch": """CrewBatchOperator(
        task_id="report", crew_conn_id="<dag_id>", poll_interval=2, <of_task>,
        inputs=[{"topic": "tides"}], max_failed=0, result_path=str(pathlib.Path(__file__).with_suffix(".results")),
    )""",
}
FAILING = LONG.model_copy(
    update={"tasks": [*LONG.tasks[:-1], LONG.tasks[-1].model_copy(update={"error": "no credit"})]}
)
# Airflow may call the callback of a lost process twice, 10 seconds apart.
TIME_FOR_ANOTHER = 25
RUNS_OF_A_STORM = 40
# If more begin together on a busy machine, Airflow takes some for stuck and starts them again.
AT_ONCE = 8


def wait_for(alerts, count=1):
    """
    Wait for alerts.

    If a callback comes while Airflow reads the DAG's file, it is executed when that file is read next.
    """

    def look():
        alerts.with_suffix(".py").touch()
        return alerts.exists() and len(alerts.read_text().splitlines()) >= count

    eventually(look, pause=5)


def kill(run, **_):
    psutil.Process(run.task("report")["pid"]).kill()


def kill_with_supervisor(run, **_):
    process = psutil.Process(run.task("report")["pid"])
    process.parent().kill()
    process.kill()


def clear(run, crew, alerts):
    run.clear("report")
    wait_for(alerts)
    crew.finish(crew.kickoffs[0].kickoff_id)


def wait(**_):
    pass


def fail(crew, **_):
    crew.finish(crew.kickoffs[0].kickoff_id)


def mark(run, crew, **_):
    if "deferred" in run.dag_id:
        eventually(lambda: run.task("report")["state"] == "deferred")
        polls = len(crew.requests.on("status"))
        eventually(lambda: len(crew.requests.on("status")) > polls + 1)  # its trigger has begun
    run.mark("report", "failed")


class Case(NamedTuple):
    """
    Harm to a task, and its alert.

    :param of_task: Arguments of the task.
    :param of_dag: Arguments of the DAG.
    :param callbacks: Callbacks that send alerts. If both do, only one may send one.
    :param kinds: Possible starts of the subject. The DAG's alert doesn't wait for a cancellation.
    :param kind: Kind of the task.
    """

    harm: Callable[..., Any]
    of_task: str = ""
    of_dag: str = ""
    callbacks: str = "dag and task"
    kinds: tuple[str, ...] = ("running",)
    kind: str = "run"


TIMED_OUT: dict[str, Any] = {"harm": wait, "of_dag": "dagrun_timeout=timeout"}
CANCELLED: dict[str, Any] = {"of_task": "cancel_on_kill=True", "kinds": ("running", "ended")}
# A trigger hears of a mark from Airflow 3.3 on. Airflow 3.4 stores no XCom of a trigger whose task has ended.
BY_TRIGGER: dict[str, Any] = {
    "of_task": "cancel_on_kill=True, deferrable=True",
    "kinds": ("being cancelled", "ended") if AIRFLOW >= (3, 3) else ("running",),
}
CASES: dict[str, Case] = {
    "alert_killed_in_successful_run": Case(kill),
    "alert_lost": Case(kill_with_supervisor),
    "alert_cleared": Case(clear),
    "alert_execution_timeout": Case(wait, "execution_timeout=timeout"),
    "alert_dagrun_timeout_deferred": Case(of_task="deferrable=True", **TIMED_OUT),
    "alert_cancelled_mark": Case(mark, **CANCELLED),
    "alert_cancelled_dagrun_timeout": Case(**TIMED_OUT, **CANCELLED),
    "alert_cancelled_mark_deferred": Case(mark, **BY_TRIGGER),
    "alert_cancelled_dagrun_timeout_deferred": Case(**TIMED_OUT, **BY_TRIGGER),
    # Airflow ends a deferred task without a callback of the task.
    "alert_dag_cancelled_mark_deferred": Case(mark, **BY_TRIGGER, callbacks="dag"),
    "alert_task_cancelled_mark": Case(mark, "cancel_on_kill=True", callbacks="task", kinds=("ended",)),
}
for each in KINDS:
    # Unless the process of a batch could report its end, a kickoff may be in flight.
    lost: dict[str, Any] = {"kind": each, "kinds": ("running", "unknown") if each == "batch" else ("running",)}
    CASES |= {
        f"alert_{each}_deferred_failed": Case(fail, "deferrable=True", kind=each, kinds=("ended",)),
        f"alert_{each}_deferred_marked": Case(mark, "deferrable=True", **lost),
        f"alert_{each}_killed": Case(kill, "deferrable=False", **lost),
    }
SUCCESSFUL = {"alert_cleared", "alert_killed_in_successful_run"}


def write_dag(airflow, dags, crew, dag_id, case):
    """Write a DAG, wait until Airflow knows it, and return the file of its alerts."""
    code = DAG.replace("<kind>", KINDS[case.kind]).replace("<dag_id>", dag_id)
    for name in ("of_dag", "of_task", "callbacks"):
        code = code.replace(f"<{name}>", getattr(case, name))
    described = json.loads(crew.connection_json) | {"extra": json.dumps({"dashboard_url": DASHBOARD})}
    airflow.api.set_connection(dag_id, described)
    (dags / f"{dag_id}.py").write_text(code)
    airflow.api.wait_for_dag(dag_id)
    return dags / f"{dag_id}.alerts"


def play(airflow, dags, crew, dag_id):
    """Run a DAG, do the harm to its task, and return the state of the run and the alerts."""
    case = CASES[dag_id]
    alerts = write_dag(airflow, dags, crew, dag_id, case)
    run = Run.start(airflow, dag_id)
    eventually(lambda: crew.requests.on("status"))  # the task has pushed its kickoff ID
    case.harm(run=run, crew=crew, alerts=alerts)
    state = run.wait()
    wait_for(alerts)
    time.sleep(TIME_FOR_ANOTHER)
    return run, state, [json.loads(line) for line in alerts.read_text().splitlines()]


@pytest.fixture(scope="module")
def played(request, airflow, dags):
    """Play all selected cases, some side by side."""
    own = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    cases = [each.params["dag_id"] for each in own if each and "dag_id" in each.params]
    with ExitStack() as stack:
        stories = {dag_id: LONG if dag_id in SUCCESSFUL else FAILING for dag_id in cases}
        crews = {it: stack.enter_context(LocalCrewService(story, token=TOKEN)) for it, story in stories.items()}
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        yield {dag_id: (crew, pool.submit(play, airflow, dags, crew, dag_id)) for dag_id, crew in crews.items()}


@pytest.mark.parametrize("dag_id", CASES)
def test_crew_task_is_alerted_about_once(played, dag_id):
    crew, future = played[dag_id]

    run, state, alerts = future.result()

    assert state == ("success" if dag_id in SUCCESSFUL else "failed")
    (execution,) = crew.kickoffs
    ((subject, text),) = alerts
    kind = subject[1:].partition("]")[0]
    assert kind in CASES[dag_id].kinds
    assert subject == f"[{kind}] {dag_id}: report in {run.run_id}"
    assert Cost("running" if kind == "being cancelled" else kind).sentence in text or kind == "unknown"
    if CASES[dag_id].kind != "batch":  # its executions are in the result files
        assert DASHBOARD.format(kickoff_id=execution.kickoff_id) in text
    assert f"{run.airflow.url}/dags/{dag_id}/" in text.splitlines()[-1]
    assert TOKEN not in text


def test_storm_of_runs_is_alerted_about_once_each(airflow, dags):
    case = Case(mark, "deferrable=True", f"max_active_runs={RUNS_OF_A_STORM}", "dag")
    with LocalCrewService(LONG, token=TOKEN) as crew:
        alerts = write_dag(airflow, dags, crew, "alert_storm", case)
        runs = [Run.start(airflow, "alert_storm") for _ in range(RUNS_OF_A_STORM)]
        # A busy Airflow may have failed one by itself, which is alerted about as well.
        eventually(lambda: all(run.task("report")["state"] in {"deferred", "failed"} for run in runs), pause=5)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda run: run.mark("report", "failed"), runs))

        wait_for(alerts, RUNS_OF_A_STORM)
        time.sleep(TIME_FOR_ANOTHER)
    subjects = [json.loads(line)[0] for line in alerts.read_text().splitlines()]
    assert Counter(subject.rpartition(" ")[2] for subject in subjects) == Counter(run.run_id for run in runs)
    # The cost is unknown if there was no time to look.
    assert {subject.partition(" ")[0] for subject in subjects} <= {"[running]", "[unknown]"}
    for process in airflow.all_of("dag-processor"):
        assert "Killing it!" not in process.log.read_text(errors="replace")
