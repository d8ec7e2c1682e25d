"""What a task remembers of its kickoff from one try to the next, where Airflow lets it (from 3.3)."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)

End = Literal["completed", "failed", "unknown"]

_KEY = "crew_kickoff"


@dataclass(frozen=True, slots=True)
class Kickoff:
    """
    A kickoff of this task: sent, and, when it has an id, answered.

    ``max_tries`` is that of the task at the time: Airflow raises it when the task is cleared, and not for a retry.
    """

    max_tries: int
    kicked_off_at: float
    kickoff_id: str | None = None
    end: End | None = None


class KickoffMemory:
    """
    Keeps the last kickoff of a task in Airflow's store of task states.

    It outlives the process and even its supervisor. Without a store it forgets.
    """

    def __init__(self, context: Context, *, wanted: bool) -> None:
        self._store: Any = context.get("task_state_store") if wanted else None
        self._max_tries: int = context["ti"].max_tries
        self.last: Kickoff | None = self._recalled()
        self._before: Kickoff | None = None

    @property
    def lasts(self) -> bool:
        """Whether the next try will know what this one did."""
        return self._store is not None

    @property
    def was_cleared(self) -> bool:
        """Whether somebody has cleared the task since its last kickoff."""
        return self.last is not None and self.last.max_tries != self._max_tries

    def what_goes_on(self) -> str:
        """Say which execution of an earlier try may be running, when this one could not go on with it."""
        if self.last is None or self.last.kickoff_id is None or self.last.end:
            return ""
        return (
            f" Execution {self.last.kickoff_id} of an earlier try goes on, as far as is known. Mend this, and "
            "clear the task to wait for it."
        )

    def sending(self) -> None:
        """Remember that a kickoff is on its way. When this fails, nothing is sent."""
        self._before = self.last
        self.last = Kickoff(self._max_tries, time.time())
        self._keep(self.last)

    def not_taken(self) -> None:
        """Forget a kickoff that certainly started nothing; what was remembered before it counts again."""
        self.last = self._before
        try:
            if self.last:
                self._keep(self.last)
            elif self._store is not None:
                self._store.delete(_KEY)
        except Exception as error:  # noqa: BLE001 - why the crew did not take it is what has to be told
            log.warning(
                "Airflow's store of task states does not forget the kickoff that started nothing: %s", error
            )

    def answered(self, kickoff_id: str) -> None:
        """Remember the execution. It runs, whether or not this succeeds."""
        if not self._note(kickoff_id=kickoff_id):
            self._store = None  # the next try will not know, so nothing may count on it

    def adopted(self) -> None:
        """Take the last kickoff for that of this try."""
        self._note(max_tries=self._max_tries)

    def ended(self, end: End) -> None:
        """Remember how the execution ended."""
        self._note(end=end)

    def _recalled(self) -> Kickoff | None:
        kept = self._store.get(_KEY) if self._store is not None else None
        return Kickoff(**{name: kept[name] for name in Kickoff.__slots__ if name in kept}) if kept else None

    def _note(self, **changes: Any) -> bool:
        if self.last is None:
            return True
        self.last = replace(self.last, **changes)
        try:
            self._keep(self.last)
        except Exception as error:  # noqa: BLE001 - an execution that is paid for must not be lost to its bookkeeping
            log.warning(
                "Airflow's store of task states does not take that %s: %s. A retry of this task will not know.",
                ", ".join(f"{name} is {value}" for name, value in changes.items()),
                error,
            )
            return False
        return True

    def _keep(self, kickoff: Kickoff) -> None:
        if self._store is None:
            return
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        self._store.set(_KEY, asdict(kickoff), retention=NEVER_EXPIRE)
