"""Cancelling an execution: what the hook, the command and a timeout ask the crew, and what they say about it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew import api_server, versions
from airflow_provider_crew.client.errors import (
    Cost,
    ExecutionCancelled,
    NotCancelled,
)
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.task.verdict import Facts, while_waiting
from airflow_provider_crew.triggers.events import DEFERRAL
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.operators import kickoff, run
from tests.integration.tasks import CONNECTION, SLOW, TASK_STATES, Task, TaskInstance

pytest_plugins = ["tests.integration.task_fixtures"]

ENDLESS = ScenarioTask(name="writing_task", agent="Writer", seconds=3600.0)


@pytest.fixture(params=["documented", "deployed"])
def crew(request, monkeypatch, timing) -> Iterator[LocalCrewService]:
    timing(cancel_pause=0.0)
    with LocalCrewService(Scenario(dialect=request.param, tasks=(ENDLESS,)), token=TOKEN) as running:
        monkeypatch.setenv(CONNECTION, running.connection_uri)
        yield running


@pytest.fixture
def kickoff_id(crew) -> str:
    CrewHook().kickoff(INPUTS)
    return str(crew.kickoffs[0].kickoff_id)


def ended(*kickoff_ids: str) -> tuple[str, bool]:
    """Return how a cancellation ends: the end or the cost that is told, and whether it may pass."""
    try:
        end = CrewHook().cancel(*kickoff_ids)
    except NotCancelled as error:
        return str(error.cost), error.passes
    return type(end).__name__, False


def rejects(status: int, on: Any = "stop", **when: Any) -> Callable[[LocalCrewService], None]:
    return lambda crew: crew.faults.answer(status, body={}, on=on, **when or {"for_seconds": math.inf})


def of_crew(act: str) -> Callable[[LocalCrewService], None]:
    return lambda crew: getattr(crew, act)(crew.kickoffs[0].kickoff_id)


# What happens, how the cancellation ends, whether that may pass, and the requests to stop the execution.
CANCELLATIONS: dict[str, tuple[Callable[[LocalCrewService], Any], str, bool, int]] = {
    "stops": (lambda _: None, "Failed", False, 1),
    "request lost": (lambda crew: crew.faults.reset(on="stop"), "Failed", False, 2),
    "response lost": (lambda crew: crew.faults.reset(on="stop", after_taken=True), "Failed", False, 1),
    "403": (rejects(403), Cost.RUNNING, False, 1),
    "404": (rejects(404), Cost.RUNNING, False, 1),
    "405": (rejects(405), Cost.RUNNING, False, 1),
    "goes on": (rejects(200), Cost.RUNNING, True, 3),
    "goes on, then 409": (lambda crew: (rejects(200, times=1)(crew), rejects(409)(crew)), Cost.RUNNING, True, 2),
    "completed": (of_crew("finish"), "Completed", False, 1),
    "unknown": (of_crew("forget"), Cost.UNKNOWN, False, 1),
    "status 401": (rejects(401, "status"), Cost.UNKNOWN, False, 1),
    "status 500": (rejects(500, "status"), Cost.UNKNOWN, True, 3),
}


@pytest.mark.parametrize(("happens", "end", "passes", "stops"), CANCELLATIONS.values(), ids=CANCELLATIONS)
def test_cancellation_asks_and_tells_how_it_ended(crew, kickoff_id, happens, end, passes, stops):
    happens(crew)

    assert ended(kickoff_id) == (str(end), passes)
    assert [(each.method, each.body) for each in crew.requests.on("stop")] == [("POST", b"")] * stops


@pytest.mark.parametrize("first", [0, 1])
def test_execution_with_two_ids_ends_when_both_have_ended(crew, kickoff_id, first):
    CrewHook().kickoff(INPUTS)
    ids = [execution.kickoff_id for execution in crew.kickoffs]
    crew.revoke(ids[first])
    rejects(405)(crew)
    assert ended(*ids)[0] == str(Cost.RUNNING)
    assert {request.path for request in crew.requests.on("stop")} == {f"/stop/{each}" for each in ids}

    crew.faults.clear()
    assert asyncio.run(CrewHook().cancel_async(*ids)).kickoff_id == kickoff_id
    assert all(execution.standing(crew.now()).over for execution in crew.kickoffs)
    crew.forget(ids[1])
    assert ended(*ids)[0] == str(Cost.UNKNOWN)


def test_signal_during_a_request_to_airflow_still_cancels(live_crew, store, monkeypatch):
    operator = kickoff(cancel_on_kill=True)
    airflow = threading.Lock()  # which takes one request at a time

    def has_ended(_: Any) -> bool:
        with airflow:
            return True

    def interrupted(call: str) -> bool:
        if call == "set" and live_crew.kickoffs:  # the kickoff ID is being recorded
            store.breaks_at = lambda _: False
            with airflow:
                operator.on_kill()
        return False

    monkeypatch.setattr(api_server, "has_ended", has_ended)
    live_crew.scenario = SLOW
    store.breaks_at = interrupted

    with pytest.raises(ExecutionCancelled):
        Task(lambda: operator, store=store).run()

    assert len(live_crew.requests.on("stop")) == 1


def test_state_of_a_task_in_a_loop_is_unknown(monkeypatch):
    monkeypatch.setattr(TASK_STATES, lambda **_: {"r": {"t": "success"}})
    ti = TaskInstance()
    assert api_server.has_succeeded(ti)
    ti._ti_context_from_server = SimpleNamespace(loop=SimpleNamespace(index=1))

    assert not api_server.has_ended(ti)
    assert not api_server.has_succeeded(ti)


@pytest.mark.parametrize("is_in_a_loop", [False, True])
def test_trigger_cancels_nothing_in_a_task_loop(live_crew, is_in_a_loop):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True, cancel_on_kill=True))
    loop = {"loop": SimpleNamespace(index=1)} if is_in_a_loop else {}

    with pytest.raises(TaskDeferred) as deferred:
        task.begin().execute(task.context | loop)

    trigger: Any = deferred.value.trigger
    cancels = versions.HAS_STORE and not is_in_a_loop
    assert trigger.cancel_on_kill is cancels
    assert (DEFERRAL in task.ti.xcoms) is cancels
    assert trigger.shown.items() >= while_waiting(Facts(has_retry=False), cancels=cancels).items()
