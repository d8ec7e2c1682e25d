"""The end of a process: whether it cancels, sends or polls, and what becomes of its error."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain, repeat
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.exceptions import CrewTaskError, CutShort, EndedByAirflow
from airflow_provider_crew.task.stop import Pulse, Stop, as_cut_short, cancelled_if_wanted, pulse_of
from airflow_provider_crew.task.task import Options, Task
from airflow_provider_crew.task.verdict import Facts, verdict


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    context: dict[str, Any] = {"ti": SimpleNamespace(start_date=None)}
    return Task(Options(crew_conn_id="crew", cancel_on_kill=True), context, None, is_told_to_end=lambda: True)


def pulse(*beats: float) -> Pulse:
    """Return a pulse at these times, and at the last one from then on."""
    return Pulse(chain(beats, repeat(beats[-1])).__next__)


@pytest.mark.parametrize(
    ("beats", "cancels"),
    [([0.0, 5.0, 10.0], True), ([0.0, 55.0], True), ([0.0, 65.0], False), ([0.0, 65.0, 70.0], False)],
)
def test_suspended_process_cancels_nothing(task, beats, cancels):
    own = pulse(*beats)
    for _ in beats[2:]:
        own.was_suspended()

    assert Stop(task, own).cancels() is cancels


def test_process_has_one_pulse(task):
    assert Stop(task)._pulse is Stop(task)._pulse is pulse_of(os.getpid())
    assert Stop(task).cancels()


def test_process_notices_a_suspension_whatever_it_does(timing):
    timing(beat=0.01)
    beats = chain([0.0, 65.0], repeat(66.0))
    has_beaten = Event()

    def clock() -> float:
        if (now := next(beats)) == 66.0:
            has_beaten.set()
        return now

    own = Pulse(clock)
    Thread(target=own.beat, daemon=True).start()

    assert has_beaten.wait(60)
    assert own.was_suspended()


def ending(*, suspended: bool = False, told: bool = True, **options: Any) -> tuple[Stop, list[str]]:
    """Return the stop of a task that Airflow is ending, and its warnings."""
    warnings: list[str] = []
    context: dict[str, Any] = {"ti": SimpleNamespace(start_date=None)}
    log: Any = SimpleNamespace(warning=lambda text, *args: warnings.append(text % args))
    task = Task(Options(crew_conn_id="crew", **options), context, log, is_told_to_end=lambda: told)
    return Stop(task, pulse(0.0, 65.0 if suspended else 5.0)), warnings


CANCELS: dict[str, Any] = {"cancel_on_kill": True}


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Task instances that Airflow was asked about. A user has marked all of them."""
    asked: list[Any] = []

    def has_ended(ti: Any) -> bool:
        asked.append(ti)
        return True

    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", has_ended)
    return asked


@pytest.mark.parametrize(
    ("phase", "own", "earlier", "options", "cancels", "warns"),
    [
        ("waiting", "k", None, CANCELS, "k", False),
        ("waiting", "k", "e", CANCELS, "k", False),
        ("before", "", "e", CANCELS, "e", False),
        ("before", "k", None, CANCELS, "", False),
        ("before", "", None, CANCELS, "", False),
        ("ended", "k", None, CANCELS, "", True),
        ("waiting", "k", None, {"cancel_on_kill": False}, "", True),
        ("before", "", "e", {"cancel_on_kill": False}, "", True),
        ("waiting", "k", None, {**CANCELS, "suspended": True}, "", True),
        ("waiting", "k", None, {**CANCELS, "told": False}, "", False),
    ],
)
def test_marked_task_cancels_the_execution_for_which_it_waits(
    marked, phase, own, earlier, options, cancels, warns
):
    stop, warnings = ending(**options)
    facts = Facts(phase=phase, kickoff_id=own)

    with pytest.raises(EndedByAirflow) if cancels else nullcontext() as caught:
        stop.heed(facts, earlier)

    assert bool(warnings) is warns
    if warns:
        (told,) = warnings
        step = verdict(
            errors.CrewError("ending", kickoff_id=own), replace(facts, is_ending=True)
        ).failure.next_step
        assert step in told
        assert f"execution {own or earlier}" in told
        known = {"waiting": " The execution continues.", "ended": " The execution has completed."}.get(phase, "")
        assert told.splitlines()[0] == f"Airflow is ending this task.{known}"
    if cancels:
        assert caught.value.kickoff_id == cancels
        assert (facts.kickoff_id, facts.phase, facts.has_retry) == (cancels, "waiting", False)
        assert marked == [stop._task.ti]
    else:
        assert facts == Facts(phase=phase, kickoff_id=own)
    stop.heed(facts, earlier)
    assert bool(warnings) is warns, "told once"


def test_task_that_no_user_has_marked_cancels_nothing(monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: False)
    stop, warnings = ending(**CANCELS)

    stop.heed(Facts(phase="waiting", kickoff_id="k"), None)

    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("options", "interrupted", "error"),
    [
        ({"told": False}, False, None),
        ({"told": False}, None, None),
        ({"told": False}, True, CrewTaskError),
        ({}, False, CrewTaskError),
        ({}, None, CrewTaskError),
        ({"told": False, "execution_timeout": timedelta(seconds=0.001)}, False, CutShort),
        ({"execution_timeout": timedelta(seconds=0.001)}, True, CutShort),
        ({"told": False, "execution_timeout": timedelta(hours=1)}, False, None),
    ],
)
def test_nothing_is_sent_after_the_end_or_the_time(options, interrupted, error):
    stop, _ = ending(**options)
    stop._task.began -= 60.0
    event = None if interrupted is None else Event()
    if event and interrupted:
        event.set()

    with pytest.raises(error, match=r"before the kickoff") if error else nullcontext():
        stop.look_before("kickoff", event)


@pytest.mark.parametrize(("told", "seconds", "heeds"), [(True, 0.05, 1), (False, 0.05, 0), (True, 0.0, 0)])
def test_sleep_heeds_the_end_of_the_task(told, seconds, heeds):
    stop, _ = ending(told=told)
    heeded: list[int] = []
    began = time.monotonic()

    stop.sleep(seconds, lambda: heeded.append(1))

    assert time.monotonic() - began >= seconds
    assert len(heeded) == heeds


def test_long_sleep_looks_at_times(timing):
    timing(look=0.02)
    stop, _ = ending()
    heeded: list[int] = []

    def heed() -> None:
        heeded.append(1)
        if len(heeded) == 2:
            raise EndedByAirflow("ended", kickoff_id="k")

    with pytest.raises(EndedByAirflow):
        stop.sleep(3600.0, heed)


@pytest.mark.parametrize("signals_again", [False, True])
def test_poll_is_repeated_once_after_an_interruption(signals_again):
    stop, _ = ending()
    polled: list[str] = []
    heeded: list[int] = []

    def poll(kickoff_id: str) -> str:
        polled.append(kickoff_id)
        if len(polled) == 1:
            stop.interrupt()
        return "running"

    def heed() -> None:
        heeded.append(1)
        if signals_again:
            stop.interrupt()

    assert stop.interruptibly(poll, "k", heed) == "running"
    assert (polled, heeded) == (["k", "k"], [1])
    stop.interrupt()  # no poll, so nothing is interrupted
    ending()[0].interrupt()


def test_second_signal_does_not_interrupt_the_end_of_the_poll():
    stop, _ = ending()
    closed: list[str] = []

    def poll(kickoff_id: str) -> str:
        if closed:
            return "running"
        try:
            stop.interrupt()
        finally:
            stop.interrupt()
            closed.append(kickoff_id)
        raise AssertionError

    assert stop.interruptibly(poll, "k", lambda: None) == "running"
    assert closed == ["k"]


def test_only_the_main_thread_is_interrupted():
    stop, _ = ending()

    def poll(_: str) -> str:
        other = Thread(target=stop.interrupt)
        other.start()
        other.join()
        return "running"

    assert stop.interruptibly(poll, "k", lambda: None) == "running"


TIME_OVER = errors.WaitedTooLong("too long", kickoff_id="k", at="task 2 of 3")


@pytest.mark.parametrize(
    ("error", "limit", "timeout", "is_cut"),
    [
        (AirflowTaskTimeout("time"), None, 60.0, True),
        (TIME_OVER, 30.0, 60.0, True),
        (TIME_OVER, 60.0, 60.0, False),
        (TIME_OVER, 90.0, 60.0, False),
        (TIME_OVER, None, 60.0, False),
        (errors.LostContact("lost", kickoff_id="k"), 30.0, 60.0, False),
        (errors.WaitStopped("stopped", kickoff_id="k"), 30.0, 60.0, False),
        (ValueError("a defect"), 30.0, 60.0, False),
    ],
)
def test_wait_is_cut_short_by_the_time_of_the_attempt(error, limit, timeout, is_cut):
    stop, _ = ending(execution_timeout=limit and timedelta(seconds=limit), timeout=timeout)

    ended: Any = as_cut_short(stop._task, error, "k")

    if is_cut:
        assert (type(ended), ended.kickoff_id) == (CutShort, "k")
        assert " " in ended.event
        assert ended.at == getattr(error, "at", "")
    else:
        assert ended is error


STOPPED = Failed(status="error", kickoff_id="k", error="revoked", word="REVOKED")


def raised(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("error", "on_timeout", "is_asked"),
    [
        (EndedByAirflow("ended", kickoff_id="k"), False, True),
        (TIME_OVER, True, True),
        (CutShort("time", kickoff_id="k"), True, True),
        (TIME_OVER, False, False),
        (errors.LostContact("lost", kickoff_id="k"), True, False),
        (ValueError("a defect"), True, False),
    ],
)
def test_only_an_ended_wait_cancels_if_that_is_wanted(error, on_timeout, is_asked):
    task = ending(cancel_on_timeout=on_timeout)[0]._task
    asked: list[int] = []

    def cancel() -> Failed:
        asked.append(1)
        return STOPPED

    told, end = cancelled_if_wanted(task, error, cancel)
    failed, no_end = cancelled_if_wanted(task, error, partial(raised, RuntimeError("no secrets")))

    assert (len(asked), end, no_end) == (is_asked, STOPPED if is_asked else None, None)
    assert (told is error, failed is error) == (not is_asked, not is_asked)
    if is_asked:
        assert isinstance(told, errors.CrewError)
        assert type(failed) is type(error)
        assert "no secrets" in str(failed.args)
