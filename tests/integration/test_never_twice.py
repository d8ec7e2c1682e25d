"""Ways that led, or nearly led, to a second kickoff or to a lost result."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import (
    Cost,
    LostContact,
    UncertainKickoff,
    WaitedTooLong,
)
from airflow_provider_crew.exceptions import CrewTaskError, CrewTaskFailed, CrewTaskTimeout
from tests.integration.operators import kickoff, run
from tests.integration.tasks import SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.fixture
def alarm():
    """Ring as an execution_timeout does, and return once it has rung in the main thread."""
    rung = threading.Event()

    def ring(*_: object) -> None:
        rung.set()
        raise AirflowTaskTimeout("Timeout")

    def alarm() -> None:
        signal.raise_signal(signal.SIGALRM)
        rung.wait()

    before = signal.signal(signal.SIGALRM, ring)
    yield alarm
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("live_crew")
@pytest.mark.parametrize("operator", [run, kickoff])
@pytest.mark.parametrize("with_store", [False, True])
def test_timeout_during_kickoff_is_uncertain(store, alarm, monkeypatch, operator, with_store):
    def interrupted(*_: Any, **__: Any) -> None:
        alarm()
        raise UncertainKickoff("No answer came.")

    monkeypatch.setattr(CrewClient, "kickoff", interrupted)
    task = Task(operator, retries=2, store=store if with_store else None)

    with pytest.raises(CrewTaskFailed) as caught:
        task.run()
    assert isinstance(caught.value.failure, UncertainKickoff)
    assert caught.value.cost is Cost.UNKNOWN

    retry = Task(lambda: operator(on_uncertain_kickoff="retry"), retries=2)
    with pytest.raises(UncertainKickoff):
        retry.run()


@pytest.mark.parametrize("operator", [run, kickoff])
@pytest.mark.parametrize("how", ["killed", "timeout"])
def test_task_that_ends_before_kickoff_is_resent_starts_nothing(live_crew, store, alarm, timing, operator, how):
    """Airflow kills it so: the handler calls on_kill, and the task runs on until it is killed for good."""
    timing(longest_retry_after=3600.0 * (how == "timeout"))  # which ends the pause
    live_crew.faults.answer(429, on="kickoff", retry_after=3600)
    task = Task(operator, store=store, retries=1)
    begun = task.begin()
    end = begun.on_kill if how == "killed" else alarm
    live_crew.after = lambda request: end() if request.operation == "kickoff" else None

    with pytest.raises((CrewTaskError, CrewTaskTimeout)) as caught:
        begun.execute(task.context)

    error: Any = caught.value
    assert isinstance(error, CrewTaskError if how == "killed" else CrewTaskTimeout)
    assert error.cost is Cost.NONE
    assert live_crew.kickoffs == ()
    assert store.kickoff is None


def test_rejected_kickoff_keeps_earlier_record(live_crew, store):
    known = {"max_tries": 0, "kicked_off_at": 0.0, "kickoff_id": "earlier", "end": "failed", "call": ""}
    kept = known | {"reported": False, "address": "", "delivered": False, "fingerprint": "", "try_number": 0}
    store.set("crew_kickoff", kept)
    live_crew.faults.answer(422, on="kickoff")

    with pytest.raises(CrewTaskFailed):
        Task(kickoff, store=store).run()

    assert store.kickoff == kept


@pytest.mark.parametrize("broken", ["deleted", "of another kind"])
def test_broken_connection_names_running_execution(live_crew, store, monkeypatch, broken):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.1), store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        task.run()
    if broken == "deleted":
        monkeypatch.delenv("AIRFLOW_CONN_CREW_DEFAULT")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", "crew://nowhere")

    with pytest.raises((CrewTaskFailed, LostContact)) as caught:
        task.run()

    assert isinstance(caught.value, LostContact) == (broken == "deleted")
    error: Any = caught.value
    assert error.kickoff_id == live_crew.kickoffs[0].kickoff_id
    assert error.cost is Cost.RUNNING
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("kept", ["4711-0815", {"kickoff_id": "4711-0815"}], ids=str)
@pytest.mark.parametrize("cleared", [False, True])
def test_unreadable_record_is_uncertain_and_logged(live_crew, store, task_log, kept, cleared):
    store.set("crew_kickoff", kept)
    task = Task(run, store=store, retries=2)
    if cleared:
        task.clear()

    with pytest.raises(CrewTaskFailed) as caught:
        task.run()

    assert isinstance(caught.value.failure, UncertainKickoff)
    assert "4711-0815" in task_log.warnings
    assert not live_crew.kickoffs


class Killed(BaseException):
    """What Airflow raises in a task that is ended from outside."""


@pytest.mark.parametrize("during_kickoff", [True, False])
def test_killed_task_names_its_execution(live_crew, task_log, during_kickoff):
    live_crew.scenario = SLOW
    operator, killed = run(), threading.Event()

    def kill(*_: object) -> None:
        killed.set()
        try:
            operator.on_kill()  # interrupts a poll
        finally:
            raise Killed

    def send_signal() -> None:
        while not killed.wait(0.1):  # Python does not notice one that comes just before the main thread blocks
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, kill)
    if during_kickoff:
        live_crew.at_kickoff = send_signal
    else:
        live_crew.at_look(1, send_signal)
    try:
        with pytest.raises((Killed, CrewTaskFailed)) as caught:
            Task(lambda: operator).run()
    finally:
        signal.signal(signal.SIGTERM, before)

    (taken,) = live_crew.kickoffs
    assert taken.kickoff_id in task_log.text + str(caught.value)


@pytest.mark.parametrize("with_store", [False, True])
def test_timeout_while_the_end_is_recorded_starts_nothing(live_crew, store, monkeypatch, with_store):
    def ring(*_: object) -> None:
        raise AirflowTaskTimeout("Timeout")

    live_crew.scenario = SLOW
    monkeypatch.setattr("airflow_provider_crew.task.progress.TaskProgress.ended", ring)
    task = Task(lambda: run(timeout=0.1), store=store if with_store else None, retries=1)

    with pytest.raises(WaitedTooLong if with_store else CrewTaskFailed):
        task.run()

    assert len(live_crew.kickoffs) == 1
