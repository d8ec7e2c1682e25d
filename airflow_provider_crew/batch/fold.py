"""
Rows of a batch: a fold over facts, in any order. It does no I/O.

A fact may come late, twice or not at all. For one kickoff, a result counts more than a failure, a failure more
than a wait that ended, and that more than an uncertain kickoff. A name counts more than none.
"""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from airflow_provider_crew.batch.facts import Fact, fact
from airflow_provider_crew.client.watch import Trouble
from airflow_provider_crew.task.decide import (
    AFTER_PILOT,
    BILLED,
    Decision,
    End,
    KickoffRecord,
    PolledStatus,
    Step,
    decide,
    foreseen,
)

State = Literal[
    "not_started",
    "uncertain",
    "running",
    "left",
    "refused",
    "error",
    "cancelled",
    "stopped",
    "invalid_output",
    "success",
]
"""
``uncertain``: sent, and no name. ``left``: its wait has ended, but not its execution. ``refused``: its inputs were
rejected. ``stopped``: a person has stopped it.
"""
OPEN = frozenset({"uncertain", "running", "left"})
"""States in which an execution may be running."""
_FAILED = frozenset({"refused", "error", "cancelled"})
_LEVELS: dict[State, int] = {"uncertain": 0, "running": 1, "left": 2, "invalid_output": 4, "success": 5}
_BY_STAGE: dict[str | None, State] = {"wait": "left", "inputs": "refused", "kickoff": "refused"}
ENDED = 3
"""Level of an execution that has ended without a result."""
# Kinds of rows in the words of the verdict.
_KINDS = {"success": "successful", "invalid_output": "invalid", "refused": "rejected", "not_started": ""}
_NAMED = "known"
MOST_TOKENS = 10**12


class Ending(NamedTuple):
    """
    End of an execution, or of the wait for it. A greater one counts more.

    :param result: Level of a result. 0: there is none.
    :param watch: Number of times that attempts had reattached before.
    :param is_asked: Whether the batch has asked the crew to cancel the execution.
    """

    result: int
    watch: int
    level: int
    state: State
    is_asked: bool


def ending(known: Fact) -> Ending:
    """Return how much a fact counts that has ended a kickoff, or reported it."""
    if known["what"] == "reported":
        return Ending(0, 0, 0, "uncertain", is_asked=False)
    error = known["error"] or {}
    state: State = "stopped" if error.get("type") == "ExecutionStopped" else known["status"]
    state = _BY_STAGE.get(error.get("stage"), state)
    level = _LEVELS.get(state, ENDED)
    is_asked = error.get("type") in {"NotCancelled", "ExecutionCancelled"}
    return Ending(level if level > ENDED else 0, known["watch"], level, state, is_asked)


def tokens_in(usage: Any) -> int | None:
    """Return the tokens that a crew has reported for an execution. None if they are missing or impossible."""
    tokens = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return tokens if type(tokens) is int and 0 <= tokens < MOST_TOKENS else None


@dataclass(slots=True)
class Kickoff:
    """
    One kickoff of a row, as far as facts tell.

    :param address: Address of the crew. Empty if it is unknown.
    :param call: Hash of the address that the crew calls if there is no response. Empty if there is none.
    :param watch: Number of times that attempts have reattached after an end.
    :param again: Watch and level of what the row's next kickoff replaces.
    """

    sent_at: float = 0.0
    address: str = ""
    call: str = ""
    kickoff_id: str = ""
    not_taken: bool = False
    reported: bool = False
    watch: int = 0
    end: Ending | None = None
    again: tuple[int, int] = (0, -1)
    tokens: int | None = None

    def add(self, known: Fact) -> None:
        """Add a fact. The order of facts, and how often each comes, makes no difference."""
        match known["what"]:
            case "sent":
                self.sent_at, self.call = max(self.sent_at, known["at"]), max(self.call, known["call"])
                self.address = max(self.address, known["address"])
            case "named":
                self.kickoff_id = max(self.kickoff_id, known["kickoff_id"])
            case "not taken":
                self.not_taken = True
            case "reported":
                self.reported = True
            case "reattached":
                self.watch = max(self.watch, known["watch"])
            case "again":
                self.again = max(self.again, (known["watch"], known["level"]))
            case "ended":
                found, tokens = ending(known), tokens_in(known.get("usage"))
                self.end = max(self.end or found, found)
                self.kickoff_id = max(self.kickoff_id, known["kickoff_id"] or "")
                self.tokens = max((n for n in (self.tokens, tokens) if n is not None), default=None)

    @property
    def is_void(self) -> bool:
        """Whether it has certainly not been taken by the crew."""
        return self.not_taken and not self.kickoff_id and not self.end

    @property
    def level(self) -> int:
        """Level of what is known. The greatest counts."""
        if self.end and (self.end.result or self.end.watch >= self.watch):
            return self.end.level
        return int(bool(self.kickoff_id))

    @property
    def state(self) -> State:
        """State of the row if this is its last kickoff."""
        level = self.level
        if self.again >= (self.watch, level):
            return "not_started"
        return self.end.state if self.end and level > 1 else "running" if level else "uncertain"

    @property
    def is_execution(self) -> bool:
        """Whether it may have started an execution."""
        return not self.is_void and not (self.end and self.end.state == "refused" and self.level == ENDED)

    def packed(self, *, is_open: bool) -> list[Any]:
        """Return it as JSON data. After an end, its time and name are no longer needed."""
        sent = [self.sent_at, self.address, self.call, self.kickoff_id]
        named = sent if is_open else [0.0, "", "", self.kickoff_id and _NAMED]
        return [*named, self.is_void, self.reported, self.watch, self.end, self.again, self.tokens]

    @classmethod
    def unpacked(cls, *values: Any) -> "Kickoff":
        """Return a kickoff from its JSON data."""
        found = cls(*values)
        found.end, found.again = found.end and Ending(*found.end), (found.again[0], found.again[1])
        return found


_NONE = Kickoff()


@dataclass(slots=True, eq=False)
class Row:
    """
    Row of a batch.

    :param index: Position among the inputs. Negative: only an earlier attempt has known it.
    :param number: Number of the kickoff that its state is about. 0: there is none.
    :param slot: Place of the kickoff in the task state store.
    :param began_at: Time at which a poll saw the execution begin. Before that, it was queued.
    :param troubles: Time since when each trouble of its polls lasts.
    :param first_poll_at: Time before which it is not polled, because its status is large.
    """

    index: int
    key: str
    fingerprint: str
    inputs: Any = None
    kickoffs: dict[int, Kickoff] = field(default_factory=dict)
    state: State = "not_started"
    number: int = 0
    slot: int = -1
    began_at: float | None = None
    troubles: dict[Trouble, float | None] = field(default_factory=dict)
    first_poll_at: float | None = None

    @property
    def name(self) -> str:
        """Name for a watch of this attempt."""
        return str(self.index)

    @property
    def kickoff(self) -> Kickoff:
        """Kickoff that the state is about. That of a row without one is empty."""
        return self.kickoffs.get(self.number, _NONE)

    @property
    def next_number(self) -> int:
        """Number of the next kickoff."""
        return max(self.kickoffs, default=0) + 1

    @property
    def executions(self) -> int:
        """Kickoffs that may have started an execution."""
        return sum(kickoff.is_execution for kickoff in self.kickoffs.values())

    @property
    def is_lost(self) -> bool:
        """Whether its last execution may be one of an uncertain kickoff, although the row does not wait for it."""
        executions = [number for number, kickoff in self.kickoffs.items() if kickoff.is_execution]
        return bool(executions) and self.state != "uncertain" and not self.kickoffs[max(executions)].level

    def settle(self) -> None:
        """Derive the state from the kickoffs. The last one counts, unless only an earlier one has a result."""
        taken = [number for number, kickoff in self.kickoffs.items() if not kickoff.is_void]
        self.number = max(taken, default=0)
        self.state = self.kickoff.state if self.number else "not_started"
        if len(taken) > 1 and self.state not in OPEN and self.kickoff.level <= ENDED:
            for number in sorted(taken):
                if (kickoff := self.kickoffs[number]).level > ENDED and kickoff.state != "not_started":
                    self.number, self.state = number, kickoff.state


class Sums(NamedTuple):
    """Tokens of all executions, number that have reported any, number of all, and number of results."""

    tokens: int
    metered: int
    executions: int
    results: int


class Rows:
    """
    All rows of a batch: those among the inputs, and those that only earlier attempts have known.

    :param given: Rows among the inputs.
    """

    def __init__(self, given: Sequence[Row]) -> None:
        self.given = given
        self.removed: list[Row] = []
        self._by_id = {(row.key, row.fingerprint): row for row in given}

    def __iter__(self) -> Iterator[Row]:
        """Return all rows."""
        yield from self.given
        yield from self.removed

    def find(self, key: str, fingerprint: str) -> Row:
        """Return a row."""
        row = self._by_id.get((key, fingerprint))
        if row is None:
            row = self._by_id[key, fingerprint] = Row(-1 - len(self.removed), key, fingerprint)
            self.removed.append(row)
        return row

    def add(self, known: Fact) -> Row:
        """Add a fact, and return its row."""
        row = self.find(known["key"], known["fingerprint"])
        if known["number"] not in row.kickoffs:
            row.kickoffs[known["number"]] = Kickoff()
            self._forget("numbers")
        row.kickoffs[known["number"]].add(known)
        row.settle()
        self._forget("states", "sums")
        return row

    def _forget(self, *names: str) -> None:
        for name in names:
            self.__dict__.pop(name, None)

    @cached_property
    def states(self) -> Counter[State]:
        """Number of rows among the inputs by state."""
        return Counter(row.state for row in self.given)

    @cached_property
    def sums(self) -> Sums:
        """Sums over all executions."""
        kickoffs = [kickoff for row in self for kickoff in row.kickoffs.values()]
        tokens = [kickoff.tokens for kickoff in kickoffs if kickoff.tokens is not None]
        results = sum(bool(kickoff.end and kickoff.end.result) for kickoff in kickoffs)
        return Sums(sum(tokens), len(tokens), sum(kickoff.is_execution for kickoff in kickoffs), results)

    @cached_property
    def numbers(self) -> str:
        """Number of the last kickoff of each row among the inputs, as a short text."""
        return pack(max(row.kickoffs, default=0) for row in self.given)

    @property
    def changed(self) -> int:
        """Number of rows that earlier attempts have known with other inputs."""
        keys = {row.key for row in self.given}
        return sum(row.key in keys for row in self.removed)

    def add_numbers(self, numbers: Iterable[int], sent_at: float) -> int:
        """Add kickoffs of which only the numbers are known, as sent. Return how many there are."""
        known = zip(self.given, numbers, strict=False)
        lost = [(row, number) for row, number in known if number > max(row.kickoffs, default=0)]
        for row, number in lost:
            self.add(fact(row, number, "sent", at=sent_at, address="", call=""))
        return len(lost)

    def packed(self) -> list[str]:
        """Return what a later process has to know, as JSON data."""
        removed = ([row.key, row.fingerprint, *_packed(row)] for row in self.removed)
        return [pack(map(_packed, self.given)), pack(removed)]

    def unpack(self, given: str, removed: str) -> None:
        """Restore what an earlier process has packed."""
        found = [*zip(self.given, unpack(given), strict=True)]
        found += [(self.find(key, fingerprint), values) for key, fingerprint, *values in unpack(removed)]
        for row, (slot, *kickoffs) in found:
            row.slot = slot
            row.kickoffs = {number: Kickoff.unpacked(*values) for number, *values in kickoffs}
            row.settle()
        self._forget("states", "sums", "numbers")


def _packed(row: Row) -> list[Any]:
    is_open, kickoffs = row.state in OPEN, sorted(row.kickoffs.items())
    return [row.slot, *([n, *kickoff.packed(is_open=is_open and n == row.number)] for n, kickoff in kickoffs)]


def fold(given: Sequence[Row], facts: Iterable[Fact]) -> Rows:
    """Return what follows from facts."""
    rows = Rows(given)
    for each in facts:
        rows.add(each)
    return rows


def pack(values: Iterable[Any]) -> str:
    """Return JSON data of rows, which are mostly alike, as a short text."""
    return base64.b64encode(zlib.compress(json.dumps([*values]).encode())).decode()


def unpack(text: str) -> list[Any]:
    """Return the values of a text."""
    return list(json.loads(zlib.decompress(base64.b64decode(text))))


# What an attempt does with a row.


class Why(NamedTuple):
    """
    Why an attempt runs.

    :param cleared: Whether a user has cleared the task.
    :param reruns: Whether failed rows start again: they are why the last attempt failed, or a user has cleared it.
    :param runs_all: Whether clearing starts successful rows again, too.
    """

    cleared: bool
    reruns: bool
    runs_all: bool = False


def decision_of(row: Row, status: PolledStatus | None = None, *, why: Why) -> Decision:
    """Return what an attempt does with a row: the decision for a single task with the same past."""
    if row.state in _FAILED and not why.reruns:
        return Decision.REATTACH
    return decide(_record_of(row, why), status, cleared=why.cleared)


def _record_of(row: Row, why: Why) -> KickoffRecord | None:
    """Return the kickoff record of a row. None if it has no execution, and none is possible."""
    if row.state in {"not_started", "refused"}:
        return None
    known = None if row.state == "uncertain" else row.kickoff.kickoff_id or _NAMED
    if row.state in OPEN:
        return KickoffRecord(0, row.kickoff.sent_at, known, reported=row.kickoff.reported)
    end: End = "stopped" if row.state == "stopped" else "failed" if row.state in _FAILED else "completed"
    return KickoffRecord(0, 0.0, known, end, delivered=why.cleared and why.runs_all)


def steps_of(rows: Sequence[Row], *, why: Why, pilot: int = 0) -> Counter[Step]:
    """Return what an attempt does with how many rows. Until those of a pilot have ended, it starts no others."""
    pilots, steps = _steps(rows[:pilot], why), _steps(rows[pilot:], why)
    if any(verb in {"waits for", *BILLED} for verb, _ in pilots):
        steps[AFTER_PILOT] = sum(steps.pop(step) for step in [*steps] if step[0] in BILLED)
    return pilots + steps


def _steps(rows: Sequence[Row], why: Why) -> Counter[Step]:
    """Return what an attempt does with how many rows. It asks once for all that are alike."""
    alike = {(row.state, row.kickoff.reported): row for row in rows}
    steps = {about: _step_of(row, why) for about, row in alike.items()}
    return Counter(steps[row.state, row.kickoff.reported] for row in rows)


def _step_of(row: Row, why: Why) -> Step:
    """Return what an attempt does with a row, and the kind of the row, in the words of the verdict."""
    kind = _KINDS.get(row.state, row.state if row.state in {"uncertain", "stopped"} else "failed")
    if row.state in _FAILED and not why.reruns:
        return "keeps", kind
    match foreseen(_record_of(row, why), cleared=why.cleared):
        case Decision.ASK:
            return "waits for", "running"
        case Decision.KICK_OFF:
            return "starts", kind
        case Decision.FAIL_UNCERTAIN if not row.kickoff.reported:
            return "reports", kind
        case Decision.REATTACH | Decision.FAIL_UNCERTAIN | Decision.FAIL_STOPPED:
            return "rechecks" if kind == "invalid" else "keeps", kind
    return "reruns", kind
