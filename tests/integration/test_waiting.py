"""How a task or a sensor waits in the worker or the triggerer, what it pushes meanwhile, and how it resumes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import TaskDeferred
from asgiref.sync import sync_to_async

from airflow_provider_crew.answers.trigger import AnswerTrigger
from airflow_provider_crew.client.errors import ExecutionFailed, InvalidSettings, WaitedTooLong
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.client.watch import Watch
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.task import task as kit
from airflow_provider_crew.triggers.events import DEFERRAL, LARGEST_RESPONSE, read_event
from tests.integration.operators import both_ways, in_every_mode, in_every_way, run, sensor
from tests.integration.tasks import (
    CONNECTION,
    FAILING,
    QUICK,
    SLOW,
    TASK_STATES,
    Task,
    TaskInstance,
    TaskStateStore,
    WatchedService,
    fired,
    poked,
    skip_where_pokes_forget,
    trigger_of,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


def test_trigger_may_outlast_the_deadline_by_a_minute(live_crew):
    live_crew.scenario = SLOW
    began = time.monotonic()
    waiting = Task(lambda: run(deferrable=True, timeout=3600)).deferred()

    assert 3600 + 60 - (time.monotonic() - began) <= waiting.timeout.total_seconds() <= 3600 + 60


@pytest.mark.usefixtures("live_crew")
def test_own_deadline_comes_before_that_of_airflow():
    began = time.time()

    def deadline(time_limit: timedelta | None, *, cancels: bool = False) -> float:
        options = kit.Options(crew_conn_id="crew", execution_timeout=time_limit, cancel_on_timeout=cancels)
        ti = TaskInstance(start_date=datetime.fromtimestamp(began, UTC))
        return kit.Task(options, {"ti": ti}, None).deadline()

    assert deadline(timedelta(minutes=10)) == pytest.approx(began + 600 - 2)
    assert deadline(timedelta(minutes=10), cancels=True) == pytest.approx(began + 600 - 10)
    assert deadline(timedelta(seconds=5)) == pytest.approx(began + 4.5)
    assert began <= deadline(None) - 24 * 3600 <= time.time()


@both_ways
@pytest.mark.parametrize("kind", ["on_failure_callback", "on_retry_callback"])
def test_alert_of_a_task_that_fails_with_its_result_knows_the_end(live_crew, store, deferrable, kind, monkeypatch):
    shown: list[Any] = []
    own = {kind: lambda _: shown.append(live_crew.xcoms.progress[-1]["state"])}
    made = run(deferrable=deferrable, **own)
    monkeypatch.setattr(made, "post_execute", lambda _: None)  # a hook of the author has failed before
    live_crew.scenario = SLOW
    live_crew.at_look(2, lambda: live_crew.finish(live_crew.ids[0]))
    task = Task(lambda: made, store=store, retries=1)

    task.run()
    for callback in getattr(made, kind):
        callback(task.context)

    assert (shown, store.kickoff["end"]) == (["completed"], "completed")


def at_work(name: str, agent: str, done: int, last: str | None = None) -> dict[str, Any]:
    """Return the status of a deployed crew with three tasks."""
    progress = {"unit": "task", "completed": done, "total": 3, "current": name, "current_agent": agent}
    last_task = last and {"name": last, "output": f"Output of {last}"}
    return {"state": "RUNNING", "progress": progress | {"duration_seconds": 0.5}, "last_executed_task": last_task}


WORKING = (
    at_work("research_task", "Researcher", 0),
    at_work("writing_task", "Writer", 1, "research_task"),
    at_work("review_task", "Editor", 2, "writing_task"),
)
ENDED = {"state": "SUCCESS", "result": "Done.", "last_executed_task": {"name": "review_task", "output": "Done."}}
THREE = {"unit": "task", "completed": 3, "total": 3, "current": None, "duration_seconds": 60.0}


@in_every_way
@pytest.mark.parametrize(
    ("last", "log_output"),
    [
        ({"progress": THREE}, True),
        ({}, True),
        # The task reads these itself.
        ({"progress": THREE}, False),
        ({"progress": THREE, "result": "x" * 64 * 1024}, True),
    ],
    ids=["progress", "no progress", "not logged", "large"],
)
def test_result_has_what_polls_saw_of_a_deployed_crew(live_crew, store, kind, options, last, log_output):
    skip_where_pokes_forget(options)
    live_crew.scenario = SLOW.model_copy(update={"statuses": (*WORKING, ENDED | last)})

    result = poked(kind(live_crew, store=store, log_output=log_output, **options))

    assert result["tasks"][-1]["task_id"] == "review_task"
    assert len(result["tasks"]) == 3 or "result" in last or not log_output
    assert result["execution_time"] == (60.0 if last else None)


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")
def test_request_shows_page_and_external_text_without_effect(live_crew, monkeypatch, timing):
    timing(not_found_grace=0.0, unknown_poll=0.0)
    page = "https://app.example/7"
    described = json.loads(live_crew.connection_json) | {"extra": {"dashboard_url": page}}
    monkeypatch.setenv(CONNECTION, json.dumps(described))
    at = {"state": "RUNNING", "progress": {"completed": 0, "current": "a`\n[Approve](https://evil.example)"}}
    live_crew.at_look(1, lambda: live_crew.set_status(live_crew.kickoffs[0].kickoff_id, at, {"state": "PAUSED"}))
    live_crew.scenario = SLOW.model_copy(update={"dialect": "deployed"})

    task = Task(lambda: run(deferrable=True))
    waiting = task.deferred()
    event = task.event_of(waiting)
    # Until a worker is free, this is all that is seen.
    assert [each["state"] for each in live_crew.xcoms.progress][-1] == "paused"
    with pytest.raises(TaskDeferred):
        task.resume(waiting, event)

    ((_, body, _),) = live_crew.required_actions
    assert body.index(f"]({page})") < body.index("\n")
    assert "at `task 1, a' [Approve](https://evil.example)`." in body


RESCHEDULE: dict[str, Any] = {"mode": "reschedule"}

AT_WRITING = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}


def sensing(kickoff_id: Any, **options: Any) -> Task:
    store = options.pop("store", None)
    return Task(lambda: sensor(kickoff_id, **options), store=store)


@in_every_mode
def test_unusable_connection_is_read_again_until_it_is_fixed(live_crew, monkeypatch, mode):
    kickoff_id, note = live_crew.new_execution(), Watch.on_error

    def fix_connection(watch: Watch, error: Any) -> Any:
        monkeypatch.setenv(CONNECTION, live_crew.connection_uri)
        assert isinstance(error, InvalidSettings)
        return note(watch, error)

    monkeypatch.setenv(CONNECTION, "crew://nowhere")
    monkeypatch.setattr(Watch, "on_error", fix_connection)

    assert poked(sensing(kickoff_id, **mode))["kickoff_id"] == kickoff_id
    assert live_crew.requests.on("status")


@pytest.mark.parametrize("remembering", [True, False])
def test_next_poke_is_after_the_interval_or_at_the_deadline(live_crew, store, remembering):
    kickoff_id = live_crew.new_execution(SLOW)
    for timeout, seconds in [(3600, (54.0, 66.0)), (30, (0.0, 30.0))]:
        task = sensing(
            kickoff_id, **RESCHEDULE, poke_interval=60, timeout=timeout, store=store if remembering else None
        )
        now = datetime.now(UTC)

        with pytest.raises(AirflowRescheduleException) as caught:
            task.run()

        after, took = caught.value.reschedule_date, datetime.now(UTC) - now
        assert after.tzinfo is not None
        assert seconds[0] <= (after - now).total_seconds() <= seconds[1] + took.total_seconds()


def test_poke_without_news_stores_nothing(live_crew, store):
    skip_where_pokes_forget(RESCHEDULE)
    kickoff_id = live_crew.new_execution(SLOW)
    later = AT_WRITING | {"current_task": "review_task"}
    live_crew.set_status(kickoff_id, *[AT_WRITING] * 3, *[later] * 3, {"status": "completed", "result": "x"})
    asked: list[str] = []
    store.breaks_at = asked.append

    poked(sensing(kickoff_id, **RESCHEDULE, store=store))

    assert (asked.count("get"), asked.count("set")) == (7, 2)


@pytest.mark.parametrize("deferrable", [False, True])
def test_decorated_function_is_called_once_for_the_inputs(live_crew, store, deferrable):
    calls, operators = [], []

    def brief(day: str, ti: Any = None) -> dict[str, Any]:
        calls.append(day)
        return {"topic": f"{{{{ news }}}} of {day}", "audience": ti.task_id}

    def make() -> Any:
        crew: Any = crew_task(task_id="crew", poll_interval=0.02, timeout=0.2, deferrable=deferrable)
        operators.append(crew(brief)("monday").operator)
        return operators[-1]

    live_crew.scenario = SLOW
    started = Task(make, store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        started.run()
    live_crew.finish(live_crew.ids[0])

    assert started.run()["kickoff_id"] == live_crew.ids[0]
    assert calls == ["monday"]
    assert live_crew.kickoffs[0].inputs == {"topic": "{{ news }} of monday", "audience": "crew"}
    # Airflow shows them as the rendered template.
    assert operators[0].inputs == live_crew.kickoffs[0].inputs
    assert operators[0].overwrite_rtif_after_execution
    assert not operators[0].multiple_outputs, "Airflow would split the result"


SECOND = {"status": "running", "current_task": "b", "progress": {"completed_tasks": 1, "total_tasks": 2}}
THIRD = {"status": "running", "current_task": "c", "progress": {"completed_tasks": 1, "total_tasks": 2}}
DONE = {
    "status": "completed",
    "result": {"output": "Done.", "tasks": [{"task_id": name, "output": name * 9} for name in "ab"]},
    "execution_time": 250,
}
FAILED = {"status": "error", "error": "out of credit"}
# A deployed crew, which tells the last task alone, and not how it went on when it has failed.
# State, completed tasks and current task at the first poll of the worker.
AT_FIRST = ("running", 0, "writing_task")
AT_SECOND = ("running", 1, "b")


def story(crew: WatchedService) -> list[tuple[Any, ...]]:
    """Return what was pushed, in order: state, completed tasks, current task."""
    return [(each["state"], each["completed"], each["current_task"]) for each in crew.xcoms.progress]


def after_the_first_look(crew: WatchedService, *answers: Any) -> None:
    """Let the crew answer these in turn after the first poll."""
    crew.scenario = SLOW
    crew.at_look(1, lambda: crew.set_status(crew.ids[0], *answers))


def once(crew: WatchedService, is_so: Callable[[], object], first: Any, *others: Any) -> None:
    """Let the crew answer this after the first poll until something is so, and then the others in turn."""
    after_the_first_look(crew, first)
    look_first = crew.after

    def note(request: ReceivedRequest) -> None:
        look_first(request)
        if request.operation == "status" and is_so():
            crew.set_status(crew.ids[0], *others)
            crew.after = lambda _: None

    crew.after = note


def fail(*, deferrable: bool) -> None:
    """Run a task whose execution fails."""
    with pytest.raises(ExecutionFailed):
        Task(lambda: run(deferrable=deferrable)).run()


@both_ways
def test_each_change_is_pushed_once(live_crew, deferrable):
    once(live_crew, lambda: AT_SECOND in story(live_crew), SECOND, *[SECOND] * 5, DONE)

    result = Task(lambda: run(deferrable=deferrable)).run()

    # The worker polls once before it defers, pushes that, and leaves the progress to the trigger.
    assert story(live_crew) == [AT_FIRST, AT_SECOND, ("completed", 2, None)]
    at_second, at_last = live_crew.xcoms.progress[-2:]
    # The result has no durations, so the times of the polls remain.
    assert [step["ended_at"] is None for step in at_second["steps"]][-1]
    assert None not in [step["ended_at"] for step in at_last["steps"]]
    assert (at_second["completed"], at_second["total"], at_second["current_task"]) == (1, 2, "b")
    assert at_second["kickoff_id"] == result["kickoff_id"]
    assert {each["try_number"] for each in live_crew.xcoms.progress} == {1}
    assert time.time() - 60 < at_second["started_at"] <= at_second["since"] <= at_second["polled_at"]
    assert {"dag_id": "research", "task_id": "crew", "run_id": "manual__2026-01-01", "map_index": -1} in (
        live_crew.xcoms.left_for
    )


def test_misfit_that_no_poll_saw_coming_is_the_end(live_crew):
    live_crew.scenario = Scenario(tasks=[ScenarioTask(name="writing_task", seconds=0)], dialect="deployed")
    with pytest.raises(CrewTaskFailed):
        Task(lambda: run(output_type=int)).run()

    assert live_crew.xcoms.progress[-1]["end"]["error"] == "InvalidOutput"


@both_ways
def test_tasks_with_the_same_reason_share_a_key(live_crew, deferrable):
    def reason(story: Scenario) -> tuple[str, dict[str, Any]]:
        live_crew.scenario = story
        task = Task(lambda: run(deferrable=deferrable), store=TaskStateStore())
        with pytest.raises(ExecutionFailed):
            task.run()
        (found,) = [item for item in task.ti.xcoms.items() if item[0].startswith("crew_reason_")]
        return found

    costly = FAILING.model_copy(update={"usage": {"total_tokens": 4_200}, "dialect": "deployed"})
    (key, end), (again, _) = reason(costly), reason(costly)
    too_long = (FAILING.tasks[0].model_copy(update={"error": "too long"}),)
    (other, _) = reason(FAILING.model_copy(update={"tasks": too_long}))

    assert key == again != other
    assert (end["cost"], end["tokens"], end["event"]) == ("ended", 4_200, "out of credit")


def test_trigger_pushes_seldom_and_keeps_the_last_change(live_crew, timing):
    timing(progress_pause=3600.0)
    once(live_crew, lambda: AT_SECOND in story(live_crew), SECOND, *[THIRD] * 10, FAILED)

    fail(deferrable=True)

    assert story(live_crew) == [AT_FIRST, AT_SECOND, ("failed", 1, "c")]


@both_ways
def test_unchanged_progress_is_pushed_again_when_old(live_crew, timing, deferrable):
    timing(progress_pause=-1.0, progress_refresh=-1.0, progress_refresh_each=-1.0)
    once(live_crew, lambda: story(live_crew).count(AT_SECOND) > 2, SECOND, FAILED)

    fail(deferrable=deferrable)

    *again, last = live_crew.xcoms.progress[1:]
    assert {each["since"] for each in again} == {again[0]["since"]}
    polled = [each["polled_at"] for each in again]
    assert polled == sorted(set(polled))
    assert last["state"] == "failed"


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
