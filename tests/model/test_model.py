"""
Walk every state of a task of each kind, and compare the broken promises with those that are known.

A sensor starts nothing, and waits and stops by the rules of a run. A crew as a tool is an Attempt with a record
for each call, and needs another environment: ``tests/agents`` kills its process as it sends and as it waits.

CONTRIBUTING.md explains how to read a story. ``CREW_MODEL_SURPRISES=1`` walks further, which takes minutes.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_provider_crew.answers.attempt import AnsweringAttempt
from airflow_provider_crew.answers.question import record_in
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.client.errors import Cost, UncertainKickoff
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.task.ask import close_request
from airflow_provider_crew.task.decide import Decision, decide
from airflow_provider_crew.task.earlier import poll_earlier
from airflow_provider_crew.task.verdict import Verdict, verdict
from tests.model.moves import steps
from tests.model.process import TASKS, Task, Wrong, played
from tests.model.world import World, wrong_at_rest

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"
MORE = int(os.environ.get("CREW_MODEL_SURPRISES", "0"))


BATCH: dict[str, Any] = {"inputs": [{"topic": "harbours"}], "result_path": "memory://results", "max_failed": 0}
BATCH |= {"deferrable": True, "attempts": 2, "resumes_last": MORE > 0}  # which takes four times as long


def task(operator: Any = CrewKickoffOperator, **options: Any) -> Task:
    kind = {name: options.pop(name) for name in [*options] if name in Task.__annotations__}
    create = cache(lambda: operator(task_id="crew", retries=1, **{"inputs": {}, **options}))
    has_record = "durable" not in options and operator is not CrewBatchOperator
    return Task(create, chooses_twice="on_uncertain_kickoff" in options, has_record=has_record, **kind)


TASKS |= {
    "kickoff": task(cancel_on_kill=True, surprises=2),
    "kickoff, and a process taken for dead": task(has_ghosts=True),
    "kickoff, on_uncertain_kickoff=retry": task(on_uncertain_kickoff="retry"),
    "kickoff that settles itself": task(settles=True, surprises=2),
    "kickoff, durable=False": task(durable=False),
    "kickoff on 3.4": task(airflow=(3, 4), surprises=2),
    "kickoff on 3.4 without its kept state": task(airflow=(3, 4), discards=True),
    "run in a worker": task(CrewRunOperator, deferrable=False, cancel_on_kill=True, attempts=2),
    "row of a deferred batch": task(CrewBatchOperator, cancel_on_kill=True, **BATCH),
    "row that settles itself": task(CrewBatchOperator, settles=True, **BATCH),
    "deferred run": task(CrewRunOperator, deferrable=True, cancel_on_kill=True),
    "answered run": task(CrewRunOperator, deferrable=True, answer_in_airflow=True, attempts=2, questions=2),
    "run that answers itself": task(
        CrewRunOperator,
        deferrable=True,
        answer_in_airflow=True,
        response_timeout=600,
        on_response_timeout="approve",
        attempts=2,
        questions=1,
    ),
}


class Known(NamedTuple):
    """A broken promise that stays: why, and the line of ``docs/retries.md`` that tells users."""

    promise: str
    kinds: tuple[str, ...]
    reason: str
    line: str


_ALL = tuple(kind for kind, each in TASKS.items() if each.has_record and not each.questions)
_AT_ONCE = "it starts a new execution, whatever the Crew tab has just shown."
_FORGETS = "deletes the kickoff record, and the cleared task starts a new execution."
KNOWN = [
    Known(
        "Another execution is started although a result was returned after the user had read "
        "'does what it no longer does'.",
        tuple(kind for kind in _ALL if "retry" not in kind),
        "Airflow clears the task as it is when the request arrives, not as the user saw it.",
        _AT_ONCE,
    ),
    Known(
        "Another execution is started although one is running after the user had read "
        "'does what it no longer does'.",
        _ALL if MORE else ("kickoff", "kickoff on 3.4", "kickoff that settles itself"),
        "The same, for a task that has meanwhile reported the uncertain kickoff.",
        _AT_ONCE,
    ),
    Known(
        "The attempt ends as UncertainKickoff although the user had read 'starts an execution, which is billed'.",
        tuple(kind for kind in _ALL if "retry" not in kind),
        "Nothing was sent. Deleting the intent could delete that of an attempt that has begun meanwhile.",
        "the next attempt may still report an uncertain kickoff.",
    ),
    Known(
        "Another execution is started although one is running.",
        ("kickoff, durable=False",),
        "No attempt knows of the others.",
        "its worker is killed, retrying or clearing the task starts a second, billed execution.",
    ),
    *(
        Known(
            f"Another execution is started although {state} after the user had read 'discards the task state'.",
            ("kickoff on 3.4 without its kept state",),
            "Airflow 3.4 deletes the record.",
            _FORGETS,
        )
        for state in ("one is running", "a result was returned")
    ),
]


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    """Let no garbage be collected during a walk, because that visits all objects of Airflow again and again."""
    gc.disable()
    yield
    gc.enable()


def walked(kind: str, *, to: Callable[[Wrong], bool] = lambda _: False) -> dict[str, str]:
    """Return the shortest story of each broken promise, up to a certain one."""
    before: dict[World, tuple[World, str] | None] = {World(kind, TASKS[kind].surprises + MORE): None}
    left, stories = deque(before), dict[str, str]()
    with played(TASKS[kind]):
        while left:
            world = left.popleft()
            wrong = wrong_at_rest(world)
            for sentence, then in [("", wrong)] if wrong else steps(world):
                if isinstance(then, Wrong):
                    stories.setdefault(then, story_of(world, sentence, before))
                    if to(then):
                        return stories
                elif then not in before:
                    before[then] = world, sentence
                    left.append(then)
    return stories


def story_of(world: World, last: str, before: dict[World, tuple[World, str] | None]) -> str:
    """Return what has happened until a promise was broken."""
    lines = [last]
    while (step := before[world]) is not None:
        world, line = step
        lines.append(line)
    return "\n".join(f"{number:4}. {line}" for number, line in enumerate(filter(None, reversed(lines)), 1))


@pytest.mark.parametrize("kind", TASKS)
def test_only_known_promises_are_broken(kind: str) -> None:
    stories = walked(kind)
    known = {each.promise for each in KNOWN if kind in each.kinds}

    new = "\n\n".join(f"{kind}: {wrong}\n{story}" for wrong, story in stories.items() if wrong not in known)
    assert not new, new
    assert MORE or known <= stories.keys()


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.promise)
def test_documentation_tells_of_a_known_one(known: Known) -> None:
    assert known.line in " ".join(PAGE.read_text().split())


def _telling(**changes: Any) -> Callable[..., Verdict]:
    """Return a verdict that tells something else about an uncertain kickoff."""

    def wrong(error: BaseException, facts: Any) -> Verdict:
        end = verdict(error, facts)
        if not isinstance(error, UncertainKickoff):
            return end
        cost = changes.get("cost", end.failure.cost)
        return replace(
            end, failure=end.failure.replace(cost=cost), if_cleared=changes.get("if_cleared", end.if_cleared)
        )

    return wrong


def _twice(call: Callable[[], Any], **_: Any) -> Any:
    """Send again after a lost response."""
    try:
        return call()
    except UncertainKickoff:
        return call()


def _unknown_is_failed(*given: Any) -> Any:
    status, failed = poll_earlier(*given)
    return "failed" if status == "unknown" else status, failed


def _sends_after_uncertain(record: Any, *given: Any, **named: Any) -> Decision:
    decision = decide(record, *given, **named)
    return Decision.KICK_OFF if decision is Decision.FAIL_UNCERTAIN else decision


def _without(*names: str) -> Callable[..., dict[str, Any]]:
    """Return a record of a question in which something is missing."""
    return lambda *given: {name: value for name, value in record_in(*given).items() if name not in names}


def _closes_first(self: Any, *given: Any) -> Any:
    close_request(self.task)
    return answered(self, *given)


def _forgets_page(self: Any, option: str, next_kwargs: Any, known: Any) -> Any:
    event = {**next_kwargs["event"], "params_input": {}}
    return answered(self, option, {**next_kwargs, "event": event}, known)


answered = AnsweringAttempt.answered
_ANSWERED = "answers.attempt.AnsweringAttempt.answered"
MISTAKES: dict[str, dict[str, tuple[str, Any]]] = {
    "kickoff, and a process taken for dead": {
        "an uncertain kickoff counts as none": ("task.earlier.decide", _sends_after_uncertain),
        "a lost response counts as not sent": ("task.send.resend", _twice),
        "the intent is not stored": ("task.record.Record.save_intent", lambda *_: None),
        "an unreadable record counts as none": ("task.record.Store.get", lambda *_: None),
        "there is no last look": ("task.stop.Stop.look_before", lambda *_: None),
        "a retry counts as cleared": ("task.record.Record.was_cleared", property(lambda _: True)),
        "the wrong cost is told": ("task.attempt.verdict", _telling(cost=Cost.NONE)),
    },
    "kickoff": {
        "NOT FOUND counts as ended": ("task.earlier.poll_earlier", _unknown_is_failed),
        "a cleared task counts as marked": ("api_server.has_ended", lambda _: True),
        "the wrong effect is told": ("task.attempt.verdict", _telling(if_cleared="waits for the same execution")),
    },
    "kickoff on 3.4": {
        "a report counts although the task was cleared": ("api_server.is_cleared_meanwhile", lambda _: False),
    },
    "kickoff that settles itself": {
        "a call of the crew is not read": ("task.record.best_id", lambda *_, **__: ""),
    },
    "answered run": {
        "an answer from a page of an earlier question is sent": (_ANSWERED, _forgets_page),
    },
    "run that answers itself": {
        "a lost answer counts as rejected": ("answers.attempt.proves_nothing_was_done", lambda _: True),
        "the intent to answer is not read": ("answers.attempt.record_in", _without("answer")),
        "an answer to an earlier attempt is not read": ("task.attempt.request_left", lambda *_: None),
        "a request is closed before its answer is sent": (_ANSWERED, _closes_first),
        "an automatic answer follows that of a user": (
            "answers.attempt.record_in",
            _without("outcome", "has_user"),
        ),
    },
}


@pytest.mark.parametrize(("kind", "mistake"), [(kind, each) for kind, found in MISTAKES.items() for each in found])
def test_mistake_in_the_code_is_found(kind: str, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = MISTAKES[kind][mistake]
    monkeypatch.setattr(f"airflow_provider_crew.{name}", wrong)
    known = {each.promise for each in KNOWN if kind in each.kinds}

    assert walked(kind, to=lambda wrong: wrong not in known).keys() - known
