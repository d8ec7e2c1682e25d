"""
What a try does about the kickoff that its task remembers: one table, without I/O, because money hangs on it.

An execution costs money and cannot be cancelled. So a try kicks off only when nothing is remembered, when what is
remembered has ended and another run is wanted, or when somebody who was told has chosen so.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Literal

from pydantic import Field

End = Literal["completed", "failed"]

Standing = Literal["going on", "completed", "failed", "unknown", "not told"]
"""How the service says that an execution stands; ``not told``: it did not answer."""


@dataclass(frozen=True, slots=True)
class KickoffRecord:
    """
    A kickoff of this task: sent, and, when it has an id, answered.

    ``max_tries`` is that of the task at the time: Airflow raises it when the task is cleared, and not for a retry.
    ``reported``: a try has ended by telling people that it is not known what became of the kickoff. ``address`` is
    that of the crew at the time. ``delivered``: Airflow has what the task returns. ``name``: what the task was
    called, if it is mapped and has a name. ``fingerprint``: the hash of the inputs, empty in the record of an
    older version.
    """

    max_tries: int
    kicked_off_at: float
    kickoff_id: Annotated[str, Field(min_length=1)] | None = None
    end: End | None = None
    reported: bool = False
    address: str = ""
    delivered: bool = False
    name: str = ""
    fingerprint: str = ""


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
    FAIL_OTHER_INPUTS = auto()
    """The execution may be running, and belongs to another row of a mapped task."""


def decide(  # noqa: PLR0911, PLR0913 - a table
    remembered: KickoffRecord | None,
    standing: Standing | None = None,
    *,
    cleared: bool,
    chooses_twice: bool = False,
    is_old: bool = False,
    is_mapped: bool = False,
    other_inputs: bool = False,
) -> Decision:
    """
    Decide; without ``standing`` the service was not asked yet.

    ``cleared``: somebody has cleared the task since it remembers, so that this is no retry. ``chooses_twice``: the
    author of the DAG would rather run the crew twice than fail. ``is_old``: the kickoff is longer ago than a
    person may take to answer. ``other_inputs``: the task has other inputs now than the kickoff had. Airflow finds
    a record by the map index (apache/airflow#72725), so after a clear that can be the record of another row.
    """
    if remembered is None:
        return Decision.KICK_OFF
    if remembered.kickoff_id is None:
        chosen = chooses_twice or (cleared and remembered.reported)
        return Decision.KICK_OFF_BY_CHOICE if chosen else Decision.FAIL_UNCERTAIN
    is_another_row = is_mapped and cleared and other_inputs
    match remembered.end or standing:
        case None:
            return Decision.ASK
        case "unknown" if cleared and is_old:  # before that, it may be waiting for a person, for days
            return Decision.KICK_OFF_AFTER_OBLIVION
        case "failed":
            return Decision.KICK_OFF_AFTER_END
        case "completed" if is_another_row or (cleared and remembered.delivered):
            return Decision.KICK_OFF_AFTER_END
    return Decision.FAIL_OTHER_INPUTS if is_another_row else Decision.REATTACH
