"""Kickoff records: what a task stores about a kickoff, and what a later attempt does about it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, Mock

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred

from airflow_provider_crew.client.errors import Cost, LostContact, UncertainKickoff, Unreachable, WaitedTooLong
from airflow_provider_crew.exceptions import CrewTaskError, CrewTaskFailed, ExecutionFailed
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import fingerprint
from tests.airflow_runs import eventually
from tests.integration.operators import every_operator, id_of, kickoff, run
from tests.integration.tasks import CONNECTION, FAILING, INPUTS, QUICK, SLOW, TASK_STATES, Task, api_error
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


@every_operator
def test_record_is_stored_before_the_kickoff_is_sent(live_crew, store, operator):
    seen = []
    live_crew.at_kickoff = lambda: seen.append(store.kickoff)
    task = Task(lambda: operator(restore_from_state_id="4711"), store=store, retries=1)
    began = time.time()

    returned = id_of(task.run())

    digest = fingerprint(INPUTS, "4711")
    assert seen == [asdict(KickoffRecord(1, ANY, address=live_crew.url, fingerprint=digest, try_number=1))]
    assert began <= seen[0]["kicked_off_at"] <= time.time()
    assert store.has_delivered
    assert store.kickoff["kickoff_id"] == returned
    assert store.kickoff["end"] == (None if operator is kickoff else "completed")
    if AIRFLOW >= (3, 3):
        from airflow.sdk.execution_time import context

        assert store.retentions == {"crew_kickoff": context.NEVER_EXPIRE}


def test_id_that_cannot_be_pushed_does_not_fail_the_task(live_crew, store, task_log):
    task = Task(kickoff, store=store, refused_xcoms=frozenset({"kickoff_id"}))

    assert task.run() == live_crew.ids[0]
    assert live_crew.ids[0] in task_log.warnings


def test_unsaved_kickoff_id_is_saved_when_execution_ends(live_crew, store, timing):
    timing(store_outage=0.3)
    store.breaks_with = api_error(None)
    store.breaks_at = lambda _: bool(live_crew.kickoffs)
    live_crew.scenario = SLOW
    task = Task(partial(run, deferrable=True), store=store, retries=1)
    waiting = task.deferred()
    assert store.kickoff["kickoff_id"] is None

    store.breaks_at = lambda _: False
    live_crew.finish(live_crew.ids[0])
    task.finish(waiting)
    assert store.kickoff["kickoff_id"] == live_crew.ids[0]
    assert store.has_delivered


@every_operator
def test_success_that_a_clear_drops_a_moment_later_is_returned_again(
    live_crew, store, timing, monkeypatch, operator
):
    timing(time_to_clear=0.5)
    dropped_at = time.monotonic() + 0.5
    monkeypatch.setattr("airflow_provider_crew.api_server.has_succeeded", lambda _: time.monotonic() < dropped_at)
    task = Task(operator, store=store)
    returned = id_of(task.run())
    live_crew.finish(returned)
    task.clear()

    assert id_of(task.run()) == returned
    assert len(live_crew.kickoffs) == 1


def test_rejected_kickoff_keeps_earlier_record(live_crew, store):
    kept = asdict(KickoffRecord(0, 0.0, "earlier", "failed"))
    store.set("crew_kickoff", kept)
    live_crew.faults.answer(422, on="kickoff")

    with pytest.raises(CrewTaskFailed):
        Task(kickoff, store=store).run()

    assert store.kickoff == kept


@pytest.mark.parametrize("kept", ["4711-0815", {"kickoff_id": "4711-0815"}], ids=str)
@pytest.mark.parametrize("cleared", [False, True])
def test_unreadable_record_is_uncertain_and_logged(live_crew, store, task_log, kept, cleared):
    store.set("crew_kickoff", kept)
    task = Task(run, store=store, retries=2)
    if cleared:
        task.clear()

    assert_uncertain(task)

    assert "4711-0815" in task_log.warnings
    assert not live_crew.kickoffs


@pytest.mark.parametrize("with_store", [False, True])
def test_timeout_while_the_end_is_recorded_starts_nothing(live_crew, store, monkeypatch, with_store):
    ring = Mock(side_effect=AirflowTaskTimeout("Timeout"))
    live_crew.scenario = SLOW
    monkeypatch.setattr("airflow_provider_crew.task.progress.TaskProgress.ended", ring)
    task = Task(lambda: run(timeout=0.1), store=store if with_store else None, retries=1)

    with pytest.raises(WaitedTooLong if with_store else CrewTaskFailed):
        task.run()

    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("policy", [None, object()])
def test_next_step_names_a_retry_unless_a_policy_may_forbid_it(live_crew, store, policy):
    live_crew.scenario = FAILING
    task = Task(run, store=store, retries=1)
    task.ti.task = SimpleNamespace(retry_policy=policy)

    with pytest.raises(ExecutionFailed) as caught:
        task.run()

    assert ("Retrying" in caught.value.next_step) == (policy is None)


def test_triggerer_without_the_connection_is_reported(live_crew, store, monkeypatch):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True, max_outage=0.2), store=store, retries=1)
    waiting = task.deferred()
    connection = os.environ[CONNECTION]
    monkeypatch.delenv(CONNECTION)
    event = task.event_of(waiting)
    monkeypatch.setenv(CONNECTION, connection)

    with pytest.raises(LostContact) as caught:
        task.resume(waiting, event)

    assert isinstance(caught.value.cause, Unreachable)
    assert caught.value.cause.lacks_connection


# Kickoffs whose response came late, or could not be stored.


def cleared_on_its_way(task: Task, service: Any) -> None:
    """Run a try that is cleared while its kickoff is on its way, and whose process is killed after that."""
    # A task instance that is cleared gets another ID, which Airflow refuses to its old process.
    task.store.breaks_with = api_error(404)
    task.store.breaks_at = lambda call: call == "set" and bool(service.kickoffs)
    with suppress(CrewTaskFailed, TaskDeferred, WaitedTooLong):
        task.begin().execute(task.context)
    task.store.breaks_at = lambda _: False
    task.clear()


@every_operator
def test_id_that_the_store_refuses_is_found_again(live_crew, store, operator):
    live_crew.scenario = SLOW
    task = Task(lambda: operator(**({} if operator is kickoff else {"timeout": 0.1})), store=store)
    cleared_on_its_way(task, live_crew)
    assert store.kickoff["kickoff_id"] is None

    live_crew.finish(live_crew.ids[0])
    assert id_of(task.run()) == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1


def test_late_id_outlives_an_attempt_that_ends_early(live_crew, store, monkeypatch):
    live_crew.scenario = SLOW
    task = Task(kickoff, store=store)
    cleared_on_its_way(task, live_crew)
    with monkeypatch.context() as patched:
        patched.setattr("airflow_provider_crew.task.attempt.earlier", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            task.run()

    assert task.run() == live_crew.ids[0]
    assert len(live_crew.kickoffs) == 1


def test_late_id_belongs_to_its_own_kickoff(live_crew, store):
    task = Task(kickoff, store=store)
    cleared_on_its_way(task, live_crew)
    store.set("crew_kickoff", store.get("crew_kickoff") | {"try_number": 2})

    assert_uncertain(task)
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("is_named", [False, True])
def test_refused_id_is_told_as_the_next_attempt_will_find_it(live_crew, store, task_log, is_told, is_named):
    live_crew.scenario = SLOW
    made = run(timeout=0.1)
    live_crew.at_kickoff = made.on_kill if is_told else lambda: None
    task = Task(lambda: made, store=store, refused_xcoms=frozenset(() if is_named else {"kickoff_id."}))
    cleared_on_its_way(task, live_crew)

    told = live_crew.xcoms.progress[-1]["end"]["if_cleared"]
    assert ("waits for the same execution" if is_named else "starts nothing") in told
    assert "billed again" not in task_log.text
    if is_named:
        live_crew.finish(live_crew.ids[0])
        task.run()
    else:
        assert_uncertain(task)
    assert len(live_crew.kickoffs) == 1


def test_refused_removal_is_told_as_the_next_attempt_finds_it(live_crew, store):
    made = kickoff()

    def breaks(call: str) -> bool:
        sent = bool(store.kickoff)
        made.on_kill()  # after the intent is stored, and before the kickoff is sent
        return sent and call in {"set", "delete"}

    store.breaks_with, store.breaks_at = api_error(404), breaks
    task = Task(lambda: made, store=store, retries=1)
    with pytest.raises(CrewTaskError):
        task.run()
    store.breaks_at = lambda _: False

    assert "starts nothing" in live_crew.xcoms.progress[-1]["end"]["if_cleared"]
    task._make = kickoff
    assert_uncertain(task)
    assert not live_crew.kickoffs


def assert_uncertain(task: Task) -> CrewTaskFailed:
    """Run the next attempt, which reports that an execution may have started, and is not retried."""
    with pytest.raises(CrewTaskFailed) as caught:
        task.run()
    assert isinstance(caught.value.failure, UncertainKickoff)
    assert caught.value.cost is Cost.UNKNOWN
    return caught.value


@pytest.mark.parametrize("state", ["restarting", "running", None])
def test_clear_before_the_report_does_not_count(live_crew, store, monkeypatch, state):
    live_crew.faults.answer(504, on="kickoff", after_taken=True)
    task = Task(kickoff, store=store)
    states = {task.ti.run_id: {"crew": state}}
    with monkeypatch.context() as patched:
        if state:  # else Airflow does not say
            patched.setattr(TASK_STATES, lambda *_, **__: states)
        assert_uncertain(task)

    assert store.kickoff["kickoff_id"] is None
    assert store.kickoff["reported"] is (state != "restarting")
    task.clear()
    if state == "restarting":
        assert_uncertain(task)
        task.clear()
    assert task.run() == live_crew.ids[1]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_record_tells_what_a_clear_has_changed(live_crew, store, is_stopped):
    if is_stopped:
        live_crew.scenario = SLOW
        live_crew.at_look(1, lambda: live_crew.revoke(live_crew.ids[0]))
    else:
        live_crew.faults.reset(on="kickoff", after_taken=True)
    task = Task(run, store=store, retries=1)
    told = []
    with pytest.raises(CrewTaskFailed):
        task.run()
    told.append(store.entries["crew_kickoff"]["if_lost"])
    task.clear()
    live_crew.scenario = QUICK
    live_crew.after = lambda _: told.append(store.entries["crew_kickoff"]["if_lost"])
    task.run()

    starts = ["starts a new execution" in told[0][name] for name in ("if_retried", "if_cleared")]
    assert starts == [False, True]
    assert "starts a new execution" in told[1]["if_retried"]
    assert len(live_crew.kickoffs) == 2


def test_unexpected_error_while_sending_is_reported(live_crew, store, monkeypatch):
    fail = Mock(side_effect=RuntimeError("unexpected"))
    monkeypatch.setattr("airflow_provider_crew.client.client.CrewClient.kickoff", fail)

    assert_uncertain(Task(kickoff, store=store))

    assert (store.kickoff["kickoff_id"], store.kickoff["reported"]) == (None, True)
    assert not live_crew.kickoffs  # which no task can know


def test_report_of_a_task_that_is_being_ended_does_not_count(live_crew, store):
    live_crew.faults.answer(504, on="kickoff", after_taken=True)
    made = kickoff()
    live_crew.at_kickoff = made.on_kill

    assert_uncertain(Task(lambda: made, store=store))

    assert (store.kickoff["kickoff_id"], store.kickoff["reported"]) == (None, False)


@pytest.fixture(params=[True, False], ids=["forgets at Clear", "keeps at Clear"])
def forgets(request, monkeypatch) -> bool:
    """Airflow from 3.4 on, and before."""
    monkeypatch.setattr("airflow_provider_crew.versions.CLEARING_DELETES_TASK_STATE", request.param)
    return request.param


class TestAnAirflowThatForgetsWhenCleared:
    @every_operator
    @pytest.mark.parametrize("cleared", [True, False])
    def test_warns_if_it_may_have_forgotten(self, live_crew, store, operator, forgets, cleared, task_log):
        told: list[str] = []
        live_crew.at_kickoff = lambda: told.append(task_log.warnings)
        task = Task(operator, store=store, retries=1)
        task.ti.try_number = 1
        if cleared:
            task.clear()

        task.run()

        assert bool(told[0]) is (forgets and cleared)

    @every_operator
    def test_gets_the_record_again_from_an_ending_attempt(self, live_crew, store, operator, forgets):
        made = operator()
        before = signal.signal(signal.SIGTERM, lambda *_: made.on_kill())
        seen: list[Any] = []

        def clear() -> None:
            remembered = store.kickoff
            store.delete("crew_kickoff")
            until = time.monotonic() + (240.0 if forgets else 0.3)
            while store.kickoff is None and time.monotonic() < until:
                # Python does not notice a signal that arrives just before the main thread blocks.
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)
            seen.extend([remembered, store.kickoff])

        live_crew.at_kickoff = clear
        try:
            Task(lambda: made, store=store).run()
        finally:
            eventually(lambda: seen)  # otherwise a late signal would end pytest
            signal.signal(signal.SIGTERM, before)

        remembered, again = seen
        assert remembered["kickoff_id"] is None
        assert again == (remembered if forgets else None)
