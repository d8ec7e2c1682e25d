"""A watch carried from process to process decides as if it had stayed in one."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.history import History
from airflow_provider_crew.client.models import TaskResult
from airflow_provider_crew.client.watch import Step, WatchState
from tests.unit.crew_builders import NOW
from tests.unit.test_watch import LONG, OUTCOMES, outcome_of
from tests.unit.watch_stories import DOWN, WRITING, Story, running


def done(output: str, name: str = "facts_task", took: float | None = None) -> TaskResult:
    return TaskResult(task_id=name, agent="Writer", output=output, execution_time=took)


SEEN = [
    *OUTCOMES,
    "research as task 1 by Researcher, running for 4.0 s",
    "writing as task 2 by Writer, running for 14.0 s, done: research",
    "review as task 3 by Editor, done: writing again",
    *(f"{task} as task 3 by Editor, done: {task}" for task in LONG),
    "end of 3, done: review",
]
looks = st.lists(st.tuples(st.sampled_from(SEEN).map(outcome_of), st.floats(0, 400)), max_size=25)


def life(*, carried: bool = False, **rules: Any) -> Story:
    return Story(
        **{"dice": 0.3, "poll_interval": None, "kicked_off_at": NOW, "timeout": 3600} | rules, carried=carried
    )


def comparable(step: Step) -> Any:
    error = step.error and (type(step.error), str(step.error), getattr(step.error, "lasted", None))
    return step.lines, step.completed, error, step.poll_again_in, step.renew_token


@given(
    story=looks,
    renewed=st.integers(0, 25),
    rules=st.sampled_from(
        [{}, {"exists": True}, {"exists": True, "address": "https://crew.example"}, {"human_input": True}]
    ),
)
def test_watch_carried_after_every_poll_takes_the_same_steps(
    story: list[Any], renewed: int, rules: dict[str, Any]
) -> None:
    staying, carried = life(**rules), life(carried=True, **rules)

    for number, (outcome, after) in enumerate(story):
        if number == renewed:
            staying.watch.token_renewed()
            carried.watch.token_renewed()
        step = staying.see(outcome, after=after)
        assert comparable(step) == comparable(carried.see(outcome, after=after))
        if step.error or step.completed:
            break
        assert staying.watch.memory.carried() == carried.watch.memory.carried()


def test_newest_steps_are_carried_up_to_16_kb() -> None:
    story, long = life(), 1000 * chr(0x1F980)
    for number in range(200):
        story.see(running(f"{number}{long}", number, current_agent=long, duration=1e300), after=10)

    memory = story.watch.memory.carried()
    steps = memory["history"]["steps"]

    assert 0 < len(json.dumps(steps)) <= 16 * 1024 + 2 * len(steps)
    assert steps[-1]["number"] == 199
    assert len(story.watch.memory.history.steps) == 50
    assert WatchState.recalled(memory)


def outputs(memory: dict[str, Any]) -> list[str]:
    return [task["output"] for task in memory["history"]["tasks"]]


@pytest.mark.parametrize(
    ("sizes", "carried"),
    [([9_000, 9_000, 10, 20], [9_000, 10, 20]), ([200] * 200, [200] * 58)],
    ids=["newest", "many"],
)
def test_newest_tasks_are_carried_up_to_16_kb(sizes: list[int], carried: list[int]) -> None:
    memory = WatchState(started_at=NOW, history=History(tasks=[done("x" * size) for size in sizes]))

    assert [len(output) for output in outputs(memory.carried())] == carried
    assert len(json.dumps(memory.carried()["history"]["tasks"])) <= 16 * 1024 + 2 * len(carried)
    assert outputs(memory.handed_over()) == outputs(memory.carried())
    assert len(memory.history.tasks) == len(sizes)


# What a watch keeps of the crew's tasks, in memory as well as on its way to another process.


def test_watch_many_task_outputs_keeps_at_most_64_kb() -> None:
    for output in ("x" * 100, "x" * 20_000, "\U0001f980" * 100, "\U0001f980" * 20_000):
        story = life()
        for number in range(300):
            story.see(running(last_task=done(f"{number} {output}")), after=10)

        tasks = story.watch.memory.history.tasks
        assert sum(sys.getsizeof(task.output) + sys.getsizeof(task.task_id) for task in tasks) <= 64 * 1024


def test_watch_one_huge_task_output_keeps_the_others() -> None:
    story = life()
    for output in ("first", "x" * 65_536, "x" * 65_536, "last"):
        story.see(running(last_task=done(output)), after=10)

    assert [task.output for task in story.watch.memory.history.tasks] == ["first", "last"]


# The clock of a machine may jump: it is set, or the machine was suspended.


@pytest.mark.parametrize("carried", [False, True], ids=["one process", "a process for each poll"])
@pytest.mark.parametrize("jump", [-3600.0, 30 * 24 * 3600.0])
@pytest.mark.parametrize("kind", [errors.ServiceError, errors.ExecutionNotFound])
def test_clock_jump_neither_ends_nor_stretches_an_outage(kind: Any, jump: float, carried: Any) -> None:
    error = kind("502")
    story = life(carried=carried, request_timeout=60.0, exists=True, poll_interval=10.0, timeout=10**8)
    step = story.see(error)
    outage, poll = 0.0, 0
    while not step.error:
        poll += 1
        pause = step.poll_again_in
        outage += pause
        step = story.see(error, after=pause + (jump if poll == 5 else 0))

    assert isinstance(step.error, errors.LostContact | errors.ExecutionUnknown)
    # The jump counts as one pause and one timeout at the most, and as nothing at least.
    assert 600 - 62 - 60 <= outage <= 600 + 62


# Services put the ID of the request into what they answer.


@pytest.mark.parametrize("name", ["ServiceError", "RateLimited", "UnreadableResponse", "NotAuthenticated"])
def test_trouble_with_another_request_id_is_logged_once(name: str) -> None:
    story, kind = life(), getattr(errors, name)
    steps = [
        story.see(kind(f"The crew answers. Request {number:x}.", http_status=503), after=10)
        for number in range(1000, 1010)
    ]

    assert [bool(step.lines) for step in steps] == [True] + 9 * [False]


def test_poll_without_news_is_stored_only_in_an_outage() -> None:
    for outcome, is_equal in ((WRITING, True), (OUTCOMES["paused"], True), (DOWN, False)):
        story = Story(poll_interval=None, kicked_off_at=NOW - 1000)
        story.see(outcome, at=0)
        first = story.watch.memory.carried()
        story.see(outcome, at=10)

        assert (story.watch.memory.carried() == first) is is_equal


def test_later_process_counts_an_outage_from_its_own_start() -> None:
    story = Story()
    story.see(DOWN, at=0)

    assert story.watch.memory.carried()["troubles"] == {"silent": NOW}
    kept = story.watch.memory.handed_over()
    assert kept["troubles"] == {"silent": None}
    later = Story(memory=WatchState.recalled(kept), max_outage=20.0)
    assert [bool(later.see(DOWN, at=at).error) for at in (100, 119, 120)] == [False, False, True]
