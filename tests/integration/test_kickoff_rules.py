"""A kickoff is sent once: what an attempt does about the kickoffs of earlier attempts."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.task.record import fingerprint
from tests.integration.operators import every_operator, id_of, kickoff, run, run_deferred
from tests.integration.tasks import INPUTS, Task
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


@every_operator
def test_record_is_stored_before_the_kickoff_is_sent(live_crew, store, operator):
    seen = []
    live_crew.at_kickoff = lambda: seen.append(store.kickoff)
    task = Task(lambda: operator(restore_from_state_id="4711"), store=store, retries=1)
    began = time.time()

    task.run()

    (at_that_moment,) = seen
    assert began <= at_that_moment.pop("kicked_off_at") <= time.time()
    assert at_that_moment.pop("fingerprint") == fingerprint(INPUTS, "4711")
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
