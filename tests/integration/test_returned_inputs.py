"""Inputs in the result: those that were sent, in every mode, or None if they are not known for certain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from airflow.sdk.execution_time.xcom import XCom
from airflow.sdk.log import mask_secret

from airflow_provider_crew.client.errors import WaitedTooLong
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from tests.integration.operators import both_ways, in_every_mode, run, run_task, sensor_task
from tests.integration.tasks import INPUTS, SLOW, Task, fired, outlives_the_return, poked

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.fixture
def live_crew(live_crew):
    """Return a crew whose execution runs at the first poll, so that a task defers, and then completes."""
    live_crew.scenario = SLOW
    live_crew.at_look(1, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))
    return live_crew


LARGE = {**INPUTS, "text": "x" * 64 * 1024}
NESTED: Any = []
for _ in range(100):
    NESTED = [NESTED]


@both_ways
def test_result_contains_the_inputs_that_were_sent(live_crew, store, deferrable):
    result = run_task(live_crew, store=store, deferrable=deferrable).run()

    assert result["inputs"] == live_crew.kickoffs[0].inputs == INPUTS


@both_ways
def test_decorated_task_returns_the_inputs_of_one_call(live_crew, store, deferrable):
    calls = []

    def brief() -> dict[str, Any]:
        calls.append(1)
        return {**INPUTS, "call": len(calls)}

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, deferrable=deferrable, validate_inputs=False)(brief)
    result = Task(lambda: crew().operator, store=store).run()

    assert result["inputs"] == live_crew.kickoffs[0].inputs
    assert calls == [1]


def test_resumed_task_returns_sent_inputs_if_its_templates_change(live_crew, store):
    topics = iter(["ferries", "buoys"])
    task = Task(lambda: run(deferrable=True, inputs={**INPUTS, "topic": next(topics)}), store=store)

    assert task.run()["inputs"] == live_crew.kickoffs[0].inputs == {**INPUTS, "topic": "ferries"}


@both_ways
@pytest.mark.parametrize(
    ("sent", "options"),
    [(LARGE, {}), ({**INPUTS, "nested": NESTED}, {}), (INPUTS, {"return_inputs": False})],
    ids=["large", "nested", "not wanted"],
)
def test_inputs_that_are_left_out_are_none(live_crew, store, task_log, deferrable, sent, options):
    task = Task(lambda: run(deferrable=deferrable, inputs=sent, validate_inputs=False, **options), store=store)

    assert task.run()["inputs"] is None
    assert live_crew.kickoffs[0].inputs == sent
    assert task_log.text.count("does not contain the inputs") == (not options)


def test_deferral_that_loses_the_inputs_finds_the_same(live_crew, store):
    task = run_task(live_crew, store=store, deferrable=True)
    waiting = task.deferred()
    waiting.kwargs = {}
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert task.resume(waiting, asyncio.run(fired(task.revived(waiting))))["inputs"] == INPUTS


@pytest.mark.parametrize("options", [{"inputs": LARGE, "validate_inputs": False}, {"return_inputs": False}])
def test_deferred_task_does_not_store_inputs_left_out(live_crew, store, options):
    waiting = run_task(live_crew, store=store, deferrable=True, **options).deferred()

    assert INPUTS["topic"] not in json.dumps([waiting.kwargs, waiting.trigger.serialize()])


@in_every_mode
def test_sensor_does_not_know_the_inputs(live_crew, mode):
    assert poked(sensor_task(live_crew, **mode))["inputs"] is None


def reattached(live_crew: Any, task: Task, then: Any = lambda: None) -> Any:
    """Run one attempt that stops waiting, and return the result of the next one."""
    live_crew.after = lambda _: None
    with pytest.raises(WaitedTooLong):
        task.run()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    then()
    result = task.run()
    assert len(live_crew.kickoffs) == 1
    return result


@both_ways
def test_reattached_task_returns_the_same_inputs(live_crew, store, deferrable):
    task = Task(lambda: run(timeout=0.2, deferrable=deferrable), store=store, retries=1)

    assert reattached(live_crew, task)["inputs"] == INPUTS


@both_ways
def test_reattached_task_with_other_inputs_returns_none(live_crew, store, deferrable):
    def make() -> Any:
        inputs = {"attempt": task.ti.try_number}
        return run(timeout=0.2, deferrable=deferrable, inputs=inputs, validate_inputs=False)

    task = Task(make, store=store, retries=1)

    assert reattached(live_crew, task)["inputs"] is None


@both_ways
def test_reattached_decorated_task_calls_no_function(live_crew, store, deferrable):
    calls = []
    crew: Any = crew_task(task_id="crew", poll_interval=0.02, timeout=0.2, deferrable=deferrable)

    def brief() -> dict[str, str]:
        calls.append(1)
        return INPUTS

    task = Task(lambda: crew(brief)().operator, store=store, retries=1)

    assert reattached(live_crew, task)["inputs"] is None
    assert calls == [1]


@outlives_the_return
def test_cleared_mapped_task_with_the_same_inputs_returns_them(live_crew, store):
    task = Task(lambda: run(timeout=0.2), store=store, map_index=3)

    assert reattached(live_crew, task, then=task.clear)["inputs"] == INPUTS


@both_ways
def test_result_that_does_not_match_contains_the_inputs(live_crew, store, deferrable):
    task = run_task(live_crew, store=store, deferrable=deferrable, output_type=int)

    with pytest.raises(CrewTaskFailed):
        task.run()
    assert task.ti.xcoms["crew_result"]["inputs"] == INPUTS


@both_ways
def test_masked_value_in_the_inputs_is_not_altered(live_crew, store, deferrable):
    mask_secret("a-word-that-is-masked")
    sent = {**INPUTS, "topic": "a-word-that-is-masked"}

    assert run_task(live_crew, store=store, deferrable=deferrable, inputs=sent).run()["inputs"] == sent


@both_ways
def test_inputs_that_no_database_takes_are_storable(live_crew, store, deferrable):
    sent = {"__classname__": "a\x00b\ud800", "__id__": 2**70, "n": 2**64 - 1}
    task = run_task(live_crew, store=store, deferrable=deferrable, inputs=sent, validate_inputs=False)

    told = task.run()["inputs"]

    assert told == {"__classname___": "a\ufffdb\ufffd", "__id___": str(2**70), "n": 2**64 - 1}
    assert XCom.serialize_value(told)
