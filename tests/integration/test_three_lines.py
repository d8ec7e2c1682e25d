"""A task that ends without what it was to return says so in three lines, before it raises."""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import Any

import jinja2
import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.service.messages import Money
from airflow_provider_crew.tasks.ends import CrewTaskFailed
from tests.integration.tasks import INPUTS, QUICK, SLOW, Task, fired, poked, revived

pytest_plugins = ["tests.integration.task_fixtures"]

FAILING = Scenario(
    tasks=(
        ScenarioTask(name="research_task", seconds=0.2),
        ScenarioTask(name="writing_task", seconds=0.4, error="out of credit"),
    ),
    inputs=(),
)
UNDEFINED = "{{ no_such_name.topic }}"


def ended(task: Task) -> Any:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - an AirflowTaskTimeout is none of Exception
        poked(task)
    return caught.value


def assert_told(log: str, end: Any, *, money: Money) -> None:
    told = [end.told()[name] for name in ("what", "money", "next")]
    places = [log.find(f"{name}: {text}") for name, text in zip(("What", "Money", "Next"), told, strict=True)]
    assert places == sorted(places), log
    assert places[0] >= 0, log
    assert log.count(f"What: {told[0]}") in (1, 2)  # the second one is caplog's
    assert str(end).splitlines()[0] == told[0]
    assert len(told[0]) < 100
    assert all(told)
    assert end.money is money
    assert end.error


@pytest.mark.parametrize(
    "options",
    [{"deferrable": True}, {"mode": "poke"}, {"mode": "reschedule"}, {"mode": "poke", "soft_fail": True}],
    ids=["deferred", "poke", "reschedule", "skipped"],
)
def test_of_a_sensor(live_crew, store, task_log, options):
    live_crew.scenario = FAILING
    kickoff_id = live_crew.take(INPUTS, None, {})
    make: Any = {"task_id": "crew", "kickoff_id": kickoff_id, "poke_interval": 0.02} | options

    end = ended(Task(lambda: CrewExecutionSensor(**make), store=store))

    assert end.kickoff_id == kickoff_id
    assert end.error == "out of credit"
    assert_told(task_log.text, end, money=Money.ENDED)


@pytest.mark.parametrize("deferrable", [True, False], ids=["deferred", "worker"])
def test_of_a_crew_that_fails_names_where_it_was(live_crew, store, task_log, deferrable):
    live_crew.scenario = FAILING
    options: Any = {"task_id": "crew", "inputs": {}, "poll_interval": 0.02, "deferrable": deferrable}

    end = ended(Task(lambda: CrewRunOperator(**options), store=store))

    assert_told(task_log.text, end, money=Money.ENDED)
    assert re.search(r" failed after \d+s, seen at task 2 of 2, writing_task\.$", end.told()["what"])
    assert "paid for again" in end.told()["next"]


@pytest.mark.parametrize(
    ("spoil", "money"),
    [
        (lambda crew: crew.rotate_token("another-token-0815"), Money.NOTHING),
        (lambda crew: crew.faults.refuse(), Money.NOTHING),
        (lambda crew: crew.faults.answer(422, on="kickoff"), Money.NOTHING),
        (lambda crew: crew.faults.answer(500, on="kickoff", after_taken=True), Money.UNKNOWN),
    ],
    ids=["token", "away", "refused", "uncertain"],
)
def test_of_a_kickoff(live_crew, store, task_log, spoil, money):
    spoil(live_crew)

    end = ended(Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), store=store))

    assert_told(task_log.text, end, money=money)
    assert "Nothing was sent" not in str(end)


def test_of_a_wait_that_takes_too_long(live_crew, store, task_log):
    live_crew.scenario = SLOW
    options: Any = {"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, "timeout": 0.3}

    end = ended(Task(lambda: CrewRunOperator(**options), store=store, retries=1))

    assert end.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert_told(task_log.text, end, money=Money.GOES_ON)


def test_of_something_else_before_the_kickoff(live_crew, store, task_log):
    class Broken(CrewRunOperator):
        def kickoff_inputs(self, _: Any) -> Any:
            raise LookupError("no such table")

    with pytest.raises(LookupError):
        Task(lambda: Broken(task_id="crew", inputs=INPUTS), store=store).run()

    assert "What: The task was ended by LookupError before the crew was kicked off." in task_log.text
    assert f"Money: {Money.NOTHING.sentence}" in task_log.text
    assert not live_crew.kickoffs


@pytest.mark.parametrize("kind", [CrewKickoffOperator, CrewRunOperator])
def test_of_a_template_that_cannot_be_rendered(live_crew, task_log, kind):
    operator = kind(task_id="crew", inputs={"topic": UNDEFINED})
    task = Task(lambda: operator)

    with pytest.raises(CrewTaskFailed) as caught:  # a retry would find no more
        operator.render_template_fields(task.context)

    assert_told(task_log.text, caught.value, money=Money.NOTHING)
    assert caught.value.told()["next"].startswith("Correct the template")
    assert "'no_such_name' is undefined" in str(caught.value)
    assert not live_crew.kickoffs


def test_of_a_template_that_cannot_be_rendered_when_an_earlier_try_has_a_result(live_crew, store, task_log):
    live_crew.scenario = QUICK
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS, deferrable=False), store=store, retries=1)
    task.begin().execute(task.context)  # and its process is killed before Airflow has the result

    raises_undefined_again(task)

    assert f"Money: {Money.ENDED.sentence}" in task_log.text
    kickoff_id = live_crew.kickoffs[0].kickoff_id
    assert f"Execution {kickoff_id} of an earlier try has completed" in task_log.text
    assert "reads its result" in task_log.text


def test_of_a_template_that_cannot_be_rendered_when_an_earlier_kickoff_has_no_answer(live_crew, store, task_log):
    live_crew.faults.answer(504, on="kickoff", after_taken=True)
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS), store=store, retries=1)
    with pytest.raises(CrewTaskFailed):
        task.begin().execute(task.context)

    raises_undefined_again(task)

    assert f"Money: {Money.UNKNOWN.sentence}" in task_log.text.split("ended by UndefinedError")[1]


def raises_undefined_again(task: Task) -> None:
    """Render a template that cannot be, on the next try: it stays with the retries, one of which may render."""
    task.begin()
    operator = CrewRunOperator(task_id="crew", inputs={"topic": UNDEFINED})
    with pytest.raises(jinja2.UndefinedError):
        operator.render_template_fields(task.context)


def test_of_a_template_that_cannot_be_rendered_while_an_execution_goes_on(live_crew, store, task_log):
    live_crew.scenario = SLOW
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs={}, deferrable=True), store=store, retries=1)
    task.deferred()
    task.ti.xcoms.clear()  # as for the next try
    operator = CrewRunOperator(task_id="crew", inputs={"topic": UNDEFINED})

    with pytest.raises(jinja2.UndefinedError):  # left to the retry, which may go on with it
        operator.render_template_fields(task.context)

    assert "What: The task was ended by UndefinedError before the crew was kicked off." in task_log.text
    assert f"Money: {Money.GOES_ON.sentence}" in task_log.text
    assert f"Execution {live_crew.kickoffs[0].kickoff_id} of an earlier try goes on" in task_log.text


@pytest.mark.parametrize("choice", ["fail", "retry"])
def test_a_refusal_after_an_uncertain_kickoff_does_not_say_that_nothing_was_started(live_crew, store, choice):
    store.set("crew_kickoff", {"max_tries": 1, "kicked_off_at": time.time() - 60, "reported": choice == "fail"})
    options: Any = {"task_id": "crew", "inputs": INPUTS, "on_uncertain_kickoff": choice}
    task = Task(lambda: CrewKickoffOperator(**options), store=store, retries=1)
    if choice == "fail":  # a Clear by a person who was told
        task.ti.try_number = 1
        task.clear()
    live_crew.faults.answer(422, on="kickoff")

    end = ended(task)

    assert end.money is Money.UNKNOWN
    assert "Whether the kickoff of an earlier try has started an execution is not known." in str(end)


def test_a_refusal_after_an_execution_was_given_up_does_not_promise_to_wait_for_it(live_crew, store):
    long_ago = time.time() - 8 * 86_400
    store.set("crew_kickoff", {"max_tries": 1, "kicked_off_at": long_ago, "kickoff_id": "forgotten"})
    task = Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), store=store, retries=1)
    task.ti.try_number = 1
    task.clear()
    live_crew.faults.answer(422, on="kickoff")

    end = ended(task)

    assert end.money is Money.UNKNOWN
    assert "Execution forgotten of an earlier try is not known to the service." in str(end)
    assert "waits for" not in end.told()["next"]


def test_what_only_the_triggerer_does_not_find_is_said(live_crew, store, monkeypatch, task_log):
    live_crew.scenario = SLOW
    options: Any = {
        "task_id": "crew",
        "inputs": INPUTS,
        "poll_interval": 0.02,
        "deferrable": True,
        "max_outage": 0.2,
    }
    task = Task(lambda: CrewRunOperator(**options), store=store, retries=1)
    waiting = task.deferred()
    connection = os.environ["AIRFLOW_CONN_CREW_DEFAULT"]
    monkeypatch.delenv("AIRFLOW_CONN_CREW_DEFAULT")
    event = asyncio.run(fired(revived(waiting.trigger)))
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", connection)

    with pytest.raises(BaseException, match="The triggerer does not find the connection; the worker of this task"):
        task.resume(waiting, event)

    assert "The triggerer does not find the connection; the worker of this task did." in task_log.text
