"""
Promises of each kind of task: one function for each, which takes the world and a kind, and the cells that exist.

A promise looks only at what others see: requests to the crew, what Airflow stores, and how an attempt ends.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest
import requests

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.errors import WaitedTooLong
from airflow_provider_crew.local import CrewInput, LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.local.scenario import Delivery
from tests.airflow_runs import eventually
from tests.integration.question_receiver import SECRET
from tests.integration.tasks import SLOW, TOKEN, api_error
from tests.promises.attempts import Marked, Outcome
from tests.promises.harness import World
from tests.promises.kinds import Job

MakeJob = Callable[..., Job]

PROMISES: dict[str, Callable[[World, MakeJob], None]] = {}


def promise(function: Callable[[World, MakeJob], None]) -> Callable[[World, MakeJob], None]:
    PROMISES[function.__name__] = function
    return function


def assert_succeeded(outcome: Outcome) -> None:
    assert outcome.error is None, outcome.error


def assert_sent_nothing(world: World, outcome: Outcome) -> None:
    assert outcome.error is not None
    assert outcome.cost == "none"
    assert not world.crew.requests.on("kickoff")


def assert_later_attempt_finds_it(world: World, job: Job, *, others: int = 0) -> None:
    """The next attempt waits for the same execution, and returns its result."""
    world.forget()
    world.finish()
    assert_succeeded(job.attempt())
    assert len(world.crew.kickoffs) == job.rows + others


def complete_later(world: World, **task: Any) -> None:
    """Let executions end so, as soon as they were polled for a while."""
    world.crew.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=3600, **task),), inputs=())
    world.at("status", world.finish, number=3)


# Nothing is sent.


@promise
def kickoff_option_rendered_to_nothing_sends_nothing(world: World, make: MakeJob) -> None:
    for name in ("human_input_webhook_url", "crew_webhook_url", "restore_from_state_id", "webhook_conn_id"):
        job = make(world, **{name: "{{ none }}"})
        assert_sent_nothing(world, job.attempt())


@promise
def template_that_cannot_be_rendered_costs_nothing(world: World, make: MakeJob) -> None:
    """An alert of the DAG reads the cost from the progress."""
    assert_sent_nothing(world, make(world, crew_webhook_url="{{ 1 // 0 }}").attempt())
    (progress,) = [task.xcoms["crew_progress"] for task in world.tasks.values() if "crew_progress" in task.xcoms]
    assert progress["end"]["cost"] == "none"


@promise
def connection_rendered_to_nothing_sends_nothing(world: World, make: MakeJob) -> None:
    outcome = make(world, crew_conn_id="{{ none }}", timeout=3).attempt()
    assert_sent_nothing(world, outcome)
    assert not isinstance(outcome.error, WaitedTooLong)


@promise
def missing_required_input_sends_nothing(world: World, make: MakeJob) -> None:
    _take_also(world, CrewInput(name="port"))
    assert_sent_nothing(world, make(world).attempt())


@promise
def unusable_output_type_is_found_before_anything_is_billed(world: World, make: MakeJob) -> None:
    outcome = make(world, output_type="no.such.Type").attempt()
    assert outcome.error is not None
    assert not outcome.is_retried
    assert (outcome.cost == "none") is not bool(world.crew.kickoffs)  # a sensor's execution is another task's
    assert not world.crew.requests.on("status")


@promise
def missing_optional_input_is_no_doubt(world: World, make: MakeJob) -> None:
    _take_also(world, CrewInput(name="quay", required=False))
    assert_succeeded(make(world).attempt())
    assert "quay" not in world.log.text


def _take_also(world: World, wanted: CrewInput) -> None:
    scenario = world.crew.scenario
    world.crew.scenario = scenario.model_copy(update={"inputs": (*scenario.inputs, wanted)})


@promise
def told_to_end_before_kickoff_sends_nothing(world: World, make: MakeJob) -> None:
    job = make(world)
    world.at("inputs", job.tell_to_end)
    assert_sent_nothing(world, job.attempt())
    assert_later_attempt_finds_it(world, job)


@promise
def time_over_while_intent_is_stored_sends_nothing(world: World, make: MakeJob) -> None:
    intent = _last_write_before_kickoff(world, make)
    writes = count(1)
    world.crew.requests.clear()
    job = make(world, execution_timeout=timedelta(seconds=1))

    def is_slow(call: str) -> bool:
        if call == "set" and next(writes) == intent:
            time.sleep(1.2)
        return False

    job.now.store.breaks_at = is_slow
    assert_sent_nothing(world, job.attempt())
    job.options["execution_timeout"] = None
    assert_succeeded(job.attempt())
    assert len(world.crew.kickoffs) == 2


def _last_write_before_kickoff(world: World, make: MakeJob) -> int:
    """Return the number of the write to the store after which the kickoff is sent, from another run of it."""
    job, writes = make(world), list[str]()

    def note(call: str) -> bool:
        if call == "set" and not world.crew.kickoffs:
            writes.append(call)
        return False

    job.now.store.breaks_at = note
    assert_succeeded(job.attempt())
    return len(writes)


@promise
def deleted_connection_sends_nothing_until_it_is_back(world: World, make: MakeJob) -> None:
    job = make(world, max_outage=0.2)
    world.disconnect()
    outcome = job.attempt()
    assert_sent_nothing(world, outcome)
    assert outcome.is_retried
    world.connect()
    assert_later_attempt_finds_it(world, job)


@promise
def failed_check_of_inputs_sends_nothing(world: World, make: MakeJob) -> None:
    job, faults = make(world, max_outage=0.2), world.crew.faults
    spoils: dict[Callable[[], Any], bool] = {
        lambda: faults.answer(500, on="inputs", times=100): True,
        faults.refuse: True,
        lambda: faults.answer(401, on="inputs", times=100): False,
        lambda: faults.huge(80_000_000, on="inputs", times=100): False,
    }
    for spoil, is_retried in spoils.items():
        spoil()
        outcome = job.attempt()
        faults.clear()
        assert_sent_nothing(world, outcome)
        assert outcome.is_retried is is_retried
    job.clear()
    assert_later_attempt_finds_it(world, job)


@promise
def store_that_stays_away_sends_nothing(world: World, make: MakeJob) -> None:
    for away in ("get", "set"):
        job = make(world)
        job.now.store.breaks_at = away.__eq__
        outcome = job.attempt()
        assert outcome.cost in {"none", "unknown"}
        assert outcome.is_retried
        assert not world.crew.requests.on("kickoff")


# A kickoff is sent once.


@promise
def lost_response_to_kickoff_is_uncertain(world: World, make: MakeJob) -> None:
    world.crew.faults.reset(on="kickoff", after_taken=True)
    job = make(world, max_outage=0.2)
    outcome = job.attempt()
    assert outcome.cost == "unknown"
    assert not outcome.is_retried
    assert job.attempt().cost == "unknown"
    job.clear()
    world.crew.faults.answer(500, on="inputs", times=100)
    assert job.attempt().cost == "unknown"
    assert len(world.crew.kickoffs) == 1
    world.crew.faults.clear()
    job.clear()
    assert_succeeded(job.attempt())
    assert len(world.crew.kickoffs) == 2


@promise
def execution_timeout_during_kickoff_loses_nothing(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW
    limits: dict[str, Any] = {"execution_timeout": timedelta(hours=1), "timeout": 5}
    world.crew.faults.answer(504, on="kickoff", after_taken=True)
    job = make(world, **limits)
    world.at("kickoff", job.now.ring)
    outcome = job.attempt()
    assert outcome.cost == "unknown"
    assert job.has_rows or not outcome.is_retried
    job = make(world, **limits)
    world.at("kickoff", job.now.ring)
    assert job.attempt().cost == "running"
    assert_later_attempt_finds_it(world, job, others=1)


@promise
def response_to_kickoff_decides_cost(world: World, make: MakeJob) -> None:
    """Both clients read every response in tests/integration/test_responses.py."""
    responses: list[tuple[int, Any, str]] = [
        *((status, None, "none") for status in (301, 401, 422)),
        *((status, "<html>Welcome</html>", "unknown") for status in (200, 503)),
        (200, {"kickoff_id": ""}, "unknown"),
    ]
    for status, body, cost in responses:
        world.crew.faults.answer(status, body=body, on="kickoff")
        assert make(world).attempt().cost == cost, (status, body)
    assert not world.crew.kickoffs
    assert len(world.crew.requests.on("kickoff")) == len(responses)


@promise
def response_that_names_an_execution_has_started_it(world: World, make: MakeJob) -> None:
    """Whatever its status."""
    for number, status in enumerate((422, 500), 1):
        world.crew.next_kickoff_id(f"execution-{number}")
        body: Any = {"kickoff_id": f"execution-{number}"}
        world.crew.faults.answer(status, body=body, after_taken=True, on="kickoff")
        assert_succeeded(make(world).attempt())
        assert len(world.crew.requests.on("kickoff")) == number


@promise
def process_killed_during_kickoff_is_uncertain(world: World, make: MakeJob) -> None:
    """Even the next attempt says so if its time is over while it reads the kickoff record."""
    job = make(world)
    world.at("kickoff", job.kill)
    job.attempt()
    job.options["execution_timeout"] = timedelta(seconds=1)
    job.now.store.breaks_at = lambda call: call == "get" and threading.Event().wait(1.2)
    assert job.attempt().cost == "unknown"
    job.options["execution_timeout"], job.now.store.breaks_at = None, lambda _: False
    outcome = job.attempt()
    assert outcome.cost == "unknown"
    assert not outcome.is_retried
    assert len(world.crew.kickoffs) == 1


@promise
def lost_response_settles_itself(world: World, make: MakeJob) -> None:
    job = make(world)
    with world.receiver(lambda: job.now) as receiver:
        world.crew.faults.reset(on="kickoff", after_taken=True)
        assert_succeeded(job.attempt())
        assert receiver.calls in {1, 2}
    (kickoff_id,) = world.crew.ids
    # The Crew tab counts these lines. The log of a batch has none.
    assert job.has_rows or f"Started execution {kickoff_id}" in world.log.text


@promise
def kickoff_of_killed_process_settles_itself(world: World, make: MakeJob) -> None:
    job = make(world)
    with world.receiver(lambda: job.now):
        world.at("kickoff", job.kill)
        job.attempt()
        assert_succeeded(job.attempt())
    assert len(world.crew.kickoffs) == 1


@promise
def late_call_is_found_by_later_attempt(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW.model_copy(update={"started_webhook": Delivery(times=0)})
    job = make(world)
    with world.receiver(lambda: job.now, within=0.05):
        world.crew.faults.reset(on="kickoff", after_taken=True)
        for _ in range(2):  # silence proves nothing
            outcome = job.attempt()
            assert outcome.cost == "unknown"
            assert not outcome.is_retried
        assert len(world.crew.kickoffs) == 1
        (request,) = world.crew.requests.on("kickoff")
        started = {"kickoff_id": world.crew.ids[0]}
        requests.post(request.json["crewWebhookUrl"], json=started, timeout=30)
        job.clear()
        assert_later_attempt_finds_it(world, job)


@promise
def execution_under_another_id_is_not_replaced(world: World, make: MakeJob) -> None:
    """The crew does not report the ID with which it calls."""
    world.crew.scenario = SLOW.model_copy(update={"started_webhook": Delivery(other_ids=True)})
    world.crew.faults.reset(on="kickoff", after_taken=True)
    world.each_poll_takes(300)
    job = make(world, timeout=7200)
    with world.receiver(lambda: job.now):
        for _ in range(2):
            assert job.attempt().cost in {"running", "unknown"}
    assert len(world.crew.kickoffs) == 1


@promise
def rejected_for_a_moment_is_sent_again(world: World, make: MakeJob) -> None:
    world.crew.faults.answer(429, on="kickoff", retry_after=1)
    assert_succeeded(make(world).attempt())
    assert len(world.crew.kickoffs) == 1


# Nothing is lost while a task waits.


@promise
def told_to_end_while_waiting_is_found_again(world: World, make: MakeJob) -> None:
    world.connect(cancel_on_kill=True)
    world.crew.scenario = SLOW
    job = make(world)
    world.at("status", job.tell_to_end, number=3)
    world.at("status", job.kill, number=5)
    world.at("status", world.finish, number=7)  # a trigger goes on elsewhere
    job.attempt()
    assert world.crew.stopped_ids == []
    assert_later_attempt_finds_it(world, job)


@promise
def large_result_is_returned(world: World, make: MakeJob) -> None:
    output = "all of it " * 300_000
    complete_later(world, output=output)
    job = make(world)
    outcome = job.attempt()
    assert_succeeded(outcome)
    assert job.output(outcome) == output
    assert len(world.crew.kickoffs) == 1


@promise
def token_renewed_while_waiting_is_used(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW

    def renew() -> None:
        _renew_token(world)
        world.at("status", world.finish, status=200, number=2)

    world.at("status", renew, number=3)
    world.each_poll_takes(1)
    assert_succeeded(make(world, timeout=100).attempt())
    assert len(world.crew.kickoffs) == 1


def _renew_token(world: World, **extra: Any) -> None:
    world.crew.rotate_token("renewed-token-0815")
    world.connect(**extra)


@promise
def timeout_stops_with_renewed_token(world: World, make: MakeJob) -> None:
    world.connect(cancel_on_timeout=True)
    world.crew.scenario = SLOW
    world.each_poll_takes(10)
    world.at("status", lambda: _renew_token(world, cancel_on_timeout=True), number=3)
    job = make(world, timeout=300, rows=2)
    outcome = job.attempt()
    assert outcome.cost == "ended"
    assert sorted(world.crew.stopped_ids) == sorted(world.crew.ids)
    assert len(world.crew.ids) == job.rows


@promise
def timeout_stops_nothing_at_another_crew(world: World, make: MakeJob) -> None:
    world.each_poll_takes(10)
    _assert_stops_nothing_at_another_crew(world, make, lambda _: None, cancel_on_timeout=True)


@promise
def mark_stops_nothing_at_another_crew(world: World, make: MakeJob) -> None:
    _assert_stops_nothing_at_another_crew(world, make, Job.mark, cancel_on_kill=True)


def _assert_stops_nothing_at_another_crew(
    world: World, make: MakeJob, end: Callable[[Job], None], **cancels: Any
) -> None:
    """While the task waits, its connection is pointed to another crew."""
    world.connect(**cancels)
    world.crew.scenario = SLOW
    with LocalCrewService(token=TOKEN) as another:
        job = make(world, timeout=300, rows=2)

        def move() -> None:
            world.connect(another, **cancels)
            end(job)

        world.at("status", move, number=3)
        outcome = job.attempt()
        assert not another.requests.on("stop")
    assert world.crew.stopped_ids == [] or sorted(world.crew.stopped_ids) == sorted(world.crew.ids)
    if not isinstance(outcome.error, Marked):
        assert outcome.cost == ("ended" if world.crew.stopped_ids else "running")


@promise
def store_away_before_kickoff_is_waited_for(world: World, make: MakeJob) -> None:
    job = make(world)
    _be_away(job, since=lambda: True)
    assert_succeeded(job.attempt())
    assert len(world.crew.kickoffs) == 1


@promise
def kickoff_id_outlives_store_that_was_away(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW
    job = make(world)
    _be_away(job, since=lambda: bool(world.crew.kickoffs))
    world.at("status", job.kill, number=2)
    world.at("status", world.finish, number=4)  # a trigger goes on elsewhere
    job.attempt()
    assert_later_attempt_finds_it(world, job)


def _be_away(job: Job, since: Callable[[], bool]) -> None:
    """Let the store be away for three reads, and for as many writes."""
    left: defaultdict[str, Iterator[int]] = defaultdict(lambda: iter(range(3)))
    store = job.now.store
    store.breaks_with = api_error(503)
    store.breaks_at = lambda call: since() and next(left[call], None) is not None


@promise
def connection_away_for_a_moment_loses_nothing(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW
    back = threading.Timer(0.3, world.connect)

    def disconnect() -> None:
        world.disconnect()
        world.finish()
        back.start()

    world.at("status", disconnect)
    job = make(world)
    outcome = job.attempt()
    back.join()
    if outcome.error:
        assert outcome.is_retried
        assert outcome.cost == "running"
        assert_succeeded(job.attempt())
    assert len(world.crew.kickoffs) == 1


@promise
def odd_responses_lose_no_result(world: World, make: MakeJob) -> None:
    complete_later(world, output="Done.")
    faults = world.crew.faults
    faults.truncate(on="status")
    faults.answer(200, body="<html>Welcome</html>", on="status")
    faults.reset(on="status")

    def fail_when_completed() -> None:
        faults.answer(502, on="status")
        faults.answer(200, body={"status": "error", "message": "No database"}, on="status")

    world.at("status", fail_when_completed, number=3)
    job = make(world)
    outcome = job.attempt()
    assert_succeeded(outcome)
    assert job.output(outcome) == "Done."
    assert len(world.crew.kickoffs) == 1


@promise
def unexpected_exception_in_wait_surfaces(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW
    repair = world.before_polls(Mock(side_effect=RuntimeError("boom")))
    job = make(world, timeout=5)
    outcome = job.attempt()
    assert outcome.error
    assert "boom" in repr(outcome.error) + world.log.text
    repair()
    assert_later_attempt_finds_it(world, job)


@promise
def execution_timeout_during_poll_ends_attempt(world: World, make: MakeJob) -> None:
    world.crew.scenario = SLOW
    stop = world.before_polls(lambda: signal.raise_signal(signal.SIGALRM))
    job = make(world, execution_timeout=timedelta(hours=1), timeout=5)
    outcome = job.attempt()
    assert not isinstance(outcome.error, WaitedTooLong)
    assert outcome.cost == "running"
    assert world.crew.stopped_ids == []
    stop()
    assert_later_attempt_finds_it(world, job)


@promise
def execution_that_cannot_be_polled_is_not_replaced(world: World, make: MakeJob) -> None:
    """It may be unknown after the first poll, its token be rejected, or the crew be away."""
    world.crew.scenario = SLOW
    for number, status in enumerate((404, 401, 500)):
        world.each_poll_takes(300)
        answer = partial(world.crew.faults.answer, status, on="status", times=10_000)
        world.at("status", answer) if status == 404 else answer()
        job = make(world, timeout=7200, max_outage=0.2)
        outcome = job.attempt()
        assert outcome.cost == "running"
        assert status != 401 or not outcome.is_retried
        world.disconnect()
        assert job.attempt().cost in {"running", "unknown"}
        world.connect()
        job.clear()
        job.attempt()
        world.crew.faults.clear()
        assert_later_attempt_finds_it(world, job, others=number)


# The cost is true.


@promise
def execution_that_outlasts_its_time_is_running(world: World, make: MakeJob) -> None:
    """If there is a second row, it runs when the first one's time is over."""
    world.crew.scenario = SLOW
    world.each_poll_takes(10)

    def finish_second_row_later() -> None:
        world.at("status", lambda: world.crew.finish(world.crew.ids[1]), number=2)

    world.at("kickoff", finish_second_row_later, number=2)
    job = make(world, row_timeout=300, rows=2)
    outcome = job.attempt()
    assert outcome.cost == "running"
    assert world.crew.stopped_ids == []
    assert_later_attempt_finds_it(world, job)


@promise
def stopped_execution_is_not_started_again(world: World, make: MakeJob) -> None:
    for number, dialect in enumerate(("documented", "deployed")):
        world.crew.scenario = SLOW.model_copy(update={"dialect": dialect})
        job = make(world)
        world.at("status", lambda: world.crew.revoke(world.crew.ids[-1]), number=3)
        assert job.attempt().cost == "ended"
        job.attempt()
        assert len(world.crew.kickoffs) == number + 1


@promise
def marked_task_stops_each_execution_once_if_it_cancels(world: World, make: MakeJob) -> None:
    for cancels in (False, True):
        world.connect(cancel_on_kill=cancels)
        world.crew.scenario = SLOW
        job = make(world, rows=2)
        world.at("status", job.mark, number=3)
        world.at("status", job.kill, number=7)
        assert job.attempt().error
        assert sorted(world.crew.stopped_ids) == sorted(world.crew.ids[job.rows :])
        assert len(world.crew.ids) == job.rows * (1 + cancels)
        world.forget()


@promise
def execution_that_runs_on_is_asked_three_times(world: World, make: MakeJob) -> None:
    world.connect(cancel_on_kill=True)
    world.crew.scenario = SLOW
    world.crew.faults.answer(200, on="stop", body={}, for_seconds=60)
    job = make(world, rows=2)
    world.at("status", job.mark, number=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "CANCEL_PAUSE", 0.0)
        job.attempt()
    assert sorted(world.crew.stopped_ids) == sorted(world.crew.ids * 3)
    if not job.options.get("deferrable"):  # a worker is killed soon
        assert len({*world.crew.stopped_ids[: job.rows]}) == job.rows


@promise
def marked_task_waits_for_no_slow_poll(world: World, make: MakeJob) -> None:
    world.connect(cancel_on_kill=True, request_timeout=3600)
    world.crew.scenario = SLOW
    world.crew.faults.hang(on="status")
    job = make(world)

    def mark() -> None:
        eventually(lambda: world.crew.requests.on("status"), pause=0.02)
        job.mark()

    marking = threading.Thread(target=mark)
    marking.start()
    outcome = job.attempt()
    marking.join()
    assert outcome.error
    assert world.crew.stopped_ids == world.crew.ids


# Results.


@promise
def misfitting_output_is_kept_and_checked_again_at_no_cost(world: World, make: MakeJob) -> None:
    output = '{"title": "Harbours"}'
    complete_later(world, output=output)
    job = make(world, output_type=list[int])
    outcome = job.attempt()
    assert outcome.cost == "ended"
    assert not outcome.is_retried
    assert job.kept() == output
    job.clear()
    job.options["output_type"] = dict[str, str]
    assert_later_attempt_finds_it(world, job)


# Secrets stay secret.


@promise
def echoed_token_is_shown_nowhere(world: World, make: MakeJob) -> None:
    for error in (None, f"{TOKEN} failed"):
        complete_later(world, agent=TOKEN, description=TOKEN, output=f"{TOKEN} as it is", error=error)
        job = make(world)
        _assert_hidden(world, job, job.attempt(), TOKEN)
    assert world.crew.requests.on("status")


@promise
def echoed_secret_of_webhooks_is_shown_nowhere(world: World, make: MakeJob) -> None:
    echo = f"It is {SECRET}"
    for status in (422, 500, 200):
        world.crew.faults.answer(status, body={"detail": echo, "message": {"token": SECRET}}, on="kickoff")
        job = make(world, **world.webhooks())
        _assert_hidden(world, job, job.attempt(), SECRET)
    complete_later(world, agent=echo, error=echo)
    job = make(world, **world.webhooks())
    _assert_hidden(world, job, job.attempt(), SECRET)
    assert all(SECRET.encode() in request.body for request in world.crew.requests.on("kickoff"))
    assert world.crew.requests.on("status")


def _assert_hidden(world: World, job: Job, outcome: Outcome, *secrets: str) -> None:
    shown: list[Any] = [outcome.value, repr(outcome.error), str(outcome.error), world.stored, job.files]
    text = "".join(map(str, shown)) + world.log.text
    assert not [secret for secret in secrets if secret in text]


# Why a kind has no such option.
ABSENT: dict[tuple[str, str], str] = {
    ("kickoff_option_rendered_to_nothing_sends_nothing", "tool"): "takes no such option",
    ("template_that_cannot_be_rendered_costs_nothing", "tool"): "takes no such option",
    ("unusable_output_type_is_found_before_anything_is_billed", "tool"): "takes no output_type",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "tool"): "takes no such option",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "sensor"): "takes no such option",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "deferred sensor"): "takes no such option",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "rescheduled sensor"): "takes no such option",
    ("failed_check_of_inputs_sends_nothing", "tool"): "an agent decides what comes after a failed call",
    ("marked_task_waits_for_no_slow_poll", "tool"): "learns of a mark between two polls",
    ("timeout_stops_nothing_at_another_crew", "rescheduled sensor"): "reads its connection at each poke",
    ("mark_stops_nothing_at_another_crew", "rescheduled sensor"): "reads its connection at each poke",
    ("misfitting_output_is_kept_and_checked_again_at_no_cost", "tool"): "takes no output_type",
    ("execution_timeout_during_poll_ends_attempt", "deferred sensor"): "polls in the triggerer, without an alarm",
    ("execution_timeout_during_poll_ends_attempt", "deferred batch"): "polls in the triggerer, without an alarm",
}


def cells(*kinds: str) -> Iterator[Any]:
    """Yield the cells of the table for these kinds."""
    for promise in PROMISES:
        for kind in kinds:
            if (promise, kind) not in ABSENT:
                yield pytest.param(promise, kind, id=f"{promise}: {kind}")
