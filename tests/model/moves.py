"""
Moves of the model: what may happen next in a state of the world. Begin with ``steps()``.

Airflow, triggers, the crew and users act by themselves. ``REPLIES`` has the outcomes of requests of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from itertools import product
from typing import Any

from airflow_provider_crew.answers.receiver import Receiver
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.calls import read_address
from airflow_provider_crew.client.errors import error_record
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.task.record import KEY, KICKOFF_ID
from airflow_provider_crew.task.settle import HEARD
from airflow_provider_crew.triggers.events import DEFERRAL, told_completed, told_error
from tests.model import answers, promises
from tests.model.process import (
    DAYS,
    FILE,
    NOW,
    SECRET,
    TASKS,
    TOLD,
    Answer,
    Start,
    Wrong,
    as_json,
    began,
    execution,
    from_json,
)
from tests.model.world import RETRIES, World, answered

_MARKABLE = frozenset({"running", "deferred", "retry"})
_HOUR = 3_600.0
Steps = Iterator[tuple[str, World | Wrong]]
Replies = Iterator[tuple[str, Answer, World | Wrong]]


def steps(before: World) -> Steps:
    """Yield every next state, with what has happened."""
    if TASKS[before.task].questions and "completed" in before.crew:  # the same as for other kinds
        return
    for moves in (_airflow, _trigger, _crew, _user, _processes):
        for sentence, then in moves(before):
            yield sentence, then if isinstance(then, Wrong) else answered(before, then)


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
        has_waited=False,
        is_heard=any(key.startswith(HEARD) for key, _ in world.store),
        allowed=world.choice,
    )
    return world.with_process("process", began(start, world.likely))


def _may_be_told(world: World) -> bool:
    """Whether the process is told to end now. On 3.4, save_again() would wait for a request to the store."""
    is_storing = world.process is not None and world.process.request[0] in {"set", "delete"}
    return not (is_storing and TASKS[world.task].airflow >= (3, 4))


def _told_to_end(world: World) -> World:
    is_news = world.process and not world.is_told
    return world.but(is_told=True).went_on("process", TOLD) if is_news else world


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
    if answers.is_answered(world):
        yield "The trigger closes the request, because the crew works.", answers.closed(world)
    events = _events(world, stored)
    for what, then, event in answers.events(world, stored, events) if "known_question" in stored else events:
        resumes = "execute_complete", as_json({**kwargs, "event": event})
        yield f"The trigger {what}.", _left_trigger(then, resumes)


def _events(world: World, stored: dict[str, Any]) -> Iterator[answers.Event]:
    """Yield the events of a trigger. ``watched()`` in ``triggers/`` and ``batch/watching.py`` makes them."""
    is_batch = "running" in stored
    kickoff_id = stored["running"][0][0] if is_batch else stored["kickoff_id"]
    for news, then in _looks(world, kickoff_id):
        is_completed, error = news == "completed", _error_of(news, kickoff_id)
        if is_batch:
            end = None if is_completed or isinstance(error, errors.ExecutionFailed) else error_record(error)
            event: dict[str, Any] = {"ends": {kickoff_id: end}, "error": None, "is_quick": False, "known": {}}
        else:
            event = {"kickoff_id": kickoff_id, "deadline": stored["rules"]["deadline"], "seen": True}
            event |= told_completed(execution(kickoff_id, news)) if is_completed else told_error(error)
        what = "the timeout has passed" if news == "running" else f"{kickoff_id} is {news}"
        yield f"fires, because {what}", then, event


def _error_of(news: str, kickoff_id: str) -> errors.CrewError:
    kinds = {"not found": errors.ExecutionUnknown, "unreadable": errors.LostContact}
    if news in {"failed", "stopped"}:
        return execution_failed(execution(kickoff_id, news), "")
    return kinds.get(news, errors.WaitedTooLong)("?", kickoff_id=kickoff_id)


def _left_trigger(world: World, resumes: tuple[str, str]) -> World:
    if DEFERRAL in dict(world.xcoms):  # end_deferral() in triggers/watching.py
        world = world.pushed({DEFERRAL: "null"})
    return answers.left_trigger(world).but(state="queued", trigger="", resumes=resumes)


def _noticed(world: World) -> World:
    """Return the state in which a triggerer notices that a task has left its trigger."""
    start = Start(world.task, world.try_number, world.max_tries, trigger=world.trigger)
    return world if world.ghost else world.but(ghost=began(start, world.likely))


# The crew.


def _crew(world: World) -> Steps:
    """Yield what the crew does, and what the receiver keeps of its call if its kickoff got no response."""
    yield from answers.crew(world)
    for path, kickoff_id in world.calls:
        address, store = read_address(path, SECRET), dict(world.store)
        assert address
        kept = nullcontext((store.get, store.__setitem__))
        Receiver(state=lambda *_, kept=kept, **__: kept).keep(address, {"kickoff_id": kickoff_id})
        left = tuple(call for call in world.calls if call != (path, kickoff_id))
        yield f"The crew of {kickoff_id} calls.", world.but(store=tuple(sorted(store.items())), calls=left)


def _looks(world: World, kickoff_id: str) -> Iterator[tuple[str, World]]:
    """Yield what a poll may find."""
    status = world.crew[int(kickoff_id[1:]) - 1]
    yield "not found" if status == "waiting" else status, world
    questions = TASKS[world.task].questions
    if status == "running" and world.dialog.asked == questions:
        yield "completed", world.with_end(kickoff_id, "completed")
    if status == "running" and not questions:
        for end in ("failed", "stopped"):
            yield end, world.with_end(kickoff_id, end).but(expects="")
    if world.may_surprise:
        yield "not found", world.surprised()
        yield "unreadable", world.surprised()


# The user, who may have read the page a moment ago.


def _user(world: World) -> Steps:
    yield from answers.user(world)
    is_ready = not world.process or (world.may_surprise and _may_be_told(world) and answers.is_the_time(world))
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
        if not (process := getattr(world, slot)):
            continue
        what, *about = process.request
        if what == "finish":
            yield from _finishes(world, slot, *about)
            continue
        for sentence, answer, then in REPLIES[what](world, slot, *about):
            said = sentence and f"{who} {sentence}."
            yield said, then if isinstance(then, Wrong) else then.went_on(slot, answer)


def _reads(world: World, _: str, key: str) -> Replies:
    yield "", ("ok", dict(world.store).get(key, "null")), world
    if world.may_surprise and not key.startswith(FILE):
        yield f"cannot read {key}", ("refused", None), world.surprised()


def _waits(world: World, _: str) -> Replies:
    if not world.has_waited:
        yield "waits", ("ok", 0.0), world.but(has_waited=True)
    elif not TASKS[world.task].questions:
        yield "waits in vain", ("ok", DAYS), world


def _polls(world: World, _: str, kickoff_id: str) -> Replies:
    for news, then in _looks(world, kickoff_id):
        is_fault = news in {"not found", "unreadable"}
        yield f"finds that {kickoff_id} is {news}", (news, None) if is_fault else ("ok", news), then


def _stores(world: World, slot: str, key: str, *values: str) -> Replies:
    others = [(name, kept) for name, kept in world.store if name != key]
    store, what = tuple(sorted([*others, *((key, value) for value in values)])), _in_words(key, *values)
    # A task that was cleared has another ID. On 3.4, Airflow still takes what save_again() stores.
    is_replaced = world.state not in {"running", "success", "failed"} and TASKS[world.task].airflow < (3, 4)
    if not key.startswith(FILE) and (slot == "ghost" or is_replaced):
        yield f"cannot store {what}, because Airflow has replaced it", ("refused", None), world
        return
    yield f"stores {what}", ("ok", None), world.but(store=store)
    if world.may_surprise:
        yield f"cannot store {what}", ("refused", None), world.surprised()
        if not key.startswith(FILE):
            yield f"stores {what}, but the response is lost", ("refused", None), world.surprised(store=store)


@cache
def _in_words(key: str, *values: str) -> str:
    if key != KEY or not values:
        return key if values else f"that there is no {key}"
    record = from_json(values[0])
    known = [record["kickoff_id"] or "the intent", record["end"]]
    return ", ".join(filter(None, [*known, *(name for name in ("reported", "delivered") if record[name])]))


def _kicks_off_late(*_: Any) -> Replies:
    yield "sends a kickoff", ("ok", ""), Wrong("A kickoff is sent after the task was told to end.")


def _kicks_off(world: World, slot: str, path: str) -> Replies:
    name, wrong = f"e{len(world.crew) + 1}", promises.of_kickoff(world, slot)
    is_next = slot == "process" and world.state == "running"
    started = world.but(
        crew=(*world.crew, "running"),
        settled=frozenset(f"e{number}" for number in range(1, len(world.crew) + 1)),
        expects="",
        choice=None if is_next else world.choice,
        dialog=answers.Dialog(asker=world.try_number),
    )
    yield f"starts execution {name}", ("ok", name), wrong or started
    if world.may_surprise:
        lost = started.surprised(calls=(*world.calls, *[(path, name)] * bool(path)))
        yield f"starts execution {name}, but the response is lost", ("lost", None), wrong or lost
        yield "sends a kickoff that does not arrive, and does not learn that", ("lost", None), world.surprised()
        yield "sends a kickoff that the crew rejects", ("rejected", None), world.surprised()


def _stops(world: World, _: str, kickoff_id: str) -> Replies:
    what = f"asks the crew to stop {kickoff_id}"
    if not world.is_marked:
        yield what, ("", None), Wrong("An execution is stopped although nobody has marked the task.")
        return
    status = world.crew[int(kickoff_id[1:]) - 1]
    end = "stopped" if status == "running" else status
    yield what, ("ok", end), world.with_end(kickoff_id, end).but(expects="")
    if world.may_surprise:
        yield f"{what}, in vain", ("not stopped", None), world.surprised()


REPLIES: dict[str, Callable[..., Replies]] = {
    "get": _reads,
    "set": _stores,
    "delete": _stores,
    "sleep": _waits,
    "kickoff": _kicks_off,
    "late kickoff": _kicks_off_late,
    "status": _polls,
    "stop": _stops,
    "open": answers.opens,
    "answer": answers.sends,
}


def _finishes(world: World, slot: str, how: str, *about: str) -> Steps:
    if slot == "ghost" or world.state != "running":
        ended = world.but(**{slot: None})
        yield "", ended if slot == "ghost" else _after_death(ended)
        return
    error = about[0] if how in {"failed", "retry"} else ""
    if wrong := promises.of_end(world, how, error):
        yield f"The task ends: {error or how}.", wrong
    elif how == "success":
        settled = world.settled | _returned(world, from_json(about[0]))
        done = world.but(state="success", settled=settled, has_waited=False, expects="")
        yield "The task succeeds.", done.went_on("process", ("ok", None))
    elif how == "deferred":
        world = world.answers(has_worked=bool(TASKS[world.task].questions) and world.crew[-1] == "running")
        deferred = world.but(state="deferred", resumes=(about[0], about[1]), trigger=about[2])
        yield "The task defers.", deferred.but(process=None, is_calm=True, expects="")
    elif how == "failed":
        yield f"The task fails without a retry: {error}.", world.but(state="failed", process=None, expects="")
    else:
        yield f"The task fails: {error}.", _after_death(world.but(process=None))


def _returned(world: World, value: Any) -> set[str]:
    """Return the executions whose results a task returns. A batch has but one row here."""
    if isinstance(value, dict) and "counts" in value:
        ended = {f"e{number}" for number, status in enumerate(world.crew, 1) if status == "completed"}
        return ended if value["counts"]["success"] else set()
    return {value if isinstance(value, str) else value["kickoff_id"]}
