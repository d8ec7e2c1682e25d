"""
Decision table for the kickoff record of a task: reattach, start an execution, or fail. It does no I/O.

An execution is billed. So an attempt starts one only if there is no kickoff record, if the recorded execution has
ended and another is wanted, if another attempt started it and ``durable=False``, or if a user has chosen to start
another after an error that reports an uncertain kickoff. An execution without output is polled before it is
replaced, because one odd response may have reported its end. ``verdict()`` is its twin for the end of a task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Annotated, Literal

from pydantic import AfterValidator

from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.models import Time
from airflow_provider_crew.client.payload import issued_kickoff_id

End = Literal["completed", "rejected", "failed", "stopped"]
"""``rejected``: completed, but the task does not accept the output. ``stopped``: a person has stopped it."""

PolledStatus = Literal["running", "completed", "failed", "stopped", "unknown", "unreadable"]
"""Status of an execution at the crew. The last value means that there was no usable response."""
_TOLD = frozenset({"running", "completed", "failed", "stopped"})


@dataclass(frozen=True, slots=True)
class KickoffRecord:
    """
    Record of a kickoff that a task has sent. It has a kickoff ID once the crew has responded.

    :param max_tries: The task's ``max_tries`` at the time. Airflow raises it when you clear the task, and not for
        a retry.
    :param kicked_off_at: Time of the kickoff.
    :param kickoff_id: Kickoff ID of the execution. ``None`` if there was no response yet.
    :param end: End of the execution. ``None`` if it may be running.
    :param reported: Whether an attempt has failed with an error that reports the kickoff as uncertain.
    :param address: Address of the crew at the time.
    :param delivered: Whether Airflow has stored the task's return value.
    :param fingerprint: Hash of the inputs. Empty if it is unreadable.
    :param try_number: Attempt that sent the kickoff.
    :param call: Hash of the address that the crew calls when it has started, until there is a kickoff ID.
    :param cancelled: Whether the last attempt has asked the crew to cancel the execution.
    :param adopted: Whether a person has named the execution, so that the task waits for it even with
        ``durable=False``.
    """

    max_tries: int
    kicked_off_at: Time
    kickoff_id: Annotated[str, AfterValidator(issued_kickoff_id)] | None = None
    end: End | None = None
    reported: bool = False
    address: str = ""
    delivered: bool = False
    fingerprint: str = ""
    try_number: int = 0
    call: str = ""
    cancelled: bool = False
    adopted: bool = False


class Decision(Enum):
    """Action of an attempt."""

    KICK_OFF = auto()
    """There is no kickoff record."""
    KICK_OFF_AFTER_END = auto()
    KICK_OFF_AFRESH = auto()
    """The earlier execution may be running, but ``durable=False``."""
    KICK_OFF_BY_CHOICE = auto()
    """A user has cleared the task after an error that reports the uncertain kickoff."""
    REATTACH = auto()
    ASK = auto()
    """The decision depends on the status of the execution, so the crew is polled first."""
    FAIL_UNCERTAIN = auto()
    FAIL_UNREADABLE = auto()
    """The crew's response does not tell whether the execution has ended, and another would replace it."""
    FAIL_STOPPED = auto()
    """A person has stopped the execution, so only a person may start another."""
    FAIL_OTHER_INPUTS = auto()
    """The execution may be running, and its inputs belong to another row or item."""


def decide(  # noqa: C901, PLR0911, PLR0913 - a table
    record: KickoffRecord | None,
    status: PolledStatus | None = None,
    *,
    cleared: bool,
    durable: bool = True,
    same_attempt: bool = False,
    is_mapped: bool = False,
    other_inputs: bool = False,
) -> Decision:
    """
    Return the action of this attempt.

    :param record: Kickoff record of the task. ``None`` if there is none.
    :param status: Status of the execution. ``None`` if the crew was not polled yet.
    :param cleared: Whether the task was cleared since the record was written, so this attempt is not a retry.
    :param durable: Whether another attempt than that of the kickoff reattaches.
    :param same_attempt: Whether this very attempt has sent the kickoff, and was not started again by Airflow.
    :param is_mapped: Whether the task is mapped.
    :param other_inputs: Whether the task's inputs differ from those of the kickoff. Airflow finds a record by its
        map index (apache/airflow#72725), so a cleared task can find the record of another row. Within one attempt,
        other inputs are another item.
    """
    if record is None:
        return Decision.KICK_OFF
    if record.kickoff_id is None:
        return Decision.KICK_OFF_BY_CHOICE if cleared and record.reported else Decision.FAIL_UNCERTAIN
    is_kept = durable or same_attempt or record.adopted or (record.end == "stopped" and not cleared)
    if not is_kept:
        return Decision.KICK_OFF_AFTER_END if record.end else Decision.KICK_OFF_AFRESH
    is_another = other_inputs and (same_attempt or (is_mapped and cleared))
    match status if status in _TOLD else record.end:
        case None if status is None:
            return Decision.ASK
        case "stopped" if not cleared:
            return Decision.FAIL_STOPPED
        # No attempt has failed with it yet.
        case "failed" if not (record.end or record.cancelled or cleared or is_another):
            return Decision.REATTACH
        case "failed" | "stopped" if status in {None, "unreadable"}:
            return Decision.FAIL_UNREADABLE if status else Decision.ASK
        case "failed" | "stopped" | "rejected":
            return Decision.KICK_OFF_AFTER_END
        case "completed" if is_another or (cleared and record.delivered):
            return Decision.KICK_OFF_AFTER_END
    return Decision.FAIL_OTHER_INPUTS if is_another else Decision.REATTACH


def foreseen(
    record: KickoffRecord | None, status: PolledStatus | None = None, *, cleared: bool, durable: bool = True
) -> Decision:
    """Return the decision of a later attempt, if the crew then confirms the end in the record."""
    expected: PolledStatus | None = "unknown" if record and record.end else None
    return decide(record, status or expected, cleared=cleared, durable=durable)


@dataclass(frozen=True, slots=True)
class Next:
    """
    Facts that the next attempt will find, and its decision.

    :param record: Kickoff record, as this process knows it. ``None`` if there is none, or Airflow has no store.
    :param durable: Whether a retry reattaches.
    :param was_cleared: Whether the task was cleared since the record was written, so that a retry is that too.
    :param is_unnamed: Whether Airflow has refused a write, so that the next attempt finds a kickoff without ID.
    :param is_unreadable: Whether this attempt could not read the record.
    :param may_be_forgotten: Whether an earlier attempt may have started an execution that no record has.
    """

    record: KickoffRecord | None = None
    durable: bool = True
    was_cleared: bool = False
    is_unnamed: bool = False
    is_unreadable: bool = False
    may_be_forgotten: bool = False

    def decision(self, status: PolledStatus | None = None, *, cleared: bool) -> Decision:
        """Return the decision of a retry or, if it is ``cleared``, of clearing the task."""
        found = KickoffRecord(0, 0.0) if self.is_unnamed else self.record
        return foreseen(found, status, cleared=cleared or self.was_cleared, durable=self.durable)

    @property
    def reattaches(self) -> bool:
        """Whether a retry continues with the execution in the record."""
        known = {Decision.ASK, Decision.REATTACH}
        return self.durable if self.is_unreadable else self.decision(cleared=False) in known

    @property
    def earlier(self) -> Literal["none", "running", "completed", "may have started", "unreadable"]:
        """State of the execution of an earlier attempt, if this one has started nothing."""
        if self.is_unreadable:
            return "unreadable"
        if self.record is None:
            return "may have started" if self.may_be_forgotten else "none"
        if self.record.end is None:
            return "running" if self.record.kickoff_id else "may have started"
        is_kept = replace(self, is_unnamed=False).decision(cleared=False) is Decision.REATTACH
        return "completed" if is_kept else "none"


# What the next attempt does with rows, and what kind of rows these are. Steps that are billed come last.
Step = tuple[str, str]
VERBS = ("keeps", "rechecks", "waits for", "reports", "reruns", "starts")
KEEPS = frozenset(VERBS[:4])
BILLED = frozenset(VERBS[4:])
AFTER_PILOT: Step = ("starts only if the pilot passes", "")
KINDS = ("successful", "stopped", "invalid", "failed", "uncertain", "running", "rejected", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """
    Rows of a batch at its end, or while it runs.

    :param retried: Number of rows by what a retry does with them, and by their kind.
    :param cleared: The same if the task is cleared.
    :param executions: Number of executions of all attempts.
    :param tokens: Tokens that these have reported.
    :param lost: Number of other rows that have no later execution than one of an uncertain kickoff.
    :param is_blind: Whether earlier processes may have started rows, and this one has not read which.
    :param runs_all: Whether clearing the task runs all rows again.
    :param is_stuck: Whether a retry starts no rows, because the failed rows that it keeps exceed ``max_failed``.
    :param is_stuck_if_cleared: The same if the task is cleared.
    :param is_limited: Whether there is a ``max_tokens``.
    :param is_spent: Whether ``max_tokens`` lets no more rows start, whatever the running ones use.
    """

    retried: Mapping[Step, int]
    cleared: Mapping[Step, int]
    executions: int
    tokens: int = 0
    lost: int = 0
    is_blind: bool = False
    runs_all: bool = False
    is_stuck: bool = False
    is_stuck_if_cleared: bool = False
    is_spent: bool = False
    is_limited: bool = False

    @property
    def cost(self) -> Cost:
        """Billing state of all executions together."""
        if self.uncertain or self.is_blind:
            return Cost.UNKNOWN
        if self.is_waiting:
            return Cost.RUNNING
        return Cost.ENDED if self.executions else Cost.NONE

    @property
    def uncertain(self) -> int:
        """Number of rows of which an unknown execution may be running."""
        return self.lost + sum(count for (_, kind), count in self.retried.items() if kind == "uncertain")

    @property
    def has_more(self) -> bool:
        """Whether a retry starts rows or waits for some."""
        return self.is_waiting or not (
            self.is_stuck or self.is_spent or {verb for verb, _ in self.retried} <= KEEPS
        )

    @property
    def is_waiting(self) -> bool:
        """Whether executions are running."""
        return ("waits for", "running") in self.retried


# Effects on a batch whose rows cannot be counted, because they were not read.
_CONTINUES = "keeps the successful rows, waits for the running ones and starts the others (billed)"
_CONTINUES_WITH_ALL = "waits for the running rows and starts all others (billed)"


def effect_on(rows: RowCounts, *, cleared: bool) -> str:
    """Return what a retry does with rows, or clearing the task."""
    if rows.is_blind:
        return _CONTINUES_WITH_ALL if cleared and rows.runs_all else _CONTINUES
    steps = rows.cleared if cleared else rows.retried
    is_billed, waiting = any(verb in BILLED for verb, _ in steps), steps.get(AFTER_PILOT, 0)
    is_spent = rows.is_spent and (is_billed or waiting > 0)
    is_stuck = is_spent or (rows.is_stuck_if_cleared if cleared else rows.is_stuck)
    if not steps and not is_stuck:
        return "starts the rows (billed)"
    noun, parts = "row", list[str]()
    for verb in VERBS:
        counts = {kind: steps[verb, kind] for kind in KINDS if (verb, kind) in steps}
        if not counts or (is_stuck and verb not in KEEPS):
            continue
        of = "other" if parts and "" in counts else noun
        which = _listed([f"{count:,} {kind}".strip() for kind, count in counts.items()])
        parts.append(f"{verb} {which} {of}{'' if sum(counts.values()) == 1 else 's'}")
        noun = "one"
    if is_stuck:
        limit = "until max_tokens is raised or removed" if is_spent else "while max_failed is exceeded"
        return _listed([*parts, f"starts no rows {limit}"])
    billed = " (billed, within max_tokens)" if rows.is_limited else " (billed)"
    cost = billed if is_billed else ", at no further cost" if rows.is_waiting else ", at no cost"
    then = f". {waiting:,} more row{' starts' if waiting == 1 else 's start'} (billed) only if the pilot passes"
    return f"{_listed(parts)}{cost}{then if waiting else ''}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
