"""What a task's log tells at the end of an execution that has a result, wherever the task has waited for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import dag, task

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.tasks import SLOW, WatchedService, fired, poked
from tests.integration.waits import in_every_way, run, sensor

pytest_plugins = ["tests.integration.task_fixtures"]

SECRET = "Mrs Petersen has gout"
TASKS = (
    ScenarioTask(name="research_task", agent="Researcher", output="Notes."),
    ScenarioTask(name="writing_task", agent="Writer", output=f"# Report\n\n{SECRET}."),
)
STORY = Scenario(tasks=TASKS, inputs=())
SIZE = "32 B"
# A deployed crew, while it works and at both of its ends.
WROTE = {
    "state": "RUNNING",
    "status": "Task is Running",
    "last_executed_task": {"name": "writing_task", "output": f"{SECRET}."},
}
ENDED = {"state": "SUCCESS", "status": "done", "result": f"{SECRET}."}
BROKE = {"state": "FAILED", "status": "Out of credit"}


def about(service: WatchedService, line: str) -> str:
    return f"Execution {service.kickoffs[0].kickoff_id}: {line}"


def ends_with(service: WatchedService, **told: Any) -> None:
    """Let the one execution end with just what is told."""
    service.set_status(service.kickoffs[0].kickoff_id, {"status": "completed", **told})


@in_every_way
def test_tells_of_each_task_of_all_of_them_and_what_came_of_it(live_crew, task_log, kind, options):
    live_crew.scenario = STORY
    result = poked(kind(live_crew, **options))

    log = task_log.text
    assert result["output"] == TASKS[1].output
    assert about(live_crew, "task 1 of 2, research_task (Researcher) wrote 6 B in 0s") in log
    assert about(live_crew, f"task 2 of 2, writing_task (Writer) wrote {SIZE} in 0s") in log
    assert about(live_crew, "in all: 0s") in log
    assert f"::group::{about(live_crew, f'its output, {SIZE}')}" in log
    assert f"All of it:\n| # Report\n|\n| {SECRET}.\n" in log
    assert log.index("::group::") < log.index("| # Report") < log.rindex("::endgroup::")


@in_every_way
def test_tells_what_a_deployed_crew_tells(live_crew, task_log, kind, options):
    live_crew.scenario = STORY.model_copy(update={"dialect": "deployed"})
    poked(kind(live_crew, **options))

    assert about(live_crew, f"task writing_task wrote {SIZE}") in task_log.text
    assert about(live_crew, "in all: total_tokens 4,200, prompt_tokens 3,100, ") in task_log.text


@in_every_way
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
@pytest.mark.parametrize("switch", ["argument", "configuration", "configuration that cannot be read"])
def test_shows_no_output_where_it_is_switched_off(
    live_crew, task_log, monkeypatch, kind, options, dialect, switch
):
    live_crew.scenario = STORY.model_copy(update={"dialect": dialect})
    if switch == "argument":
        options = {**options, "log_output": False}
    else:
        value = {"configuration": "False", "configuration that cannot be read": "flase"}[switch]
        monkeypatch.setenv("AIRFLOW__CREW__LOG_OUTPUT", value)

    assert SECRET in poked(kind(live_crew, **options))["output"]

    log = task_log.text
    assert about(live_crew, "completed") in log
    assert SECRET not in log
    assert "::group::" not in log
    if value_can_be_read := switch != "configuration that cannot be read":
        assert about(live_crew, f"its output, {SIZE}, is in XCom return_value: log_output keeps it out") in log
    assert ("could not be told here: AirflowConfigException" in task_log.warnings) != value_can_be_read


@pytest.mark.parametrize("end", [ENDED, BROKE], ids=["completed", "failed"])
def test_no_event_holds_an_output_that_logs_are_not_to_show(live_crew, end):
    live_crew.scenario = SLOW
    live_crew.at_look(1, lambda: live_crew.set_status(live_crew.kickoffs[0].kickoff_id, WROTE, end))
    task = run(live_crew, deferrable=True, log_output=False)

    event = asyncio.run(fired(task.revived(task.deferred())))

    # Airflow logs each event.
    assert SECRET not in json.dumps(event)
    assert "writing_task" in event["progress"]


def test_the_configuration_comes_before_the_argument(live_crew, task_log, monkeypatch):
    live_crew.scenario = STORY
    monkeypatch.setenv("AIRFLOW__CREW__LOG_OUTPUT", "False")

    run(live_crew, log_output=True).run()

    assert SECRET not in task_log.text


def test_the_decorator_passes_the_argument_on():
    @dag(schedule=None)
    def reports():
        @task.crew(log_output=False)
        def brief() -> dict[str, str]:
            return {}

        brief()

    assert reports().get_task("brief").log_output is False


@pytest.mark.parametrize(
    ("options", "where"), [({}, "XCom return_value"), ({"do_xcom_push": False}, "the crew's dashboard")]
)
def test_cuts_a_long_output_and_says_where_all_of_it_is(live_crew, task_log, options, where):
    task = sensor(live_crew, **options)
    ends_with(live_crew, result={"output": "word " * 1000 + "THE END"})

    task.run()

    log = task_log.text
    assert about(live_crew, "its output, 5.0 KB") in log
    assert f"Its beginning. All of it is in {where}:\n| {'word ' * 799}word\n| …\n" in log
    assert "THE END" not in log


def test_tells_of_some_tasks_of_a_great_many(live_crew, task_log):
    task = sensor(live_crew)
    ends_with(live_crew, result={"output": "o", "tasks": [{"task_id": f"t{n}"} for n in range(130)]})

    task.run()

    assert about(live_crew, "task 100 of 130, t99 wrote 0 B") in task_log.text
    assert about(live_crew, "30 more tasks") in task_log.text
    assert "t100" not in task_log.text


def test_is_short_where_the_service_says_little(live_crew, task_log):
    task = sensor(live_crew)
    ends_with(live_crew, result={"output": " \n"})

    task.run()

    lines = [line for line in task_log.text.splitlines() if "Execution " in line]
    assert {line[line.index("Execution ") :].split(" [")[0].strip() for line in lines} == {
        about(live_crew, "completed")
    }


EVIL = "::endgroup::\n\x1b[31m[2026-01-01T00:00:00.000+0000] {a.py:1} INFO - ::group::forged\r::endgroup::\u2028x"


@in_every_way
def test_is_forged_by_nobody(live_crew, task_log, kind, options):
    evil = (ScenarioTask(name=EVIL, agent=EVIL, output=EVIL),)
    live_crew.scenario = Scenario(tasks=evil, inputs=(), usage={EVIL: 1}, dialect="deployed")

    poked(kind(live_crew, **options))

    log = task_log.text
    assert (
        "\n| \ufffd[31m[2026-01-01T00:00:00.000+0000] {a.py:1} INFO - : :group::forged\n| : :endgroup::\n| x\n"
        in log
    )
    assert log.count("::group::") == log.count("::endgroup::") == log.count("::group::Execution ") > 0
    assert "\x1b[31m[" not in log


def test_that_fails_fails_nothing_and_shows_nothing(live_crew, task_log, monkeypatch):
    def broken(text: str) -> str:
        raise RuntimeError(text)

    live_crew.scenario = STORY
    monkeypatch.setattr("airflow_provider_crew.tasks.report.size", broken)

    assert SECRET in run(live_crew).run()["output"]
    assert "What the execution has put out could not be told here: RuntimeError" in task_log.warnings
    assert SECRET not in task_log.text
