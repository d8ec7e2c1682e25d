"""A watch that is carried from process to process goes on as if it had stayed in one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
from crew_builders import KICKOFF_ID, NOW
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew.service.errors import (
    CallError,
    ExecutionNotFound,
    InvalidSettings,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Refused,
    ServiceError,
    Unreachable,
)
from airflow_provider_crew.service.models import Completed, Failed, Progress, Running
from airflow_provider_crew.service.watch import Step, Watch, WatchMemory, WatchRules


def running(word: str, task: str | None, done: int) -> Running:
    progress = Progress(completed_tasks=done, total_tasks=3)
    return Running(status="running", kickoff_id=KICKOFF_ID, word=word, current_task=task, progress=progress)


outcomes = st.one_of(
    st.builds(
        running,
        st.sampled_from(["running", "queued", "paused", "STARTED"]),
        st.sampled_from([None, "research_task", "writing_task"]),
        st.integers(0, 1),
    ),
    st.sampled_from(
        [
            Unreachable("The crew did not answer."),
            ServiceError("502"),
            RateLimited("429", retry_after=45.0),
            NotAuthenticated("401"),
            NotAllowed("403"),
            ExecutionNotFound("404"),
        ]
    ),
)
ends = st.sampled_from(
    [
        Completed(status="completed", kickoff_id=KICKOFF_ID, output="text"),
        Failed(status="error", kickoff_id=KICKOFF_ID, error="boom"),
        Refused("400"),
    ]
)
looks = st.tuples(st.lists(st.tuples(outcomes, st.floats(0, 400)), max_size=25), ends).map(
    lambda told: [*told[0], (told[1], 1.0)]
)


class Life:
    """A watch with a clock, in one process or in a new one for every look."""

    def __init__(self, *, carried: bool, **rules: Any) -> None:
        self._carried = carried
        self._rules = WatchRules(deadline=NOW + 3600, kicked_off_at=NOW, **rules)
        self.now = NOW
        self.watch = self._new(None)

    def _new(self, memory: WatchMemory | None) -> Watch:
        return Watch(KICKOFF_ID, self._rules, clock=lambda: self.now, random=lambda: 0.3, memory=memory)

    def see(self, outcome: Any, after: float) -> Step:
        self.now += after
        if self._carried:
            self.watch = self._new(
                WatchMemory(**json.loads(json.dumps(asdict(self.watch.memory), allow_nan=False)))
            )
        return self.watch.failed(outcome) if isinstance(outcome, CallError) else self.watch.saw(outcome)


def comparable(step: Step) -> Any:
    error = step.error and (type(step.error), str(step.error), getattr(step.error, "lasted", None))
    return step.lines, step.completed, error, step.look_again_in, step.renew_token


@given(story=looks, renewed=st.integers(0, 25))
def test_a_watch_carried_on_after_every_look_takes_the_same_steps(story: list[Any], renewed: int) -> None:
    staying, carried = Life(carried=False), Life(carried=True)

    for number, (outcome, after) in enumerate(story):
        if number == renewed:
            staying.watch.token_renewed()
            carried.watch.token_renewed()
        step = staying.see(outcome, after)
        assert comparable(step) == comparable(carried.see(outcome, after))
        if step.error or step.completed:
            break
    assert asdict(staying.watch.memory) == asdict(carried.watch.memory)


def test_an_outage_and_a_progress_go_on_in_the_next_process() -> None:
    life = Life(carried=True)
    life.see(running("running", "writing_task", 1), 0)
    assert life.see(running("running", "writing_task", 1), 10).lines == ()
    life.see(ServiceError("502"), 10)
    lost = life.see(ServiceError("502"), 600).error

    assert "for 10m 0s" in str(lost)
    assert "Last seen before: task 2 of 3, writing_task" in str(lost)


def test_memories_are_not_shared() -> None:
    first, second = Life(carried=False), Life(carried=False)
    first.see(running("queued", None, 0), 0)

    assert first.watch.memory.strange_words == ["queued"]
    assert second.watch.memory.strange_words == []


@pytest.mark.parametrize(("dice", "seconds"), [(0.0, 0.0), (0.5, 5.0), (0.99, 9.9)])
def test_the_first_look_is_put_off_by_up_to_one_interval(dice: float, seconds: float) -> None:
    rules = WatchRules(deadline=NOW + 3600, poll_interval=10.0)
    watch = Watch(KICKOFF_ID, rules, clock=lambda: NOW, random=lambda: dice)

    step = watch.spread()

    assert step.look_again_in == pytest.approx(seconds)
    assert (step.lines, step.completed, step.error, step.renew_token) == ((), None, None, False)


@pytest.mark.parametrize(("left", "seconds"), [(3.0, 3.0), (0.0, 0.0), (-60.0, 0.0)])
def test_the_first_look_is_not_put_off_beyond_the_deadline(left: float, seconds: float) -> None:
    rules = WatchRules(deadline=NOW + left, poll_interval=10.0)

    assert Watch(KICKOFF_ID, rules, clock=lambda: NOW, random=lambda: 0.9).spread().look_again_in == seconds


@pytest.mark.parametrize(
    "kept", [None, "text", [], {}, {"started_at": "now"}, {"started_at": float("nan")}, {"started_at": 10**400}]
)
def test_a_memory_without_a_beginning_is_none(kept: Any) -> None:
    assert WatchMemory.recalled(kept) is None


def test_what_makes_no_sense_in_a_memory_is_left_out() -> None:
    odd = {"progress": 7, "said_at": "x", "strange_words": ["queued", None], "silent_since": [], "trouble": {}}
    kept = {"started_at": NOW, "rejected_since": NOW - 1, **odd}

    assert WatchMemory.recalled(kept) == WatchMemory(started_at=NOW, rejected_since=NOW - 1)


@pytest.mark.parametrize("patience", [None, math.inf])
def test_an_outage_may_last_for_ever(patience: float | None) -> None:
    life = Life(carried=False, max_outage=patience)

    (line,) = life.see(ServiceError("502"), 0).lines

    assert line.text.endswith("Looking on until it answers again.")


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("poll_interval", "10"),
        ("poll_interval", 1e300),
        ("deadline", None),
        ("deadline", 1e300),
        ("max_outage", [600]),
        ("max_outage", 10**400),
        ("kicked_off_at", "now"),
    ],
)
def test_times_that_cannot_be_reckoned_with_are_refused(rule: str, value: Any) -> None:
    rules: dict[str, Any] = {"deadline": NOW, rule: value}

    with pytest.raises(InvalidSettings, match="must be a number of seconds"):
        WatchRules(**rules)
