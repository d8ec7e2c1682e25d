"""A kickoff is sent once: what an attempt does about the kickoffs of earlier attempts."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_crew.client.errors import (
    Cost,
    RateLimited,
    UncertainKickoff,
)
from airflow_provider_crew.exceptions import CrewTaskFailed
from tests.integration.operators import every_operator, id_of, kickoff, run, run_deferred
from tests.integration.tasks import ASKING, FAILING, INPUTS, QUICK, SLOW, Task, TaskStateStore
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


def left_behind(store: TaskStateStore, service: Any, state: str) -> str | None:
    """Leave in the store what a first try (max_tries 1) leaves that died at some point; return its kickoff id."""
    is_old = state.startswith("old")
    kept: dict[str, Any] = {"max_tries": 1, "kicked_off_at": time.time() - (8 * 86_400 if is_old else 3600)}
    if state in ("sent", "reported"):
        store.set("crew_kickoff", kept | {"reported": state == "reported"})
        return None
    scenarios = {"running": SLOW, "old": SLOW, "failed": FAILING, "unknown": ASKING, "old unknown": ASKING}
    service.scenario = scenario = scenarios.get(state, QUICK)
    kickoff_id = service.take(INPUTS, None, {})
    if state == "not known yet":
        service.forget(kickoff_id)
        kept["kicked_off_at"] = time.time()
    if state == "delivered":
        kept["delivered"] = True
    if state.startswith("stored"):
        kept["end"] = state.removeprefix("stored ")
    store.set("crew_kickoff", {**kept, "kickoff_id": kickoff_id})
    service.scenario = QUICK.model_copy(update={"dialect": scenario.dialect})
    return kickoff_id


@every_operator
@pytest.mark.parametrize(
    ("state", "cleared", "kicks_off_anew"),
    [
        pytest.param("running", False, False, id="running, retried"),
        pytest.param("running", True, False, id="running, cleared"),
        pytest.param("completed", False, False, id="completed, retried"),
        pytest.param("completed", True, False, id="completed and not delivered, cleared"),
        pytest.param("delivered", False, False, id="completed and delivered, retried"),
        pytest.param("delivered", True, True, id="completed and delivered, cleared"),
        pytest.param("failed", False, True, id="failed, retried"),
        pytest.param("failed", True, True, id="failed, cleared"),
        pytest.param("stored completed", True, False, id="stored as completed and not delivered, cleared"),
        pytest.param("stored failed", False, True, id="stored as failed, retried"),
        pytest.param("unknown", False, False, id="unknown to the service, retried"),
        pytest.param("unknown", True, False, id="unknown to the service, cleared"),
        pytest.param("old unknown", False, False, id="unknown to the service for long, retried"),
        pytest.param("old unknown", True, True, id="unknown to the service for long, cleared"),
        pytest.param("old", True, False, id="running for long, cleared"),
        pytest.param("reported", True, True, id="sent without an answer, told, cleared"),
    ],
)
def test_next_attempt_kicks_off_only_if_nothing_is_left(
    live_crew, store, operator, state, cleared, kicks_off_anew
):
    earlier = left_behind(store, live_crew, state)
    before = len(live_crew.kickoffs)
    task = Task(operator, store=store, retries=1)
    task.ti.try_number = 1
    if cleared:
        task.clear()
    if not kicks_off_anew:
        # Over as soon as the try has looked at it and has decided to go on with it.
        live_crew.after = lambda request: request.operation == "status" and live_crew.finish(earlier)

    returned = id_of(task.run())

    assert len(live_crew.kickoffs) - before == kicks_off_anew
    assert (returned == earlier) is not kicks_off_anew
    assert returned == live_crew.kickoffs[-1].kickoff_id
    assert task.ti.xcoms["kickoff_id"] == returned
    assert store.kickoff["kickoff_id"] == returned


@every_operator
def test_lost_answer_is_not_resent_by_a_retry(live_crew, store, operator):
    left_behind(store, live_crew, "sent")
    task = Task(operator, store=store, retries=1)
    task.ti.try_number = 1

    with pytest.raises(CrewTaskFailed, match='"dag_id": "research", "run_id": "manual__2026-01-01"') as caught:
        task.run()

    assert isinstance(caught.value.failure, UncertainKickoff)
    assert isinstance(caught.value, AirflowFailException)
    assert caught.value.cost is Cost.UNKNOWN
    assert live_crew.calls == []
    task.clear()
    assert task.run()
    assert len(live_crew.kickoffs) == 1


@every_operator
def test_lost_answer_is_resent_by_a_retry_if_chosen(live_crew, store, operator, task_log):
    left_behind(store, live_crew, "sent")
    task = Task(lambda: operator(on_uncertain_kickoff="retry"), store=store, retries=1)

    assert task.run()

    assert len(live_crew.kickoffs) == 1
    assert "on_uncertain_kickoff" in task_log.warnings


def test_execution_not_known_yet_is_reattached(live_crew, store):
    earlier = left_behind(store, live_crew, "not known yet")

    assert Task(kickoff, store=store, retries=1).run() == earlier
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("status", [503, 401, 403, 400, 429])
def test_execution_that_cannot_be_polled_is_reattached(live_crew, store, status, task_log):
    earlier = left_behind(store, live_crew, "running")
    live_crew.faults.answer(status, on="status", times=3)

    assert Task(kickoff, store=store, retries=1).run() == earlier
    assert len(live_crew.kickoffs) == 1
    assert earlier in task_log.warnings


def test_second_clear_after_reattaching_kicks_off(live_crew, store):
    earlier = left_behind(store, live_crew, "running")
    task = Task(run, store=store, retries=1)
    task.ti.try_number = 1
    task.clear()
    live_crew.after = lambda request: request.operation == "status" and live_crew.finish(earlier)
    assert id_of(task.run()) == earlier

    assert id_of(task.run()) == earlier, "a retry returns the result"
    task.clear()
    assert id_of(task.run()) != earlier
    assert len(live_crew.kickoffs) == 2


@every_operator
def test_reattach_false_ignores_the_record(live_crew, store, operator, task_log):
    left_behind(store, live_crew, "running")
    before = store.kickoff
    task = Task(lambda: operator(durable=False), store=store, retries=1)

    task.run()

    assert len(live_crew.kickoffs) == 2
    assert store.kickoff == before
    assert "durable=False" in task_log.warnings


@every_operator
def test_record_is_stored_before_the_kickoff_is_sent(live_crew, store, operator):
    seen = []
    live_crew.at_kickoff = lambda: seen.append(store.kickoff)
    task = Task(operator, store=store, retries=1)
    began = time.time()

    task.run()

    (at_that_moment,) = seen
    assert began <= at_that_moment.pop("kicked_off_at") <= time.time()
    assert len(at_that_moment.pop("fingerprint")) == 64
    nothing_yet = {"kickoff_id": None, "end": None, "reported": False, "delivered": False, "try_number": 1}
    assert at_that_moment == {"max_tries": 1, "address": live_crew.url, "call": "", **nothing_yet}
    assert store.has_delivered


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="This Airflow has no task state store.")
@every_operator
@pytest.mark.usefixtures("live_crew")
def test_record_never_expires(store, operator):
    from airflow.sdk.execution_time import context

    returned = id_of(Task(operator, store=store, retries=1).run())

    assert store.kickoff["kickoff_id"] == returned
    assert store.kickoff["end"] == (None if operator is kickoff else "completed")
    assert store.retentions == {"crew_kickoff": context.NEVER_EXPIRE}


@every_operator
def test_id_that_cannot_be_stored_does_not_fail_the_task(live_crew, store, operator, task_log):
    store.breaks_at = lambda call: call == "set" and bool(live_crew.kickoffs)

    returned = id_of(Task(operator, store=store, retries=1).run())

    assert [taken.kickoff_id for taken in live_crew.kickoffs] == [returned]
    assert returned in task_log.warnings


@pytest.mark.parametrize("operator", [run, run_deferred])
def test_result_is_returned_if_the_store_breaks_later(live_crew, store, operator):
    store.breaks_at = lambda _: bool(live_crew.kickoffs)

    assert Task(operator, store=store).run()["output"].startswith("Briefing")


def test_id_that_cannot_be_pushed_does_not_fail_the_task(live_crew, store, task_log):
    task = Task(kickoff, store=store, refused_xcoms=frozenset({"kickoff_id"}))

    assert task.run() == live_crew.kickoffs[0].kickoff_id
    assert live_crew.kickoffs[0].kickoff_id in task_log.warnings


@every_operator
def test_rate_limited_kickoff_is_resent_then_retried(live_crew, store, operator):
    live_crew.faults.answer(429, on="kickoff", times=3)
    task = Task(operator, store=store, retries=1)

    with pytest.raises(RateLimited) as caught:
        task.run()

    assert caught.value.cost is Cost.NONE
    assert live_crew.calls.count("kickoff") == 3
    assert store.kickoff is None
    assert id_of(task.run()) == live_crew.kickoffs[0].kickoff_id


@every_operator
def test_lost_answer_is_reported_before_a_clear_kicks_off(live_crew, store, operator):
    left_behind(store, live_crew, "sent")
    task = Task(operator, store=store, retries=1)
    task.ti.try_number = 1
    task.clear()
    for _ in ("after the clear", "as a retry, by which nobody has chosen anything"):
        with pytest.raises(CrewTaskFailed) as caught:
            task.run()
        assert isinstance(caught.value.failure, UncertainKickoff)
        assert store.kickoff["reported"] is True
    assert live_crew.kickoffs == ()

    task.clear()

    assert id_of(task.run()) == live_crew.kickoffs[0].kickoff_id
    assert store.kickoff["reported"] is False


def returns_again(task: Task, crew: Any) -> None:
    """Check that a task that is cleared after its success returns the same result."""
    returned = id_of(task.run())
    crew.finish(returned)
    task.clear()

    assert id_of(task.run()) == returned
    assert len(crew.kickoffs) == 1


@every_operator
def test_success_that_airflow_may_have_dropped_is_returned_again(live_crew, store, monkeypatch, operator):
    monkeypatch.setattr("airflow_provider_crew.api_server.has_succeeded", lambda _: False)
    returns_again(Task(operator, store=store), live_crew)


@every_operator
def test_success_that_a_clear_drops_a_moment_later_is_returned_again(live_crew, store, monkeypatch, operator):
    states = ["success"]
    stand_in = SimpleNamespace(
        time=time.time, monotonic=time.monotonic, sleep=lambda _: states.append("restarting")
    )
    monkeypatch.setattr("airflow_provider_crew.task.record.time", stand_in)
    monkeypatch.setattr("airflow_provider_crew.api_server.has_succeeded", lambda _: states[-1] == "success")
    returns_again(Task(operator, store=store), live_crew)
