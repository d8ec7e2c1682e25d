"""The sensor waits and ends alike in poke mode, in reschedule mode and deferred."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowSkipException, BaseHook

from airflow_provider_crew.client.errors import (
    InvalidKickoffId,
    InvalidSettings,
    LostContact,
    NotAuthenticated,
    WatchBroken,
)
from airflow_provider_crew.client.watch import Watch
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import ScenarioTask
from tests.integration.operators import in_every_mode, sensor
from tests.integration.tasks import CONNECTION, QUICK, SLOW, Task, fired, poked, sensors_remember

pytest_plugins = ["tests.integration.task_fixtures"]

RESCHEDULE: dict[str, Any] = {"mode": "reschedule"}

RUNNING = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}


def waiting(kickoff_id: Any, **options: Any) -> Task:
    store = options.pop("store", None)
    return Task(lambda: sensor(kickoff_id, **options), store=store)


where_pokes_remember = pytest.mark.parametrize("remembering", [pytest.param(True, marks=sensors_remember), False])


def test_kickoff_id_rendered_to_a_number_is_accepted(live_crew):
    live_crew.next_kickoff_id(4711)
    live_crew.new_execution()

    assert waiting(4711).run()["kickoff_id"] == "4711"


@pytest.mark.parametrize("given", [None, "None", {"kickoff_id": "a"}, float("nan"), True, "a\nb"], ids=repr)
def test_invalid_kickoff_id_is_not_polled(live_crew, given):
    with pytest.raises(CrewTaskFailed) as caught:
        waiting(given).run()

    assert isinstance(caught.value.failure, InvalidKickoffId)
    assert isinstance(given, str) or repr(given) in str(caught.value)
    assert live_crew.calls == []


def test_resumed_sensor_keeps_its_execution(live_crew):
    kickoff_id = live_crew.new_execution(SLOW)
    ids = iter([kickoff_id, "that of a kickoff task that was cleared"])
    task = Task(lambda: sensor(next(ids), deferrable=True, max_outage=1))
    pending = task.deferred()
    live_crew.finish(kickoff_id)

    event = {"kickoff_id": kickoff_id, "completed": True}  # the task reads a large result itself
    assert task.resume(pending, event)["kickoff_id"] == kickoff_id


def test_only_resumed_sensor_does_not_need_its_template(live_crew):
    task = waiting(live_crew.new_execution(SLOW), deferrable=True)
    deferral = task.deferred()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    event = asyncio.run(fired(task.revived(deferral)))
    resumed, started = (sensor("{{ 1 // 0 }}", crew_conn_id="crew_{{ 'default' }}") for _ in range(2))
    for each in (resumed, started):
        each.render_template_fields(task.context)
    live_crew.requests.clear()

    with pytest.raises(ZeroDivisionError):
        started.execute(task.context)

    assert not live_crew.requests
    assert live_crew.xcoms.progress[-1]["end"]["cost"] == "unknown"
    result = resumed.resume_execution("execute_complete", {"event": event}, task.context)
    assert result["kickoff_id"] == live_crew.kickoffs[0].kickoff_id


def test_sensor_whose_trigger_is_late_cancels_no_later_execution(live_crew):
    """The kickoff task was cleared during the deferral, and has started another execution."""
    ids = [live_crew.new_execution(SLOW), live_crew.new_execution(SLOW)]
    given = iter(ids)
    task = Task(lambda: sensor(next(given), deferrable=True, cancel_on_timeout=True))
    task.deferred()
    task.ti.xcoms["crew_progress"] = live_crew.xcoms.progress[-1]

    with pytest.raises(CrewTaskFailed) as caught:
        task.resume_without_event("Trigger timeout")

    assert caught.value.kickoff_id == ids[0]
    assert [request.path for request in live_crew.requests.on("stop")] == [f"/stop/{ids[0]}"]


def test_rejected_token_ends_a_rescheduled_sensor_without_store(live_crew, timing):
    timing(longest_rejection=0.15)
    kickoff_id = live_crew.new_execution(SLOW)
    live_crew.rotate_token("another-token-0815")

    with pytest.raises(CrewTaskFailed) as caught:
        waiting(kickoff_id, **RESCHEDULE).run()

    assert isinstance(caught.value.failure, WatchBroken)
    assert isinstance(caught.value.failure.cause, NotAuthenticated)


@in_every_mode
def test_unusable_connection_is_read_again_until_it_is_fixed(live_crew, monkeypatch, mode):
    kickoff_id, note = live_crew.new_execution(), Watch.on_error

    def fix_connection(watch: Watch, error: Any) -> Any:
        monkeypatch.setenv(CONNECTION, live_crew.connection_uri)
        assert isinstance(error, InvalidSettings)
        return note(watch, error)

    monkeypatch.setenv(CONNECTION, "crew://nowhere")
    monkeypatch.setattr(Watch, "on_error", fix_connection)

    assert poked(waiting(kickoff_id, **mode))["kickoff_id"] == kickoff_id
    assert live_crew.requests.on("status")


@in_every_mode
def test_silent_sensor_waits_longer_than_max_outage(live_crew, store, mode):
    kickoff_id = live_crew.new_execution()
    live_crew.faults.answer(503, on="status", for_seconds=0.3)

    assert poked(waiting(kickoff_id, **mode, silent_fail=True, max_outage=0.1, store=store))["output"]


@pytest.mark.parametrize("remembering", [True, False])
@pytest.mark.parametrize(
    ("limits", "ago", "end"),
    [
        ({}, 3601, AirflowSensorTimeout),
        ({"execution_timeout": timedelta(seconds=60)}, 600, AirflowRescheduleException),  # of each poke
    ],
)
def test_rescheduled_sensor_times_out_after_its_first_poke(live_crew, store, remembering, limits, ago, end):
    kickoff_id = live_crew.new_execution(SLOW)
    limits = limits | {"timeout": 3600}
    task = waiting(kickoff_id, **RESCHEDULE, **limits, store=store if remembering else None)
    with pytest.raises(AirflowRescheduleException):
        task.run()
    task.ti.first_poke = datetime.now(UTC) - timedelta(seconds=ago)

    with pytest.raises(end):
        task.run()


@where_pokes_remember
def test_rescheduled_sensor_waits_out_a_short_not_found(live_crew, store, remembering):
    kickoff_id = live_crew.new_execution(SLOW)
    live_crew.set_status(kickoff_id, RUNNING)
    task = waiting(kickoff_id, **RESCHEDULE, store=store if remembering else None)
    with pytest.raises(AirflowRescheduleException):
        task.run()
    task.ti.try_number -= 1
    task.ti.first_poke = datetime.now(UTC) - timedelta(seconds=3600)
    live_crew.faults.answer(404, on="status", times=2)  # on either path

    with pytest.raises(AirflowRescheduleException):
        task.run()

    assert live_crew.calls.count("status") == (3 if remembering else 4)


@pytest.mark.parametrize("remembering", [True, False])
def test_next_poke_is_after_the_interval_or_at_the_deadline(live_crew, store, remembering):
    kickoff_id = live_crew.new_execution(SLOW)
    for timeout, seconds in [(3600, (54.0, 66.0)), (30, (0.0, 30.0))]:
        task = waiting(
            kickoff_id, **RESCHEDULE, poke_interval=60, timeout=timeout, store=store if remembering else None
        )
        now = datetime.now(UTC)

        with pytest.raises(AirflowRescheduleException) as caught:
            task.run()

        after, took = caught.value.reschedule_date, datetime.now(UTC) - now
        assert after.tzinfo is not None
        assert seconds[0] <= (after - now).total_seconds() <= seconds[1] + took.total_seconds()


@sensors_remember
def test_poke_without_news_stores_nothing(live_crew, store):
    kickoff_id = live_crew.new_execution(SLOW)
    later = RUNNING | {"current_task": "review_task"}
    live_crew.set_status(kickoff_id, *[RUNNING] * 3, *[later] * 3, {"status": "completed", "result": "x"})
    asked: list[str] = []
    store.breaks_at = asked.append

    poked(waiting(kickoff_id, **RESCHEDULE, store=store))

    assert (asked.count("get"), asked.count("set")) == (7, 2)


@sensors_remember
def test_outage_of_an_earlier_attempt_does_not_count(live_crew, store):
    kickoff_id = live_crew.new_execution(SLOW)
    live_crew.faults.answer(503, on="status", for_seconds=60)
    task = waiting(kickoff_id, **RESCHEDULE, store=store, max_outage=0.15)
    with pytest.raises(LostContact):
        poked(task)

    with pytest.raises(AirflowRescheduleException):
        task.run()


@in_every_mode
@pytest.mark.parametrize(("skips", "ends"), [("never_fail", AirflowSkipException), ("soft_fail", RuntimeError)])
def test_unexpected_exception_skips_only_with_never_fail(live_crew, monkeypatch, task_log, mode, skips, ends):
    kickoff_id = live_crew.new_execution()
    monkeypatch.setattr(BaseHook, "get_connection", Mock(side_effect=RuntimeError("the secrets backend broke")))

    with pytest.raises(ends, match="the secrets backend broke"):
        waiting(kickoff_id, **{skips: True}, **mode).run()

    assert "The task is skipped" not in task_log.text


def test_without_a_store_an_outage_lasts_until_the_deadline(live_crew):
    kickoff_id = live_crew.new_execution(SLOW)
    live_crew.faults.answer(503, on="status", for_seconds=60)

    with pytest.raises(AirflowSensorTimeout, match="503"):
        poked(waiting(kickoff_id, **RESCHEDULE, timeout=0.3, max_outage=0.1))


@sensors_remember
@pytest.mark.parametrize("call", ["get", "set", "none, but a newer version has stored it"])
def test_unusable_record_fails_no_poke(live_crew, store, call):
    scenario = QUICK.model_copy(update={"tasks": (ScenarioTask(name="a", seconds=0.1, output="Done."),)})
    kickoff_id = live_crew.new_execution(scenario)
    kept = {"kickoff_id": kickoff_id, "try_number": 1}
    store.set("crew_watch", {"try": kept, "seen": {"started_at": 0.0, "mood": "bright"}})
    store.breaks_at = lambda name: name == call

    assert poked(waiting(kickoff_id, **RESCHEDULE, store=store))["output"] == "Done."


@pytest.mark.parametrize(
    ("why", "options", "error"),
    [
        ("Trigger timeout", {}, AirflowSensorTimeout),
        ("Trigger timeout", {"soft_fail": True}, AirflowSkipException),
        ("Trigger failure", {}, LostContact),
        ("Trigger failure", {"soft_fail": True}, LostContact),
        ("Trigger failure", {"never_fail": True}, AirflowSkipException),
    ],
)
def test_sensor_resumed_without_event_ends_like_any_other(live_crew, why, options, error):
    kickoff_id = live_crew.new_execution(SLOW)
    task = waiting(kickoff_id, deferrable=True, **options)

    with pytest.raises(error, match=kickoff_id):
        task.resume_without_event(why)
    live_crew.finish(kickoff_id)

    assert task.resume_without_event(why)["kickoff_id"] == kickoff_id
