"""What a task shows besides its result: its log, links, asset events, token usage and metrics."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import Asset, Stats
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_crew.client.errors import ExecutionFailed, ExecutionUnknown
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.operators import both_ways, in_every_way, kickoff, run, run_task, sensor_task
from tests.integration.pages import ROOT
from tests.integration.shown import ShownTask
from tests.integration.tasks import (
    CONNECTION,
    FAILING,
    INPUTS,
    QUICK,
    SLOW,
    Task,
    TaskInstance,
    poked,
    skip_where_pokes_forget,
)

pytest_plugins = ["tests.integration.task_fixtures"]

OUTPUT = "Mrs Petersen has gout"
TASKS = (
    ScenarioTask(name="research_task", agent="Researcher", output="Notes."),
    ScenarioTask(name="writing_task", agent="Writer", output=f"# Report\n\n{OUTPUT}."),
)
STORY = Scenario(tasks=TASKS, inputs=())
# A deployed crew, while it works and at both of its ends.
WROTE = {
    "state": "RUNNING",
    "status": "Task is Running",
    "last_executed_task": {"name": "writing_task", "output": f"{OUTPUT}."},
}
ENDED = {"state": "SUCCESS", "status": "done", "result": f"{OUTPUT}."}
BROKE = {"state": "FAILED", "status": "Out of credit"}


@in_every_way
def test_log_shows_each_task_and_the_output(live_crew, task_log, kind, options):
    live_crew.scenario = STORY
    result = poked(kind(live_crew, **options))

    log = task_log.text
    assert result["output"] == TASKS[1].output
    assert re.search("(?s)research_task.*Researcher.*writing_task.*Writer", log)
    assert f"| # Report\n|\n| {OUTPUT}.\n" in log
    assert log.index("::group::") < log.index("| # Report") < log.rindex("::endgroup::")


@in_every_way
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
@pytest.mark.parametrize("switch", ["argument", "configuration", "configuration that cannot be read"])
def test_log_output_false_keeps_the_output_out_of_the_log(
    live_crew, task_log, monkeypatch, kind, options, dialect, switch
):
    live_crew.scenario = STORY.model_copy(update={"dialect": dialect})
    if switch == "argument":
        options = {**options, "log_output": False}
    else:
        value = {"configuration": "False", "configuration that cannot be read": "flase"}[switch]
        monkeypatch.setenv("AIRFLOW__CREW__LOG_OUTPUT", value)

    assert OUTPUT in poked(kind(live_crew, **options))["output"]

    log = task_log.text
    assert live_crew.kickoffs[0].kickoff_id in log
    assert OUTPUT not in log
    assert "::group::" not in log
    if switch == "configuration that cannot be read":
        assert "AirflowConfigException" in task_log.warnings


EVIL = "::endgroup::\n\x1b[31m[2026-01-01T00:00:00.000+0000] {a.py:1} INFO - ::group::forged\r::endgroup::\u2028x"


@in_every_way
def test_output_cannot_forge_log_lines(live_crew, task_log, kind, options):
    evil = (ScenarioTask(name=EVIL, agent=EVIL, output=EVIL),)
    live_crew.scenario = Scenario(tasks=evil, inputs=(), usage={EVIL: 1}, dialect="deployed")

    poked(kind(live_crew, **options))

    log = task_log.text
    assert log.count("::group::") == log.count("::endgroup::") > 0
    assert "::group::forged" not in log
    assert not any(line.startswith("[2026-01-01") for line in log.splitlines())
    assert "\x1b[31m[" not in log


def test_broken_report_fails_nothing_and_shows_nothing(live_crew, task_log, monkeypatch):
    def broken(text: str) -> str:
        raise RuntimeError(text)

    live_crew.scenario = STORY
    monkeypatch.setattr("airflow_provider_crew.task.result.size", broken)

    assert OUTPUT in run_task(live_crew).run()["output"]
    assert "RuntimeError" in task_log.warnings
    assert OUTPUT not in task_log.text


PAGES = "https://app.example/runs/"


@pytest.fixture
def crew(live_crew, monkeypatch):
    page = urlencode({"dashboard_url": f"{PAGES}{{kickoff_id}}"})
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{page}")
    return live_crew


def page_of(task: Task, operator: Any) -> str | None:
    """Return the URL that the task has pushed for the link. Airflow pushes none itself."""
    assert operator.operator_extra_links == ()
    page: str | None = task.ti.xcoms.get(DASHBOARD_KEY)
    return page


@pytest.mark.parametrize("kind", [kickoff, run])
def test_link_points_to_the_execution(crew, kind):
    operator = kind()
    crew.next_kickoff_id("run 7/b")
    task = Task(lambda: operator)

    task.run()

    assert page_of(task, operator) == f"{PAGES}run%207%2Fb"


def test_link_that_cannot_be_pushed_fails_nothing(crew, task_log):
    task = Task(run, refused_xcoms=frozenset({DASHBOARD_KEY}))

    assert task.run()["kickoff_id"] == crew.kickoffs[0].kickoff_id
    assert "the XCom backend is full" in task_log.text


@pytest.mark.parametrize("options", [{"mode": "poke"}, {"mode": "reschedule"}, {"deferrable": True}])
def test_link_of_a_sensor_points_to_its_execution(crew, options):
    crew.scenario = SLOW if "reschedule" in options.values() else QUICK
    kickoff_id = Task(lambda: CrewKickoffOperator(task_id="kickoff", inputs=INPUTS)).run()
    operator = CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, poke_interval=0.02, **options)
    task = Task(lambda: operator)

    try:
        task.run()
    except AirflowRescheduleException:
        assert crew.scenario is SLOW

    assert page_of(task, operator) == PAGES + kickoff_id


def test_page_of_a_crew_is_pushed_before_the_kickoff(live_crew, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{urlencode({'dashboard_url': PAGES})}")
    left: list[str | None] = []
    task = Task(run)
    live_crew.at_kickoff = lambda: left.append(task.ti.xcoms.get(DASHBOARD_KEY))

    task.run()

    assert left == [PAGES]


REPORT = Asset("crew://reports/ferries")
OTHER = Asset("crew://reports/harbours")
WITHOUT_WAITING = Scenario(dialect="deployed").without_waiting()


def told(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("kickoff_id", "usage", "execution_time")}


@both_ways
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_event_extra_has_execution_and_usage(live_crew, dialect, deferrable):
    live_crew.scenario = WITHOUT_WAITING.model_copy(update={"dialect": dialect})
    task = ShownTask(lambda: run(deferrable=deferrable), outlets=(REPORT, "no asset", OTHER))

    result = task.run()

    assert task.told(REPORT) == task.told(OTHER) == told(result)
    assert bool(result["usage"]) == (dialect == "deployed")


def test_event_extras_of_kickoff_operator_and_sensor(live_crew):
    kickoff = ShownTask(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), outlets=(REPORT,))
    kickoff_id = kickoff.run()
    sensor = ShownTask(lambda: CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id), outlets=(REPORT,))

    result = sensor.run()

    assert kickoff.told(REPORT) == {"kickoff_id": live_crew.kickoffs[0].kickoff_id}
    assert sensor.told(REPORT) == told(result)


@both_ways
def test_event_extra_from_post_execute_takes_precedence(deferrable, live_crew):
    def note(context: Any, result: Any = None) -> None:
        context["outlet_events"][REPORT].extra = {"words": len(result["output"].split()), "usage": "mine"}

    task = ShownTask(lambda: run(deferrable=deferrable, post_execute=note), outlets=(REPORT,))

    result = task.run()

    words = len(result["output"].split())
    assert task.told(REPORT) == told(result) | {"words": words, "usage": "mine"}
    assert live_crew.kickoffs


@pytest.mark.parametrize("put", [{"day": "monday"}, {"day": {1, 2}}, "no mapping"], ids=str)
@both_ways
def test_event_extra_from_the_function_is_kept_if_usable(live_crew, deferrable, put):
    def brief(outlet_events: Any = None) -> dict[str, Any]:
        outlet_events[OTHER].extra = put
        return INPUTS

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, deferrable=deferrable)(brief)
    live_crew.scenario = SLOW
    live_crew.at_look(1, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    task = ShownTask(lambda: crew().operator, outlets=(REPORT, OTHER))

    result = task.run()

    assert task.told(REPORT) == told(result)
    if deferrable:  # as with every deferrable operator, what is set before the deferral is lost
        assert task.told(OTHER) == told(result)
    elif put == {"day": "monday"}:
        assert task.told(OTHER) == told(result) | put


@pytest.mark.parametrize(("seconds", "shown"), [(11.2, " in 11 s"), (None, "")])
def test_asset_recipe_reads_an_execution_without_a_time(seconds, shown):
    recipe = runpy.run_path(str(ROOT / "example_dags" / "crew_asset.py"))
    publish = recipe["publish"].function
    extra = {"kickoff_id": "k-1", "usage": None, "execution_time": seconds}
    source = {"source_dag_id": "crew_asset", "source_run_id": "run", "source_task_id": "report"}
    events = {recipe["REPORT"]: [SimpleNamespace(extra=extra, **source)]}
    ti = SimpleNamespace(xcom_pull=lambda **_: {"output": "Briefing\nMore"})

    assert publish(inlet_events=events, ti=ti) == f"Briefing, by execution k-1{shown}"


DEPLOYED = {"dialect": "deployed"}
USAGE = QUICK.usage
TOKENS = {"crew.tokens.prompt": 3100, "crew.tokens.completion": 1100, "crew.tokens.total": 4200}
TAKING_TIME = {"tasks": (ScenarioTask(name="writing_task", seconds=0.2, output="Done."),)}


@pytest.fixture
def counted(mocker) -> Counter[str]:
    counts: Counter[str] = Counter()
    mocker.patch.object(Stats, "incr", side_effect=lambda name, by=1, **_: counts.update({name: by}))
    return counts


def tokens(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name.startswith("crew.tokens.")}


@in_every_way
@pytest.mark.parametrize("scenario", [QUICK, SLOW.model_copy(update=TAKING_TIME)], ids=["at once", "later"])
def test_usage_of_a_completed_execution_is_returned_and_counted(live_crew, counted, kind, options, scenario):
    live_crew.scenario = scenario.model_copy(update=DEPLOYED)
    task = kind(live_crew, **options)

    result = poked(task)

    assert result["usage"] == USAGE
    assert task.ti.xcoms["usage"] == {"kickoff_id": result["kickoff_id"], "try_number": 1, **USAGE}
    assert tokens(counted) == TOKENS
    assert counted["crew.execution.completed"] == 1


@in_every_way
def test_usage_of_a_failed_execution_is_pushed_and_counted(live_crew, counted, kind, options):
    live_crew.scenario = FAILING.model_copy(update=DEPLOYED)
    task = kind(live_crew, **options)

    with pytest.raises((ExecutionFailed, CrewTaskFailed), match="out of credit"):
        poked(task)

    assert task.ti.xcoms["usage"] == {
        "kickoff_id": live_crew.kickoffs[0].kickoff_id,
        "try_number": 1,
        **USAGE,
    }
    assert tokens(counted) == TOKENS
    assert counted["crew.execution.failed"] == 1


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_usage_is_none_if_the_service_reports_none(live_crew, counted, dialect):
    live_crew.scenario = QUICK.model_copy(update={"dialect": dialect, "usage": {}})

    task = run_task(live_crew)

    assert task.run()["usage"] is None
    assert "usage" not in task.ti.xcoms
    assert tokens(counted) == {}


def test_usage_of_an_invalid_output_is_pushed_and_counted_once(live_crew, counted, mocker):
    live_crew.scenario = QUICK.model_copy(update=DEPLOYED)
    task = run_task(live_crew, output_type=int)
    push = mocker.patch.object(TaskInstance, "xcom_push")

    with pytest.raises(CrewTaskFailed):
        task.run()
    assert [call.kwargs["key"] for call in push.call_args_list].count("usage") == 1
    assert tokens(counted) == TOKENS


def test_usage_that_is_no_number_is_left_out(live_crew, counted):
    live_crew.scenario = SLOW.model_copy(update=DEPLOYED)
    task = sensor_task(live_crew)
    usage = {"total_tokens": 7, "prompt_tokens": True, "completion_tokens": "many", "cost": 0.25, "by": {"a": 1}}
    live_crew.set_status(
        live_crew.kickoffs[0].kickoff_id, {"state": "SUCCESS", "result": "Done.", "usage_metrics": usage}
    )

    assert task.run()["usage"] == {"total_tokens": 7, "cost": 0.25}
    assert tokens(counted) == {"crew.tokens.total": 7}


@in_every_way
def test_execution_that_stays_unknown_is_counted(live_crew, store, counted, kind, options):
    skip_where_pokes_forget(options)
    live_crew.scenario = SLOW.model_copy(update=DEPLOYED)
    task = kind(live_crew, store=store, max_outage=0.05, **options)
    live_crew.at_look(1, lambda: live_crew.forget(live_crew.kickoffs[0].kickoff_id))

    with pytest.raises(CrewTaskFailed) as caught:
        poked(task)

    assert isinstance(caught.value.failure, ExecutionUnknown)
    assert counted["crew.execution.unknown"] == 1


RESERVED = {"__classname__": 1, "__id__": 2, "__var": 3, "kickoff_id": 4, "total_tokens": 2**64 - 1}
KEPT = {"__classname___": 1, "__id___": 2, "__var_": 3, "total_tokens": 2**64 - 1}


@in_every_way
@pytest.mark.parametrize("scenario", [QUICK, FAILING], ids=["completed", "failed"])
def test_usage_with_reserved_keys_is_storable(live_crew, kind, options, scenario):
    live_crew.scenario = scenario.model_copy(update=DEPLOYED | {"usage": RESERVED})
    task = kind(live_crew, **options)

    if scenario is QUICK:
        told = poked(task)["usage"]
        assert told == KEPT | {"kickoff_id": 4}
        assert XCom.serialize_value(told)
    else:
        with pytest.raises((ExecutionFailed, CrewTaskFailed)):
            poked(task)
    pushed = task.ti.xcoms["usage"]
    assert pushed == {**KEPT, "kickoff_id": live_crew.kickoffs[0].kickoff_id, "try_number": 1}
    assert XCom.serialize_value(pushed)


@pytest.mark.parametrize("inputs", [{"topic": "ferries"}, "nothing of the kind"], ids=["missing", "unusable"])
def test_kickoff_rejected_before_sending_is_counted(live_crew, counted, inputs):
    with pytest.raises(CrewTaskFailed):
        run_task(live_crew, inputs=inputs).run()

    assert counted == {"crew.kickoff.not_taken": 1, "resumable_job.fresh_submit": 1}
    assert not live_crew.kickoffs


def test_failing_metrics_are_a_warning(live_crew, store, task_log, mocker):
    for name in ("incr", "timing"):
        mocker.patch.object(Stats, name, side_effect=OSError("no buffer space available"))

    result = run_task(live_crew, store=store).run()

    assert result["kickoff_id"] == store.kickoff["kickoff_id"]
    assert len(live_crew.kickoffs) == 1
    assert "no buffer space available" in task_log.warnings
