"""What is said of the money, and shown of an execution, holds where a task ends in an unusual way."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from pydantic import BaseModel

from airflow_provider_crew.compat import SHOWS_PROGRESS
from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.service.errors import Cost, ExecutionFailed
from airflow_provider_crew.tasks.ends import CrewTaskError, CrewTaskFailed
from tests.integration.tasks import INPUTS, SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]

UNCERTAIN = {"max_tries": 0, "kicked_off_at": 1.0, "reported": True}
WRITTEN = Scenario(tasks=(ScenarioTask(name="writing_task", output="Prose."),), inputs=())


class Report(BaseModel):
    title: str


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


def cleared_after_an_uncertain_kickoff(store: Any, make: Any = run) -> Task:
    store.set("crew_kickoff", UNCERTAIN)
    task = Task(make, store=store)
    task.ti.try_number = 1
    task.clear()
    return task


@pytest.mark.parametrize("deferrable", [False, True], ids=["in the worker", "deferred"])
def test_a_time_that_is_too_long_for_statistics_costs_no_result(live_crew, deferrable):
    live_crew.scenario = SLOW
    over = {"status": "completed", "execution_time": 1e15, "result": {"output": "It is paid for."}}
    live_crew.at_look(1, lambda: live_crew.set_status(live_crew.kickoffs[0].kickoff_id, over))

    assert Task(lambda: run(deferrable=deferrable)).run()["output"] == "It is paid for."


def test_a_failed_crew_whose_task_is_told_to_end_before_airflow_notes_that_goes_on_no_more(
    live_crew, store, task_log
):
    live_crew.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", error="out of credit"),), inputs=())
    operator = run(deferrable=False)

    def is_told_to_end(call: str) -> bool:
        if call != "get" and live_crew.calls.count("status"):
            store.breaks_at = lambda _: False
            operator.on_kill()
        return False

    store.breaks_at = is_told_to_end
    with pytest.raises(ExecutionFailed):
        Task(lambda: operator, store=store, retries=1).run()

    said = task_log.text.partition("the task is to end")[2]
    assert "It was paid for, and has ended." in said
    assert "the crew is kicked off again, and paid for again" in said


def test_a_kickoff_that_airflow_does_not_note_leaves_an_earlier_one_uncertain(live_crew, store):
    task = cleared_after_an_uncertain_kickoff(store)
    store.breaks_at = lambda call: call == "set"

    with pytest.raises(CrewTaskError) as caught:
        task.run()

    assert caught.value.cost is Cost.UNKNOWN
    assert not live_crew.kickoffs


def test_a_task_that_is_told_to_end_leaves_an_earlier_kickoff_uncertain(live_crew, store):
    def told_to_end() -> CrewRunOperator:
        operator = run()
        operator.on_kill()
        return operator

    with pytest.raises(CrewTaskError) as caught:
        cleared_after_an_uncertain_kickoff(store, told_to_end).run()

    assert caught.value.cost is Cost.UNKNOWN
    assert not live_crew.kickoffs


def test_a_sensor_whose_type_cannot_be_used_does_not_say_that_nothing_was_started(live_crew):
    live_crew.scenario = SLOW
    kickoff_id = live_crew.take(INPUTS, None, {})

    with pytest.raises(CrewTaskFailed) as caught:
        Task(lambda: CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, output_type="no.such.Type")).run()

    assert caught.value.cost is not Cost.NONE


def test_a_result_that_xcom_does_not_take_is_one_of_a_crew_that_has_ended(live_crew):
    live_crew.scenario = WRITTEN
    task = Task(run, retries=1, refused_xcoms=frozenset({"return_value"}))

    with pytest.raises(AirflowException) as caught:
        task.run()

    assert caught.value.cost is Cost.ENDED  # type: ignore[attr-defined]


@pytest.mark.skipif(not SHOWS_PROGRESS, reason="there is no progress in XCom")
def test_the_progress_of_a_crew_whose_output_does_not_fit_says_that_it_has_completed(live_crew):
    live_crew.scenario = WRITTEN

    with pytest.raises(CrewTaskFailed):
        Task(lambda: run(output_type=Report)).run()

    assert live_crew.xcoms.progress[-1]["state"] == "completed"


def test_after_a_clear_a_task_that_remembers_nothing_does_not_know_of_the_try_before(live_crew):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.3, reattach=False))
    with pytest.raises(CrewTaskFailed):
        task.run()
    live_crew.scenario = Scenario(inputs=(CrewInput(name="something_else"),))
    task.clear()

    with pytest.raises(CrewTaskFailed) as caught:
        task.run()

    assert caught.value.cost is Cost.UNKNOWN
    assert len(live_crew.kickoffs) == 1
