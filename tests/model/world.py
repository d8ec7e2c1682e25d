"""State of everything around the processes of a task (its crew, Airflow and user), and what users read of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.task.record import KEY, KICKOFF_ID
from tests.model import answers
from tests.model.process import FILE, TASKS, Answer, Process, from_json

RETRIES = 1
AT_REST = frozenset({"success", "failed", "retry"})
_NOBODY_CHOOSES = frozenset({"exit", "names", "xcom", "state"})
_STARTS = "starts an execution, which is billed"
_STARTS_ANOTHER = "starts a new execution, which is billed again"


class World(NamedTuple):
    """
    A state of the world. An execution counts as running until a process looks: nothing depends on when it ends.

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

    def surprised(self, **changes: Any) -> World:
        """Return the state after a fault, about whose effect the user can have read nothing."""
        return self._replace(surprises=self.surprises - 1, is_calm=False, expects="", **changes)

    def pushed(self, xcoms: Mapping[str, str]) -> World:
        """Return the state with more XComs."""
        return self._replace(xcoms=tuple(sorted({**dict(self.xcoms), **xcoms}.items())))

    def with_end(self, kickoff_id: str, status: str) -> World:
        """Return the state in which an execution has ended."""
        index = int(kickoff_id[1:]) - 1
        return self._replace(crew=(*self.crew[:index], status, *self.crew[index + 1 :]))

    def xcom(self, key: str) -> Any:
        """Return the value of an XCom."""
        return from_json(dict(self.xcoms).get(key, "null"))

    def kept(self, key: str) -> Any:
        """Return the value of an entry in the store."""
        return from_json(dict(self.store).get(key, "null"))

    @property
    def has_surprises(self) -> bool:
        """Whether a fault or an action of the user may happen now."""
        return self.surprises > 0 and answers.may_surprise(self)

    @property
    def may_surprise(self) -> bool:
        """Whether a fault may happen to the process."""
        return self.is_calm and self.has_surprises

    @property
    def owed(self) -> list[str]:
        """Status of each execution that the task may still owe its user."""
        return [status for number, status in enumerate(self.crew, 1) if f"e{number}" not in self.settled]

    def told(self) -> dict[str, str]:
        """
        Return what the user reads: the cost, and the effects of a retry and of clearing the task.

        This is ``starting()`` and ``ending()`` in ``plugins/tab/ending.js``, which run in a browser.
        """
        xcoms = dict(self.xcoms) if self.state != "queued" or self.resumes else {}
        if not TASKS[self.task].has_record and KICKOFF_ID in xcoms:
            return {"clear": _STARTS_ANOTHER, "retry": _STARTS_ANOTHER, "cost": "running"}
        kept = xcoms.get(PROGRESS, "{}"), dict(self.store).get(KEY, "{}")
        return _told(*kept, self.state in AT_REST, TASKS[self.task].has_record)

    # Its processes.

    def likely(self, request: tuple[Any, ...]) -> Answer | None:  # noqa: PLR0911 - a table
        """Return the answer to a request if nothing goes wrong, as far as there is one."""
        match request:
            case "get", key:
                return "ok", dict(self.store).get(key, "null")
            case "xcom", key:
                return "ok", dict(self.xcoms).get(key, "null")
            case "names", begin:
                return "ok", tuple(key.removeprefix(FILE) for key, _ in self.store if key.startswith(begin))
            case ("state",):
                return "ok", self.state
            case "kickoff", _:
                return "ok", f"e{len(self.crew) + 1}"
            case "status", _:
                return ("not found", None) if self.crew[-1:] == ("waiting",) else ("ok", "completed")
            case ("sleep" | "answer" | "set" | "delete" | "open" | "finish") as what, *_:
                return "ok", {"sleep": 0.0, "answer": ""}.get(what)
        return None

    def went_on(self, slot: str, answer: Answer) -> World:
        """Return the state in which the process in a slot has got an answer."""
        return self.with_process(slot, getattr(self, slot).after(answer, self.likely))

    def with_process(self, slot: str, process: Process) -> World:
        """Return the state with another process, and with the XComs that this has pushed."""
        pushed = dict(process.pushed)
        if slot == "ghost" or not pushed:  # Airflow may refuse the XComs of a ghost
            return self.but(**{slot: process})
        world = self.answers(warned=len(self.dialog.read)) if "log" in pushed else self
        return world.pushed(pushed).but(process=process)


@cache
def _told(progress: str, record: str, is_at_rest: bool, has_record: bool) -> dict[str, str]:  # noqa: FBT001
    shown, lost = from_json(progress), from_json(record).get("if_lost")
    if shown.get("cost") or (shown and not is_at_rest):
        retry, cost, choices = shown["if_retried"] or "", shown["cost"] or "running", shown["choices"] or {}
    elif shown.get("if_lost"):  # the page of a batch is as old as its last report
        retry, cost, choices = "", shown["if_lost"]["cost"], {}
    elif lost:
        retry, cost, choices = lost["if_retried"], lost["cost"], lost["choices"]
    else:
        retry = _STARTS if has_record else ""
        cost, choices = "none" if has_record else "unknown", {"clear": retry}
    return {"clear": choices.get("clear", "").removeprefix("it "), "retry": retry, "cost": cost}


def answered(before: World, world: World) -> World:
    """Return the state in which each process has the answers that nobody chooses."""
    for slot in ("process", "ghost"):
        while (process := getattr(world, slot)) and process.request[0] in _NOBODY_CHOOSES:
            answer = world.likely(process.request)
            world = world.went_on(slot, answer) if answer else world.but(**{slot: None})
    read = before.told()["clear"] if world.surprises else ""
    if world.surprises and read == world.told()["clear"]:
        return world
    return world if world.read == read else world.but(read=read)
