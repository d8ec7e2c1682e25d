"""
What a try does about the kickoff that its task remembers: one table, without I/O, because money hangs on it.

An execution costs money and cannot be cancelled. So a try kicks off only when nothing is remembered, when what is
remembered has ended and another run is wanted, or when somebody who was told has chosen so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

End = Literal["completed", "returned", "failed"]
"""``completed`` is also ``returned`` when Airflow has the result."""

Standing = Literal["going on", "completed", "failed", "unknown", "unknown elsewhere", "not told"]
"""
How the service says that an execution stands.

``unknown elsewhere``: it was asked at another address than that of the kickoff. ``not told``: it did not answer.
"""


@dataclass(frozen=True, slots=True)
class Kickoff:
    """
    A kickoff of this task: sent, and, when it has an id, answered.

    ``max_tries`` is that of the task at the time: Airflow raises it when the task is cleared, and not for a retry.
    ``told``: a try has ended by telling people that it is not known what became of it. ``address`` is that of the
    crew at the time. ``given``: Airflow has the kickoff id, where that is all that the task returns.
    """

    max_tries: int
    kicked_off_at: float
    kickoff_id: str | None = None
    end: End | None = None
    told: bool = False
    address: str = ""
    given: bool = False


class Decision(Enum):
    """What a try does."""

    KICK_OFF = auto()
    """Nothing is remembered."""
    KICK_OFF_AFTER_END = auto()
    KICK_OFF_BY_CHOICE = auto()
    """It is not known whether an earlier kickoff has started an execution, and somebody has chosen to go on."""
    KICK_OFF_AFTER_OBLIVION = auto()
    """The kickoff is longer ago than forget_after, the service does not know it, and the task was cleared."""
    REATTACH = auto()
    ASK = auto()
    """The service has to say first how the execution stands."""
    FAIL_UNCERTAIN = auto()
    FAIL_ELSEWHERE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """
    What else counts.

    ``cleared``: somebody has cleared the task since it remembers, so that this is no retry. ``wants_result``: what
    was paid for is wanted even after a Clear, since nobody was given it: the result by a task that waits, the
    kickoff id by one that does not. ``chooses_twice``: the author of the DAG would rather run the crew twice than
    fail. ``is_old``: the kickoff is longer ago than a person may take to answer.
    """

    cleared: bool
    wants_result: bool
    chooses_twice: bool = False
    is_old: bool = False


def decide(remembered: Kickoff | None, given: Circumstances, standing: Standing | None = None) -> Decision:
    """Decide; without ``standing`` the service was not asked yet."""
    if remembered is None:
        return Decision.KICK_OFF
    if remembered.kickoff_id is None:
        chosen = given.chooses_twice or (given.cleared and remembered.told)
        return Decision.KICK_OFF_BY_CHOICE if chosen else Decision.FAIL_UNCERTAIN
    end = remembered.end or standing
    if end is None:
        return Decision.ASK
    if end == "unknown elsewhere":
        return Decision.FAIL_ELSEWHERE
    if end == "unknown":  # not gone: it may be waiting for a person, for days
        return Decision.KICK_OFF_AFTER_OBLIVION if given.cleared and given.is_old else Decision.REATTACH
    return Decision.KICK_OFF_AFTER_END if _is_done_with(end, given) else Decision.REATTACH


def _is_done_with(end: End | Standing, given: Circumstances) -> bool:
    match end:
        case "failed":
            return True
        case "returned":
            return given.cleared
        case "completed":
            return given.cleared and not given.wants_result
    return False
