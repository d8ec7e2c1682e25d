"""Decisions of a watch, poll by poll: when to poll next, when to give up, what has ended."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_crew.client.errors import (
    CallError,
    Cost,
    ExecutionFailed,
    ExecutionNotFound,
    ExecutionStopped,
    InvalidSettings,
    LostContact,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Rejected,
    ResponseTooLarge,
    ServiceError,
    UnreadableResponse,
    WatchBroken,
)
from airflow_provider_crew.client.models import Failed, Running, read_execution
from airflow_provider_crew.client.wording import describe_progress, duration
from tests.unit.crew_builders import KICKOFF_ID, NOW
from tests.unit.watch_stories import DOWN, RESEARCH, SUCCESS, WRITING, Story, logged, running

REJECTED = NotAuthenticated("The token is not accepted.")
UNKNOWN = ExecutionNotFound("The crew does not know it.")


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            [
                (0, running(), ["info"]),
                (20, RESEARCH, ["research_task"]),
                (30, RESEARCH, []),
                (319, RESEARCH, []),
                (320, RESEARCH, ["research_task"]),
                (340, WRITING, ["writing_task"]),
                (640, WRITING, ["writing_task"]),
                (4210, SUCCESS, ["info"]),
            ],
            id="progress when it changes, and every five minutes",
        ),
        pytest.param(
            [
                (0, DOWN, ["warning"]),
                (10, DOWN, []),
                (20, RESEARCH, ["info", "research_task"]),
                (30, RESEARCH, []),
                (40, DOWN, ["warning"]),
                (50, RateLimited("Too many."), ["warning"]),
                (60, RateLimited("Too many."), []),
                (350, RateLimited("Too many."), ["warning"]),
                (360, RESEARCH, ["info"]),
                (380, DOWN, ["warning"]),
                (390, SUCCESS, ["info", "info"]),
            ],
            id="a trouble when it is new, and its end once",
        ),
        pytest.param(
            [
                (0, running(word="QUEUED"), ["info"]),
                (10, running(word="Hatching"), ["warning", "info"]),
                (30, running(word="resting"), ["warning", "info"]),
                (40, running(word="PENDING"), ["info"]),
                (50, running("a_task", word="resting"), ["warning", "a_task"]),
            ],
            id="an unknown state with each progress",
        ),
    ],
)
def test_watch_logs_news_and_reminders(story: list[tuple[float, Any, list[str]]]) -> None:
    watch = Story(kicked_off_at=NOW)

    for at, outcome, lines in story:
        assert logged(watch.see(outcome, at=at)) == lines, f"after {at} s"


@pytest.mark.parametrize(("dice", "seconds"), [(0.0, 9.0), (0.5, 10.0), (1.0, 11.0)])
def test_next_poll_is_within_a_tenth_of_the_interval(dice: float, seconds: float) -> None:
    assert Story(dice=dice).see(RESEARCH).poll_again_in == pytest.approx(seconds)
    assert Story(dice=dice).see(DOWN).poll_again_in == pytest.approx(seconds)
    assert Story(dice=dice, poll_interval=60).see(RESEARCH).poll_again_in == pytest.approx(6 * seconds)


@pytest.mark.parametrize(
    ("rules", "longest"),
    [
        ({"poll_interval": 10.0}, 10.0),
        ({"poll_interval": 30.0}, 15.0),
        ({"poll_interval": None, "kicked_off_at": NOW}, 5.0),
        ({"poll_interval": None, "kicked_off_at": NOW - 7200}, 15.0),
        ({"poll_interval": 30.0, "timeout": 4.0}, 4.0),
    ],
)
def test_first_poll_is_spread_at_random(rules: dict[str, Any], longest: float) -> None:
    put_off = [Story(dice=dice, **rules).watch.spread().poll_again_in for dice in (0.0, 1.0)]

    assert put_off == pytest.approx([0.0, longest])


@pytest.mark.parametrize(
    ("at", "timeout", "pause"), [(7.0, 100.0, 7.0), (-3.0, 100.0, 0.0), (7.0, 4.0, 4.0), (7.0, -1.0, 0.0)]
)
def test_first_poll_waits_until_another_process_would_have_polled(at: float, timeout: float, pause: float) -> None:
    watch = Story(timeout=timeout, first_poll_at=NOW + at).watch

    assert watch.spread().poll_again_in == pause


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("run_time", [1.0, 100.0, 1200.0, 7200.0])
def test_default_interval_notices_the_end_within_a_twentieth(run_time: float, dice: float) -> None:
    told = Story(dice=dice, poll_interval=None, kicked_off_at=NOW)

    while told.time < run_time:
        told.time += told.see(RESEARCH).poll_again_in

    assert told.time - run_time <= max(5.0, run_time / 20) + 1e-6


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("retry_after", "least"),
    [
        pytest.param(60.0, 60.0, id="honoured"),
        pytest.param(1.0, 9.0, id="shorter than the poll interval"),
        pytest.param(7200.0, 300.0, id="capped at five minutes"),
    ],
)
@pytest.mark.parametrize("kind", [RateLimited, ServiceError])
def test_next_poll_is_never_before_retry_after(
    kind: type[RateLimited | ServiceError], retry_after: float, least: float, dice: float
) -> None:
    step = Story(dice=dice).see(kind("slow down", retry_after=retry_after))

    assert least <= step.poll_again_in <= least * 1.25


@pytest.mark.parametrize("at", [100, 5000])
def test_end_seen_at_the_deadline_counts(at: float) -> None:
    failure = Failed(status="error", kickoff_id=KICKOFF_ID, error="boom", execution_time=None)

    assert Story(timeout=100.0).see(SUCCESS, at=at).completed == SUCCESS
    assert isinstance(Story(timeout=100.0).see(failure, at=at).error, ExecutionFailed)


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "error",
    [DOWN, RateLimited("429", retry_after=45.0), ServiceError("502"), UnreadableResponse("<html>")],
    ids=str,
)
@pytest.mark.parametrize("max_outage", [600.0, 20.0])
def test_outage_ends_the_watch_after_max_outage(max_outage: float, error: Any, dice: float) -> None:
    story = Story(dice=dice, max_outage=max_outage)
    story.see(WRITING, at=0)
    story.time = 60.0
    lost = story.see_until_the_end(lambda: error).error

    assert isinstance(lost, LostContact)
    assert lost.kickoff_id == KICKOFF_ID
    assert story.time == pytest.approx(60.0 + max_outage)
    assert story.looks <= max_outage / 9 + 4
    for words in (duration(max_outage), error.event, "writing_task"):
        assert words in str(lost)


@pytest.mark.parametrize("error", [REJECTED, NotAllowed("Not allowed.")], ids=["401", "403"])
@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
def test_rejected_token_ends_the_watch_after_two_minutes(error: CallError, dice: float) -> None:
    story = Story(dice=dice)
    story.see(RESEARCH, at=0)
    story.time = 60.0
    first = story.see(error)

    assert first.renew_token
    assert logged(first) == ["warning"]
    assert story.see(error, at=70).lines == ()
    assert story.see_until_the_end(lambda: error).error.cause is error
    assert story.time == pytest.approx(180)
    assert story.looks <= 120 / 9 + 4


@pytest.mark.parametrize("before", [None, DOWN, RESEARCH], ids=["renewed", "outage", "good answer"])
def test_two_minutes_of_a_token_start_again(before: Any) -> None:
    story = Story()
    story.see(REJECTED, at=0)
    story.see(before or REJECTED, at=110)
    if not before:
        story.watch.token_renewed()

    assert story.see(REJECTED, at=130).error is None
    assert story.see(REJECTED, at=249).error is None
    assert story.see(REJECTED, at=251).error.cause is REJECTED


@pytest.mark.parametrize(
    ("kicked_off_at", "at", "over"),
    [
        pytest.param(NOW, 0, False, id="just kicked off"),
        pytest.param(NOW, 30, True, id="after half a minute"),
        pytest.param(NOW - 3600, 0, True, id="kicked off long ago"),
        pytest.param(None, 0, True, id="kicked off by somebody else"),
    ],
)
def test_unknown_execution_has_half_a_minute_after_kickoff(kicked_off_at: Any, at: float, over: Any) -> None:
    step = Story(kicked_off_at=kicked_off_at, poll_interval=60).see(UNKNOWN, at=at)

    assert step.error is (UNKNOWN if over else None)
    assert step.lines == ()
    assert over or step.poll_again_in == pytest.approx(5)


@pytest.mark.parametrize("status", [302, 400, 405, 410, 421])
def test_odd_answer_is_an_outage_after_two_minutes(status: int) -> None:
    story, odd = Story(), Rejected("An odd answer.", http_status=status)
    first = story.see(odd, at=0)

    assert logged(first) == ["warning"]
    assert story.see(RESEARCH, at=100).error is None
    assert story.see(odd, at=110).error is None
    assert story.see(odd, at=229).error is None
    assert isinstance(story.see(odd, at=231).error, LostContact)


def test_unusable_connection_ends_the_watch_after_two_minutes() -> None:
    story, unusable = Story(), InvalidSettings("Connection 'crew' is unusable. There is no token.")
    first = story.see(unusable, at=0)

    assert (first.error, first.renew_token) == (None, False)
    assert story.see(unusable, at=119).error is None
    error = story.see(unusable, at=121).error
    assert isinstance(error, WatchBroken)
    assert error.cause is unusable


@pytest.mark.parametrize("word", ["REVOKED", "Cancelled", "canceled", "stopped", "KILLED", "aborted", "timed_out"])
@pytest.mark.parametrize("key", ["state", "status"])
def test_stopped_execution_is_not_a_failed_one(word: str, key: str) -> None:
    body = {key: word, "error": "It was ended.", "usage_metrics": {"total_tokens": 7}}
    error = Story().see(read_execution(body, KICKOFF_ID)).error

    assert type(error) is ExecutionStopped
    assert (error.cost, error.kickoff_id, error.usage) == (Cost.ENDED, KICKOFF_ID, {"total_tokens": 7})


@pytest.mark.parametrize("error", [ResponseTooLarge("It is too large."), CallError("any other")], ids=str)
def test_permanent_error_ends_the_watch_at_once(error: CallError) -> None:
    step = Story(kicked_off_at=NOW).see(error)

    assert isinstance(step.error, WatchBroken)
    assert step.error.cause is error
    assert step.error.kickoff_id == KICKOFF_ID
    assert error.event in str(step.error)
    assert step.error.cost is Cost.RUNNING
    assert not step.renew_token


def test_failed_execution_has_the_crews_error() -> None:
    failure = Failed(
        status="error",
        kickoff_id=KICKOFF_ID,
        error="The model is overloaded.",
        usage={"total_tokens": 312},
        execution_time=90.0,
    )
    step = Story().see(failure)

    assert isinstance(step.error, ExecutionFailed)
    assert step.error.kickoff_id == KICKOFF_ID
    assert (step.error.error, step.error.execution_time) == ("The model is overloaded.", 90.0)
    for words in (KICKOFF_ID, "1m 30s", "The model is overloaded"):
        assert words in str(step.error)
    assert step.error.usage == {"total_tokens": 312}
    assert step.error.cost is Cost.ENDED
    assert step.completed is None


@pytest.mark.parametrize(
    ("execution", "parts"),
    [
        (running(), ["running"]),
        (WRITING, ["2", "3", "writing_task"]),
        (running("writing_task", 0, total=0), ["writing_task"]),
        (running("writing_task", 1, total=2, current_agent="Writer"), ["2", "2", "writing_task", "Writer"]),
        (running("write_summary", 3, total=None, unit="step"), ["step", "4", "write_summary"]),
    ],
)
def test_progress_names_the_task_and_its_number(execution: Running, parts: list[str]) -> None:
    known = r"\d+|step|running|started|writing_task|write_summary|Writer"

    assert re.findall(known, describe_progress(execution)) == parts


def test_long_task_name_is_one_short_line_in_the_log() -> None:
    (line,) = Story().see(running("a\nERROR b" * 1000, 1, current_agent="agent " * 1000)).lines

    assert "a ERROR b" in line.text
    assert len(line.text) <= 300
