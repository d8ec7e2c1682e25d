"""The trigger, in an event loop as the triggerer runs it."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from airflow_provider_crew.answers.trigger import AnswerTrigger
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.triggers.events import DEFERRAL, LARGEST_RESPONSE, read_event
from tests.integration.tasks import FAILING, QUICK, SLOW, TASK_STATES, TaskInstance, fired, trigger_of

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.fixture
def pauses(live_crew: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, list[str]]]:
    """Record the pauses of the trigger, with the calls before each, instead of pausing."""
    noted: list[tuple[float, list[str]]] = []

    async def sleep(seconds: float) -> None:
        noted.append((seconds, live_crew.calls))

    stand_in = SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread, CancelledError=asyncio.CancelledError)
    for module in ("crew", "watching"):
        monkeypatch.setattr(f"airflow_provider_crew.triggers.{module}.asyncio", stand_in)
    return noted


@pytest.mark.parametrize(
    ("ago", "waits"),
    [(0.0, 0.5), (0.3, 0.2), (5.0, 0.0), (-3600.0, 0.5), (None, 0.0)],
    ids=["just now", "a moment ago", "long ago", "clock of the worker ahead", "not known"],
)
@pytest.mark.parametrize("scenario", [QUICK, FAILING], ids=["completed", "failed"])
async def test_does_not_poll_or_fire_too_soon_after_the_deferral(
    live_crew, pauses, monkeypatch, timing, ago, waits, scenario
):
    timing(shortest_deferral=0.5)
    kickoff_id = live_crew.new_execution(scenario)
    now = time.time()
    monkeypatch.setattr("airflow_provider_crew.triggers.crew.time", SimpleNamespace(time=lambda: now))

    deferred_at = None if ago is None else now - ago
    await fired(trigger_of(kickoff_id, deferred_at=deferred_at, first_poll_at=now + 30))

    before_the_poll, *_, before_it_fires = pauses
    assert before_the_poll == (pytest.approx(30, abs=1), [])
    assert before_it_fires == (pytest.approx(waits, abs=1e-3), ["status"])


@pytest.mark.parametrize(("options", "message"), [({}, None), ({"cancel_on_kill": True}, "by a user")])
async def test_stopped_trigger_claims_nothing_about_its_execution(live_crew, task_log, options, message):
    kickoff_id = live_crew.new_execution(SLOW)
    loop, polled = asyncio.get_running_loop(), asyncio.Event()
    live_crew.at_look(1, lambda: loop.call_soon_threadsafe(polled.set))
    running = asyncio.create_task(fired(trigger_of(kickoff_id, **options)))
    await polled.wait()
    before = task_log.text.count("\n")

    running.cancel("by a user")
    with pytest.raises(asyncio.CancelledError) as caught:
        await running

    # Airflow calls on_kill(), and logs a cancellation by a user, if its own message comes back.
    assert caught.value.args == ((message,) if message else ())
    assert kickoff_id in task_log.text
    assert "".join(task_log.text.splitlines(keepends=True)[before:]).count(kickoff_id) == 0


async def test_event_in_the_log_has_no_values(live_crew):
    (event,) = [event async for event in trigger_of(live_crew.new_execution()).run()]

    assert "Briefing" in event.payload["result"]
    assert "result" in repr(event)
    assert "Briefing" not in repr(event) + str(event)


@pytest.mark.parametrize(
    ("cancels", "state", "deferral", "stops"),
    [
        (True, "failed", 7.5, 1),
        (True, "success", 7.5, 1),
        (True, "running", 7.5, 0),  # cleared
        (False, "failed", 7.5, 0),
        (True, "failed", None, 0),  # the task resumed, or was cleared and attempt 2 has ended
        (True, "failed", 9.5, 0),  # attempt 2 was marked while deferred
        (True, "failed", OSError("Airflow does not answer"), 0),
    ],
)
async def test_only_a_mark_cancels(live_crew, monkeypatch, cancels, state, deferral, stops):
    def read(_, key):
        if isinstance(deferral, Exception):
            raise deferral
        return {DEFERRAL: deferral}[key]

    monkeypatch.setattr(TASK_STATES, lambda **_: {"run": {"crew": state}})
    monkeypatch.setattr("airflow_provider_crew.api_server.read_own_xcom", read)
    marked = trigger_of(live_crew.new_execution(SLOW), deferred_at=7.5, cancel_on_kill=cancels)
    marked.task_instance = TaskInstance()  # type: ignore[assignment]

    await marked.on_kill()

    assert len(live_crew.requests.on("stop")) == stops


@pytest.fixture
def hanging_xcoms(live_crew, monkeypatch):  # noqa: ARG001 - which sets them as well
    """An XCom backend that hangs until the test has ended."""
    released = threading.Event()
    for name in ("get_one", "set"):
        monkeypatch.setattr(f"airflow.sdk.bases.xcom.BaseXCom.{name}", lambda *_, **__: released.wait())
    yield
    released.set()


@pytest.mark.usefixtures("hanging_xcoms")
async def test_xcom_backend_that_hangs_withholds_no_poll_or_result(live_crew, monkeypatch, timing):
    timing(airflow_response=0.1, shortest_deferral=0.2)
    monkeypatch.setattr("airflow_provider_crew.api_server.has_ended", lambda _: True)
    about: Any = {"crew_conn_id": "crew_default", "cancel_on_kill": True, "deferred_at": time.time()}
    about |= {"rules": trigger_of("").rules, "known_question": "", "answer_by": None}
    triggers = [AnswerTrigger(live_crew.new_execution(), **about) for _ in range(50)]
    for each in triggers:
        each.task_instance = TaskInstance()  # type: ignore[assignment]

    async with asyncio.timeout(30):
        events = await asyncio.gather(*(fired(each) for each in triggers))
        await triggers[0].on_kill()
        assert (await sync_to_async(int)(), await asyncio.to_thread(int)) == (0, 0)  # as other triggers do

    assert all("result" in event for event in events)
    assert live_crew.requests.on("stop") == []


async def test_large_answer_is_read_outside_the_event_loop(live_crew, monkeypatch):
    tasks = ",".join(["{}"] * ((LARGEST_RESPONSE - 200) // 3))
    body = f'{{"state": "SUCCESS", "result": {{"output": "x", "tasks": [{tasks}]}}}}'
    kickoff_id = live_crew.new_execution()
    readers = []

    def read(*given: Any, **named: Any) -> Any:
        readers.append(threading.get_ident())
        return read_execution(*given, **named)

    monkeypatch.setattr("airflow_provider_crew.client.api.read_execution", read)
    live_crew.faults.answer(200, body=body, on="status")

    end = read_event(await fired(trigger_of(kickoff_id)))

    assert (end.completed, end.result) == (True, None)
    # Read on the event loop, the tasks blocked all other triggers for 2.4 seconds.
    assert len(readers) == 1
    assert readers[0] != threading.get_ident()
