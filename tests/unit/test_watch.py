"""
Decisions of a watch, poll by poll, as in ``watch.txt``.

Each story has a title, rules if they are not the usual ones (arguments of ``Story``), and one line for each poll:
after how many seconds, what came of it, the beginning of what is logged (or that it warns), and what the watch
does then. A poll ``until the end`` is repeated as often as the watch asks for. An error has its event and its
facts on more lines.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import CrewError, ExecutionNotFound, ServiceError
from airflow_provider_crew.client.models import (
    Completed,
    Failed,
    History,
    Paused,
    Progress,
    TaskResult,
    read_execution,
)
from airflow_provider_crew.client.options import REQUEST_TIMEOUT
from airflow_provider_crew.client.watch import Step, Watch, WatchRules, WatchState
from tests.unit.crew_builders import DOWN, KICKOFF_ID, NOW, RESEARCH, SUCCESS, WRITING, Story, logged, running

ADDRESS, ELSEWHERE = "https://crew.example", "https://other.example"
OUTCOMES: dict[str, Any] = {
    "running": running(),
    "research": RESEARCH,
    "writing": WRITING,
    "success": SUCCESS,
    "failed": Failed(
        status="error",
        kickoff_id=KICKOFF_ID,
        error="The model is overloaded.",
        execution_time=90.0,
        usage={"total_tokens": 312},
        last_task=TaskResult(task_id="facts_task", agent="Writer", output="facts", execution_time=None),
    ),
    "failed after writing": Failed(
        status="error",
        kickoff_id=KICKOFF_ID,
        error="out of credit",
        last_task=TaskResult(task_id="writing_task", output="About writing.", execution_time=None),
    ),
    "failed in classes": Failed(
        status="error",
        kickoff_id=KICKOFF_ID,
        error="litellm.exceptions.ContextWindowExceededError: litellm.BadRequestError: prompt is too long",
    ),
    "a task of an unknown number": running("writing_task", 0, total=0),
    "a step": running("write_summary", 3, total=None, unit="step"),
    "revoked": read_execution({"state": "REVOKED", "usage_metrics": {"total_tokens": 7}}, KICKOFF_ID),
    "long name": running("a\nERROR b" * 1000, 1, current_agent="agent " * 1000),
    "paused": Paused(
        status="paused",
        kickoff_id=KICKOFF_ID,
        word="PAUSED",
        progress=Progress(completed=1, total=3),
        current_task="ask",
    ),
    **{word: running(word=word) for word in ("QUEUED", "Hatching", "resting", "PENDING")},
    "resting at a_task": running("a_task", word="resting"),
    "down": DOWN,
    "429": errors.RateLimited("Too many."),
    "503": errors.ServiceError("502"),
    **{f"429 retry after {after}": errors.RateLimited("429", retry_after=after) for after in (1, 45, 60, 7200)},
    **{f"503 retry after {after}": errors.ServiceError("503", retry_after=after) for after in (1, 60, 7200)},
    "500": errors.ServiceError("500", http_status=500),
    "a gateway's 503": errors.ServiceError("503", http_status=503),
    "a page with 503": errors.UnreadableResponse("503", http_status=503),
    "no connection": errors.Unreachable("no connection", lacks_connection=True),
    "HTML": errors.UnreadableResponse("<html>"),
    "401": errors.NotAuthenticated("The token is not accepted."),
    "403": errors.NotAllowed("Not allowed."),
    "405": errors.Rejected("An odd answer.", http_status=405),
    "no token": errors.InvalidSettings("Connection 'crew' is unusable. There is no token."),
    "too large": errors.ResponseTooLarge("It is too large."),
    "any other": errors.CallError("any other"),
    "unknown": errors.ExecutionNotFound("The crew does not know it.", address=ADDRESS),
    f"unknown at {ELSEWHERE}": errors.ExecutionNotFound("?", address=ELSEWHERE),
}


# Of two of them, another process would get only the newest.
LONG = "long"
DONE = {
    name: TaskResult(task_id=f"{name}_task", output=f"About {name}." * 1000 ** (name == LONG), execution_time=None)
    for name in ("research", "writing", "review", LONG)
} | {"writing again": TaskResult(task_id="writing_task", output="Better.", execution_time=2.5)}
WORK = re.compile(r"(\w+) as task (\d) by (\w+)(?:, running for ([\d.]+) s)?(?:, done: (.+))?")
END = re.compile(r"end of (\d)(, listed)?(?:, after ([\d.]+) s)?, done: (.+)")


def outcome_of(what: str) -> Any:
    """Return an outcome by its name, or a status with the task that is at work, or has ended last."""
    if found := WORK.fullmatch(what):
        task, number, agent, duration, last = found.groups()
        seen: dict[str, Any] = {"word": "RUNNING", "current_agent": agent, "last_task": last and DONE[last]}
        return running(f"{task}_task", int(number) - 1, **seen, duration=duration and float(duration))
    if found := END.fullmatch(what):
        total, listed, took, last = found.groups()
        tasks: Any = [DONE[last].model_dump()]
        return Completed(
            status="completed",
            kickoff_id=KICKOFF_ID,
            output="text",
            tasks=tasks,
            lists_tasks=bool(listed),
            progress=Progress(completed=int(total), total=int(total)),
            execution_time=took and float(took),
        )
    return OUTCOMES[what]


def then(story: Story, step: Step) -> str:
    """Tell what a watch does after a poll."""
    if step.completed:
        return "completed"
    if step.error:
        cause = getattr(step.error, "cause", None)
        of = f" of {type(cause).__name__}" if cause else ""
        return f"{type(step.error).__name__}{of}, {step.error.cost}"
    doubt = ", and it may not exist" if story.watch.is_in_doubt else ""
    token = ", with the token read again" if step.renew_token else ""
    return f"poll in {step.poll_again_in:g} s{token}{doubt}"


def facts(error: Any) -> Iterator[tuple[str, Any]]:
    """Yield the facts of an error, except those that its line shows."""
    shown = {"cost", "cause", "kickoff_id", "error" if error.error == error.event else ""}
    assert error.kickoff_id == ("" if isinstance(error, errors.ExecutionNotFound) else KICKOFF_ID)
    yield from ((name, fact) for name, fact in vars(error).items() if fact and name not in shown)


def played(told: str, *, carried: bool) -> Iterator[str]:
    """Yield the lines of a story, with what the watch makes of each poll."""
    title, *lines = told.splitlines()
    yield title
    rules = {}
    if "=" in lines[0]:
        yield lines[0]
        rules = eval(f"dict({lines.pop(0)})")  # noqa: S307 - our own
    story = Story(carried=carried, **rules)
    calls = {"token renewed": "token_renewed", "spread": "spread", "deadline": "on_deadline"}
    for line in (line for line in lines if line.lstrip()[0] != ">"):
        at, outcome = line.partition(" | ")[0].split(maxsplit=1)
        outcome = outcome.rstrip()
        story.time, step = float(at), None
        if outcome in calls:
            step = getattr(story.watch, calls[outcome])()
            logs, does = "", then(story, step) if step else ""
        else:
            what, is_last = outcome.removesuffix(" until the end"), outcome.endswith(" until the end")
            step = (story.see_until_the_end if is_last else story.see)(outcome_of(what))
            logs = "; ".join(logged(story.watch))
            does = then(story, step) + (f" at {story.time:g} s, after {story.looks} polls" if is_last else "")
        yield f"{at:>6} {outcome:<32} | {logs:<31} | {does}".rstrip(" |")
        if step and step.completed and step.completed.tasks:
            yield f"       > {'all' if step.completed.tasks_complete else 'some'} of its tasks:"
            yield from (f"       > {task}" for task in step.completed.tasks)
            yield f"       > execution_time: {step.completed.execution_time}"
        if step and step.error:
            yield f"       > {step.error.event}"
            yield from (f"       > {name}: {fact}" for name, fact in facts(step.error))
            yield from (f"       > has done {task.task_id}" for task in story.watch.memory.history.tasks)


@pytest.mark.parametrize("carried", [False, True], ids=["one process", "a process for each poll"])
def test_watches_decide_as_in_the_table(printed: Any, carried: Any) -> None:
    def table(known: list[str]) -> Iterator[str]:
        for story in "\n".join(known).split("\n\n"):
            yield from (*played(story, carried=carried), "")

    printed("watch.txt", table)


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("run_time", [1.0, 100.0, 1200.0, 7200.0])
def test_default_interval_notices_the_end_within_a_twentieth(run_time: float, dice: float) -> None:
    told = Story(dice=dice, poll_interval=None, kicked_off_at=NOW)

    while told.time < run_time:
        told.time += told.see(RESEARCH).poll_again_in

    assert told.time - run_time <= max(5.0, run_time / 20) + 1e-6


ERRORS = {"NOT FOUND": ExecutionNotFound("unknown"), "500": ServiceError("500")}


def response(state: str, kickoff_id: str) -> Any:
    return ERRORS.get(state) or read_execution({"state": state, "result": "The end", "status": "why"}, kickoff_id)


def watch(**rules: Any) -> Watch:
    return Watch("first", WatchRules(deadline=1e9, **rules), clock=lambda: 0.0, random=lambda: 0.5)


def counting(first: str, second: str) -> list[str]:
    """Return which response counts: that for the ID of the kickoff, or for that with which the crew has called."""
    try:
        found = watch(continued_as="second").whichever([response(first, "first"), response(second, "second")])
    except CrewError as error:
        assert not error.kickoff_id or " " in error.event  # noqa: PT017 - an outcome among others
        return [f"{type(error).__name__} {error.kickoff_id}".strip()]
    return [f"{found.status} {found.kickoff_id}"]


def test_one_of_two_ids_counts(tabulated: Any) -> None:
    tabulated("two_ids.txt", 2, counting)


def test_one_id_is_returned_as_it_is() -> None:
    (only,) = found = [response("SUCCESS", "first")]

    assert watch(continued_as="second").whichever(found) is only
    assert (watch().ids, watch().request_timeout) == (["first"], REQUEST_TIMEOUT)


def done(output: str, name: str = "facts_task", took: float | None = None) -> TaskResult:
    return TaskResult(task_id=name, agent="Writer", output=output, execution_time=took)


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


def test_first_process_of_a_watch_builds_no_validator() -> None:
    from airflow_provider_crew.client.watch import _adapter_of  # building it takes 6 ms

    _adapter_of.cache_clear()
    story = Story(kicked_off_at=NOW)
    story.see(RESEARCH, after=10)

    assert WatchState.recalled(None) is None
    assert story.watch.memory.handed_over()["seen"]
    assert not _adapter_of.cache_info().misses


# What a watch keeps of the crew's tasks, in memory as well as on its way to another process.


def test_watch_many_task_outputs_keeps_at_most_64_kb() -> None:
    for output in ("x" * 100, "x" * 20_000, "\U0001f980" * 100, "\U0001f980" * 20_000):
        story = Story(kicked_off_at=NOW)
        for number in range(300):
            story.see(running(last_task=done(f"{number} {output}")), after=10)

        tasks = story.watch.memory.history.tasks
        assert sum(sys.getsizeof(task.output) + sys.getsizeof(task.task_id) for task in tasks) <= 64 * 1024


# The clock of a machine may jump: it is set, or the machine was suspended.


@pytest.mark.parametrize("carried", [False, True], ids=["one process", "a process for each poll"])
@pytest.mark.parametrize("jump", [-3600.0, 30 * 24 * 3600.0])
@pytest.mark.parametrize("kind", [errors.ServiceError, errors.ExecutionNotFound])
def test_clock_jump_neither_ends_nor_stretches_an_outage(kind: Any, jump: float, carried: Any) -> None:
    error = kind("502")
    story = Story(carried=carried, request_timeout=60.0, kicked_off_at=NOW, exists=True, timeout=10**8)
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


@pytest.mark.parametrize(
    ("outcome", "has_response", "works"),
    [(WRITING, True, True), (OUTCOMES["paused"], True, False), (DOWN, False, False)],
)
def test_poll_notes_a_response_and_work_and_stores_only_news(outcome: Any, has_response: Any, works: Any) -> None:
    story = Story(poll_interval=None, kicked_off_at=NOW - 1000)
    story.see(outcome, at=0)
    first = story.watch.memory.carried()
    assert (story.watch.has_response, story.watch.memory.works) == (has_response, works)

    story.see(outcome, at=10)
    assert (story.watch.memory.carried() == first) is has_response  # an outage becomes longer


def test_later_process_counts_an_outage_from_its_own_start() -> None:
    story = Story()
    story.see(DOWN, at=0)

    assert story.watch.memory.carried()["troubles"] == {"silent": NOW}
    kept = story.watch.memory.handed_over()
    assert kept["troubles"] == {"silent": None}
    later = Story(memory=WatchState.recalled(kept), max_outage=20.0)
    assert [bool(later.see(DOWN, at=at).error) for at in (100, 119, 120)] == [False, False, True]
