"""CrewAlert sends what is known of failed crew tasks, and never fails because something is unknown."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from itertools import count
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import DAG, BaseNotifier, BaseOperator, XCom, mask_secret
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider_crew import cli
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.client.errors import (
    Cost,
    CrewError,
    ExecutionCancelled,
    ExecutionFailed,
    LostContact,
    UncertainKickoff,
)
from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.client.progress import begun, ended
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.exceptions import BatchFailed, CrewTaskFailed, CrewTaskTimeout, CutShort
from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.task.verdict import (
    Facts,
    RowCounts,
    if_lost,
    while_cancelled,
    while_rows_run,
    while_waiting,
)
from tests.supported import AIRFLOW

KICKOFF_ID = "57a13a6e-3a4c-4c55-9f0e-2f1f8a4b9c01"
DASHBOARD = "https://app.example/crews/7"
RUN_PAGE = "https://airflow.example/dags/the_dag/runs/today"
TASK_PAGE = f"{RUN_PAGE}/tasks/report"
FAILED = ExecutionFailed("The crew failed.", next_step="Pay.", kickoff_id=KICKOFF_ID)
UNCERTAIN = CrewTaskFailed(UncertainKickoff("No answer.", next_step="Look."))
GONE = LostContact("Gone.", next_step="Wait.", kickoff_id=KICKOFF_ID)
CHECK = while_cancelled(is_sensor=True)
NOT_SENT = CrewError("Not sent.", cost=Cost.NONE, next_step="Fix.")
CUT_SHORT = CrewTaskTimeout(CutShort("Too long.", next_step="Wait.", kickoff_id=KICKOFF_ID))
FAULT = ValueError("a fault\nof a hook")


class Kept(BaseNotifier):
    """Keeps what it would send."""

    template_fields = ("message",)

    def __init__(self, message, sent):
        super().__init__()
        self.message = message
        self.sent = sent

    def notify(self, _):
        self.sent.append(self.message)


@pytest.fixture
def sent():
    return []


@pytest.fixture
def alert(sent, monkeypatch):
    def sleep(_):
        raise AssertionError("a callback waits, and Airflow executes the others after it")

    monkeypatch.setattr("time.sleep", sleep)
    return CrewAlert(lambda subject, text: sent.append((subject, text)))


@pytest.fixture
def dag(tmp_path):
    with DAG("the_dag", schedule=None) as dag:
        CrewRunOperator(task_id="report", inputs={})
        CrewRunOperator.partial(task_id="each").expand(inputs=[{}, {}])
        CrewExecutionSensor(task_id="wait", kickoff_id=KICKOFF_ID)
        kickoff = CrewKickoffOperator(task_id="kickoff", inputs={})
        CrewExecutionSensor(task_id="pair", kickoff_id=kickoff.output)
        kickoffs = CrewKickoffOperator.partial(task_id="kickoffs").expand(inputs=[{}, {}])
        CrewExecutionSensor.partial(task_id="pairs").expand(kickoff_id=kickoffs.output)
        CrewRunOperator.partial(task_id="crews", inputs={}).expand(crew_conn_id=["readers", "writers"])
        CrewRunOperator.partial(task_id="unread").expand_kwargs(kickoff.output)
        BaseOperator(task_id="other")
        if AIRFLOW >= (3, 3):
            CrewBatchOperator(task_id="rows", inputs=[], result_path=str(tmp_path), crew_conn_id="writers")
    return dag


_HOURS = count(1)


@pytest.fixture
def airflow(monkeypatch):
    """Return states and XComs, which a test may set, and the seconds that Airflow needs to return each."""
    known = SimpleNamespace(states={}, xcoms={}, takes=0.0, asked=0)
    clock = time.monotonic

    def wait():
        known.asked += 1

    def get_task_states(*, run_ids, **_):
        wait()
        named = {task if index < 0 else f"{task}_{index}": state for (task, index), state in known.states.items()}
        return dict.fromkeys(run_ids, named)

    def get_one(*, task_id, map_index, key, **_):
        wait()
        return known.xcoms.get((task_id, map_index, key))

    def get_all(*, task_id, key, **_):
        wait()
        return [value for (task, _, name), value in known.xcoms.items() if (task, name) == (task_id, key)]

    # Each test begins an hour after the one before, as a process of its own.
    began = next(_HOURS) * 3600
    monkeypatch.setattr("time.monotonic", lambda: clock() + began + known.takes * known.asked)
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", get_task_states)
    monkeypatch.setattr(XCom, "get_one", get_one)
    monkeypatch.setattr(XCom, "get_all", get_all)
    return known


def of_task(dag, exception=None, *, state="failed", push=None, task_id="report", **more):
    task = dag.task_dict[task_id]
    ti = SimpleNamespace(task=task, task_id=task_id, map_index=-1, state=state, log_url=TASK_PAGE, xcom_push=push)
    vars(ti).update({"try_number": 1, "max_tries": 0} | more)
    given = {} if exception is None and state != "success" else {"exception": exception}
    return {"dag": dag, "run_id": "today", "ti": ti, **given}


def of_run(dag, reason="task_failure"):
    return of_task(dag, state=None) | {"reason": reason}


def progress(kickoff_id=KICKOFF_ID, **told):
    return {"crew_progress": {"kickoff_id": kickoff_id, "end": None, **told}}


COUNTS = "412 of 1,000 rows have ended, 12 failed, 1 uncertain, 16 running"


def of_rows(*, running=16, gone=0, **told):
    statuses = {name: told.pop(name) for name in ("success", "error", "uncertain") if name in told}
    sentences = while_rows_run(RowCounts(Counter(statuses), running, is_billed=True, lost=gone), cancels=False)
    reasons = [
        {"status": status, "reason": "x", "count": 2, "keys": ["Oslo", "-1; ls"]}
        for status in ("error", "uncertain")
        if status == "error" or gone or statuses.get(status)
    ]
    batch = {"total": 3, "uncertain": statuses.get("uncertain", 0), "reasons": reasons}
    return progress("", batch=batch, doing=COUNTS, **sentences | told)


KILLED = of_rows(success=400, error=11)
AFTER_KILL = KILLED["crew_progress"]["if_lost"]["next_step"]
BATCH_FAILED = BatchFailed("588 of 1,000 rows failed.", cost=Cost.RUNNING, next_step="Clear the task.")
ENDED = {"kickoff_id": KICKOFF_ID, "end": FAILED.as_dict()}
SKIPS = FAILED.as_dict() | {"action": "skip"}
DEFERRED, POLLED, UNPOLLED = (
    {"crew_deferral": 1795697920.28},
    {"polled_at": 1795697922.0},
    {"polled_at": 1795697919.0},
)
CANCELS, LEAVES = (
    while_waiting(Facts(), reattachable=True, cancels=cancels)["choices"] for cancels in (True, False)
)
LOST = if_lost(KICKOFF_ID, None)["next_step"] if AIRFLOW >= (3, 3) else ""

# Who calls back: the task, or its run for this reason. The task, its state, its exception, and its XComs.
# The kind of alert in the subject, or None if there is none, and texts in the alert.
ALERTS = [
    ("task", "report", "failed", FAILED, {}, Cost.ENDED, [FAILED]),
    ("task", "report", "failed", UNCERTAIN, {}, Cost.UNKNOWN, [UNCERTAIN.failure]),
    (
        "task",
        "report",
        "failed",
        GONE,
        {},
        Cost.RUNNING,
        [],
    ),
    ("task", "report", "failed", NOT_SENT, {}, Cost.NONE, [NOT_SENT]),
    ("task", "report", "failed", CUT_SHORT, {}, Cost.RUNNING, []),
    ("task", "other", "failed", FAILED, {}, Cost.ENDED, [FAILED]),
    # The task has not reported how it ended.
    ("task", "report", "failed", None, {}, Cost.UNKNOWN, []),
    ("task", "report", "failed", None, {"kickoff_id": KICKOFF_ID}, Cost.RUNNING, [LOST]),
    ("task", "report", "failed", None, progress(state="completed"), Cost.ENDED, []),
    ("task", "report", "failed", None, progress(end={"cost": "another version"}), Cost.RUNNING, []),
    ("task", "report", "failed", FAULT, {}, Cost.UNKNOWN, ["ValueError: a fault of a hook"]),
    ("task", "report", "failed", FAULT, progress(), Cost.RUNNING, ["ValueError: a fault of a hook"]),
    # A user has marked it, or its run has taken too long.
    ("timed_out", "report", "failed", None, progress(**POLLED) | DEFERRED, "being cancelled", []),
    ("timed_out", "report", "skipped", None, progress(**POLLED) | DEFERRED, "being cancelled", []),
    ("timed_out", "report", "failed", None, progress(**UNPOLLED) | DEFERRED, Cost.RUNNING, []),
    ("timed_out", "report", "skipped", None, progress(**UNPOLLED) | DEFERRED, Cost.RUNNING, []),
    ("timed_out", "report", "failed", None, progress(choices=CANCELS), Cost.RUNNING, [CANCELS["mark"]]),
    ("timed_out", "report", "skipped", None, progress(choices=LEAVES), Cost.RUNNING, [LEAVES["mark"][1:]]),
    ("task_failure", "wait", "failed", None, progress(**POLLED) | DEFERRED, "being cancelled", [f"{CHECK}\n"]),
    ("task_failure", "report", "skipped", None, {}, None, []),
    ("task_failure", "report", "skipped", None, {"kickoff_id": KICKOFF_ID}, Cost.RUNNING, []),
    ("task_failure", "report", "skipped", None, progress(state="running"), Cost.RUNNING, []),
    ("task_failure", "report", "skipped", None, progress(end=SKIPS), None, []),
    # A batch. The DAG's alert about a green one is below.
    ("task", "report", "failed", None, KILLED, Cost.UNKNOWN, [COUNTS, AFTER_KILL]),
    ("task", "report", "up_for_retry", None, KILLED, Cost.UNKNOWN, [COUNTS, AFTER_KILL]),
    ("timed_out", "report", "skipped", None, KILLED, Cost.UNKNOWN, [COUNTS, AFTER_KILL]),
    ("task_failure", "report", "failed", None, of_rows(**POLLED) | DEFERRED, "being cancelled", []),
    ("task", "report", "failed", BATCH_FAILED, of_rows(end=BATCH_FAILED.as_dict()), Cost.RUNNING, [COUNTS]),
    # An agent that called a crew, and other tasks.
    ("task", "other", "failed", FAULT, progress(""), Cost.UNKNOWN, []),
    ("task", "other", "failed", FAULT, progress(), Cost.RUNNING, []),
    ("task", "other", "failed", FAULT, progress(state="completed"), Cost.ENDED, []),
    ("task", "other", "failed", FAULT, progress(end=FAILED.as_dict()), Cost.ENDED, [FAILED]),
    ("task", "other", "failed", GONE, progress(end=UNCERTAIN.failure.as_dict()), Cost.UNKNOWN, []),
    ("task_failure", "other", "failed", None, progress(""), Cost.UNKNOWN, []),
    ("task_failure", "other", "failed", None, progress(), Cost.RUNNING, []),
    ("task_failure", "other", "skipped", None, progress(), None, []),  # by a branch
    ("timed_out", "other", "skipped", None, progress(), Cost.RUNNING, []),
    ("task", "other", "failed", FAULT, {}, None, []),
    ("task", "other", "up_for_retry", FAULT, {}, None, []),
    ("task_failure", "other", "failed", None, {}, None, []),
]


@pytest.mark.parametrize(("of", "task_id", "state", "exception", "xcoms", "kind", "texts"), ALERTS)
def test_alert_has_the_facts(alert, dag, airflow, sent, of, task_id, state, exception, xcoms, kind, texts):
    airflow.states = {(task_id, -1): state}
    airflow.xcoms = {(task_id, -1, key): value for key, value in ({"crew_dashboard": DASHBOARD} | xcoms).items()}
    error = getattr(exception, "failure", exception)

    alert(of_task(dag, exception, state=state, task_id=task_id) if of == "task" else of_run(dag, of))

    if kind is None:
        assert sent == []
        return
    ((subject, text),) = sent
    assert subject == f"[{kind}] the_dag: {task_id} in today"
    assert Cost("running" if kind == "being cancelled" else kind).sentence in text
    assert [str(each) for each in texts if str(each) not in text] == []
    assert text.count("\nNext: ") == 1
    assert text.splitlines()[-1] == (TASK_PAGE if of == "task" else RUN_PAGE)
    has_id = KICKOFF_ID in f"{xcoms} {getattr(error, 'kickoff_id', '')}"
    assert (KICKOFF_ID in text, DASHBOARD in text) == (has_id, has_id)
    is_adoptable = AIRFLOW >= (3, 3) and kind == Cost.UNKNOWN and task_id == "report" and "batch" not in str(xcoms)
    assert ("Adopt: " in text) == is_adoptable


@pytest.mark.usefixtures("airflow")
def test_alert_of_a_task_in_a_loop_names_the_iteration(alert, dag, sent):
    alert(of_task(dag, FAILED) | {"loop": SimpleNamespace(index=1)})

    assert "report (iteration 1) in today" in sent[0][0]


def test_alert_of_dag_is_about_crew_tasks_that_failed(alert, dag, airflow, sent):
    airflow.states = {
        ("report", -1): "success",
        ("each", 0): "failed",
        ("each", 1): "failed",
        ("other", -1): "failed",
        ("removed", -1): "failed",
    }
    airflow.xcoms["each", 0, "crew_progress"] = {"kickoff_id": KICKOFF_ID, "end": FAILED.as_dict()}
    airflow.xcoms["each", 1, "kickoff_id"] = "another"

    alert(of_run(dag))

    ((subject, text),) = sent
    assert subject == f"[{Cost.RUNNING}] the_dag: 2 crew tasks in today"
    running, ended, all_rows, page = text.split("\n\n")
    assert running.startswith("each[1]: ")
    assert "At: execution another" in running.splitlines()
    assert ended == f"each[0]: {FAILED}"
    assert all_rows.startswith("each has 2 rows: 2 failed.")
    assert page == RUN_PAGE


@pytest.mark.parametrize(
    ("reason", "state", "is_sent"),
    [
        ("task_failure", "upstream_failed", True),
        ("timed_out", "skipped", True),
        ("task_failure", "skipped", False),  # by a branch
        ("task_failure", "success", False),
    ],
)
@pytest.mark.parametrize(("kickoff", "sensor", "rows"), [("kickoff", "pair", [-1]), ("kickoffs", "pairs", [0, 1])])
def test_alert_of_dag_has_executions_whose_sensor_has_not_run(
    alert, dag, airflow, sent, reason, state, is_sent, kickoff, sensor, rows
):
    airflow.states = {(kickoff, row): "success" for row in rows} | {(sensor, -1): state, ("other", -1): "failed"}
    airflow.xcoms = {(kickoff, row, "kickoff_id"): f"execution {row}" for row in rows}

    alert(of_run(dag, reason))

    assert [subject for subject, _ in sent] == [f"[running] the_dag: {sensor} in today"] * is_sent
    for _, text in sent:
        assert f"execution {rows[0]}" in text
        assert ("2 executions" in text) == (len(rows) == 2)
        assert ("Next: Clearing the task waits" in text) == (state == "skipped")


def test_execution_for_which_another_sensor_has_waited_is_not_left(alert, dag, airflow, sent):
    with dag:
        CrewExecutionSensor(task_id="second", kickoff_id=dag.task_dict["kickoff"].output)
    airflow.states = {(task, -1): "success" for task in ("kickoff", "second")} | {("pair", -1): "upstream_failed"}
    airflow.xcoms["kickoff", -1, "kickoff_id"] = KICKOFF_ID

    alert(of_run(dag))

    assert sent == []


def test_alert_of_dag_has_all_of_a_long_event(alert, dag, airflow, sent):
    failed = Failed(status="error", kickoff_id=KICKOFF_ID, error="x" * 9_000, execution_time=6.0)
    error = execution_failed(failed, "task 2 of 3, writing_task (Writer)")
    error = error.replace(f"{error.event} Its reason: {'y' * 2_000}.")
    airflow.states["report", -1] = "failed"
    airflow.xcoms["report", -1, "crew_progress"] = ended(begun(KICKOFF_ID, 1.0), error, 2.0)

    alert(of_run(dag))

    assert error.event in sent[0][1]


def test_alert_of_dag_sums_up_mapped_tasks(alert, dag, airflow, sent):
    airflow.states = {("each", number): "success" for number in range(40)}
    airflow.states |= {("each", 7): "failed", ("each", 40): None}
    airflow.xcoms |= {("each", number, "kickoff_id"): str(number) for number in range(39)}
    airflow.xcoms |= {("each", number, "usage"): {"total_tokens": 1_000} for number in range(38)}
    airflow.xcoms |= {("each", 7, "crew_row"): "Hamburg\nSubject: forged"}
    # As Airflow pushes it with multiple_outputs, and as a crew may report it.
    airflow.xcoms |= {("each", 38, "usage"): None, ("each", 39, "usage"): {"prompt_tokens": 3}}

    alert(of_run(dag))

    ((subject, text),) = sent
    assert subject == f"[{Cost.RUNNING}] the_dag: each[7] (Hamburg Subject: forged) in today"
    (summary,) = [part for part in text.split("\n\n") if part.startswith("each has ")]
    for part in ("41 rows", "1 failed", "39 success", "39 executions", "38,000 tokens"):
        assert part in summary


def test_unread_rows_come_last(alert, dag, airflow, sent):
    airflow.states = {("each", number): "failed" for number in range(40)}
    airflow.xcoms["each", 0, "crew_progress"] = {"kickoff_id": KICKOFF_ID, "end": FAILED.as_dict()}
    airflow.takes = 9.0  # so there is no time for the second row

    alert(of_run(dag))

    ((subject, text),) = sent
    assert subject.startswith(f"[{Cost.UNKNOWN}] the_dag: 40 crew tasks")
    assert text.startswith(f"each[0]: {FAILED}")


def test_all_alerts_of_a_process_share_the_time_to_read(alert, dag, airflow, sent):
    airflow.states = {("report", -1): "failed"}
    airflow.takes = 9.0

    for _ in range(40):
        alert(of_run(dag))

    assert len(sent) == 40
    assert airflow.asked <= 3  # 27 seconds


def test_alert_of_dag_describes_the_most_urgent_failures(alert, dag, airflow, sent):
    airflow.states = {("each", number): "failed" for number in range(30)}
    ended = {"kickoff_id": KICKOFF_ID, "end": FAILED.as_dict()}
    airflow.xcoms |= {("each", number, "crew_progress"): ended for number in range(29)}

    alert(of_run(dag))

    ((subject, text),) = sent
    assert subject == f"[{Cost.UNKNOWN}] the_dag: 30 crew tasks in today"
    assert text.startswith("each[29]: ")
    assert text.count("\nNext: ") == 20
    assert "Further failed tasks: 10" in text


@pytest.mark.usefixtures("airflow")
def test_alert_of_dag_with_unreadable_tasks_is_sent(alert, dag, sent):
    alert({"dag": dag, "run_id": "today", "reason": "timed_out"})

    ((subject, text),) = sent
    assert subject.startswith(f"[{Cost.UNKNOWN}] the_dag")
    assert Cost.UNKNOWN.sentence in text


@pytest.mark.parametrize("reason", ["task_failure", "success"])
def test_alert_of_dag_leaves_out_tasks_that_have_sent_theirs(alert, dag, airflow, sent, reason):
    airflow.states = {("report", -1): "failed", ("each", 0): "failed"}

    def push(key, value):
        airflow.xcoms["report", -1, key] = value

    alert(of_task(dag, FAILED, push=push))
    alert(of_run(dag, reason))

    assert [subject for subject, _ in sent] == [
        f"[{Cost.ENDED}] the_dag: report in today",
        f"[{Cost.UNKNOWN}] the_dag: each[0] in today",
    ]


def test_alert_of_dag_includes_tasks_whose_channel_failed(alert, dag, airflow, sent):
    airflow.states = {("report", -1): "failed"}
    pushed = []

    with pytest.raises(ZeroDivisionError):
        CrewAlert(lambda *_: 1 / 0)(of_task(dag, FAILED, push=lambda **given: pushed.append(given)))
    alert(of_run(dag))

    assert pushed[-1] == {"key": "crew_alert", "value": None}
    assert len(sent) == 1


@pytest.mark.usefixtures("airflow")
def test_alert_is_sent_even_if_xcom_push_fails(alert, dag, sent):
    alert(of_task(dag, FAILED, push=lambda **_: 1 / 0))

    assert len(sent) == 1


CANCELLED = ExecutionCancelled("It was cancelled.", kickoff_id=KICKOFF_ID)


@pytest.mark.parametrize("of_dag", [lambda alert: alert, lambda alert: [alert]])
@pytest.mark.parametrize(
    ("in_database", "exception", "max_tries", "clears", "alerts"),
    [
        # A process was lost.
        ("failed", None, 0, 0, 0),
        ("running", None, 0, 0, 0),
        ("running", None, 1, 0, 1),
        ("running", None, 0, 1, 1),
        ("up_for_retry", None, 1, 0, 1),
        ("restarting", None, 0, 1, 1),
        (None, None, 0, 1, 1),
        # Airflow ends the task.
        ("failed", CANCELLED, 0, 0, 0),
        ("skipped", CANCELLED, 0, 0, 0),
        ("restarting", CANCELLED, 0, 0, 1),
    ],
)
def test_task_that_airflow_ends_is_left_to_alert_of_dag(
    alert, dag, airflow, sent, of_dag, in_database, exception, max_tries, clears, alerts
):
    airflow.states = {("report", -1): in_database}
    dag.task_dict["report"].on_kill()
    told = of_task(dag, exception, state=None if exception is None else "failed", max_tries=max_tries)
    for callback, expected in ((of_dag(CrewAlert(print)), alerts), (None, 1)):
        dag.on_failure_callback = callback
        sent.clear()
        alert(told | {"dag_run": SimpleNamespace(clear_number=clears)})
        assert len(sent) == expected


@pytest.mark.usefixtures("airflow")
def test_notifier_renders_its_own_templates_only(dag, sent):
    alert = CrewAlert(Kept("{{ crew_alert.subject }}: {{ crew_alert.text | e }}", sent))

    for number in (1, 2):
        alert(of_task(dag, ExecutionFailed(f"{{{{ dag.dag_id }}}} & <{number}>")))

    for number, message in enumerate(sent, 1):
        assert message.startswith(
            f"[{Cost.ENDED}] the_dag: report in today: report: {{{{ dag.dag_id }}}} &amp; &lt;{number}&gt;"
        )


@pytest.mark.usefixtures("airflow")
def test_secrets_known_to_airflow_are_masked(alert, dag, sent):
    mask_secret("a-secret-of-the-author")

    alert(of_task(dag, ValueError("401 for a-secret-of-the-author")))

    ((_, text),) = sent
    assert "a-secret-of-the-author" not in text


needs_store = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Airflow has a task state store from 3.3 on")


@pytest.fixture
def adopted(monkeypatch):
    """Return the function that runs the adopt commands of a text, as far as their arguments."""

    def run(text):
        found = []
        monkeypatch.setattr("airflow_provider_crew.commands.run", lambda options, *_: found.append(options))
        for line in text.splitlines():
            if line.startswith("Adopt: "):
                cli.main(shlex.split(line)[4:])
        return [
            (each.dag_id, each.run_id, each.task_id, each.map_index, each.kickoff_id, each.conn_id, each.row)
            for each in found
        ]

    return run


@needs_store
@pytest.mark.parametrize("first", ["task", "run"])
@pytest.mark.parametrize(
    ("rows", "alerts"),
    [({"success": 1, "uncertain": 2}, 1), ({"success": 3, "gone": 2}, 1), ({"success": 3}, 0), ({}, 0)],
)
def test_uncertain_rows_of_a_successful_batch_give_one_alert(
    alert, dag, airflow, sent, adopted, first, rows, alerts
):
    told = of_rows(running=0, state="completed", **rows)["crew_progress"] if rows else {}
    airflow.states = {("rows", -1): "success"}
    airflow.xcoms["rows", -1, "crew_progress"] = told

    def push(key, value):
        airflow.xcoms["rows", -1, key] = value

    if first == "task":
        alert(of_task(dag, state="success", task_id="rows", push=push))
    alert(of_task(dag, state=None, task_id="rows") | {"reason": "success"})

    assert [subject for subject, _ in sent] == [f"[{Cost.UNKNOWN}] the_dag: rows in today"] * alerts
    for _, text in sent:
        assert told["if_lost"]["next_step"] in text
        assert [each[5:] for each in adopted(text)] == [("writers", "Oslo"), ("writers", "-1; ls")]


def test_success_of_another_task_asks_airflow_nothing(alert, dag, airflow, sent):
    for task_id in ("report", "other"):
        alert(of_task(dag, state="success", task_id=task_id))

    assert (sent, airflow.asked) == ([], 0)


@needs_store
@pytest.mark.parametrize("kickoff_id", ["", KICKOFF_ID])
def test_alert_has_the_command_that_adopts_the_execution(alert, dag, airflow, sent, adopted, kickoff_id):
    airflow.states = {("each", 1): "failed", ("crews", 1): "failed", ("unread", 1): "failed"}
    airflow.xcoms |= {("report", -1, "kickoff_id"): kickoff_id}

    alert(of_task(dag, UNCERTAIN, push=lambda **_: None))
    alert(of_run(dag))

    assert [each for _, text in sent for each in adopted(text)] == [
        ("the_dag", "today", "report", -1, kickoff_id or "KICKOFF_ID", "crew_default", None),
        ("the_dag", "today", "each", 1, "KICKOFF_ID", "crew_default", None),
        ("the_dag", "today", "crews", 1, "KICKOFF_ID", "writers", None),
        ("the_dag", "today", "unread", 1, "KICKOFF_ID", "CONN_ID", None),
    ]
