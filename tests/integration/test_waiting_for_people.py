"""A deployed crew that waits for human input reads as NOT FOUND: the task must keep waiting for it."""

from __future__ import annotations

import asyncio
import json
from runpy import run_path
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew.client.errors import Cost, ExecutionNotFound, ExecutionUnknown, WaitStopped
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import LocalCrewService, ScenarioTask
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING
from tests.integration.operators import both_ways, in_every_mode, run, sensor
from tests.integration.pages import ROOT
from tests.integration.tasks import (
    ASKING,
    CONNECTION,
    INPUTS,
    QUICK,
    SLOW,
    TOKEN,
    Task,
    WatchedService,
    fired,
    poked,
    revived,
    sensors_remember,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

RUNNING: Any = {"state": "RUNNING", "status": "Task is Running"}
PAUSED: Any = {"state": "PAUSED", "status": "Waiting"}


class Killed(BaseException):
    """The end of a process that runs no more code."""


@pytest.fixture
def asking(live_crew, timing) -> WatchedService:
    """A crew that waits for a person at once, past the grace period for a new execution."""
    timing(not_found_grace=0.0, unknown_poll=0.0)
    live_crew.scenario = ASKING
    return live_crew


def approve(service: WatchedService) -> None:
    service.approve(service.kickoffs[0].kickoff_id)


def killed(task: Task) -> None:
    """Kill an attempt while it waits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airflow_provider_crew.hooks.polling.time.sleep", kill)
        with pytest.raises(Killed):
            task.begin().execute(task.context)


def kill(_: float) -> None:
    raise Killed


class TestRunOperator:
    @both_ways
    @pytest.mark.parametrize(
        ("options", "waits"),
        [
            ({"human_input": True}, True),
            ({"human_input_webhook_url": "https://hooks.example"}, True),
            ({"human_input": False, "human_input_webhook_url": "https://hooks.example"}, False),
            ({"human_input": True, "timeout": 0.3}, False),
        ],
        ids=["human_input", "a webhook", "a webhook, but no human_input", "up to the timeout"],
    )
    def test_with_human_input_waits_longer_than_max_outage(self, asking, store, deferrable, options, waits):
        task = Task(lambda: run(deferrable=deferrable, max_outage=0.05, **options), store=store)

        if waits:
            asking.at_look(12, lambda: approve(asking))
            assert task.run()["output"] == "Approved."
        else:
            with pytest.raises(CrewTaskFailed) as caught:
                task.run()
            assert isinstance(caught.value.failure, ExecutionUnknown)


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")
class TestRequiredActions:
    @pytest.mark.parametrize("waits", ["run", "sensor"])
    def test_deferred_task_asks_once_and_closes_the_request(self, asking, waits):
        asking.at_look(12, lambda: approve(asking))

        assert Task(waiting_task(asking, waits)).run()["output"] == "Approved."

        (subject, body, options), closed = asking.required_actions
        assert "crew" in subject
        assert asking.kickoffs[0].kickoff_id in body
        assert (options, closed) == ([HAS_ANSWERED, STOP_WAITING], "closed")
        assert len(asking.kickoffs) == 1

    @pytest.mark.parametrize("waits", ["run", "sensor"])
    @pytest.mark.parametrize("option", [HAS_ANSWERED, STOP_WAITING])
    def test_answer_resumes_the_task(self, asking, store, waits, option):
        task = Task(waiting_task(asking, waits), store=store, retries=1)
        waiting = asked(task)

        if option == STOP_WAITING:
            with pytest.raises(CrewTaskFailed) as caught:
                task.resume(waiting, answer(option))
            assert isinstance(caught.value.failure, WaitStopped)
            assert (caught.value.cost, caught.value.kickoff_id) == (Cost.RUNNING, asking.kickoffs[0].kickoff_id)
        else:
            approve(asking)
            assert task.resume(waiting, answer(option))["output"] == "Approved."
        assert len(asking.kickoffs) == 1

    @pytest.mark.parametrize("waits", ["run", "sensor"])
    def test_answer_before_the_deferral_resumes_the_task(self, asking, waits):
        task = Task(waiting_task(asking, waits))
        waiting = asked(task)
        asking.stored_answer = answer(STOP_WAITING)

        event = asyncio.run(asyncio.wait_for(fired(task.revived(waiting)), 60))

        with pytest.raises(CrewTaskFailed) as caught:
            task.resume(waiting, event)
        assert isinstance(caught.value.failure, WaitStopped)
        assert asking.required_actions[1:] == []

    @pytest.mark.parametrize("waits", ["run", "sensor"])
    def test_old_answer_does_not_stop_a_cleared_task(self, asking, store, waits):
        task = Task(waiting_task(asking, waits), store=store)
        waiting = asked(task)
        asking.stored_answer = answer(STOP_WAITING)
        with pytest.raises(CrewTaskFailed):
            task.resume(waiting, answer(STOP_WAITING))
        task.clear()

        waiting = task.deferred()

        assert not waiting.trigger.asked
        asked(task, waiting)

    @pytest.mark.parametrize("waits", ["run", "sensor"])
    def test_answer_while_a_cleared_task_is_queued_counts(self, asking, store, waits):
        task = Task(waiting_task(asking, waits), store=store)
        asked(task)
        task.clear()
        asking.stored_answer = answer(STOP_WAITING)

        with pytest.raises(CrewTaskFailed) as caught:
            task.run()

        assert isinstance(caught.value.failure, WaitStopped)
        assert len(asking.required_actions) == 1

    def test_request_is_the_last_call_before_the_deferral(self, asking, monkeypatch):
        task, polls = Task(waiting_task(asking, "run")), []

        def opened(*_: Any) -> None:
            polls.append(asking.calls.count("status"))

        monkeypatch.setattr("airflow_provider_crew.api_server.open_required_action", opened)
        waiting = task.deferred()
        event = asyncio.run(fired(task.revived(waiting)))
        before = asking.calls.count("status")

        with pytest.raises(TaskDeferred):
            task.resume(waiting, event)

        assert polls == [before]
        assert asking.calls.count("status") == before

    def test_request_that_an_earlier_trigger_has_closed_opens_again(self, asking):
        task = Task(waiting_task(asking, "run"))
        waiting = asked(task)
        asking.stored_answer = answer(HAS_ANSWERED) | {"responded_by_user": None}
        waiting = asked(task, waiting)
        with pytest.raises(TaskDeferred) as again:
            task.resume(waiting, answer(HAS_ANSWERED))
        asking.stored_answer = None
        asked(task, again.value)

        assert [options for _, _, options in asking.required_actions] == [[HAS_ANSWERED, STOP_WAITING]] * 3
        assert ["`Ada`" in body for _, body, _ in asking.required_actions] == [False, False, True]

    @pytest.mark.parametrize("shows", [True, False])
    def test_request_shows_page_and_last_output_without_effect(self, asking, monkeypatch, shows):
        page = "https://app.example/7"
        described = json.loads(asking.connection_json) | {"extra": {"dashboard_url": page}}
        monkeypatch.setenv(CONNECTION, json.dumps(described))
        evil = "Notes\u202e\u200b\n```\n[Approve](https://evil.example)\nEnd"
        wrote = {**RUNNING, "last_executed_task": {"name": "research_task", "output": evil}}
        asking.at_look(1, lambda: asking.set_status(asking.kickoffs[0].kickoff_id, wrote, PAUSED))
        asking.scenario = SLOW.model_copy(update={"dialect": "deployed"})

        asked(Task(lambda: run(deferrable=True, log_output=shows)))

        ((_, body, _),) = asking.required_actions
        before, _, block = body.partition("```text\n")
        assert body.index(f"]({page})") < body.index("\n")
        assert ("`research_task`" in before, "Notes" in body) == (shows, shows)
        shown = ["| Notes\ufffd\ufffd", "| ```", "| [Approve](https://evil.example)", "| End", "```"]
        assert block.splitlines() == (shown if shows else [])

    @pytest.mark.parametrize("is_off", [True, False])
    def test_wait_continues_without_a_request(self, asking, monkeypatch, is_off):
        if is_off:
            monkeypatch.setenv("AIRFLOW__CREW__REQUIRED_ACTIONS", "False")
        else:
            monkeypatch.setattr("airflow_provider_crew.api_server.open_required_action", lambda *_: 1 / 0)
        asking.at_look(12, lambda: approve(asking))

        assert Task(waiting_task(asking, "run")).run()["output"] == "Approved."
        assert asking.required_actions == []


def asked(task: Task, waiting: TaskDeferred | None = None) -> TaskDeferred:
    """Run a task until it has asked a user and is deferred again."""
    waiting = waiting or task.deferred()
    with pytest.raises(TaskDeferred) as again:
        task.resume(waiting, asyncio.run(fired(task.revived(waiting))))
    return again.value


def answer(option: str) -> dict[str, Any]:
    """Return the event with which Airflow resumes a task after an answer."""
    return {"chosen_options": [option], "params_input": {}, "responded_by_user": {"id": "1", "name": "Ada"}}


def waiting_task(service: WatchedService, waits: str) -> Any:
    """Return what makes a task that waits, deferred, for a crew that asks for input."""
    if waits == "run":
        return lambda: run(deferrable=True, human_input=True)
    kickoff_id = service.take(INPUTS, None, {})
    return lambda: sensor(kickoff_id, deferrable=True, human_input=True)


class TestSensor:
    @in_every_mode
    def test_with_human_input_waits_for_one_never_seen(self, asking, store, mode):
        kickoff_id = asking.take(INPUTS, None, {})
        asking.at_look(6, lambda: approve(asking))
        task = Task(lambda: sensor(kickoff_id, human_input=True, max_outage=0.01, **mode), store=store)

        assert poked(task)["output"] == "Approved."

    def test_dag_of_the_package_waits_for_a_crew_never_seen(self, asking):
        file = ROOT / "airflow_provider_crew/dags/crew_wait_for_execution.py"
        waits = run_path(str(file))["dag"].get_task("result")
        waits.kickoff_id, waits.crew_conn_id = asking.take(INPUTS, None, {}), "crew_default"
        waits.poll_interval = 0.02
        asking.at_look(6, lambda: approve(asking))

        assert poked(Task(lambda: waits))["output"] == "Approved."

    @in_every_mode
    @pytest.mark.parametrize("remembers", [pytest.param(True, marks=sensors_remember), False])
    def test_remembers_between_attempts_that_it_saw_the_execution(self, asking, store, mode, remembers):
        kickoff_id = asking.take(INPUTS, None, {})
        asking.set_status(kickoff_id, RUNNING)
        task = Task(lambda: sensor(kickoff_id, **mode), store=store if remembers else None)
        if mode:
            with pytest.raises((TaskDeferred, AirflowRescheduleException)):
                task.begin().execute(task.context)
        else:
            killed(task)
        asking.set_status(kickoff_id)
        asking.at_look(4, lambda: approve(asking))

        if remembers:
            assert poked(task)["output"] == "Approved."
            return
        with pytest.raises(CrewTaskFailed) as caught:
            poked(task)
        assert isinstance(caught.value.failure, ExecutionNotFound)


class TestAnotherAddress:
    """An execution that was started at another address than the connection has now."""

    @pytest.mark.parametrize("human_input", [False, True])
    def test_fails_a_task_whose_trigger_is_elsewhere(self, live_crew, store, monkeypatch, human_input):
        live_crew.scenario = SLOW
        task = Task(lambda: run(deferrable=True, human_input=human_input), store=store, retries=1)
        waiting = task.deferred()
        with LocalCrewService(QUICK, token=TOKEN) as other:
            monkeypatch.setenv(CONNECTION, other.connection_uri)
            event = asyncio.run(fired(revived(waiting.trigger)))
            with pytest.raises(CrewTaskFailed, match=other.url) as caught:
                task.resume(waiting, event)

            assert isinstance(caught.value.failure, ExecutionUnknown)
            assert caught.value.failure.elsewhere == live_crew.url
            assert len(other.kickoffs) == 0
        assert len(live_crew.kickoffs) == 1

    @both_ways
    def test_is_ignored_while_the_execution_is_known_there(self, live_crew, store, monkeypatch, deferrable):
        live_crew.scenario = QUICK.model_copy(update={"tasks": (ScenarioTask(name="a", seconds=3600),)})
        task = Task(lambda: run(deferrable=deferrable), store=store, retries=1)
        task.deferred() if deferrable else killed(task)
        by_name = live_crew.connection_uri.replace("127.0.0.1", "localhost")
        monkeypatch.setenv(CONNECTION, by_name)
        live_crew.at_look(1, lambda: live_crew.finish(live_crew.kickoffs[0].kickoff_id))

        assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
        assert "localhost" not in store.kickoff["address"]
