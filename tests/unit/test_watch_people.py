"""Watching a crew that waits for human input, which reads as paused or as unknown."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.client.errors import (
    ExecutionFailed,
    ExecutionNotFound,
    ExecutionUnknown,
    HumanInputNeeded,
    LostContact,
    WaitedTooLong,
)
from airflow_provider_crew.client.models import Failed, Paused, Progress
from tests.unit.crew_builders import KICKOFF_ID, NOW
from tests.unit.watch_stories import DOWN, RESEARCH, SUCCESS, WRITING, Story, logged

ADDRESS, ELSEWHERE = "https://crew.example", "https://other.example"
UNKNOWN = ExecutionNotFound("The crew does not know it.", address=ADDRESS)
UNKNOWN_ELSEWHERE = ExecutionNotFound("The crew does not know it.", address=ELSEWHERE)
PAUSED = Paused(
    status="paused",
    kickoff_id=KICKOFF_ID,
    word="PAUSED",
    progress=Progress(completed=1, total=3),
    current_task="ask",
)
FAILED = Failed(status="error", kickoff_id=KICKOFF_ID, error="boom", execution_time=None)

WARNING, INFO = ["warning"], ["info"]

# With dice of 0.5: the poll interval, 5 s, and a minute with its jitter.
USUAL, SOON, A_MINUTE = 10.0, 5.0, 63.0
EXISTS: dict[str, Any] = {"exists": True, "kicked_off_at": NOW - 3600}
JUST_KICKED_OFF: dict[str, Any] = {"exists": True, "kicked_off_at": NOW}


@pytest.mark.parametrize(
    ("rules", "story"),
    [
        pytest.param(
            JUST_KICKED_OFF,
            [
                (0, UNKNOWN, [], SOON),
                (29.9, UNKNOWN, [], SOON),
                (30, UNKNOWN, WARNING, A_MINUTE),
                (329, UNKNOWN, [], A_MINUTE),
                (330, UNKNOWN, WARNING, A_MINUTE),
                (599, UNKNOWN, [], 1.0),
                (600, UNKNOWN, [], ExecutionUnknown),
            ],
            id="from the kickoff on, and given up after the longest outage",
        ),
        pytest.param(
            {**JUST_KICKED_OFF, "max_outage": 0.0},
            [(0, UNKNOWN, [], SOON), (29.9, UNKNOWN, [], SOON), (30, UNKNOWN, [], ExecutionUnknown)],
            id="to need a moment is no outage: where none may last",
        ),
        pytest.param(
            EXISTS,
            [
                (0, RESEARCH, ["research_task"], USUAL),
                (10, UNKNOWN, WARNING, SOON),
                (40, UNKNOWN, [], A_MINUTE),
                (310, UNKNOWN, WARNING, A_MINUTE),
                (609, UNKNOWN, [], 1.0),
                (610, UNKNOWN, [], ExecutionUnknown),
            ],
            id="soon looked at again for half a minute, then once a minute, warned of every five",
        ),
        pytest.param(
            EXISTS,
            [
                (0, UNKNOWN, WARNING, SOON),
                (300, DOWN, WARNING, USUAL),
                (580, DOWN, [], USUAL),
                (590, UNKNOWN, WARNING, 10.0),
                (600, UNKNOWN, [], ExecutionUnknown),
            ],
            id="an outage in between does not begin the patience anew",
        ),
        pytest.param(
            EXISTS,
            [
                (0, DOWN, WARNING, USUAL),
                (500, UNKNOWN, WARNING, SOON),
                (1099, UNKNOWN, WARNING, 1.0),
                (1100, DOWN, WARNING, USUAL),
                (1700, DOWN, [], LostContact),
            ],
            id="that it is unknown is an answer, which ends an outage",
        ),
        pytest.param(
            {**EXISTS, "human_input": True, "timeout": 9000.0},
            [
                (0, UNKNOWN, INFO, SOON),
                (3599, UNKNOWN, [], A_MINUTE),
                (3600, UNKNOWN, INFO, A_MINUTE),
                (3660, DOWN, WARNING, USUAL),
                (8990, UNKNOWN, INFO, 10.0),
                (9000, UNKNOWN, [], ExecutionUnknown),
            ],
            id="people may be asked: waited for to the deadline, with a line an hour",
        ),
        pytest.param(
            {**EXISTS, "address": ADDRESS},
            [(0, UNKNOWN, WARNING, SOON), (5, UNKNOWN_ELSEWHERE, [], ExecutionUnknown)],
            id="at another address it is not waited for",
        ),
        pytest.param(
            {**EXISTS, "max_outage": 12.0},
            [
                (0, UNKNOWN, WARNING, SOON),
                (10, UNKNOWN, [], 2.0),
                (12, UNKNOWN, [], ExecutionUnknown),
            ],
            id="a short max_outage",
        ),
        pytest.param(
            {**EXISTS, "kicked_off_at": NOW + 3600.0},
            [
                (0, UNKNOWN, [], SOON),
                (29, UNKNOWN, [], SOON),
                (30, UNKNOWN, WARNING, A_MINUTE),
            ],
            id="half a minute, even if the clock of the kickoff was ahead",
        ),
        pytest.param(
            {**EXISTS, "answered_at": NOW},
            [(0, PAUSED, INFO, SOON)],
            id="paused after an answer",
        ),
        pytest.param(
            {**EXISTS, "timeout": 100.0},
            [
                (0, RESEARCH, ["research_task"], USUAL),
                (100, RESEARCH, [], WaitedTooLong),
            ],
            id="at work until the timeout",
        ),
        pytest.param(
            EXISTS,
            [
                (0, RESEARCH, ["research_task"], USUAL),
                (10, PAUSED, INFO, A_MINUTE),
                (3609, PAUSED, [], A_MINUTE),
                (3610, PAUSED, INFO, A_MINUTE),
                (3620, WRITING, ["info", "writing_task"], USUAL),
                (3640, PAUSED, INFO, A_MINUTE),
                (3703, WRITING, ["info"], USUAL),
            ],
            id="paused, which is logged every hour, until the crew goes on",
        ),
        pytest.param(
            EXISTS,
            [(0, PAUSED, INFO, A_MINUTE), (63, SUCCESS, ["info", "info"], SUCCESS)],
            id="paused, and completed",
        ),
        pytest.param(
            EXISTS,
            [(0, PAUSED, INFO, A_MINUTE), (63, FAILED, ["info"], ExecutionFailed)],
            id="paused, and failed",
        ),
    ],
)
def test_watch_of_an_execution_that_may_wait_for_human_input(
    rules: dict[str, Any], story: list[tuple[float, Any, list[str], Any]]
) -> None:
    watch = Story(**rules)

    for at, outcome, lines, then in story:
        step = watch.see(outcome, at=at)
        assert logged(step) == lines, f"after {at} s"
        if isinstance(then, float):
            assert not step.error, f"after {at} s"
            assert step.poll_again_in == pytest.approx(then), f"after {at} s"
        elif isinstance(then, type):
            assert type(step.error) is then, f"after {at} s"
        else:
            assert step.completed == then


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("poll_interval", [None, 0.5, 60.0, 600.0])
def test_unknown_execution_is_polled_soon_then_every_minute(poll_interval: float | None, dice: float) -> None:
    story = Story(dice=dice, poll_interval=poll_interval, **EXISTS)

    assert [story.see(UNKNOWN, at=at).poll_again_in <= 5 for at in (0, 15, 29)] == [True, True, True]
    least, most = 60.0, max(66.0, 1.1 * (poll_interval or 0.0))
    assert all(least <= story.see(UNKNOWN, at=at).poll_again_in <= most for at in (30, 100, 300))
    paused = Story(dice=dice, poll_interval=poll_interval, **EXISTS)
    assert all(least <= paused.see(PAUSED, at=at).poll_again_in <= most for at in (0, 30, 3600))


ASKS: dict[str, Any] = {"stops_for_input": True, **EXISTS}


@pytest.mark.parametrize(
    ("rules", "outcome", "at", "asks"),
    [
        pytest.param({}, PAUSED, 0, True, id="paused"),
        pytest.param({"human_input": True}, UNKNOWN, 29, False, id="unknown for a moment"),
        pytest.param({"human_input": True}, UNKNOWN, 30, True, id="unknown"),
        pytest.param({}, UNKNOWN, 100, False, id="unknown, without human_input"),
        pytest.param({"answered_at": NOW}, PAUSED, 59, False, id="paused, and just answered"),
        pytest.param({"answered_at": NOW}, PAUSED, 60, True, id="paused, a minute after the answer"),
    ],
)
def test_watch_stops_when_the_crew_needs_input(rules: dict[str, Any], outcome: Any, at: float, asks: Any) -> None:
    story = Story(**ASKS | rules)
    if outcome is UNKNOWN:
        story.see(UNKNOWN, at=0)

    step = story.see(outcome, at=at)

    assert isinstance(step.error, HumanInputNeeded) is asks
    assert logged(step) == (["info"] if outcome is PAUSED else [])
    if "answered_at" in rules and not asks:
        assert step.poll_again_in <= SOON


def test_execution_unknown_at_another_address_names_both() -> None:
    error: Any = Story(**EXISTS, address=ADDRESS).see(UNKNOWN_ELSEWHERE).error

    assert (error.kickoff_id, error.elsewhere) == (KICKOFF_ID, ADDRESS)
    assert ADDRESS in error.event
    assert UNKNOWN_ELSEWHERE.address in error.event


@pytest.mark.parametrize("outcome", [UNKNOWN, RESEARCH])
def test_end_at_the_deadline_has_the_time_for_which_it_was_unknown(outcome: Any) -> None:
    story = Story(**EXISTS)
    story.see(RESEARCH, at=0)
    story.see(outcome, at=10)
    story.time = 70

    error: Any = story.watch.on_deadline().error

    assert error.kickoff_id == KICKOFF_ID
    if outcome is UNKNOWN:
        assert (type(error), error.lasted) == (ExecutionUnknown, 60.0)
    else:
        assert type(error) is WaitedTooLong


def test_only_an_execution_that_may_not_exist_is_in_doubt() -> None:
    cases: list[tuple[dict[str, Any], Any, bool]] = [
        ({"kicked_off_at": NOW}, UNKNOWN, True),
        ({"kicked_off_at": NOW}, RESEARCH, False),
        ({"kicked_off_at": NOW}, DOWN, False),
        (JUST_KICKED_OFF, UNKNOWN, False),
        ({"human_input": True}, UNKNOWN, False),
    ]
    for rules, outcome, doubt in cases:
        story = Story(**rules)
        story.see(outcome)
        assert story.watch.is_in_doubt is doubt

    known = Story(kicked_off_at=NOW)
    known.see(UNKNOWN)
    known.see(RESEARCH)
    assert not known.watch.is_in_doubt
