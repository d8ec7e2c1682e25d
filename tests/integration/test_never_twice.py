"""Ways that used to lead, or nearly led, to a second kickoff, and to a result that nobody was given."""

from __future__ import annotations

import json
import signal
from itertools import count
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowTaskTimeout

from airflow_provider_crew.compat import CLEARING
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.service.client import CrewClient
from airflow_provider_crew.service.errors import LostContact, UncertainKickoff, WaitedTooLong
from airflow_provider_crew.service.messages import Money
from airflow_provider_crew.tasks.ends import CrewTaskFailed
from tests.integration.tasks import INPUTS, QUICK, SLOW, Task, outlives_the_return, poked
from tests.integration.waits import in_every_way

pytest_plugins = ["tests.integration.task_fixtures"]

HTML_404 = {"body": "<html>default backend - 404</html>", "headers": {"content-type": "text/html"}}


KEPT = {"max_tries": 2, "kicked_off_at": 0.0, "end": None, "reported": False, "address": "", "delivered": False}


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, **options})


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, **options})


@pytest.fixture
def alarm():
    """Ring as an execution_timeout does."""

    def ring(*_: object) -> None:
        raise AirflowTaskTimeout("Timeout")

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda: signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("live_crew")
@pytest.mark.parametrize("operator", [run, kickoff])
@pytest.mark.parametrize("with_store", [False, True])
def test_a_time_out_during_a_kickoff_that_stays_uncertain(store, alarm, monkeypatch, operator, with_store):
    def interrupted(*_: Any, **__: Any) -> None:
        alarm()
        raise UncertainKickoff("No answer came.")

    monkeypatch.setattr(CrewClient, "kickoff", interrupted)
    task = Task(operator, retries=2, store=store if with_store else None)

    with pytest.raises(
        CrewTaskFailed, match="(?s)ended by AirflowTaskTimeout.* while its kickoff was under way"
    ) as caught:
        task.run()
    assert "It is not known whether that started an execution" in str(caught.value)

    retry = Task(lambda: operator(on_uncertain_kickoff="retry"), retries=2)
    with pytest.raises(UncertainKickoff):
        retry.run()


def test_an_error_nobody_thought_of_after_the_kickoff_was_sent(live_crew, monkeypatch):
    original = CrewClient.kickoff

    def out_of_memory(*given: Any, **options: Any) -> str:
        original(*given, **options)
        raise MemoryError

    monkeypatch.setattr(CrewClient, "kickoff", out_of_memory)

    with pytest.raises(CrewTaskFailed, match="ended by MemoryError while its kickoff was under way"):
        Task(run, retries=2).run()
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("operator", [run, kickoff])
def test_a_task_that_is_killed_in_the_pause_before_the_next_attempt_kicks_nothing_off(
    live_crew, store, monkeypatch, operator
):
    """As Airflow 3 does it: the handler calls on_kill, and the task runs on until it is killed for good."""
    live_crew.faults.answer(429, on="kickoff")
    task = Task(operator, store=store, retries=1)
    begun = task.begin()
    before = signal.signal(signal.SIGTERM, lambda *_: begun.on_kill())
    monkeypatch.setattr(
        "airflow_provider_crew.tasks.kickoff.time.sleep", lambda _: signal.raise_signal(signal.SIGTERM)
    )
    try:
        with pytest.raises(
            AirflowException, match="(?s)before the crew was kicked off.*Nothing was started"
        ) as caught:
            begun.execute(task.context)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert not isinstance(caught.value, AirflowFailException), "a retry starts nothing a second time"
    assert live_crew.kickoffs == ()
    assert store.kickoff is None


@pytest.mark.parametrize("operator", [run, kickoff])
def test_a_time_out_before_the_kickoff_says_that_nothing_was_started(
    live_crew, store, alarm, monkeypatch, operator
):
    live_crew.faults.answer(429, on="kickoff")
    monkeypatch.setattr("airflow_provider_crew.tasks.kickoff.time.sleep", lambda _: alarm())

    with pytest.raises(
        AirflowTaskTimeout, match=r"(?s)before the crew was kicked off.*Nothing was started.*If Airflow retries"
    ):
        Task(operator, store=store, retries=1).run()

    assert live_crew.kickoffs == ()
    assert store.kickoff is None


def test_a_time_out_of_a_retry_that_asks_after_an_execution_names_it(live_crew, store, alarm, monkeypatch):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.1), store=store, retries=2)
    with pytest.raises(WaitedTooLong):
        task.run()
    monkeypatch.setattr(CrewClient, "status", lambda *_, **__: alarm())

    with pytest.raises(AirflowTaskTimeout, match="of an earlier try goes on") as caught:
        task.run()

    assert live_crew.kickoffs[0].kickoff_id in str(caught.value)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_result_that_a_hook_of_the_user_has_kept_from_being_returned_is_returned_after_a_clear(
    live_crew, store, deferrable
):
    task = Task(lambda: run(deferrable=deferrable), store=store)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Task, "_ended", lambda *_: pytest.fail("the process is gone"))
        with pytest.raises(pytest.fail.Exception):
            task.run()
    task.clear()

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("operator", [run, kickoff])
def test_nothing_is_remembered_as_sent_while_a_kickoff_waits_to_be_sent_again(
    live_crew, store, monkeypatch, operator
):
    remembered: list[Any] = []
    live_crew.faults.answer(429, on="kickoff")
    monkeypatch.setattr(
        "airflow_provider_crew.tasks.kickoff.time.sleep", lambda _: remembered.append(store.kickoff)
    )

    Task(operator, store=store).run()

    assert remembered == [None]
    assert store.kickoff["kickoff_id"] == live_crew.kickoffs[0].kickoff_id


def test_a_store_that_refuses_the_id_is_not_counted_on(live_crew, store):
    live_crew.scenario = SLOW
    noted = count()
    store.breaks_at = lambda call: call == "set" and next(noted) == 1

    with pytest.raises(CrewTaskFailed, match="not retried, since that would start another"):
        Task(lambda: run(timeout=0.1), store=store, retries=2).run()


@pytest.mark.parametrize("spoil", ["event", "xcom"])
def test_a_task_that_cannot_be_resumed_is_not_retried(live_crew, spoil, monkeypatch):
    task = Task(lambda: run(deferrable=True), retries=2)
    live_crew.scenario = SLOW
    waiting = task.deferred()

    monkeypatch.setattr(task.ti, "xcom_pull", None)
    resume = {
        "event": lambda: task.resume(waiting, {"of": "another version"}),
        "xcom": lambda: task.resume_without_event("Trigger failure"),
    }

    with pytest.raises(CrewTaskFailed, match="The task is not retried"):
        resume[spoil]()


def test_what_came_of_a_wait_counts_more_than_a_memory_that_cannot_be_read(live_crew, store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store, retries=1)
    waiting = task.deferred()
    kickoff_id = live_crew.kickoffs[0].kickoff_id
    store.breaks_at = lambda _: True

    event = {"kickoff_id": kickoff_id, "deadline": 0.0, "result": '{"output": "Done.", "output_json": null}'}

    assert task.resume(waiting, event)["output"] == "Done."


def test_a_result_that_no_try_has_returned_is_returned_after_a_clear(live_crew, store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.1), store=store)
    with pytest.raises(WaitedTooLong, match=f"it goes on waiting for this execution. So does {CLEARING}"):
        task.run()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    task.clear()

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id

    task.clear()
    live_crew.scenario = QUICK
    assert task.run()["kickoff_id"] == live_crew.kickoffs[1].kickoff_id
    assert len(live_crew.kickoffs) == 2


def test_a_gateway_without_its_crew_does_not_end_a_wait(live_crew):
    live_crew.faults.answer(404, on="status", times=4, **HTML_404)

    assert Task(run).run()["output"].startswith("Briefing")


def test_a_gateway_without_its_crew_is_no_reason_to_kick_off_anew(live_crew, store):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.1), store=store, retries=2)
    with pytest.raises(WaitedTooLong):
        task.run()
    live_crew.faults.answer(404, on="status", times=2, **HTML_404)
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1


@outlives_the_return
def test_a_refused_kickoff_does_not_make_an_earlier_one_forgotten(live_crew, store):
    known = {"max_tries": 0, "kicked_off_at": 0.0, "kickoff_id": "earlier", "end": "failed"}
    kept = known | {"reported": False, "address": "", "delivered": False, "name": "", "fingerprint": ""}
    store.set("crew_kickoff", kept)
    live_crew.faults.answer(422, on="kickoff")

    with pytest.raises(CrewTaskFailed):
        Task(kickoff, store=store).run()

    assert store.kickoff == kept


def test_a_kickoff_id_is_not_split_into_outputs():
    with pytest.raises(ValueError, match="a kickoff id is none"):
        kickoff(multiple_outputs=True)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_sensor_gives_an_execution_time_to_become_known(live_crew, deferrable):
    live_crew.scenario = SLOW
    kickoff_id = live_crew.take(INPUTS, None, {})
    live_crew.finish(kickoff_id)
    live_crew.faults.answer(404, on="status")

    sensor = Task(
        lambda: CrewExecutionSensor(
            task_id="crew", kickoff_id=kickoff_id, deferrable=deferrable, poke_interval=0.05, retries=3
        )
    )

    assert sensor.run()["kickoff_id"] == kickoff_id


@pytest.mark.parametrize("broken", ["deleted", "of another kind"])
def test_a_connection_that_breaks_while_an_execution_runs_names_the_execution(
    live_crew, store, monkeypatch, broken
):
    live_crew.scenario = SLOW
    task = Task(lambda: run(timeout=0.1), store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        task.run()
    if broken == "deleted":
        monkeypatch.delenv("AIRFLOW_CONN_CREW_DEFAULT")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", "crew://nowhere")

    with pytest.raises(CrewTaskFailed, match="cannot be used") as caught:
        task.run()

    assert f"Execution {live_crew.kickoffs[0].kickoff_id} of an earlier try goes on" in str(caught.value)
    assert len(live_crew.kickoffs) == 1


@pytest.mark.usefixtures("live_crew")
def test_a_sensor_whose_connection_is_gone_names_the_execution(monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_CREW_DEFAULT")

    with pytest.raises(
        CrewTaskFailed, match=r"(?s)Execution 4711 cannot be watched\..*The connection 'crew_default'"
    ):
        Task(lambda: CrewExecutionSensor(task_id="crew", kickoff_id="4711")).run()


@pytest.mark.parametrize("operator", [run, kickoff])
@pytest.mark.parametrize(
    "kept",
    [
        {},
        "text",
        ["4711"],
        {"max_tries": 2, "kicked_off_at": 0.0, "kickoff_id": ["4711"]},
        {"max_tries": 2, "kicked_off_at": 0.0, "kickoff_id": ["4711"], "reported": True},
        {"max_tries": "many", "kicked_off_at": 0.0, "kickoff_id": "47\x0011"},
    ],
    ids=str,
)
def test_a_memory_that_makes_no_sense_is_taken_for_a_kickoff_that_was_sent(
    live_crew, store, task_log, operator, kept
):
    store.set("crew_kickoff", kept)
    task = Task(operator, store=store, retries=2)

    with pytest.raises(CrewTaskFailed, match="An earlier try sent a kickoff and ended before it knew the answer"):
        task.run()
    assert "remembers of an earlier kickoff cannot be read" in task_log.text
    assert live_crew.kickoffs == ()
    if "4711" in repr(kept):
        assert "4711" in task_log.text
        assert "4711" in json.dumps(store.kickoff["unread"])

    task.clear()
    task.run()
    assert len(live_crew.kickoffs) == 1


# What a newer version may have stored, or a person, besides an ID that can be read.
ODD = [
    {"max_tries": ...},
    {"kicked_off_at": ...},
    {"max_tries": ..., "kicked_off_at": ...},
    {"max_tries": None},
    {"max_tries": "many"},
    {"kicked_off_at": None},
    {"kicked_off_at": "2027-01-01T00:00:00Z"},
    {"end": "cancelled"},
    {"end": {"state": "completed"}},
    {"end": 7},
    {"reported": None},
    {"reported": "in part"},
    {"address": None},
    {"address": ["https://crew.example"]},
    {"delivered": None},
    {"delivered": {"xcom": True}},
    {"name": None},
    {"name": 7},
    {"fingerprint": None},
    {"fingerprint": {"sha512": "0"}},
    {"name": None, "end": "cancelled", "since_the_next_version": {"a": 1}},
]


def with_odd(kept: dict[str, Any], odd: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (kept | odd).items() if value is not ...}


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("operator", [run, kickoff])
def test_an_odd_field_of_a_record_does_not_lose_the_kickoff_id(live_crew, store, operator, odd):
    live_crew.scenario = SLOW
    known = live_crew.take(INPUTS, None, {})
    live_crew.at_look(1, lambda: live_crew.finish(known))
    kept = with_odd(KEPT | {"kickoff_id": known}, odd)
    store.set("crew_kickoff", kept)
    task = Task(operator, store=store, retries=2)

    returned = task.run()

    assert known in (returned, returned["kickoff_id"] if isinstance(returned, dict) else None)
    assert len(live_crew.kickoffs) == 1
    for name, value in odd.items():
        if value is not ...:
            assert repr(value) in repr(store.kickoff), f"{name} was written over"


@outlives_the_return
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_field_of_a_record_does_not_pay_after_a_clear(live_crew, store, odd):
    live_crew.scenario = SLOW
    known = live_crew.take(INPUTS, None, {})
    store.set("crew_kickoff", with_odd(KEPT | {"kickoff_id": known}, odd))
    task = Task(lambda: run(timeout=0.1), store=store, retries=2)
    for _ in range(3):
        task.clear()
        with pytest.raises(WaitedTooLong):
            task.run()

    assert len(live_crew.kickoffs) == 1
    assert store.kickoff["kickoff_id"] == known


@pytest.mark.parametrize("event", [None, {}, {"kickoff_id": 7}, {"kickoff_id": "4711", "error": "{"}], ids=str)
def test_a_task_that_is_told_nonsense_looks_for_itself(live_crew, store, event):
    live_crew.scenario = SLOW
    task = Task(lambda: run(deferrable=True), store=store, retries=1)
    waiting = task.deferred()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)

    assert task.resume(waiting, event)["kickoff_id"] == live_crew.kickoffs[0].kickoff_id


@pytest.mark.parametrize("name", ["poll_interval", "timeout"])
@pytest.mark.parametrize("value", [0, -1, 1e300, float("inf"), float("nan")])
def test_a_time_that_would_fail_after_the_kickoff_is_refused_before_it(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number of seconds above 0 and up to ten years"):
        run(**{name: value})


NO_DATABASE = {"status": "error", "message": "Unable to communicate with database"}


@in_every_way
@pytest.mark.parametrize(
    "body",
    [
        NO_DATABASE,
        {"status": "error", "error": None, "detail": "Unable to communicate with database"},
        {"status": "error", "error": {"message": "Unable to communicate with database"}},
        {"status": "success", "message": "The database is back"},
    ],
    ids=["message", "null", "object", "success"],
)
def test_gateway_error_with_status_200_is_waited_out(live_crew, kind, options, body):
    live_crew.faults.answer(200, body=body, on="status", times=2)

    assert poked(kind(live_crew, **options))["output"]
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("deferrable", [False, True], ids=["worker", "deferred"])
def test_gateway_error_with_status_200_starts_no_second_one(live_crew, store, deferrable):
    live_crew.scenario = SLOW
    live_crew.faults.answer(200, body=NO_DATABASE, on="status", times=10_000)
    task = Task(lambda: run(max_outage=0.1, deferrable=deferrable), store=store, retries=2)

    with pytest.raises((LostContact, CrewTaskFailed)) as caught:
        task.run()
    assert getattr(caught.value, "money", Money.GOES_ON) is Money.GOES_ON
    assert NO_DATABASE["message"] in str(caught.value)

    live_crew.faults.clear()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1
