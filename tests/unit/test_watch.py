"""What a watch decides and says, poll by poll: when to ask next, when to give up, what has ended."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from airflow_provider_crew.service.errors import (
    AnswerTooLarge,
    CallError,
    Cost,
    ExecutionFailed,
    ExecutionNotFound,
    LostContact,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Refused,
    ServiceError,
    UnreadableAnswer,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.service.models import Completed, Failed, Progress, Running, TaskResult
from airflow_provider_crew.service.watch_state import WatchMemory, WatchRules
from airflow_provider_crew.service.watch_words import describe_progress, duration
from tests.unit.crew_builders import KICKOFF_ID, NOW
from tests.unit.watch_stories import DOWN, RESEARCH, SUCCESS, WRITING, Story, running, said, trouble

REJECTED = NotAuthenticated("The token is not accepted.")
UNKNOWN = ExecutionNotFound("The crew does not know it.")
STRANGE = "! its state is '{}', which is not known. It is taken for still going."


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            [
                (0, running(), ["running"]),
                (10, running(), []),
                (20, RESEARCH, ["task 1 of 3, research_task"]),
                (30, RESEARCH, []),
                (319, RESEARCH, []),
                (320, RESEARCH, ["task 1 of 3, research_task, for 5m 0s"]),
                (330, RESEARCH, []),
                (340, WRITING, ["task 2 of 3, writing_task"]),
                (350, WRITING, []),
                (640, WRITING, ["task 2 of 3, writing_task, for 5m 0s"]),
                (940, WRITING, ["task 2 of 3, writing_task, for 10m 0s"]),
                (4210, SUCCESS, ["completed after 1h 10m"]),
            ],
            id="progress is said when it changes, and every five minutes",
        ),
        pytest.param(
            [
                (0, DOWN, [trouble(DOWN)]),
                (10, DOWN, []),
                (20, RESEARCH, ["the service answers again", "task 1 of 3, research_task"]),
                (30, RESEARCH, []),
                (40, DOWN, [trouble(DOWN)]),
                (50, RateLimited("Too many."), [trouble(RateLimited("Too many."))]),
                (60, RateLimited("Too many."), []),
                (349, RateLimited("Too many."), []),
                (350, RateLimited("Too many."), [trouble(RateLimited("Too many."))]),
                (360, RESEARCH, ["the service answers again"]),
                (370, RESEARCH, []),
                (380, DOWN, [trouble(DOWN)]),
                (390, SUCCESS, ["the service answers again", "completed after 1h 10m"]),
            ],
            id="a trouble is said when it is new, and its end once",
        ),
        pytest.param(
            [
                (0, running(word="QUEUED"), ["queued"]),
                (10, running(word="Hatching"), [STRANGE.format("Hatching"), "hatching"]),
                (20, running(word="Hatching"), []),
                (30, running(word="resting"), [STRANGE.format("resting"), "resting"]),
                (40, running(word="PENDING"), ["pending"]),
                (50, running("a", word="resting"), [STRANGE.format("resting"), "a, resting"]),
            ],
            id="a strange word is warned of with each progress, of which it is a part",
        ),
        pytest.param(
            [
                (0, UNKNOWN, []),
                (29, UNKNOWN, []),
                (30, RESEARCH, ["task 1 of 3, research_task"]),
            ],
            id="a service that needs a moment to know the execution is no trouble",
        ),
    ],
)
def test_what_is_said_of_a_watch(story: list[tuple[float, Any, list[str]]]) -> None:
    told = Story(kicked_off_at=NOW)

    for at, outcome, lines in story:
        assert said(told.see(outcome, at=at)) == lines, f"after {at} s"


@pytest.mark.parametrize(("dice", "seconds"), [(0.0, 9.0), (0.5, 10.0), (1.0, 11.0)])
def test_looks_again_after_the_poll_interval_give_or_take_a_tenth(dice: float, seconds: float) -> None:
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
def test_the_first_look_is_put_off_at_random_but_not_for_long(rules: dict[str, Any], longest: float) -> None:
    put_off = [Story(dice=dice, **rules).watch.spread().poll_again_in for dice in (0.0, 1.0)]

    assert put_off == pytest.approx([0.0, longest])


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("age", "shortest", "longest"),
    [
        pytest.param(0, 5, 5, id="young"),
        pytest.param(100, 5, 5, id="a twentieth is the shortest"),
        pytest.param(600, 25, 30, id="ten minutes"),
        pytest.param(7200, 49, 60, id="hours"),
    ],
)
def test_without_an_interval_looks_the_less_often_the_older_the_execution_is(
    age: float, shortest: float, longest: float, dice: float
) -> None:
    for told in (
        Story(dice=dice, poll_interval=None),
        Story(dice=dice, poll_interval=None, kicked_off_at=NOW),
    ):
        assert shortest <= told.see(RESEARCH, at=age).poll_again_in <= longest


def test_the_age_is_that_of_the_execution_where_its_kickoff_is_known() -> None:
    told = Story(poll_interval=None, kicked_off_at=NOW - 2000)

    assert told.see(RESEARCH).poll_again_in == pytest.approx(60 - 0.1 * 55)


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("run_time", [1.0, 10.0, 60.0, 100.0, 600.0, 1200.0, 7200.0])
def test_without_an_interval_the_end_is_noticed_within_a_twentieth_of_the_run_time(
    run_time: float, dice: float
) -> None:
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
        pytest.param(float("inf"), 300.0, id="endless"),
    ],
)
@pytest.mark.parametrize("kind", [RateLimited, ServiceError])
def test_never_looks_before_the_time_that_the_service_named(
    kind: type[RateLimited | ServiceError], retry_after: float, least: float, dice: float
) -> None:
    step = Story(dice=dice).see(kind("slow down", retry_after=retry_after))

    assert least <= step.poll_again_in <= least * 1.25


@pytest.mark.parametrize(
    "outcome",
    [RESEARCH, DOWN, RateLimited("429", retry_after=60.0), REJECTED, UNKNOWN],
    ids=["running", "down", "busy", "rejected", "not known yet"],
)
def test_the_last_look_is_at_the_deadline(outcome: Any) -> None:
    story = Story(timeout=100.0, kicked_off_at=NOW + 90)

    assert story.see(outcome, at=97).poll_again_in == pytest.approx(3.0)
    assert isinstance(story.see(outcome, at=100).error, WaitedTooLong)


@pytest.mark.parametrize("at", [100, 5000])
def test_what_is_over_at_the_deadline_counts(at: float) -> None:
    failure = Failed(status="error", kickoff_id=KICKOFF_ID, error="boom", execution_time=None)

    assert Story(timeout=100.0).see(SUCCESS, at=at).completed is SUCCESS
    assert isinstance(Story(timeout=100.0).see(failure, at=at).error, ExecutionFailed)


def test_waiting_too_long_is_told_with_what_was_seen_and_what_to_do() -> None:
    story = Story(timeout=130.0)
    story.see(WRITING, at=5)
    step = story.see(WRITING, at=130)

    assert isinstance(step.error, WaitedTooLong)
    assert step.error.kickoff_id == KICKOFF_ID
    for words in (
        KICKOFF_ID,
        "2m 10s",
        "task 2 of 3, writing_task",
        "cannot be cancelled",
        "do not kick off again",
    ):
        assert words in str(step.error)
    assert "failed" not in str(step.error)


def test_waiting_too_long_tells_the_trouble_at_the_end() -> None:
    story = Story(timeout=30.0)
    story.see(RESEARCH, at=0)
    story.see(DOWN, at=20)
    error = story.see(DOWN, at=30).error

    assert (
        "At the last poll: no usable answer. The wait goes on for up to 10m 0s. The crew did not answer."
        in str(error)
    )
    assert "Last seen: nothing." in str(Story(timeout=0).see(DOWN).error)


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "error", [DOWN, RateLimited("429", retry_after=45.0), ServiceError("502"), UnreadableAnswer("<html>")], ids=str
)
@pytest.mark.parametrize("max_outage", [600.0, 20.0])
def test_an_outage_is_waited_out_for_so_long_and_no_longer(max_outage: float, error: Any, dice: float) -> None:
    story = Story(dice=dice, max_outage=max_outage)
    story.see(WRITING, at=0)
    story.time = 60.0
    lost = story.see_until_the_end(lambda: error).error

    assert isinstance(lost, LostContact)
    assert lost.kickoff_id == KICKOFF_ID
    assert story.time == pytest.approx(60.0 + max_outage)
    assert lost.what.endswith(f": there was no usable answer for {duration(max_outage)}.")
    assert story.looks <= max_outage / 9 + 4
    for words in (str(error), "task 2 of 3, writing_task", "do not kick off again"):
        assert words in str(lost)


def test_one_good_answer_ends_an_outage() -> None:
    story = Story()
    for at in range(0, 6000, 590):
        assert story.see(DOWN, at=at).error is None
        assert story.see(RESEARCH, at=at + 580).error is None


def test_no_outage_is_waited_out_when_none_may_last() -> None:
    assert isinstance(Story(max_outage=0).see(DOWN).error, LostContact)


@pytest.mark.parametrize("error", [REJECTED, NotAllowed("Not allowed.")], ids=["401", "403"])
@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
def test_a_token_that_is_not_accepted_is_given_two_minutes(error: CallError, dice: float) -> None:
    story = Story(dice=dice)
    story.see(RESEARCH, at=0)
    story.time = 60.0
    first = story.see(error)

    assert first.renew_token
    (line,) = said(first)
    assert (
        f" It is read anew. {error} The execution goes on. The connection is read anew before the next poll"
        in line
    )
    assert line.endswith("giving up after 2m 0s.")
    assert said(story.see(error, at=70)) == []
    assert story.see_until_the_end(lambda: error).error.cause is error
    assert story.time == pytest.approx(180)
    assert story.looks <= 120 / 9 + 4


def test_the_connection_is_read_anew_only_for_a_token_that_is_not_accepted() -> None:
    assert [Story().see(outcome).renew_token for outcome in (RESEARCH, DOWN, REJECTED)] == [False, False, True]


def test_a_renewed_token_is_given_its_own_two_minutes() -> None:
    story = Story()
    story.see(REJECTED, at=0)
    story.see(REJECTED, at=100)
    story.watch.token_renewed()

    assert story.see(REJECTED, at=130).error is None
    assert story.see(REJECTED, at=249).error is None
    assert story.see(REJECTED, at=251).error.cause is REJECTED


def test_an_outage_in_between_does_not_use_up_the_patience_with_a_token() -> None:
    story = Story()
    story.see(REJECTED, at=0)
    story.see(DOWN, at=110)

    assert story.see(REJECTED, at=130).error is None
    assert story.see(REJECTED, at=249).error is None
    assert story.see(REJECTED, at=251).error.cause is REJECTED


def test_a_good_answer_ends_the_patience_with_a_token() -> None:
    story = Story()
    story.see(REJECTED, at=0)

    assert said(story.see(RESEARCH, at=110)) == ["the service answers again", "task 1 of 3, research_task"]
    assert story.see(REJECTED, at=130).error is None


@pytest.mark.parametrize(
    ("kicked_off_at", "at", "over"),
    [
        pytest.param(NOW, 0, False, id="just kicked off"),
        pytest.param(NOW, 29.9, False, id="within half a minute"),
        pytest.param(NOW, 30, True, id="after half a minute"),
        pytest.param(NOW - 3600, 0, True, id="kicked off long ago"),
        pytest.param(None, 0, True, id="kicked off by somebody else"),
    ],
)
def test_an_execution_that_is_not_known_is_given_half_a_minute_after_the_kickoff(
    kicked_off_at: Any, at: float, over: Any
) -> None:
    step = Story(kicked_off_at=kicked_off_at, poll_interval=60).see(UNKNOWN, at=at)

    assert step.error is (UNKNOWN if over else None)
    assert step.lines == ()
    assert over or step.poll_again_in == pytest.approx(5)


@pytest.mark.parametrize(
    "error", [AnswerTooLarge("It is too large."), Refused("405"), CallError("any other")], ids=str
)
def test_what_no_waiting_mends_ends_the_watch_at_once(error: CallError) -> None:
    step = Story(kicked_off_at=NOW).see(error)

    assert isinstance(step.error, WatchBroken)
    assert step.error.cause is error
    assert step.error.kickoff_id == KICKOFF_ID
    assert step.error.reason == f"Execution {KICKOFF_ID} can no longer be watched. {error}"
    assert step.error.cost is Cost.RUNNING
    assert step.error.next == "Mend this; do not kick off again."
    assert not step.renew_token


def test_a_failed_execution_is_told_with_the_error_of_the_crew() -> None:
    failure = Failed(status="error", kickoff_id=KICKOFF_ID, error="The model is overloaded.", execution_time=90.0)
    step = Story().see(failure)

    assert isinstance(step.error, ExecutionFailed)
    assert step.error.kickoff_id == KICKOFF_ID
    assert (step.error.error, step.error.execution_time) == ("The model is overloaded.", 90.0)
    assert (
        step.error.reason == f"Execution {KICKOFF_ID} failed after 1m 30s. The crew says: The model is overloaded."
    )
    assert step.error.cost is Cost.ENDED
    assert step.completed is None


def test_a_failed_execution_tells_what_it_has_used() -> None:
    usage = {"total_tokens": 312, "successful_requests": 2}
    failure = Failed(status="error", kickoff_id=KICKOFF_ID, error="boom", usage=usage, execution_time=None)

    assert Story().see(failure).error.usage == usage
    assert Story().see(failure.model_copy(update={"usage": None})).error.usage is None


def test_an_end_without_a_time_is_told_without_it() -> None:
    failure = Failed(status="error", kickoff_id=KICKOFF_ID, error="boom", execution_time=None)
    success = Completed(status="completed", kickoff_id=KICKOFF_ID, output="text", execution_time=None)

    assert Story().see(failure).error.reason == f"Execution {KICKOFF_ID} failed. The crew says: boom."
    assert said(Story().see(success)) == ["completed"]


def listed(count: int) -> Completed:
    """Return the end of a crew that lists all its tasks."""
    return SUCCESS.model_copy(update={"tasks": (TaskResult(),) * count, "lists_tasks": True})


def counted(done: int, **unit: Any) -> Completed:
    """Return the end of a crew, or a flow, that counts them."""
    return SUCCESS.model_copy(update={"progress": Progress(completed=done, **unit)})


@pytest.mark.parametrize(
    ("seen", "end", "told"),
    [
        ([RESEARCH], listed(3), ["tasks 2 to 3 passed between two polls"]),
        ([RESEARCH], counted(3, total=3), ["tasks 2 to 3 passed between two polls"]),
        ([RESEARCH, WRITING], listed(3), ["task 3 passed between two polls"]),
        (
            [running("step", 1, total=None, unit="step")],
            counted(4, unit="step"),
            ["steps 3 to 4 passed between two polls"],
        ),
        ([RESEARCH, WRITING, running("review_task", 2)], listed(3), []),
        ([RESEARCH], SUCCESS, []),
        ([running()], listed(3), []),
        ([], listed(3), []),
    ],
)
def test_a_step_that_passed_between_two_polls_is_told_at_the_end(
    seen: list[Running], end: Completed, told: list[str]
) -> None:
    story = Story()
    for execution in seen:
        story.see(execution)

    assert said(story.see(end)) == [*told, "completed after 1h 10m"]


def test_a_step_that_was_told_in_another_process_has_not_passed() -> None:
    before = Story()
    before.see(running("review_task", 2))
    carried = WatchMemory.recalled(before.watch.memory.handed_over())

    assert said(Story(memory=carried).see(listed(3))) == ["completed after 1h 10m"]


def test_a_long_watch_ends_with_the_result() -> None:
    outcomes = [running(), DOWN, RESEARCH, REJECTED, ServiceError("502"), WRITING, running(word="queued"), SUCCESS]
    told = iter(outcomes)
    story = Story(kicked_off_at=NOW)

    assert story.see_until_the_end(lambda: next(told)).completed is SUCCESS
    assert story.time == pytest.approx(70.0)


@pytest.mark.parametrize(
    ("execution", "words"),
    [
        (running(), "running"),
        (running(word="STARTED"), "started"),
        (running("writing_task"), "writing_task"),
        (running(None, 1), "task 2 of 3"),
        (WRITING, "task 2 of 3, writing_task"),
        (running("writing_task", 3), "task 3 of 3, writing_task"),
        (running("writing_task", 7), "task 3 of 3, writing_task"),
        (running("writing_task", 0, total=0), "writing_task"),
        (running("writing_task", 1, total=2, current_agent="Writer"), "task 2 of 2, writing_task (Writer)"),
        (running(None, 1, current_agent="Writer"), "task 2 of 3"),
        (running("write_summary", 3, total=None, unit="step"), "step 4, write_summary"),
        (running("write_summary", 3, total=4, unit="step"), "step 4 of 4, write_summary"),
        (running("write_summary", 0, total=None, unit="step"), "step 1, write_summary"),
        (running(None, 3, total=None, unit="step"), "step 4"),
    ],
)
def test_says_how_far_an_execution_is(execution: Running, words: str) -> None:
    assert describe_progress(execution) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.4, "0s"),
        (59.4, "59s"),
        (59.6, "1m 0s"),
        (250, "4m 10s"),
        (3599, "59m 59s"),
        (3600, "1h 0m"),
        (90_061, "25h 1m"),
    ],
)
def test_says_a_time_as_people_do(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    "rules",
    [
        {"poll_interval": 0},
        {"poll_interval": -1},
        {"poll_interval": float("nan")},
        {"poll_interval": float("inf")},
        {"deadline": float("nan")},
        {"deadline": float("inf")},
        {"max_outage": float("nan")},
    ],
    ids=str,
)
def test_times_that_make_no_sense_are_refused(rules: dict[str, float]) -> None:
    given: dict[str, Any] = {"deadline": NOW, **rules}
    with pytest.raises(ValidationError, match=next(iter(rules))):
        WatchRules(**given)


def test_a_task_name_stays_on_its_line() -> None:
    assert said(Story().see(running("a\nERROR b", current_agent="c\nd"))) == ["a ERROR b (c d)"]


def test_a_task_with_a_long_name_does_not_fill_the_log() -> None:
    (line,) = said(Story().see(running("long " * 1000, 1, current_agent="agent " * 1000)))

    assert line.startswith("task 2 of 3, long long")
    assert len(line) <= 210
