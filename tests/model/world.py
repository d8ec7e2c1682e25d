"""
State of everything around the processes of a task (its crew, Airflow and user), and the effects of each move.

An execution counts as running until a process looks, because nothing depends on the moment at which it ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from airflow_provider_crew.answers.receiver import Receiver
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.calls import read_address
from airflow_provider_crew.client.errors import error_record
from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.task.record import KEY, KICKOFF_ID
from airflow_provider_crew.task.settle import HEARD
from airflow_provider_crew.triggers.events import DEFERRAL, told_completed, told_error
from tests.model import answers
from tests.model.process import (
    DAYS,
    FILE,
    NOW,
    SECRET,
    TASKS,
    TOLD,
    Answer,
    Process,
    Start,
    Wrong,
    began,
    execution,
    stored_in,
)

RETRIES = 1
_HOUR = 3_600.0
_AT_REST = frozenset({"success", "failed", "retry"})
_DISCARDS = "discards the task state"
_CHANGED = "does what it no longer does"
_NOBODY_CHOOSES = frozenset({"exit", "names", "xcom", "state"})
_STARTS = "starts an execution, which is billed"
_STARTS_ANOTHER = "starts a new execution, which is billed again"


class World(NamedTuple):
    """
    A state of the world.

    :param surprises: Faults and actions of the user that may still happen. A process has one of them at most.
    :param is_calm: Whether the process has had none.
    :param left: XComs of the last attempt, which Airflow has deleted.
    :param resumes: Method and arguments with which a deferred task resumes.
    :param ghost: Process that Airflow takes for dead, or a trigger that notices that its task has left it.
    :param calls: Address and kickoff ID of each call that the crew may still make.
    :param is_heard: Whether the crew had called for the recorded kickoff before the process started.
    :param settled: Executions whose result was returned, or that the user has chosen to pay for besides another.
    :param read: Effect of clearing that the page has shown a moment ago, and no longer shows.
    :param choice: Effect that the user had read before the last clear, until it has come true.
    :param allowed: The same for a kickoff of the process. Empty for one of the ghost.
    :param expects: What the next attempt does, as far as the user knows.
    :param dialog: Questions of the crew, and answers.
    """

    task: str
    surprises: int
    state: str = "queued"
    try_number: int = 0
    max_tries: int = RETRIES
    store: tuple[tuple[str, str], ...] = ()
    xcoms: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()
    resumes: tuple[str, str] | None = None
    trigger: str = ""
    process: Process | None = None
    is_calm: bool = True
    is_told: bool = False
    is_marked: bool = False
    has_waited: bool = False
    ghost: Process | None = None
    crew: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    is_heard: bool = False
    settled: frozenset[str] = frozenset()
    read: str = ""
    choice: str | None = None
    allowed: str | None = None
    expects: str = ""
    dialog: answers.Dialog = answers.Dialog()

    def but(self, **changes: Any) -> World:
        """Return another state."""
        return self._replace(**changes)

    def answers(self, **changes: Any) -> World:
        """Return the state with another dialog."""
        return self._replace(dialog=self.dialog._replace(**changes))

    def pushed(self, xcoms: Mapping[str, str]) -> World:
        """Return the state with more XComs."""
        return self._replace(xcoms=tuple(sorted({**dict(self.xcoms), **xcoms}.items())))

    def xcom(self, key: str) -> Any:
        """Return the value of an XCom."""
        return json.loads(dict(self.xcoms).get(key, "null"))

    def kept(self, key: str) -> Any:
        """Return the value of an entry in the store."""
        return json.loads(dict(self.store).get(key, "null"))

    @property
    def has_surprises(self) -> bool:
        """Whether a fault or an action of the user may happen now."""
        return self.surprises > 0 and answers.may_surprise(self)

    @property
    def may_surprise(self) -> bool:
        """Whether a fault may happen to the process."""
        return self.has_surprises and self.is_calm

    @property
    def may_be_told(self) -> bool:
        """Whether the process is told to end now. On 3.4, save_again() would wait for a request to the store."""
        is_storing = self.process is not None and self.process.request[0] in {"set", "delete"}
        return not (is_storing and TASKS[self.task].airflow >= (3, 4))

    def surprised(self, **changes: Any) -> World:
        """Return the state after a fault, about whose effect the user can have read nothing."""
        return self._replace(surprises=self.surprises - 1, is_calm=False, expects="", **changes)

    @property
    def owed(self) -> list[str]:
        """Status of each execution that the task may still owe its user."""
        return [status for number, status in enumerate(self.crew, 1) if f"e{number}" not in self.settled]

    def with_end(self, kickoff_id: str, status: str) -> World:
        """Return the state in which an execution has ended."""
        index = int(kickoff_id[1:]) - 1
        return self._replace(crew=(*self.crew[:index], status, *self.crew[index + 1 :]))

    def likely(self, request: tuple[Any, ...]) -> Answer | None:
        """Return the answer to a request if nothing goes wrong, as far as there is one."""
        what, *about = request
        return _LIKELY[what](self, *about) if what in _LIKELY else None

    def told(self) -> dict[str, str]:
        """
        Return what the user reads: the cost, and the effects of a retry and of clearing the task.

        This is ``starting()`` and ``ending()`` in ``plugins/tab/ending.js``, which run in a browser.
        """
        xcoms = dict(self.xcoms) if self.state != "queued" or self.resumes else {}
        if not TASKS[self.task].has_record and KICKOFF_ID in xcoms:
            return {"clear": _STARTS_ANOTHER, "retry": _STARTS_ANOTHER, "cost": "running"}
        kept = xcoms.get(PROGRESS, "{}"), dict(self.store).get(KEY, "{}")
        return _told(*kept, self.state in _AT_REST, TASKS[self.task].has_record)


_LIKELY: dict[str, Callable[..., Answer]] = {
    "get": lambda it, key: ("ok", dict(it.store).get(key, "null")),
    "xcom": lambda it, key: ("ok", dict(it.xcoms).get(key, "null")),
    "names": lambda it, begin: (
        "ok",
        tuple(key.removeprefix(FILE) for key, _ in it.store if key.startswith(begin)),
    ),
    "state": lambda it: ("ok", it.state),
    "kickoff": lambda it, _: ("ok", f"e{len(it.crew) + 1}"),
    "status": lambda it, _: ("not found", None) if it.crew[-1:] == ("waiting",) else ("ok", "completed"),
    "sleep": lambda _: ("ok", 0.0),
    "answer": lambda *_: ("ok", ""),
    **dict.fromkeys(("set", "delete", "open", "finish"), lambda *_: ("ok", None)),
}


@cache
def _told(progress: str, record: str, is_at_rest: bool, has_record: bool) -> dict[str, str]:  # noqa: FBT001
    shown = json.loads(progress)
    if shown.get("cost") or (shown and not is_at_rest):
        clear = (shown["choices"] or {}).get("clear", "").removeprefix("it ")
        return {"clear": clear, "retry": shown["if_retried"] or "", "cost": shown["cost"] or "running"}
    if shown.get("if_lost"):  # the page of a batch is as old as its last report
        return {"clear": "", "retry": "", "cost": shown["if_lost"]["cost"]}
    if lost := json.loads(record).get("if_lost"):
        clear = lost["choices"]["clear"].removeprefix("it ")
        return {"clear": clear, "retry": lost["if_retried"], "cost": lost["cost"]}
    nothing = _STARTS if has_record else ""
    return {"clear": nothing, "retry": nothing, "cost": "none" if has_record else "unknown"}


Step = tuple[str, World | Wrong]
Replies = Iterator[tuple[str, Answer, World | Wrong]]


def answered(before: World, world: World) -> World:
    """Return the state in which each process has the answers that nobody chooses."""
    for slot in ("process", "ghost"):
        while (process := getattr(world, slot)) and process.request[0] in _NOBODY_CHOOSES:
            answer = world.likely(process.request)
            world = went_on(world, slot, process, answer) if answer else world.but(**{slot: None})
    if not world.surprises:
        return world.but(read="")
    read = before.told()["clear"]
    return world if read == world.told()["clear"] else world.but(read=read)


def went_on(world: World, slot: str, process: Process, answer: Answer) -> World:
    """Return the state in which a process has got an answer."""
    return _with(world, slot, process.after(answer, world.likely))


def _with(world: World, slot: str, process: Process) -> World:
    """Return the state with another process, and with the XComs that this has pushed."""
    if slot == "ghost" or not process.pushed:  # Airflow may refuse the XComs of a ghost
        return world.but(**{slot: process})
    if "log" in dict(process.pushed):
        world = world.answers(warned=len(world.dialog.read))
    return world.pushed(dict(process.pushed)).but(process=process)


# Airflow.


def is_due(world: World) -> bool:
    """Whether Airflow starts a process."""
    kind = TASKS[world.task]
    has_attempts = world.try_number < kind.attempts or (world.resumes and kind.resumes_last)
    return world.state in {"queued", "retry"} and world.process is None and bool(has_attempts)


def may_fail(world: World) -> bool:
    """Whether something may happen to the process of an attempt that Airflow takes for running."""
    return world.state == "running" and world.process is not None and world.may_surprise


def begun(world: World) -> World:
    """Return the state in which a process has started."""
    resumes, number = world.resumes, world.try_number + (world.resumes is None)
    left = world.left if resumes else tuple(key for key, _ in world.xcoms if key.startswith(KICKOFF_ID))
    fresh: dict[str, Any] = {"is_calm": True, "is_told": False, "has_waited": False, "resumes": None}
    xcoms = world.xcoms if resumes else ()
    fresh |= {"is_heard": any(key.startswith(HEARD) for key, _ in world.store)}
    world = world.but(**fresh, state="running", try_number=number, left=left, xcoms=xcoms, allowed=world.choice)
    now = NOW + world.dialog.late * _HOUR
    process = began(Start(world.task, number, world.max_tries, left, resumes, now=now), world.likely)
    return _with(world, "process", process)


def told_to_end(world: World) -> World:
    process = None if world.is_told else world.process
    return went_on(world.but(is_told=True), "process", process, TOLD) if process else world


def after_death(world: World) -> World:
    """Return the state after a process has ended without a result."""
    if world.state == "restarting":
        return world.but(state="queued", max_tries=world.try_number + RETRIES)
    if world.state != "running":
        return world
    if not 0 < world.try_number <= world.max_tries:
        return world.but(state="failed", expects="")
    world = world.but(state="retry")
    return world.but(expects=_expected(world, world.told()["retry"]))


def _expected(world: World, effect: str) -> str:
    """Return an effect, unless it depends on an end, or on a clear, of which no process has stored anything."""
    is_news = effect.startswith(("waits", "reads", "reports", "ends")) and {"failed", "stopped"} & {*world.crew}
    is_open = effect.startswith("reads the kickoff record") or "starts the others" in effect
    is_old = "row" in effect and world.state not in _AT_REST
    return "" if is_news or is_open or is_old else effect


def fires(world: World) -> Iterator[Step]:
    """Yield the events of a trigger."""
    if world.state != "deferred":
        return
    stored, (_, kwargs) = stored_in(world.trigger), world.resumes or ("", "{}")
    events = _events(world, stored)
    if "known_question" in stored:
        events = answers.events(world, stored, events)
    for what, then, event in events:
        resumes = "execute_complete", json.dumps({**json.loads(kwargs), "event": event})
        yield f"The trigger {what}.", left_trigger(then, resumes)


def _events(world: World, stored: dict[str, Any]) -> Iterator[answers.Event]:
    """Yield the events of a trigger. ``watched()`` in ``triggers/`` and ``batch/watching.py`` makes them."""
    is_batch = "running" in stored
    kickoff_id = stored["running"][0][0] if is_batch else stored["kickoff_id"]
    for news, then in _looks(world, kickoff_id):
        error, event = _error_of(news, kickoff_id), dict[str, Any]()
        if is_batch:
            end = None if news in {"completed", "failed", "stopped"} else error_record(error)
            event = {"ends": {kickoff_id: end}, "error": None, "is_quick": False, "known": {}}
        else:
            event = {"kickoff_id": kickoff_id, "deadline": stored["rules"]["deadline"], "seen": True}
            is_completed = news == "completed"
            event |= told_completed(execution(kickoff_id, news)) if is_completed else told_error(error)
        what = "the timeout has passed" if news == "running" else f"{kickoff_id} is {news}"
        yield f"fires, because {what}", then, event


def _error_of(news: str, kickoff_id: str) -> errors.CrewError:
    kinds = {"not found": errors.ExecutionUnknown, "unreadable": errors.LostContact}
    if news in {"failed", "stopped"}:
        return execution_failed(execution(kickoff_id, news), "")
    return kinds.get(news, errors.WaitedTooLong)("?", kickoff_id=kickoff_id)


def left_trigger(world: World, resumes: tuple[str, str]) -> World:
    if DEFERRAL in dict(world.xcoms):  # end_deferral() in triggers/watching.py
        world = world.pushed({DEFERRAL: "null"})
    return answers.left_trigger(world).but(state="queued", trigger="", resumes=resumes)


def noticed(world: World) -> World:
    """Return the state in which a triggerer notices that a task has left its trigger."""
    start = Start(world.task, world.try_number, world.max_tries, trigger=world.trigger)
    return world if world.ghost else world.but(ghost=began(start, world.likely))


# The crew.


def calls(world: World) -> Iterator[Step]:
    """Yield what the receiver keeps of the calls of crews whose kickoff got no response."""
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


def _kicked_off(world: World, slot: str) -> World | Wrong:
    """Return the state in which the crew has started another execution."""
    owed, allowed = world.owed, world.allowed if slot == "process" else ""
    if slot == "process" and world.is_heard and owed == ["running"]:
        return Wrong("Another execution is started although the crew had called.")
    is_chosen = TASKS[world.task].chooses_twice or _is_choice(allowed or "")
    harmless = {"failed"} if allowed is None else {"failed", "stopped"}
    read = f" after the user had read {allowed.partition(',')[0]!r}" if allowed else ""
    if not (is_chosen or harmless.issuperset(owed)):
        status = min(owed, key=["running", "completed", "stopped", "failed"].index)
        return Wrong(f"Another execution is started although one is {status}{read}.")
    if not is_chosen and not owed and world.crew and world.crew[-1] not in harmless:
        return Wrong(f"Another execution is started although a result was returned{read}.")
    is_next = slot == "process" and world.state == "running"
    if is_next and world.expects and not world.expects.startswith(("starts", "reruns")):
        return Wrong(f"An execution is started although the user had read {world.expects!r}.")
    settled = frozenset(f"e{number}" for number in range(1, len(world.crew) + 1))
    dialog = answers.Dialog(asker=world.try_number)
    world = world.but(crew=(*world.crew, "running"), settled=settled, dialog=dialog)
    return world.but(expects="", choice=None if is_next else world.choice)


def _is_choice(effect: str) -> bool:
    """Whether a user who clears the task after reading this has chosen to pay for another execution."""
    return effect.startswith(("starts a new", "reruns"))


# A process.


def reads(world: World, _: str, key: str) -> Replies:
    yield "", ("ok", dict(world.store).get(key, "null")), world
    if world.may_surprise and not key.startswith(FILE):
        yield f"cannot read {key}", ("refused", None), world.surprised()


def waits(world: World, _: str) -> Replies:
    if not world.has_waited:
        yield "waits", ("ok", 0.0), world.but(has_waited=True)
    elif not TASKS[world.task].questions:
        yield "waits in vain", ("ok", DAYS), world


def polls(world: World, _: str, kickoff_id: str) -> Replies:
    for news, then in _looks(world, kickoff_id):
        is_fault = news in {"not found", "unreadable"}
        yield f"finds that {kickoff_id} is {news}", (news, None) if is_fault else ("ok", news), then


def stores(world: World, slot: str, key: str, *values: str) -> Replies:
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
    record = json.loads(values[0])
    known = [record["kickoff_id"] or "the intent", record["end"]]
    return ", ".join(filter(None, [*known, *(name for name in ("reported", "delivered") if record[name])]))


def kicks_off_late(*_: Any) -> Replies:
    yield "sends a kickoff", ("ok", ""), Wrong("A kickoff is sent after the task was told to end.")


def kicks_off(world: World, slot: str, path: str) -> Replies:
    name, started = f"e{len(world.crew) + 1}", _kicked_off(world, slot)
    yield f"starts execution {name}", ("ok", name), started
    if world.may_surprise:
        calls = (*world.calls, *[(path, name)] * bool(path))
        lost = started.surprised(calls=calls) if isinstance(started, World) else started
        yield f"starts execution {name}, but the response is lost", ("lost", None), lost
        yield "sends a kickoff that does not arrive, and does not learn that", ("lost", None), world.surprised()
        yield "sends a kickoff that the crew rejects", ("rejected", None), world.surprised()


def stops(world: World, _: str, kickoff_id: str) -> Replies:
    what = f"asks the crew to stop {kickoff_id}"
    if not world.is_marked:
        yield what, ("", None), Wrong("An execution is stopped although nobody has marked the task.")
        return
    status = world.crew[int(kickoff_id[1:]) - 1]
    end = "stopped" if status == "running" else status
    yield what, ("ok", end), world.with_end(kickoff_id, end).but(expects="")
    if world.may_surprise:
        yield f"{what}, in vain", ("not stopped", None), world.surprised()


def finishes(world: World, slot: str, process: Process) -> Iterator[Step]:
    _, how, *about = process.request
    if slot == "ghost" or world.state != "running":
        ended = world.but(**{slot: None})
        yield "", ended if slot == "ghost" else after_death(ended)
        return
    value: Any = json.loads(about[0]) if how == "success" else None
    error = about[0] if how in {"failed", "retry"} else ""
    if wrong := _disappointed(world, how, error):
        yield f"The task ends: {error or how}.", wrong
    elif how == "success":
        settled = world.settled | _returned(world, value)
        done = world.but(state="success", settled=settled, has_waited=False, expects="")
        yield "The task succeeds.", _with(done, "process", process.after(("ok", None), world.likely))
    elif how == "deferred":
        resumes, trigger = (about[0], about[1]), about[2]
        world = world.answers(has_worked=bool(TASKS[world.task].questions) and world.crew[-1] == "running")
        deferred = world.but(state="deferred", process=None, is_calm=True, resumes=resumes, trigger=trigger)
        yield "The task defers.", deferred.but(expects="")
    elif how == "failed":
        yield f"The task fails without a retry: {error}.", world.but(state="failed", process=None, expects="")
    else:
        yield f"The task fails: {error}.", after_death(world.but(process=None))


def _returned(world: World, value: Any) -> set[str]:
    """Return the executions whose results a task returns. A batch has but one row here."""
    if isinstance(value, dict) and "counts" in value:
        ended = {f"e{number}" for number, status in enumerate(world.crew, 1) if status == "completed"}
        return ended if value["counts"]["success"] else set()
    return {value if isinstance(value, str) else value["kickoff_id"]}


def _disappointed(world: World, how: str, error: str) -> Wrong | None:
    """Return what is wrong if an attempt has ended otherwise than the user had read."""
    effect, is_report = world.expects, error == "UncertainKickoff"
    if "row" in effect and (world.is_heard or error == "WaitedTooLong"):
        return None  # it waits for an execution whose crew has called, or starts the row in the next attempt
    if is_report and world.is_heard:
        return Wrong("An uncertain kickoff is reported although the crew had called.")
    starts = effect.startswith(("starts", "reruns")) and not any(
        word in effect for word in ("only if", "unless", "may be")
    )
    has_execution = KICKOFF_ID in dict(world.xcoms) or how in {"success", "deferred"}
    waits = effect.startswith(("waits", "reads", "checks", "keeps")) and not any(
        word in effect for word in ("stopped", "or else reports")
    )
    # It may do better: an ID that Airflow refused to store may be in an XCom.
    reports = effect.startswith("reports") and not is_report
    if starts or ((waits or reports) and not has_execution):
        return Wrong(f"The attempt ends as {error or how} although the user had read {effect!r}.")
    return None


# The user.


def may_click(world: World) -> bool:
    """Whether a user does something now."""
    is_ready = world.process is None or (world.may_surprise and world.may_be_told and answers.is_the_time(world))
    return world.has_surprises and world.try_number > 0 and is_ready


def clears(world: World) -> Iterator[Step]:
    """Yield the ways in which a user clears the task, who may have read the page a moment ago."""
    if not may_click(world):
        return
    now = world.told()["clear"]
    keeps = [True, False] if TASKS[world.task].discards else [True]
    for read, kept in product({now, world.read or now}, keeps):
        what = "clears the task" if kept else "clears the task without its kept state"
        when = "reads" if read == now else "has just read"
        yield f"A user {when} that clearing {read!r}, and {what}.", _cleared(world.surprised(), read, kept=kept)


def _cleared(world: World, read: str, *, kept: bool) -> World:
    is_current = read == world.told()["clear"]
    # A request to stop the execution may be on its way.
    stops = any(process and process.request[0] == "stop" for process in (world.process, world.ghost))
    world = world.but(
        expects=_expected(world, read) if kept and is_current else "",
        choice=(read if is_current or _is_choice(read) else _CHANGED) if kept else _DISCARDS,
        is_marked=world.is_marked and stops,
        store=world.store if kept else tuple(each for each in world.store if each[0].startswith(FILE)),
    )
    if world.state == "running":
        return world.but(state="restarting")
    if world.state == "deferred":
        world = noticed(world)
    fresh: dict[str, Any] = {"state": "queued", "max_tries": world.try_number + RETRIES, "resumes": None}
    ghost = world.ghost or world.process  # a process may still call its callbacks, or have to notice its end
    return world.but(**fresh, trigger="", process=None, ghost=ghost)


def marked(world: World) -> World:
    marked = world.but(state="failed", is_marked=True)
    if world.state == "deferred":
        return noticed(marked).but(resumes=None, trigger="")
    return told_to_end(marked)


def wrong_at_rest(world: World) -> Wrong | None:
    """Return what is wrong with what the user reads if nothing more happens."""
    if world.process or world.ghost or world.state not in _AT_REST:
        return None
    owed, cost = {"running", "completed"} & {*world.owed}, world.told()["cost"]
    is_lost = owed and (world.state == "success" or cost == "none")
    if is_lost or (cost == "ended" and "running" in owed):
        return Wrong(f"The page shows {world.state!r} and the cost {cost!r} although one is {max(owed)}.")
    return answers.wrong_at_rest(world)
