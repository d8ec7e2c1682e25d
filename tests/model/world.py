"""State of everything around the processes of a task (its crew, Airflow and user), and what users read of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from airflow_provider_crew.answers.people import KEY as ANSWER
from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.task.record import KEY
from tests.model.process import TASKS, Answer, Process, Wrong, from_json

RETRIES = 1
AT_REST = frozenset({"success", "failed", "retry"})
_STARTS = "starts an execution (billed)"
_STEPS = frozenset({"status", "open", "answer", "finish"})


class Dialog(NamedTuple):
    """
    Questions and answers of an execution.

    :param asked: Number of questions. The crew waits for an answer to the last one if its status is ``waiting``.
    :param asker: Attempt that has sent the kickoff.
    :param shows: Question of the open request under Required Actions. Empty if there is none.
    :param given: Name of the answer to this request.
    :param read: For each answer of a user, the question on the page, and answers that it said may have arrived.
    :param warned: Number of answers when the log last said that one was not sent.
    :param sent: Question and name of each answer that may have arrived, as far as the task knows.
    :param has_worked: Whether a poll of the trigger may have found the crew at work.
    :param late: How often the time to answer has passed.
    """

    asked: int = 0
    asker: int = 0
    shows: str = ""
    given: str = ""
    read: tuple[tuple[str, frozenset[str]], ...] = ()
    warned: int = 0
    sent: frozenset[tuple[str, str]] = frozenset()
    has_worked: bool = False
    late: int = 0


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
    ghost: Process | None = None
    crew: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    is_heard: bool = False
    settled: frozenset[str] = frozenset()
    read: str = ""
    choice: str | None = None
    allowed: str | None = None
    expects: str = ""
    dialog: Dialog = Dialog()

    def but(self, **changes: Any) -> World:
        """Return another state."""
        return self._replace(**changes)

    def talks(self, **changes: Any) -> World:
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

    def outcomes(self, what: str, then: State, answer: Any, *faults: Fault) -> Replies:
        """Yield what becomes of a request of a process: nothing goes wrong, or one of the faults is a surprise."""
        yield what, ("ok", answer), then
        for how, error, state in faults * self.may_surprise:
            yield f"{what}{how}", (error, None), state if isinstance(state, Wrong) else state.surprised()

    def losses(self, error: str, arrived: State, unknown: State) -> tuple[Fault, ...]:
        """Return what may go wrong with a request to the crew, which its sender may not learn."""
        return (
            (", but the response is lost", error, arrived),
            (", which does not arrive, and does not learn that", error, unknown),
            (", which the crew rejects", "rejected", self),
        )

    def xcom(self, key: str) -> Any:
        """Return the value of an XCom."""
        return from_json(dict(self.xcoms).get(key, "null"))

    def kept(self, key: str) -> Any:
        """Return the value of an entry in the store."""
        return from_json(dict(self.store).get(key, "null"))

    @property
    def is_the_time(self) -> bool:
        """Whether something may happen now. In a dialog, it could as well happen at the next of these steps."""
        request = self.process.request if self.process and TASKS[self.task].questions else ("answer",)
        return request[0] in _STEPS or request[:2] == ("set", ANSWER)

    @property
    def has_surprises(self) -> bool:
        """Whether a surprise may happen now. In a dialog, it has to differ from one of other kinds, or before."""
        if not (self.surprises and TASKS[self.task].questions):
            return self.surprises > 0
        return self.dialog.asked > 0 and (self.kept(ANSWER) or {}).get("number") != 2

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
        kept = xcoms.get(PROGRESS, "{}"), dict(self.store).get(KEY, "{}")
        return _told(*kept, self.state, TASKS[self.task].has_record and self.try_number < 2)


State = World | Wrong
Replies = Iterator[tuple[str, Answer | None, State]]
"""What may become of a request: a sentence, the answer to the process unless it is over, and the state."""
Fault = tuple[str, str, State]
"""The same for a fault: the end of the sentence, the error of the process, and the state without the surprise."""


@cache
def _told(progress: str, record: str, state: str, has_started_nothing: bool) -> dict[str, str]:  # noqa: FBT001
    shown, recorded = from_json(progress), from_json(record).get("if_lost")
    lost = (recorded if state == "success" else None) or shown.get("if_lost") or recorded
    if shown.get("cost") or (shown and state not in AT_REST):
        retry, cost, choices = shown["if_retried"] or "", shown["cost"] or "running", shown["choices"] or {}
    elif lost:  # the page of a batch is as old as its last report
        retry, cost, choices = lost.get("if_retried", ""), lost["cost"], lost.get("choices", {})
        retry, choices = (retry, choices) if "if_cleared" in lost else ("", {})
    else:
        retry = _STARTS if has_started_nothing else ""
        cost, choices = "none" if has_started_nothing else "unknown", {"clear": retry}
    return {"clear": choices.get("clear", "").removeprefix("it "), "retry": retry, "cost": cost}
