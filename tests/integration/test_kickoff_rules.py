"""A kickoff happens once: what a try does about the kickoffs of the tries before it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_crew.compat import CLEARING
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.service.errors import (
    ExecutionFailed,
    RateLimited,
    ServiceError,
    UncertainKickoff,
    Unreachable,
    WaitedTooLong,
)
from airflow_provider_crew.tasks.ends import CrewTaskFailed
from tests.integration.tasks import ASKING, FAILING, INPUTS, QUICK, SLOW, Task, TaskStateStore, outlives_the_return

pytest_plugins = ["tests.integration.task_fixtures"]


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, **options})


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


def run_deferred(**options: Any) -> CrewRunOperator:
    return run(deferrable=True, **options)


def id_of(returned: Any) -> str:
    return returned["kickoff_id"] if isinstance(returned, dict) else returned


every_operator = pytest.mark.parametrize("operator", [kickoff, run, run_deferred])


def left_behind(store: TaskStateStore, service: Any, state: str) -> str | None:
    """Leave in the store what a first try (max_tries 1) leaves that died at some point; return its kickoff id."""
    is_old = state.startswith("old")
    kept = {"max_tries": 1, "kicked_off_at": time.time() - (8 * 86_400 if is_old else 3600)}
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
        pytest.param("unknown", False, False, id="unknown to the service, retried"),
        pytest.param("unknown", True, False, id="unknown to the service, cleared"),
        pytest.param("old unknown", False, False, id="unknown to the service for long, retried"),
        pytest.param("old unknown", True, True, id="unknown to the service for long, cleared"),
        pytest.param("old", True, False, id="running for long, cleared"),
        pytest.param("reported", True, True, id="sent without an answer, told, cleared"),
    ],
)
def test_the_next_try_kicks_off_anew_only_when_nothing_is_left_to_go_on_with(
    live_crew, store, operator, state, cleared, kicks_off_anew, task_log
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
    assert ("Nothing is kicked off anew" in task_log.text) is not kicks_off_anew


@every_operator
def test_a_lost_answer_is_not_kicked_off_again_by_a_retry(live_crew, store, operator, task_log):
    left_behind(store, live_crew, "sent")
    task = Task(operator, store=store, retries=1)
    task.ti.try_number = 1
    found_by = re.escape('found by its meta, {"dag_id": "research", "run_id": "manual__2026-01-01"')

    with pytest.raises(
        CrewTaskFailed, match=f"(?s)crew may be running.*{found_by}.*clearing it kicks off"
    ) as caught:
        task.run()

    assert isinstance(caught.value.failure, UncertainKickoff)
    assert isinstance(caught.value, AirflowFailException)
    assert live_crew.calls == []
    task.clear()
    assert task.run()
    assert len(live_crew.kickoffs) == 1
    assert "It is kicked off anew, because the task was cleared" in task_log.text


@every_operator
def test_a_lost_answer_may_be_kicked_off_again_by_a_retry_if_that_is_wanted(live_crew, store, operator, task_log):
    left_behind(store, live_crew, "sent")
    task = Task(lambda: operator(on_uncertain_kickoff="retry"), store=store, retries=1)

    assert task.run()

    assert len(live_crew.kickoffs) == 1
    assert "It is kicked off anew, as on_uncertain_kickoff='retry' says" in task_log.text


def test_an_execution_that_the_service_may_not_know_yet_is_gone_on_with(live_crew, store):
    earlier = left_behind(store, live_crew, "not known yet")

    assert Task(kickoff, store=store, retries=1).run() == earlier
    assert len(live_crew.kickoffs) == 1


def test_an_execution_that_is_not_known_for_a_moment_is_gone_on_with(live_crew, store):
    earlier = left_behind(store, live_crew, "running")
    not_found = {"error": "Execution not found", "message": "No such execution"}
    live_crew.faults.answer(404, body=not_found, on="status", times=2)

    assert Task(kickoff, store=store, retries=1).run() == earlier
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("status", [503, 401, 403, 400, 429])
def test_an_execution_that_cannot_be_looked_at_just_now_is_gone_on_with(live_crew, store, status, task_log):
    earlier = left_behind(store, live_crew, "running")
    live_crew.faults.answer(status, on="status", times=3)

    assert Task(kickoff, store=store, retries=1).run() == earlier
    assert len(live_crew.kickoffs) == 1
    assert "it is not known how it is doing" in task_log.text


@outlives_the_return
def test_a_cleared_task_that_went_on_with_its_execution_kicks_off_anew_when_cleared_again(live_crew, store):
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
def test_tries_that_shall_not_know_of_each_other_do_not(live_crew, store, operator, task_log):
    left_behind(store, live_crew, "running")
    before = store.kickoff
    task = Task(lambda: operator(reattach=False), store=store, retries=1)

    task.run()

    assert len(live_crew.kickoffs) == 2
    assert store.kickoff == before
    assert "its tries do not know of each other (reattach=False)" in task_log.text


@pytest.mark.parametrize("with_store", [True, False])
@pytest.mark.parametrize("retries", [0, 1])
def test_warns_of_retries_only_where_tries_do_not_know_of_each_other(live_crew, with_store, retries, task_log):
    Task(kickoff, store=TaskStateStore() if with_store else None, retries=retries).run()

    warned = "starts, and pays for, another execution" in task_log.text
    assert warned is (retries > 0 and not with_store)
    assert len(live_crew.kickoffs) == 1


@every_operator
def test_it_is_remembered_before_it_is_sent_that_a_kickoff_is_on_its_way(live_crew, store, operator):
    seen = []
    live_crew.at_kickoff = lambda: seen.append(store.kickoff)
    task = Task(operator, store=store, retries=1)
    began = time.time()

    task.run()

    (at_that_moment,) = seen
    assert began <= at_that_moment.pop("kicked_off_at") <= time.time()
    assert len(at_that_moment.pop("fingerprint")) == 64
    nothing_yet = {"kickoff_id": None, "end": None, "reported": False, "delivered": False, "name": ""}
    assert at_that_moment == {"max_tries": 1, "address": live_crew.url, **nothing_yet}
    assert store.has_delivered


@outlives_the_return
@every_operator
@pytest.mark.usefixtures("live_crew")
def test_it_is_remembered_for_as_long_as_the_run(store, operator):
    from airflow.sdk.execution_time import context

    returned = id_of(Task(operator, store=store, retries=1).run())

    assert store.kickoff["kickoff_id"] == returned
    assert store.kickoff["end"] == (None if operator is kickoff else "completed")
    assert store.retentions == {"crew_kickoff": context.NEVER_EXPIRE}


@every_operator
def test_nothing_is_sent_when_it_cannot_be_remembered(live_crew, store, operator):
    store.breaks_at = lambda call: call == "set"

    with pytest.raises(AirflowException, match="Nothing was started"):
        Task(operator, store=store, retries=1).run()

    assert not live_crew.kickoffs
    assert "kickoff" not in live_crew.calls


@every_operator
def test_an_execution_whose_id_cannot_be_remembered_is_gone_on_with_all_the_same(
    live_crew, store, operator, task_log
):
    store.breaks_at = lambda call: call == "set" and bool(live_crew.kickoffs)

    returned = id_of(Task(operator, store=store, retries=1).run())

    assert [taken.kickoff_id for taken in live_crew.kickoffs] == [returned]
    assert f"kickoff_id='{returned}'" in task_log.text


@pytest.mark.parametrize("operator", [run, run_deferred])
def test_a_result_is_returned_even_when_the_store_breaks_after_the_kickoff(live_crew, store, operator):
    store.breaks_at = lambda _: bool(live_crew.kickoffs)

    assert Task(operator, store=store).run()["output"].startswith("Briefing")


def test_an_execution_whose_id_cannot_be_pushed_is_gone_on_with_all_the_same(live_crew, store, task_log):
    task = Task(kickoff, store=store, refused_xcoms=frozenset({"kickoff_id"}))

    assert task.run() == live_crew.kickoffs[0].kickoff_id
    assert "its id could not be pushed to XCom" in task_log.text


@every_operator
@pytest.mark.parametrize(
    ("spoil", "kept"),
    [
        pytest.param(lambda faults: faults.answer(503, on="kickoff", after_taken=True), True, id="503"),
        pytest.param(lambda faults: faults.answer(200, body="<html>", on="kickoff"), True, id="unreadable"),
        pytest.param(lambda faults: faults.reset(on="kickoff", after_taken=True), True, id="reset"),
    ],
)
@pytest.mark.parametrize("wish", ["fail", "retry"])
def test_an_uncertain_kickoff_is_sent_once_and_is_retried_only_if_that_is_wanted(
    live_crew, store, operator, spoil, kept, wish
):
    spoil(live_crew.faults)
    task = Task(lambda: operator(on_uncertain_kickoff=wish), store=store, retries=1)

    with pytest.raises(CrewTaskFailed if wish == "fail" else UncertainKickoff, match="not known whether"):
        task.run()

    assert live_crew.calls.count("kickoff") == 1
    assert (store.kickoff is not None) is kept
    assert store.kickoff["kickoff_id"] is None


@every_operator
@pytest.mark.parametrize(
    ("status", "raised"),
    [(400, CrewTaskFailed), (401, CrewTaskFailed), (422, CrewTaskFailed), (302, CrewTaskFailed)],
)
def test_a_refused_kickoff_leaves_nothing_behind_and_is_not_retried(live_crew, store, operator, status, raised):
    live_crew.faults.answer(status, on="kickoff", headers={"location": "https://else.example"})

    with pytest.raises(
        raised, match=f"(?s)Nothing was started.*clear the task: a retry would not help.*answers {status}"
    ):
        Task(operator, store=store, retries=1).run()

    assert store.kickoff is None
    assert not live_crew.kickoffs


@every_operator
def test_a_crew_that_is_too_busy_is_asked_again_and_then_left_to_a_retry(live_crew, store, operator):
    live_crew.faults.answer(429, on="kickoff", times=3)
    task = Task(operator, store=store, retries=1)

    with pytest.raises(
        RateLimited,
        match="(?s)Nothing was started.*If Airflow retries, or you clear the task, the crew is kicked off",
    ):
        task.run()

    assert store.kickoff is None
    assert id_of(task.run()) == live_crew.kickoffs[0].kickoff_id


@every_operator
def test_a_crew_that_cannot_be_reached_is_left_to_a_retry(live_crew, store, operator):
    live_crew.faults.refuse()
    for checked in (True, False):
        with pytest.raises(Unreachable, match="Nothing was started"):
            Task(lambda: operator(validate_inputs=checked), store=store, retries=1).run()  # noqa: B023

    assert store.kickoff is None


@pytest.mark.parametrize("operator", [run, run_deferred])
def test_a_failed_crew_is_kicked_off_anew_by_a_retry(live_crew, store, operator):
    live_crew.scenario = FAILING
    task = Task(operator, store=store, retries=1)

    with pytest.raises(ExecutionFailed, match="out of credit"):
        task.run()
    live_crew.scenario = QUICK

    assert id_of(task.run()) == live_crew.kickoffs[1].kickoff_id


@every_operator
@pytest.mark.parametrize(
    ("end", "delivered", "cleared", "kicks_off_anew"),
    [
        ("completed", False, False, False),
        ("completed", False, True, False),
        ("completed", True, False, False),
        ("completed", True, True, True),
        ("failed", False, False, True),
        ("failed", False, True, True),
    ],
)
def test_an_end_that_is_remembered_is_not_asked_for_again(
    live_crew, store, operator, end, delivered, cleared, kicks_off_anew
):
    earlier = left_behind(store, live_crew, "completed")
    store.set("crew_kickoff", store.kickoff | {"end": end, "delivered": delivered})
    task = Task(operator, store=store, retries=1)
    task.ti.try_number = 1
    if cleared:
        task.clear()

    assert (id_of(task.run()) == earlier) is not kicks_off_anew

    if kicks_off_anew:
        assert all(earlier not in request.path for request in live_crew.requests)


@pytest.mark.parametrize("operator", [run, run_deferred])
def test_a_retry_after_waiting_too_long_goes_on_with_the_same_execution(live_crew, store, operator):
    live_crew.scenario = SLOW
    task = Task(lambda: operator(timeout=0.2), store=store, retries=1)

    with pytest.raises(
        WaitedTooLong, match=f"If Airflow retries, it goes on waiting for this execution. So does {CLEARING}"
    ):
        task.run()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


def test_an_outage_before_anything_is_sent_is_left_to_a_retry(live_crew, store):
    live_crew.faults.answer(500, on="inputs", times=3)
    task = Task(run, store=store, retries=1)

    with pytest.raises(ServiceError):
        task.run()

    assert live_crew.calls == ["inputs"] * 3
    assert store.kickoff is None
    assert task.run()


@every_operator
def test_a_lost_answer_is_told_after_a_clear_and_only_the_next_clear_kicks_off(live_crew, store, operator):
    left_behind(store, live_crew, "sent")
    task = Task(operator, store=store, retries=1)
    task.ti.try_number = 1
    task.clear()
    for _ in ("after the Clear", "as a retry, by which nobody has chosen anything"):
        with pytest.raises(CrewTaskFailed, match="(?s)crew may be running.*clearing it kicks off anew"):
            task.run()
        assert store.kickoff["reported"] is True
    assert live_crew.kickoffs == ()

    task.clear()

    assert id_of(task.run()) == live_crew.kickoffs[0].kickoff_id
    assert store.kickoff["reported"] is False
