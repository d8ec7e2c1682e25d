"""The end of a process, as in ``stop.txt``: whether it cancels, sends or polls, its error, and signals."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace
from datetime import timedelta
from itertools import chain, repeat
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.exceptions import CutShort, EndedByAirflow
from airflow_provider_crew.task.stop import Pulse, Stop, as_cut_short, pulse_of, shielded
from airflow_provider_crew.task.task import Options, Task
from airflow_provider_crew.task.verdict import Facts, verdict


def test_process_has_one_pulse(monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    task = ending(cancel_on_kill=True)[0]._task

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


def ending(*, beats: tuple[float, ...] = (0.0, 5.0), told: bool = True, **options: Any) -> tuple[Stop, list[str]]:
    """Return the stop of a task that Airflow is ending, and its warnings. Its pulse beats at these times."""
    warnings: list[str] = []
    context: dict[str, Any] = {"ti": SimpleNamespace(start_date=None)}
    log: Any = SimpleNamespace(warning=lambda text, *args: warnings.append(text % args))
    task = Task(Options(crew_conn_id="crew", **options), context, log, is_told_to_end=lambda: told)
    pulse = Pulse(chain(beats, repeat(beats[-1])).__next__)
    for _ in beats[2:]:
        pulse.was_suspended()
    return Stop(task, pulse), warnings


# Beats of a process that was suspended.
SUSPENDED = (0.0, 65.0, 66.0)
TIME_OVER = errors.WaitedTooLong("too long", kickoff_id="k", at="task 2 of 3")
STOPPED = Failed(status="error", kickoff_id="k", error="revoked", word="REVOKED")
ERRORS: dict[str, Any] = {
    "execution_timeout": AirflowTaskTimeout("time"),
    "WaitedTooLong": TIME_OVER,
    "CutShort": CutShort("time", kickoff_id="k"),
    "EndedByAirflow": EndedByAirflow("ended", kickoff_id="k"),
    "LostContact": errors.LostContact("lost", kickoff_id="k"),
    "WaitStopped": errors.WaitStopped("stopped", kickoff_id="k"),
    "a defect": ValueError("a defect"),
}


def heeded(phase: Any, own: str, earlier: str | None, *, marked: bool = True, **options: Any) -> str:
    """Return what a task does that Airflow ends, of which a user may have marked it."""
    stop, warnings = ending(**{"cancel_on_kill": True} | options)
    facts = Facts(phase=phase, kickoff_id=own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "airflow_provider_crew.api_server.has_ended", lambda ti: hasattr(ti, "start_date") and marked
        )
        try:
            stop.heed(facts, earlier)
        except EndedByAirflow as error:
            known = facts.kickoff_id, facts.phase, facts.has_retry
            assert known == (error.kickoff_id, "waiting", False)  # noqa: PT017 - an outcome among others
            return f"cancels {error.kickoff_id}"
    assert facts == Facts(phase=phase, kickoff_id=own)
    if not warnings:
        return "nothing"
    (told,) = warnings
    ending_error = errors.CrewError("ending", kickoff_id=own)
    assert verdict(ending_error, replace(facts, is_ending=True)).failure.next_step in told
    stop.heed(facts, earlier)
    assert warnings == [told]
    event, execution = told.splitlines()[0], re.findall(r"execution \w\b", told)
    return f"warns: {event} ({execution[0]})"


def looked(limit: float | None = None, *, interrupted: bool | None = None, **is_ending: Any) -> str:
    """Return what comes of the last look before a kickoff, a minute after the task has begun."""
    stop, _ = ending(**{"told": False} | is_ending, execution_timeout=limit and timedelta(seconds=limit))
    stop._task.began -= 60.0
    event = None if interrupted is None else Event()
    if event and interrupted:
        event.set()
    try:
        stop.look_before("kickoff", event)
    except errors.CrewError as error:
        assert "before the kickoff" in error.event  # noqa: PT017 - an outcome among others
        return type(error).__name__
    return "sends"


def cut_short(name: str, **facts: str) -> str:
    """Return the error of a wait."""
    error: Any = ERRORS[name].replace(**facts) if facts else ERRORS[name]
    ended: Any = as_cut_short(error, "k")
    if ended is error:
        return "as it is"
    assert " " in ended.event
    return f"{type(ended).__name__} {ended.kickoff_id} {ended.at}".strip()


def cancelled(name: str, *, on_timeout: bool = True, fails: bool = False, **is_ending: Any) -> str:
    """Return what a wait with this error does at its end, also if the request to cancel fails."""
    asked: list[int] = []

    def cancel() -> Failed:
        asked.append(1)
        if fails:
            raise RuntimeError("no secrets")
        return STOPPED

    told, end = ending(**is_ending, cancel_on_timeout=on_timeout)[0].cancelled_if_wanted(ERRORS[name], cancel)
    assert len(asked) == (told is not ERRORS[name])
    assert end is (STOPPED if asked and not fails else None)
    assert ("no secrets" in str(told.args)) == bool(asked and fails)
    return f"asks, and raises {type(told).__name__}" if asked else "as it is"


def test_ends_are_those_of_the_table(tabulated: Any) -> None:
    tabulated("stop.txt", 1, lambda expression: [eval(expression)])  # noqa: S307 - our own


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


class Rung(BaseException):
    """Raised by the signal handler, as Airflow's timeout does."""


def test_second_signal_ends_the_wait_but_not_the_work(request):
    def ring(*_: object) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    request.addfinalizer(lambda: signal.signal(signal.SIGALRM, before))
    goes_on, done = Event(), Event()

    def work(interrupted: Event) -> None:
        os.kill(os.getpid(), signal.SIGALRM)
        assert interrupted.wait(240)
        os.kill(os.getpid(), signal.SIGALRM)
        assert goes_on.wait(240)
        done.set()

    with pytest.raises(Rung):
        shielded(work)

    is_early = not done.is_set()
    goes_on.set()
    assert done.wait(240)
    assert is_early
