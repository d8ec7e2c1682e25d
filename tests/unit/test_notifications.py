"""CrewAlert sends what is known of failed crew tasks, and never fails for want of it."""

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
from airflow_provider_crew.operators.crew import CrewRunOperator
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

needs_store = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Airflow has a task state store from 3.3 on")
KICKOFF_ID = "57a13a6e-3a4c-4c55-9f0e-2f1f8a4b9c01"
DASHBOARD = "https://app.example/crews/7"
RUN_PAGE = "https://airflow.example/dags/the_dag/runs/today"
TASK_PAGE = f"{RUN_PAGE}/tasks/report"
FAILED = ExecutionFailed("The crew failed.", next_step="Pay.", kickoff_id=KICKOFF_ID)


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
def dag():
    with DAG("the_dag", schedule=None) as dag:
        CrewRunOperator(task_id="report", inputs={})
        CrewRunOperator.partial(task_id="each").expand(inputs=[{}, {}])
        CrewRunOperator(task_id="cancelled", inputs={}, cancel_on_kill=True)
        BaseOperator(task_id="other")
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


@pytest.mark.parametrize(
    ("exception", "cost"),
    [
        (FAILED, Cost.ENDED),
        (CrewTaskFailed(UncertainKickoff("No answer.", next_step="Look.")), Cost.UNKNOWN),
        (CrewTaskTimeout(CutShort("Too long.", next_step="Wait.", kickoff_id=KICKOFF_ID)), Cost.RUNNING),
        (LostContact("No answer.", next_step="Wait.", kickoff_id=KICKOFF_ID), Cost.RUNNING),
        (CrewError("Not sent.", cost=Cost.NONE, next_step="Fix."), Cost.NONE),
    ],
    ids=lambda value: value.value if isinstance(value, Cost) else type(value).__name__,
)
def test_alert_has_cost_event_next_step_and_links(alert, dag, airflow, sent, exception, cost):
    airflow.xcoms["report", -1, "crew_dashboard"] = DASHBOARD
    failure = getattr(exception, "failure", exception)

    alert(of_task(dag, exception))

    ((subject, text),) = sent
    assert subject == f"[{cost}] the_dag: report in today"
    assert str(failure) in text
    assert (DASHBOARD in text) == bool(failure.kickoff_id)
    assert text.splitlines()[-1] == TASK_PAGE
    assert text.count(KICKOFF_ID) == bool(failure.kickoff_id)


@pytest.mark.usefixtures("airflow")
def test_alert_of_a_task_in_a_loop_names_the_iteration(alert, dag, sent):
    alert(of_task(dag, FAILED) | {"loop": SimpleNamespace(index=1)})

    assert "report (iteration 1) in today" in sent[0][0]


@pytest.mark.parametrize(
    ("xcoms", "cost"),
    [
        ({}, Cost.UNKNOWN),
        ({"kickoff_id": KICKOFF_ID}, Cost.RUNNING),
        ({"crew_progress": {"kickoff_id": KICKOFF_ID, "state": "completed", "end": None}}, Cost.ENDED),
        ({"kickoff_id": KICKOFF_ID, "crew_progress": {"end": {"cost": "another version"}}}, Cost.RUNNING),
    ],
)
@pytest.mark.parametrize("exception", [None, ValueError("a fault\nof a hook")])
def test_alert_without_an_error_of_a_crew_uses_xcoms(alert, dag, airflow, sent, xcoms, cost, exception):
    airflow.xcoms |= {("report", -1, key): value for key, value in xcoms.items()}

    alert(of_task(dag, exception))

    ((subject, text),) = sent
    assert subject.startswith(f"[{cost}]")
    assert cost.sentence in text
    assert (KICKOFF_ID in text) == bool(xcoms)
    assert ("ValueError: a fault of a hook" in text) == isinstance(exception, ValueError)


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


def test_alert_of_dag_has_all_of_a_long_event(alert, dag, airflow, sent):
    failed = Failed(status="error", kickoff_id=KICKOFF_ID, error="x" * 9_000, execution_time=6.0)
    error = execution_failed(failed, "task 2 of 3, writing_task (Writer)")
    error = error.replace(f"{error.event} Its reason: {'y' * 2_000}.")
    airflow.states["report", -1] = "failed"
    airflow.xcoms["report", -1, "crew_progress"] = ended(begun(KICKOFF_ID, 1.0), error, 2.0)

    alert(of_run(dag))

    assert error.event in sent[0][1]


def test_alert_of_dag_sums_up_mapped_tasks(alert, dag, airflow, sent):
    airflow.states = {("each", number): "success" for number in range(40)} | {("each", 7): "failed"}
    airflow.xcoms |= {("each", number, "kickoff_id"): str(number) for number in range(39)}
    airflow.xcoms |= {("each", number, "usage"): {"total_tokens": 1_000} for number in range(38)}
    airflow.xcoms |= {("each", 7, "crew_row"): "Hamburg\nSubject: forged"}
    # As Airflow pushes it with multiple_outputs, and as a crew may report it.
    airflow.xcoms |= {("each", 38, "usage"): None, ("each", 39, "usage"): {"prompt_tokens": 3}}

    alert(of_run(dag))

    ((subject, text),) = sent
    assert subject == f"[{Cost.RUNNING}] the_dag: each[7] (Hamburg Subject: forged) in today"
    (summary,) = [part for part in text.split("\n\n") if part.startswith("each has ")]
    for part in ("40 rows", "1 failed", "39 success", "39 executions", "38,000 tokens"):
        assert part in summary


def test_cleared_row_does_not_cost_the_alert(alert, dag, airflow, sent):
    airflow.states = {("each", 0): "failed", ("each", 1): None, ("each", 2): "success"}

    alert(of_run(dag))

    ((_, text),) = sent
    assert "each has 3 rows" in text


@pytest.mark.usefixtures("airflow")
def test_mapped_sensor_starts_nothing_if_cleared(alert, dag, airflow, sent):
    with dag:
        CrewExecutionSensor.partial(task_id="wait").expand(kickoff_id=["one", "two"])
    airflow.states = {("wait", 0): "failed"}
    progress = {"kickoff_id": "one", "polled_at": 1795697922.0, "end": None}
    airflow.xcoms |= {("wait", 0, "crew_progress"): progress, ("wait", 0, "crew_deferral"): 1795697920.28}

    alert(of_run(dag))

    ((_, text),) = sent
    assert while_cancelled(is_sensor=True) in text
    assert while_cancelled(is_sensor=False) not in text


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


@pytest.mark.parametrize(("polled_after", "kind"), [(2.0, "being cancelled"), (-1.0, Cost.RUNNING)])
@pytest.mark.parametrize("state", ["failed", "skipped"])
def test_polled_execution_of_a_marked_task_is_cancelled(alert, dag, airflow, sent, state, polled_after, kind):
    airflow.states = {("report", -1): state}
    progress = {"kickoff_id": KICKOFF_ID, "polled_at": 1795697920.28 + polled_after, "end": None}
    airflow.xcoms |= {("report", -1, "crew_progress"): progress, ("report", -1, "crew_deferral"): 1795697920.28}

    alert(of_run(dag, "timed_out"))

    ((subject, text),) = sent
    assert subject == f"[{kind}] the_dag: report in today"
    assert Cost.RUNNING.sentence in text


@pytest.mark.parametrize("state", ["failed", "skipped"])
@pytest.mark.parametrize("cancels", [True, False])
def test_alert_says_what_a_mark_does_to_the_execution(alert, dag, airflow, sent, state, cancels):
    choices = while_waiting(Facts(), reattachable=True, cancels=cancels)["choices"]
    airflow.states = {("report", -1): state}
    airflow.xcoms["report", -1, "crew_progress"] = {"kickoff_id": KICKOFF_ID, "end": None, "choices": choices}

    alert(of_run(dag, "timed_out"))

    ((subject, text),) = sent
    assert subject.startswith(f"[{Cost.RUNNING}]")
    assert choices["mark"][1:] in text


def test_alert_about_a_killed_task_advises_to_clear_it(alert, dag, airflow, sent):
    airflow.xcoms["report", -1, "kickoff_id"] = KICKOFF_ID

    alert(of_task(dag))

    ((_, text),) = sent
    assert (if_lost(KICKOFF_ID, None)["next_step"] in text) == (AIRFLOW >= (3, 3))


COUNTS = "412 of 1,000 rows have ended, 12 failed, 1 uncertain, 16 running"


def of_batch(*, cancels=False, **told):
    rows = RowCounts(Counter(success=400, error=11, uncertain=1, not_is_billed=True), running=16, is_billed=True)
    sentences = while_rows_run(rows, cancels=cancels)
    return {"kickoff_id": "", "batch": {"total": 1000}, "doing": COUNTS, "end": None, **sentences, **told}


@pytest.mark.parametrize("state", ["failed", "skipped", "up_for_retry"])
def test_alert_of_a_killed_batch_advises_to_clear_it(alert, dag, airflow, sent, state):
    airflow.states = {("report", -1): state}
    airflow.xcoms["report", -1, "crew_progress"] = of_batch()

    alert(of_run(dag, "timed_out") if state == "skipped" else of_task(dag, state=state))

    ((subject, text),) = sent
    assert subject == f"[{Cost.UNKNOWN}] the_dag: report in today"
    assert COUNTS in text
    assert of_batch()["if_lost"]["next_step"] in text
    assert "starts a new execution" not in text


def test_alert_of_a_failed_batch_has_its_error_and_counts(alert, dag, airflow, sent):
    failed = BatchFailed("588 of 1,000 rows failed.", cost=Cost.RUNNING, next_step="Clear the task.")
    airflow.xcoms["report", -1, "crew_progress"] = of_batch(end=failed.as_dict())

    alert(of_task(dag, failed))

    ((subject, text),) = sent
    assert subject == f"[{Cost.RUNNING}] the_dag: report in today"
    assert text.startswith(f"report: {failed}")
    assert COUNTS in text


def test_marked_batch_is_being_cancelled(alert, dag, airflow, sent):
    airflow.states = {("report", -1): "failed"}
    airflow.xcoms["report", -1, "crew_progress"] = of_batch(polled_at=1795697922.0)
    airflow.xcoms["report", -1, "crew_deferral"] = 1795697920.28

    alert(of_run(dag))

    ((subject, text),) = sent
    assert subject == "[being cancelled] the_dag: report in today"
    assert of_batch()["if_lost"]["next_step"] in text
    assert while_cancelled(is_sensor=False) not in text


@pytest.mark.usefixtures("airflow")
def test_alert_of_dag_with_unreadable_tasks_is_sent(alert, dag, sent):
    alert({"dag": dag, "run_id": "today", "reason": "timed_out"})

    ((subject, text),) = sent
    assert subject.startswith(f"[{Cost.UNKNOWN}] the_dag")
    assert Cost.UNKNOWN.sentence in text


@pytest.mark.parametrize(
    ("xcoms", "alerts"),
    [
        ({}, 0),
        ({"kickoff_id": KICKOFF_ID}, 1),
        ({"kickoff_id": KICKOFF_ID, "crew_progress": {"end": None, "state": "running"}}, 1),
        ({"crew_progress": {"end": FAILED.as_dict() | {"action": "skip"}}}, 0),
    ],
)
def test_skipped_task_is_in_alert_if_execution_is_running(alert, dag, airflow, sent, xcoms, alerts):
    airflow.states = {("report", -1): "skipped"}
    airflow.xcoms |= {("report", -1, key): value for key, value in xcoms.items()}

    alert(of_run(dag))

    assert [subject.partition("]")[0] for subject, _ in sent] == [f"[{Cost.RUNNING}"] * alerts


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


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize(
    ("in_database", "max_tries", "clears", "alerts"),
    [
        ("failed", 0, 0, 0),
        ("running", 0, 0, 0),
        ("running", 1, 0, 1),
        ("running", 0, 1, 1),
        ("up_for_retry", 1, 0, 1),
        ("restarting", 0, 1, 1),
        (None, 0, 1, 1),
    ],
)
def test_lost_process_is_left_to_alert_of_dag(
    alert, dag, airflow, sent, monkeypatch, is_list, in_database, max_tries, clears, alerts
):
    monkeypatch.delattr("time.sleep")  # nothing waits
    dag.on_failure_callback = [CrewAlert(print)] if is_list else CrewAlert(print)
    airflow.states = {("report", -1): in_database}

    alert(of_task(dag, state=None, max_tries=max_tries) | {"dag_run": SimpleNamespace(clear_number=clears)})

    assert len(sent) == alerts


@pytest.mark.parametrize(
    ("in_database", "of_dag", "alerts"),
    [("failed", True, 0), ("skipped", True, 0), ("failed", False, 1), ("restarting", True, 1)],
)
def test_task_that_airflow_ends_is_left_to_alert_of_dag(alert, dag, airflow, sent, in_database, of_dag, alerts):
    dag.on_failure_callback = CrewAlert(print) if of_dag else None
    airflow.states = {("report", -1): in_database}
    dag.task_dict["report"].on_kill()

    alert(of_task(dag, ExecutionCancelled("It was cancelled.", kickoff_id=KICKOFF_ID), push=lambda **_: None))

    assert len(sent) == alerts


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


@pytest.mark.parametrize("state", ["failed", "up_for_retry"])
def test_task_without_a_crew_is_ignored(alert, dag, airflow, sent, state):
    airflow.states = {("other", -1): "failed"}

    alert(of_task(dag, ValueError("no crew"), state=state, task_id="other"))
    alert(of_run(dag))

    assert sent == []


@pytest.mark.parametrize(
    ("progress", "cost"),
    [
        ({"kickoff_id": "", "end": None}, Cost.UNKNOWN),
        ({"kickoff_id": KICKOFF_ID, "end": None}, Cost.RUNNING),
        ({"kickoff_id": KICKOFF_ID, "state": "completed", "end": None}, Cost.ENDED),
        ({"kickoff_id": KICKOFF_ID, "end": FAILED.as_dict()}, Cost.ENDED),
    ],
)
@pytest.mark.parametrize("of", [of_run, of_task])
def test_agent_that_called_a_crew_is_in_the_alert(alert, dag, airflow, sent, of, progress, cost):
    airflow.states = {("other", -1): "failed"}
    airflow.xcoms["other", -1, "crew_progress"] = progress

    alert(
        of(dag) if of is of_run else of_task(dag, ValueError("no model"), task_id="other", push=lambda **_: None)
    )

    ((subject, text),) = sent
    assert subject == f"[{cost}] the_dag: other in today"
    assert "adopt" not in text
    assert (KICKOFF_ID in text) == bool(progress["kickoff_id"])


@pytest.mark.usefixtures("airflow")
def test_crew_error_of_any_task_is_in_its_alert(alert, dag, sent):
    alert(of_task(dag, FAILED, task_id="other", push=lambda **_: None))

    assert [subject for subject, _ in sent] == [f"[{Cost.ENDED}] the_dag: other in today"]


def test_stopped_agent_is_in_the_alert_of_dag(alert, dag, airflow, sent):
    airflow.states = {("other", -1): "skipped"}
    airflow.xcoms["other", -1, "crew_progress"] = {"kickoff_id": KICKOFF_ID, "end": None}

    alert(of_run(dag, "task_failure"))  # skipped by a branch
    assert sent == []
    alert(of_run(dag, "timed_out"))

    assert [subject for subject, _ in sent] == [f"[{Cost.RUNNING}] the_dag: other in today"]


@pytest.fixture
def batch_dag(tmp_path):
    with DAG("the_dag", schedule=None) as dag:
        CrewBatchOperator(task_id="rows", inputs=[], result_path=str(tmp_path), crew_conn_id="writers")
    return dag


def of_rows(*, gone=0, **statuses):
    rows = RowCounts(Counter(statuses), running=0, is_billed=True, lost=gone)
    reasons = [
        {"status": status, "reason": "x", "count": 2, "keys": ["Oslo", "-1; ls"]}
        for status in ("error", "uncertain")
        if status == "error" or gone or statuses.get(status)
    ]
    batch = {"total": 3, "uncertain": statuses.get("uncertain", 0), "reasons": reasons}
    return of_batch(batch=batch, state="completed", **while_rows_run(rows, cancels=False))


@needs_store
@pytest.mark.parametrize("first", ["task", "run"])
@pytest.mark.parametrize("rows", [{"success": 1, "uncertain": 2}, {"success": 3, "gone": 2}])
def test_uncertain_rows_of_a_successful_batch_give_one_alert(alert, batch_dag, airflow, sent, first, rows):
    airflow.states = {("rows", -1): "success"}
    airflow.xcoms["rows", -1, "crew_progress"] = of_rows(**rows)

    def push(key, value):
        airflow.xcoms["rows", -1, key] = value

    if first == "task":
        alert(of_task(batch_dag, state="success", task_id="rows", push=push))
    alert(of_task(batch_dag, state=None, task_id="rows") | {"reason": "success"})

    ((subject, text),) = sent
    assert subject == f"[{Cost.UNKNOWN}] the_dag: rows in today"
    assert of_rows(**rows)["if_lost"]["next_step"] in text
    assert text.count("Adopt: ") == 2


@needs_store
@pytest.mark.parametrize("progress", [{}, None])
def test_successful_batch_without_uncertain_rows_is_silent(alert, batch_dag, airflow, sent, progress):
    airflow.states = {("rows", -1): "success"}
    if progress is not None:
        airflow.xcoms["rows", -1, "crew_progress"] = of_rows(success=3)

    alert(of_task(batch_dag, state="success", task_id="rows"))
    alert(of_task(batch_dag, state=None, task_id="rows") | {"reason": "success"})

    assert sent == []


def test_success_of_another_task_asks_airflow_nothing(alert, dag, airflow, sent):
    for task_id in ("report", "other"):
        alert(of_task(dag, state="success", task_id=task_id))

    assert (sent, airflow.asked) == ([], 0)


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
def test_alert_has_the_command_that_adopts_the_execution(alert, dag, airflow, sent, adopted):
    uncertain = CrewTaskFailed(UncertainKickoff("No answer.", next_step="Look."))
    airflow.states = {("each", 1): "failed"}

    alert(of_task(dag, uncertain, push=lambda **_: None))
    alert(of_run(dag))

    assert [each for _, text in sent for each in adopted(text)] == [
        ("the_dag", "today", "report", -1, "KICKOFF_ID", "crew_default", None),
        ("the_dag", "today", "each", 1, "KICKOFF_ID", "crew_default", None),
    ]


@needs_store
def test_uncertain_kickoff_with_a_known_id_has_it_in_the_command(alert, dag, airflow, sent, adopted):
    airflow.xcoms["report", -1, "kickoff_id"] = KICKOFF_ID

    alert(of_task(dag, CrewTaskFailed(UncertainKickoff("No answer.", next_step="Look.")), push=lambda **_: None))

    ((_, text),) = sent
    assert [each[4] for each in adopted(text)] == [KICKOFF_ID]


@needs_store
def test_alert_names_uncertain_rows_in_the_commands(alert, batch_dag, airflow, sent, adopted):
    airflow.states = {("rows", -1): "success"}
    airflow.xcoms["rows", -1, "crew_progress"] = of_rows(success=1, uncertain=2)

    alert(of_task(batch_dag, state="success", task_id="rows", push=lambda **_: None))

    ((_, text),) = sent
    assert [each[5:] for each in adopted(text)] == [("writers", "Oslo"), ("writers", "-1; ls")]


def test_link_to_the_dashboard_needs_a_kickoff_id(alert, dag, airflow, sent):
    airflow.xcoms["report", -1, "crew_dashboard"] = DASHBOARD

    alert(of_task(dag, CrewTaskFailed(UncertainKickoff("No answer.", next_step="Look.")), push=lambda **_: None))

    assert DASHBOARD not in sent[0][1]
