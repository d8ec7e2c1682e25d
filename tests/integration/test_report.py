"""Task log at the end of a completed execution, in every mode."""

from __future__ import annotations

import re

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.operators import in_every_way, run_task
from tests.integration.tasks import poked

pytest_plugins = ["tests.integration.task_fixtures"]

SECRET = "Mrs Petersen has gout"
TASKS = (
    ScenarioTask(name="research_task", agent="Researcher", output="Notes."),
    ScenarioTask(name="writing_task", agent="Writer", output=f"# Report\n\n{SECRET}."),
)
STORY = Scenario(tasks=TASKS, inputs=())
# A deployed crew, while it works and at both of its ends.
WROTE = {
    "state": "RUNNING",
    "status": "Task is Running",
    "last_executed_task": {"name": "writing_task", "output": f"{SECRET}."},
}
ENDED = {"state": "SUCCESS", "status": "done", "result": f"{SECRET}."}
BROKE = {"state": "FAILED", "status": "Out of credit"}


@in_every_way
def test_log_shows_each_task_and_the_output(live_crew, task_log, kind, options):
    live_crew.scenario = STORY
    result = poked(kind(live_crew, **options))

    log = task_log.text
    assert result["output"] == TASKS[1].output
    assert re.search("(?s)research_task.*Researcher.*writing_task.*Writer", log)
    assert f"| # Report\n|\n| {SECRET}.\n" in log
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

    assert SECRET in poked(kind(live_crew, **options))["output"]

    log = task_log.text
    assert live_crew.kickoffs[0].kickoff_id in log
    assert SECRET not in log
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

    assert SECRET in run_task(live_crew).run()["output"]
    assert "RuntimeError" in task_log.warnings
    assert SECRET not in task_log.text
