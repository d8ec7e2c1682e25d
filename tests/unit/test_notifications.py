"""
CrewAlert sends what is known of failed crew tasks, and never fails because something is unknown.

``alerts.txt`` has stories with their alerts. Each begins with the task that calls back, or with the reason of the
run and its tasks. Each task has its state, its exception and its XComs.
"""

from __future__ import annotations

import re
import runpy
import shlex
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, BaseOperator, XCom, mask_secret
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider_crew import cli
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.client.progress import begun, ended
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.exceptions import BatchFailed, CrewTaskFailed
from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.task import verdict
from airflow_provider_crew.task.decide import KickoffRecord, Next, RowCounts
from airflow_provider_crew.task.verdict import Facts
from tests.airflow_runs import ROOT
from tests.supported import AIRFLOW
from tests.unit.test_verdicts import on_every_airflow

KICKOFF_ID = "57a13a6e-3a4c-4c55-9f0e-2f1f8a4b9c01"
DASHBOARD = "https://app.example/crews/7"
RUN_PAGE = "https://airflow.example/dags/the_dag/runs/today"
TASK_PAGE = f"{RUN_PAGE}/tasks/report"
ERRORS: dict[str, BaseException] = {
    "FAILED": (FAILED := errors.ExecutionFailed("The crew failed.", next_step="Pay.", kickoff_id=KICKOFF_ID)),
    "UNCERTAIN": (UNCERTAIN := CrewTaskFailed(errors.UncertainKickoff("No answer.", next_step="Look."))),
    "LOST": errors.LostContact("Gone.", next_step="Wait.", kickoff_id=KICKOFF_ID),
    "NOT_SENT": errors.CrewError("Not sent.", cost=Cost.NONE, next_step="Fix."),
    "FAULT": ValueError("a fault\nof a hook"),
    "BATCH": (BATCH := BatchFailed("588 of 1,000 rows failed.", cost=Cost.RUNNING, next_step="Clear the task.")),
}


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
        later = CrewExecutionSensor(task_id="later", kickoff_id="{{ ti.xcom_pull('first') }}")
        first = CrewKickoffOperator(task_id="first", inputs={})
        first >> BaseOperator(task_id="between") >> later
        CrewExecutionSensor(task_id="sooner", kickoff_id=first.output)
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

    def get_task_states(*, run_ids, task_ids, **_):
        wait()
        named = {
            task if index < 0 else f"{task}_{index}": state
            for (task, index), state in known.states.items()
            if task_ids is None or task in task_ids
        }
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
    end: Any = "completed" if told.get("state") == "completed" else None
    known = verdict.if_lost(Next(KickoffRecord(0, 0.0, kickoff_id or None, end)))
    return {"crew_progress": {"kickoff_id": kickoff_id, "end": None, "if_lost": known, **told}}


def of_agent(phase):
    known = verdict.if_lost_without_record(Facts(phase=phase, kickoff_id=KICKOFF_ID, is_tool=True))
    return progress(if_lost=known)


COUNTS = "412 of 1,000 rows ended, 12 failed, 1 uncertain, 16 running"


def of_rows(*, running=16, gone=0, **told):
    statuses = {name: told.pop(name) for name in ("success", "error", "uncertain") if name in told}
    kinds = {"success": "successful", "error": "failed", "uncertain": "uncertain"}
    steps = {("keeps" if name == "success" else "reruns", kinds[name]): n for name, n in statuses.items()}
    steps |= {("waits for", "running"): running} if running else {}
    rows = RowCounts(retried=steps, cleared=steps, executions=1, lost=gone)
    sentences = verdict.while_rows_run(rows, cancels=False)
    reasons = [
        {"status": status, "reason": "x", "count": 2, "keys": ["Oslo", "-1; ls"]}
        for status in ("error", "uncertain")
        if status == "error" or gone or statuses.get(status)
    ]
    batch = {"total": 3, "uncertain": statuses.get("uncertain", 0), "running": running, "reasons": reasons}
    batch |= {"executions": 430, "tokens": 1_290_000}
    if told.get("state") == "completed" and rows.cost is not Cost.ENDED:
        left = errors.CrewError("Executions may be running.", cost=rows.cost)
        told["end"] = left.replace(next_step=sentences["if_lost"]["next_step"]).as_dict()
    return progress("", batch=batch, doing=COUNTS, **sentences | told)


ENDED = progress(end=FAILED.as_dict())
XCOMS: dict[str, dict[str, Any]] = {
    "ID": {"kickoff_id": KICKOFF_ID},
    "another ID": {"kickoff_id": "another"},
    "alerted": {"crew_alert": "sent"},
    "returned": {"return_value": "the result"},
    "deferred": {"crew_deferral": 1795697920.28},
    # Progress of an execution.
    "running": progress(state="running"),
    "refused": progress(if_lost=verdict.if_lost_without_record(Facts(phase="waiting", kickoff_id=KICKOFF_ID))),
    # That of an agent's task. None: it has called no crew yet.
    "none": {"crew_progress": {"kickoff_id": "", "end": None}},
    "called": of_agent("waiting"),
    "call completed": of_agent("ended"),
    "completed": progress(state="completed"),
    "polled since": progress(polled_at=1795697922.0),
    "polled before": progress(polled_at=1795697919.0),
    "end of another version": progress(end={"cost": "another version"}),
    "ended": ENDED,
    "skips": progress(end=FAILED.as_dict() | {"action": "skip"}),
    # Progress of a batch.
    "rows run": of_rows(success=400, error=11),
    "rows polled since": of_rows(polled_at=1795697922.0),
    "uncertain rows": of_rows(running=0, state="completed", success=1, uncertain=2),
    "replaced rows": of_rows(running=0, state="completed", success=3, gone=2),
    "rows that outlast": of_rows(running=2, state="completed", success=1),
    "green": of_rows(running=0, state="completed", success=3),
}
TASK = re.compile(r"(task)? *(\w+)(?:\[(\d)\])? (\w+)(?:, (\w+))?(?:: (.+))?")


@pytest.fixture
def told(alert, dag, airflow, sent, monkeypatch):
    """Return the alert of a story: about a task, or the run with these tasks. Its commands can be read."""
    monkeypatch.setattr("airflow_provider_crew.notifications.redact", str)  # other tests leave secrets to mask
    read = []
    monkeypatch.setattr("airflow_provider_crew.commands.run", lambda options, *_: read.append(options))

    def tell(lines):
        for known in (airflow.states, airflow.xcoms, sent, read):
            known.clear()
        reason, _, rule = lines[0].removeprefix("run ").partition(", ")
        dag.fail_fast = rule == "with fail_fast"
        context = of_run(dag, reason)
        for line in lines:
            if found := TASK.fullmatch(line.removeprefix("run ")):
                own, task, index, state, error, xcoms = found.groups()
                row = -1 if index is None else int(index)
                airflow.states[task, row] = None if state == "None" else state
                for name in xcoms.split(", ") if xcoms else ():
                    airflow.xcoms |= {(task, row, key): value for key, value in XCOMS[name].items()}
                airflow.xcoms[task, row, "crew_dashboard"] = DASHBOARD
                if own:
                    context = of_task(dag, ERRORS.get(error), state=state, task_id=task)
        alert(context)
        shown = [f"> {line}".rstrip() for each in sent for line in "\n".join(each).splitlines()]
        commands = [line for line in shown if line.startswith("> Adopt: ")]
        for line in commands:
            cli.main(shlex.split(line)[5:])
        assert len(read) == len(commands)
        return shown or ["> no alert"]

    return tell


def is_of_every_airflow(line):
    return AIRFLOW >= (3, 3) or not line.startswith(("> Adopt: ", "> Next: "))


def test_alerts_are_those_of_the_table(told, printed):
    def table(known):
        for story in "\n".join(known).split("\n\n"):
            title, *lines = [line for line in story.splitlines() if line[0] != ">"]
            is_known = AIRFLOW >= (3, 3) or " rows " not in story  # there are no batches before
            yield from (title, *lines, *map(on_every_airflow, told(lines)), "") if is_known else (story, "")

    printed("alerts.txt", table, is_of_every_airflow)


def test_alert_of_dag_has_all_of_a_long_event(alert, dag, airflow, sent):
    failed = Failed(status="error", kickoff_id=KICKOFF_ID, error="x" * 9_000, execution_time=6.0)
    error = execution_failed(failed, "task 2 of 3, writing_task (Writer)")
    error = error.replace(f"{error.event} Its reason: {'y' * 2_000}.")
    airflow.states["report", -1] = "failed"
    airflow.xcoms["report", -1, "crew_progress"] = ended(begun(KICKOFF_ID, 1.0), error, 2.0)

    alert(of_run(dag))

    assert error.event in sent[0][1]


def test_alert_names_the_row_of_a_mapped_task(alert, dag, sent):
    alert(of_task(dag, FAILED, task_id="each", map_index=7, rendered_map_index="Hamburg\nSubject: forged"))

    ((subject, _),) = sent
    assert subject == f"[{FAILED.cost}] the_dag: each[7] (Hamburg Subject: forged) in today"


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


def test_mapped_task_and_task_of_the_same_name_are_two(alert, dag, airflow, sent):
    with dag:
        CrewRunOperator(task_id="each_1", inputs={})
    airflow.states = {("each", 0): "success", ("each", 1): "failed", ("each_1", -1): "success"}

    alert(of_run(dag))
    airflow.states |= {("each", 1): "success", ("each_1", -1): "failed"}
    alert(of_run(dag))

    assert [subject.split()[-3] for subject, _ in sent] == ["each[1]", "each_1"]


@pytest.mark.parametrize("reason", ["task_failure", "success"])
@pytest.mark.parametrize("failure", [ZeroDivisionError, SystemExit])  # of the channel, or of the whole process
def test_alert_of_dag_leaves_out_tasks_that_have_sent_theirs(alert, dag, airflow, sent, reason, failure):
    airflow.states = {("report", -1): "failed", ("each", 0): "failed"}

    def fail(*_):
        raise failure

    def push(key, value):
        airflow.xcoms["report", -1, key] = value

    with pytest.raises(failure):
        CrewAlert(fail)(of_task(dag, FAILED, push=push))
    alert(of_run(dag, reason))
    alert(of_task(dag, FAILED, push=push))
    alert(of_run(dag, reason))

    assert [subject for subject, _ in sent] == [
        f"[{Cost.UNKNOWN}] the_dag: 2 crew tasks in today",
        f"[{Cost.ENDED}] the_dag: report in today",
        f"[{Cost.UNKNOWN}] the_dag: each[0] in today",
    ]


def test_task_that_airflow_ends_is_left_to_alert_of_dag(alert, dag, airflow, sent, tabulated):
    ends = {"lost": None, "ended by Airflow": errors.ExecutionCancelled("Cancelled.", kickoff_id=KICKOFF_ID)}

    def does(end, state, retries, clears):
        airflow.states = {("report", -1): None if state == "None" else state}
        dag.task_dict["report"].on_kill()
        told = of_task(dag, ends[end], state=ends[end] and "failed", max_tries=int(retries))
        told["dag_run"] = SimpleNamespace(clear_number=int(clears))
        sent.clear()
        for dag.on_failure_callback in (CrewAlert(print), [CrewAlert(print)], None):
            alert(told)
        return [{0: "no alert", 1: "left to its DAG, if that has one", 3: "sent"}[len(sent)]]

    tabulated("left_alerts.txt", 4, does)


@pytest.mark.usefixtures("airflow")
def test_mail_of_the_recipe_renders_its_own_templates_only(dag, mocker):
    hook = mocker.patch("airflow.providers.smtp.notifications.smtp.SmtpHook")
    alert = CrewAlert(runpy.run_path(str(ROOT / "example_dags/recipes/crew_alert.py"))["email"])

    for number in (1, 2):
        alert(of_task(dag, errors.ExecutionFailed(f"{{{{ dag.dag_id }}}} & <{number}>")))

    mails = [call.kwargs for call in hook.return_value.__enter__.return_value.send_email_smtp.call_args_list]
    for number, mail in enumerate(mails, 1):
        assert (mail["to"], mail["subject"]) == ("on-call@example.com", f"[{Cost.ENDED}] the_dag: report in today")
        assert mail["html_content"].startswith(f"<pre>report: {{{{ dag.dag_id }}}} &amp; &lt;{number}&gt;")
    assert len(mails) == 2


@pytest.mark.usefixtures("airflow")
def test_alert_in_a_loop_whose_push_fails_masks_known_secrets(alert, dag, sent):
    mask_secret("a-secret-of-the-author")
    error = ValueError("401 for a-secret-of-the-author")

    alert(of_task(dag, error, push=lambda **_: 1 / 0) | {"loop": SimpleNamespace(index=1)})

    ((subject, text),) = sent
    assert "report (iteration 1) in today" in subject
    assert "a-secret-of-the-author" not in text


def test_success_of_another_task_asks_airflow_nothing(alert, dag, airflow, sent):
    for task_id in ("report", "other"):
        alert(of_task(dag, state="success", task_id=task_id))

    assert (sent, airflow.asked) == ([], 0)
