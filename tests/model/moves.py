"""
Moves of the model: what may happen next in a state of the world. Begin with ``steps()``.

Airflow, triggers, the crew and users act by themselves. ``REPLIES`` has the outcomes of requests of a process, and
first that without a surprise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from itertools import product
from typing import Any
from unittest.mock import patch

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import error_record
from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.settle import receiver
from airflow_provider_crew.settle.address import HEARD, read_address
from airflow_provider_crew.task.record import KEY, KICKOFF_ID
from airflow_provider_crew.triggers.events import told_completed, told_error
from tests.model import answers, promises
from tests.model.process import (
    DAYS,
    ERRORS,
    FILE,
    NOW,
    SECRET,
    TASKS,
    TOLD,
    Answer,
    Calm,
    Start,
    Wrong,
    as_json,
    execution,
    from_json,
    process_after,
)
from tests.model.world import RETRIES, Dialog, Replies, State, World

_MARKABLE = frozenset({"running", "deferred", "retry"})
_NOBODY_CHOOSES = frozenset({"exit", "names", "xcom", "state"})
_HOUR = 3_600.0
Steps = Iterator[tuple[str, State]]


def steps(before: World) -> Steps:
    """Yield every next state, with what has happened."""
    if TASKS[before.task].questions and "completed" in before.crew:  # the same as for other kinds
        return
    for moves in (_airflow, _trigger, _crew, _user, _processes):
        for sentence, then in moves(before):
            yield sentence, then if isinstance(then, Wrong) else _shown(before, _answered(then))


def _answered(world: World) -> World:
    """Return the state in which each process has the answers that nobody chooses."""
    for slot in ("process", "ghost"):
        while (process := getattr(world, slot)) and process.request[0] in _NOBODY_CHOOSES:
            _, answer, then = next(_replies(world, slot, process.request))
            assert isinstance(then, World)
            world = _went_on(then, slot, answer)
    return world


def _shown(before: World, world: World) -> World:
    """Return the state in which the page may still show what it has shown before."""
    read = before.told()["clear"] if world.surprises else ""
    if read == world.read or (world.surprises and read == world.told()["clear"]):
        return world
    return world.but(read=read)


# Airflow.


def _airflow(world: World) -> Steps:
    kind, is_exposed = TASKS[world.task], world.state == "running" and world.process and world.may_surprise
    has_attempts = world.try_number < kind.attempts or (world.resumes and kind.resumes_last)
    if world.state in {"queued", "retry"} and not world.process and has_attempts:
        then = _begun(world)
        yield f"Airflow {'resumes' if world.resumes else 'starts'} attempt {then.try_number}.", then
    if is_exposed:
        yield "The worker dies.", _after_death(world.surprised(process=None))
        if _may_be_told(world):
            yield "The worker shuts down.", _told_to_end(world.surprised())
        if kind.has_ghosts and not world.ghost:
            ghost = _after_death(world.surprised(process=None)).but(ghost=world.process)
            yield "Airflow takes the process for dead, but it runs on.", ghost
    if world.process and world.is_told:
        yield "Airflow kills the process.", _after_death(world.but(process=None))
    elif world.process and world.state == "restarting" and _may_be_told(world):
        yield "Airflow tells the process to end.", _told_to_end(world)


def _begun(world: World) -> World:
    """Return the state in which a process has started."""
    resumes, number = world.resumes, world.try_number + (world.resumes is None)
    left = world.left if resumes else tuple(key for key, _ in world.xcoms if key.startswith(KICKOFF_ID))
    start = Start(world.task, number, world.max_tries, left, resumes, now=NOW + world.dialog.late * _HOUR)
    world = world.but(
        state="running",
        try_number=number,
        left=left,
        xcoms=world.xcoms if resumes else (),
        resumes=None,
        is_calm=True,
        is_told=False,
        is_heard=any(key.startswith(HEARD) for key, _ in world.store),
        allowed=world.choice,
    )
    return _with_process(world, "process", start)


def _may_be_told(world: World) -> bool:
    """Whether the process is told to end now. On 3.4, save_again() would wait for a request to the store."""
    is_storing = world.process is not None and world.process.request[0] in {"set", "delete"}
    return not (is_storing and TASKS[world.task].airflow >= (3, 4))


def _told_to_end(world: World) -> World:
    is_news = world.process and not world.is_told
    return _went_on(world.but(is_told=True), "process", TOLD) if is_news else world


def _after_death(world: World) -> World:
    """Return the state after a process has ended without a result."""
    if world.state == "restarting":
        return world.but(state="queued", max_tries=world.try_number + RETRIES)
    if world.state != "running":
        return world
    if not 0 < world.try_number <= world.max_tries:
        return world.but(state="failed", expects="")
    world = world.but(state="retry")
    return world.but(expects=promises.expected(world, world.told()["retry"]))


# The trigger.


def _trigger(world: World) -> Steps:
    if world.state != "deferred":
        return
    stored, kwargs = from_json(world.trigger)[1], from_json(world.resumes[1]) if world.resumes else {}
    if world.may_surprise:
        failed = "__fail__", '{"error": "Trigger failure"}'
        yield "The trigger fails.", _left_trigger(world.surprised(), failed)
        yield "Another triggerer takes over.", _noticed(world.surprised())
    dialog = world.dialog
    if dialog.shows and not dialog.given and world.crew[-1] == "running" and stored["asked"]:
        closed = world.talks(shows="", has_worked=True)
        yield "The trigger closes the request, because the crew works.", closed
    for what, then, event in _events(world, stored):
        resumes = "execute_complete", as_json({**kwargs, "event": event})
        yield f"The trigger {what}.", _left_trigger(then, resumes)


def _events(world: World, stored: dict[str, Any]) -> Iterator[tuple[str, World, dict[str, Any]]]:
    """Yield the events of a trigger. ``watched()`` in ``triggers/`` and ``batch/watching.py`` makes them."""
    rows, dialog = stored.get("running"), world.dialog
    kickoff_id = rows[0][1] if rows else stored["kickoff_id"]
    about = {"kickoff_id": kickoff_id, "deadline": stored["rules"]["deadline"], "seen": True}
    if stored.get("asked") and dialog.given:
        yield f"finds answer {dialog.given}", world, answers.event_of(dialog.given, dialog.read[-1][0])
        return
    is_patient = TASKS[world.task].questions > 0  # only a surprise ends its wait for a person
    for news, then in _looks(world, kickoff_id):
        is_surprise = is_patient and news != "completed"
        if is_surprise and not world.may_surprise:
            continue
        end = _end_of(news, kickoff_id)
        if rows:
            is_read_later = isinstance(end, Completed | errors.ExecutionFailed)
            ends = {rows[0][0]: None if is_read_later else error_record(end)}
            event: dict[str, Any] = {"ends": ends, "is_away": False, "is_quick": False, "known": {}}
        else:
            event = about | (told_completed(end) if isinstance(end, Completed) else told_error(end))
        why = "the timeout has passed" if news == "running" else f"{kickoff_id} is {news}"
        yield f"fires, because {why}", world.surprised() if is_surprise else then, event
    for what, then, memory in answers.needs(world, stored):
        needed = told_error(errors.HumanInputNeeded("?", kickoff_id=kickoff_id))
        yield what, then, about | needed | {"memory": as_json(memory)}


def _end_of(news: str, kickoff_id: str) -> Any:
    """Return how the wait for an execution ends."""
    if news in {"completed", "failed", "stopped"}:
        end = execution(kickoff_id, news)
        return end if news == "completed" else execution_failed(end, "")
    kinds = {"not found": errors.ExecutionUnknown, "unreadable": errors.LostContact}
    return kinds.get(news, errors.WaitedTooLong)("?", kickoff_id=kickoff_id)


def _left_trigger(world: World, resumes: tuple[str, str]) -> World:
    """Return the state after the event of a trigger, which has closed its request."""
    world = world.talks(has_worked=False, shows=world.dialog.given and world.dialog.shows)
    return world.but(state="queued", trigger="", resumes=resumes)


def _noticed(world: World) -> World:
    """Return the state in which a triggerer notices that a task has left its trigger."""
    start = Start(world.task, world.try_number, world.max_tries, trigger=world.trigger)
    return world if world.ghost else _with_process(world, "ghost", start)


# The crew.


def _crew(world: World) -> Steps:
    """Yield what the crew does, and what the receiver keeps of its call if its kickoff got no response."""
    yield from answers.crew(world)
    for path, kickoff_id in world.calls:
        address, store = read_address(path, SECRET), dict(world.store)
        assert address
        with patch.object(receiver, "task_state", lambda _, own=store: nullcontext((own.get, own.__setitem__))):
            receiver.keep(address, {"kickoff_id": kickoff_id})
        left = tuple(call for call in world.calls if call != (path, kickoff_id))
        yield f"The crew of {kickoff_id} calls.", world.but(store=tuple(sorted(store.items())), calls=left)


def _looks(world: World, kickoff_id: str) -> Iterator[tuple[str, World]]:
    """Yield what a poll may find."""
    status = world.crew[int(kickoff_id[1:]) - 1]
    questions = TASKS[world.task].questions
    if status == "running" and world.dialog.asked == questions:
        yield "completed", world.with_end(kickoff_id, "completed")
    yield "not found" if status == "waiting" else status, world
    if status == "running" and not questions:
        for end in ("failed", "stopped"):
            yield end, world.with_end(kickoff_id, end).but(expects="")
    if world.may_surprise:
        yield "not found", world.surprised()
        yield "unreadable", world.surprised()


# The user, who may have read the page a moment ago.


def _user(world: World) -> Steps:
    yield from answers.user(world)
    is_ready = not world.process or (world.may_surprise and _may_be_told(world) and world.is_the_time)
    if not (world.has_surprises and world.try_number > 0 and is_ready):
        return
    if world.state in _MARKABLE:
        yield "A user marks the task as failed.", _marked(world.surprised())
    now = world.told()["clear"]
    keeps = [True, False] if TASKS[world.task].discards else [True]
    for read, kept in product({now, world.read or now}, keeps):
        what = "clears the task" if kept else "clears the task without its kept state"
        when = "reads" if read == now else "has just read"
        yield f"A user {when} that clearing {read!r}, and {what}.", _cleared(world.surprised(), read, kept=kept)


def _marked(world: World) -> World:
    marked = world.but(state="failed", is_marked=True)
    if world.state == "deferred":
        return _noticed(marked).but(resumes=None, trigger="")
    return _told_to_end(marked)


def _cleared(world: World, read: str, *, kept: bool) -> World:
    is_current = read == world.told()["clear"]
    choice = read if is_current or promises.is_choice(read) else promises.CHANGED
    # A request to stop the execution may be on its way.
    stops = any(process and process.request[0] == "stop" for process in (world.process, world.ghost))
    world = world.but(
        expects=promises.expected(world, read) if kept and is_current else "",
        choice=choice if kept else promises.DISCARDS,
        is_marked=world.is_marked and stops,
        store=world.store if kept else tuple(each for each in world.store if each[0].startswith(FILE)),
    )
    if world.state == "running":
        return world.but(state="restarting")
    if world.state == "deferred":
        world = _noticed(world)
    world = world.but(state="queued", max_tries=world.try_number + RETRIES, resumes=None, trigger="")
    # A process may still call its callbacks, or have to notice its end.
    return world.but(process=None, ghost=world.ghost or world.process)


# A process.


def _processes(world: World) -> Steps:
    for slot, who in (("process", "The task"), ("ghost", "The old process")):
        if process := getattr(world, slot):
            for sentence, answer, then in _replies(world, slot, process.request):
                said = sentence and f"{who} {sentence}."
                yield said, then if isinstance(then, Wrong) else _went_on(then, slot, answer)


def _replies(world: World, slot: str, request: tuple[Any, ...]) -> Replies:
    return REPLIES[request[0]](world, slot, *request[1:])


def _calm(world: World, slot: str) -> Calm:
    """Return what answers a process as long as nothing goes wrong."""

    def answer_to(request: tuple[Any, ...]) -> Answer | None:
        nonlocal world
        _, answer, then = next(_replies(world, slot, request))
        world = world if isinstance(then, Wrong) else then
        return None if isinstance(then, Wrong) else answer

    return answer_to


def _went_on(world: World, slot: str, answer: Answer | None) -> World:
    """Return the state in which the process in a slot has got an answer, unless it is over."""
    process = getattr(world, slot)
    return world if answer is None else _with_process(world, slot, process.start, *process.answers, answer)


def _with_process(world: World, slot: str, start: Start, *answers: Answer) -> World:
    """Return the state with a process that has got these answers, and with the XComs that it has pushed then."""
    process = process_after(start, answers, _calm(world, slot))
    pushed = dict(process.pushed)
    if slot == "ghost" or not pushed:  # Airflow may refuse the XComs of a ghost
        return world.but(**{slot: process})
    world = world.talks(warned=len(world.dialog.read)) if "log" in pushed else world
    return world.pushed(pushed).but(process=process)


def _reads(world: World, _: str, key: str) -> Replies:
    faults = [] if key.startswith(FILE) else [(f"cannot read {key}", "refused", world)]
    return world.outcomes("", world, dict(world.store).get(key, "null"), *faults)


def _tells(value: Callable[..., Any]) -> Callable[..., Replies]:
    """Return the replies to a request that always gets a value of the state."""
    return lambda world, _, *about: iter([("", ("ok", value(world, *about)), world)])


def _names(world: World, begin: str) -> tuple[str, ...]:
    return tuple(key.removeprefix(FILE) for key, _ in world.store if key.startswith(begin))


def _waits(world: World, _: str) -> Replies:
    yield "waits", ("ok", 0.0), world
    if not TASKS[world.task].questions:
        yield "waits in vain", ("ok", DAYS), world


def _polls(world: World, _: str, kickoff_id: str) -> Replies:
    for news, then in _looks(world, kickoff_id):
        answer: Answer = (news, None) if news in ERRORS else ("ok", news)
        yield f"finds that {kickoff_id} is {news}", answer, then


def _polls_another(world: World, _: str) -> Replies:
    yield "finds that the crew responds", ("not found", None), world
    yield "finds that the crew does not respond", ("silent", None), world


def _stores(world: World, slot: str, key: str, *values: str) -> Replies:
    others = [(name, kept) for name, kept in world.store if name != key]
    then = world.but(store=tuple(sorted([*others, *((key, value) for value in values)])))
    what, is_file = _in_words(key, *values), key.startswith(FILE)
    # A task that was cleared has another ID. On 3.4, Airflow still takes what save_again() stores.
    is_replaced = world.state not in {"running", "success", "failed"} and TASKS[world.task].airflow < (3, 4)
    if not is_file and (slot == "ghost" or is_replaced):
        return iter([(f"cannot store {what}, because Airflow has replaced it", ("refused", None), world)])
    if is_file:
        return world.outcomes(f"stores {what}", then, None, (", which fails", "not written", world))
    faults = (", which Airflow refuses", "refused", world), (", but the response is lost", "refused", then)
    return world.outcomes(f"stores {what}", then, None, *faults)


@cache
def _in_words(key: str, *values: str) -> str:
    if key != KEY or not values:
        return key if values else f"that there is no {key}"
    record = from_json(values[0])
    known = [record["kickoff_id"] or "the intent", record["end"]]
    return ", ".join(filter(None, [*known, *(name for name in ("reported", "delivered") if record[name])]))


def _kicks_off(world: World, slot: str, path: str, is_late: bool) -> Replies:  # noqa: FBT001 - a fact
    name, is_next = f"e{len(world.crew) + 1}", slot == "process" and world.state == "running"
    started = world.but(
        crew=(*world.crew, "running"),
        settled=frozenset(f"e{number}" for number in range(1, len(world.crew) + 1)),
        expects="",
        choice=None if is_next else world.choice,
        dialog=Dialog(asker=world.try_number),
    )
    what, late = f"starts execution {name}", Wrong("A kickoff is sent after the task was told to end.")
    wrong = late if is_late else promises.of_kickoff(world, slot)
    may_call = started.but(calls=(*world.calls, *[(path, name)] * bool(path)))
    return world.outcomes(what, wrong or started, name, *world.losses("lost", wrong or may_call, world))


def _stops(world: World, _: str, kickoff_id: str) -> Replies:
    status = world.crew[int(kickoff_id[1:]) - 1]
    end = "stopped" if status == "running" else status
    stopped = world.with_end(kickoff_id, end).but(expects="")
    wrong = None if world.is_marked else Wrong("An execution is stopped although nobody has marked the task.")
    fault = ", in vain", "not stopped", world
    return world.outcomes(f"asks the crew to stop {kickoff_id}", wrong or stopped, end, fault)


def _finishes(world: World, slot: str, how: str, *about: str) -> Replies:
    """Yield the end of a process, which goes on for its callbacks if it has succeeded."""
    if slot == "ghost" or world.state != "running":
        yield from _exits(world, slot)
        return
    error, ended = about[0] if how in {"failed", "retry"} else "", world.but(process=None)
    if wrong := promises.of_end(world, how, error):
        yield f"ends: {error or how}", None, wrong
    elif how == "success":
        settled = world.settled | _returned(world, about[0])
        yield "succeeds", ("ok", None), world.but(state="success", settled=settled, expects="")
    elif how == "deferred":
        has_worked = bool(TASKS[world.task].questions) and world.crew[-1] == "running"
        deferred = ended.but(state="deferred", resumes=(about[0], about[1]), trigger=about[2])
        yield "defers", None, deferred.but(is_calm=True, expects="").talks(has_worked=has_worked)
    elif how == "failed":
        yield f"fails without a retry: {error}", None, ended.but(state="failed", expects="")
    else:
        yield f"fails: {error}", None, _after_death(ended)


def _exits(world: World, slot: str) -> Replies:
    ended = world.but(**{slot: None})
    yield "", None, ended if slot == "ghost" else _after_death(ended)


def _returned(world: World, value: str) -> set[str]:
    """Return the executions whose results a task returns. A batch has but one row here, and returns counts."""
    has_row = '"success": 1' in value
    ends = [(f"e{number}", status) for number, status in enumerate(world.crew, 1)]
    return {name for name, status in ends if f'"{name}"' in value or (has_row and status == "completed")}


REPLIES: dict[str, Callable[..., Replies]] = {
    "get": _reads,
    "set": _stores,
    "delete": _stores,
    "names": _tells(_names),
    "status of another": _polls_another,
    "xcom": _tells(lambda world, key: dict(world.xcoms).get(key, "null")),
    "state": _tells(lambda world: world.state),
    "sleep": _waits,
    "kickoff": _kicks_off,
    "status": _polls,
    "stop": _stops,
    "open": answers.opens,
    "answer": answers.sends,
    "finish": _finishes,
    "exit": _exits,
}
