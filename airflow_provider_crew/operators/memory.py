"""What a task remembers of its kickoff from one try to the next, where Airflow lets it (from 3.3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_provider_crew.api_server import is_away

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)

End = Literal["completed", "returned", "failed", "unknown"]
"""``completed`` is also ``returned`` when Airflow has the result."""

_KEY = "crew_kickoff"
# Airflow ends a task whose heartbeats fail for about as long.
_PATIENCE = 120.0
_PAUSE = 2.0


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
        self.last: Kickoff | None = None
        self._before: Kickoff | None = None
        self._recall()

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
        running = self._running()
        return f"{running} Mend this, and clear the task to wait for it." if running else ""

    def before_kickoff(self) -> str:
        """Say what a try leaves that ends before it has kicked off."""
        running = self._running()
        then = (
            f"{running} A retry of this task, or clearing it, goes on with it."
            if running
            else (" This try has started nothing. A retry of this task, or clearing it, kicks off.")
        )
        return f"before the crew was kicked off.{then}"

    def sending(self) -> None:
        """Remember that a kickoff is on its way. When this fails, nothing is sent."""
        self._before = self.last
        self.last = Kickoff(self._max_tries, time.time())
        try:
            self._keep(self.last)
        except Exception:
            self.last = self._before
            raise

    def not_taken(self) -> None:
        """Forget a kickoff that certainly started nothing; what was remembered before it counts again."""
        self.last = self._before
        try:
            if self.last:
                self._keep(self.last)
            elif self._store is not None:
                _patiently(partial(self._store.delete, _KEY))
        except Exception as error:  # noqa: BLE001 - why the crew did not take it is what has to be told
            log.warning(
                "Airflow's store of task states does not forget the kickoff that started nothing: %s", error
            )

    def answered(self, kickoff_id: str) -> None:
        """Remember the execution. It runs, whether or not this succeeds."""
        if not self._note(kickoff_id=kickoff_id):
            self._store = None  # the next try will not know, so nothing may count on it

    def adopted(self) -> None:
        """Take the last kickoff for that of this try, and return for the last time what a Clear asks for."""
        if self.last and self.last.end == "completed" and self.was_cleared:
            self._note(max_tries=self._max_tries, end="returned")
        else:
            self._note(max_tries=self._max_tries)

    def ended(self, end: End, kickoff_id: str | None) -> None:
        """Remember how the execution ended, and which it was, lest the answer could not be remembered."""
        if self.last and self.last.end == "returned":
            return
        self._note(kickoff_id=kickoff_id, end=end)

    def _running(self) -> str:
        if self.last is None or self.last.kickoff_id is None or self.last.end:
            return ""
        return f" Execution {self.last.kickoff_id} of an earlier try goes on, as far as is known."

    def _recall(self) -> None:
        kept = _patiently(partial(self._store.get, _KEY)) if self._store is not None else None
        if kept is None:
            return
        self.last = _readable(kept)
        if self.last is None:
            log.warning(
                "What this task remembers of an earlier kickoff cannot be read. It is taken for one that was sent "
                "and never answered."
            )
            self.last = Kickoff(self._max_tries, time.time())
            # Kept, so that a Clear can be told from a retry.
            self.adopted()

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

        _patiently(partial(self._store.set, _KEY, asdict(kickoff), retention=NEVER_EXPIRE))


def _patiently(ask: Callable[[], Any]) -> Any:
    """
    Ask the store, and again as long as Airflow's API server is away.

    What is remembered decides whether an execution is paid for twice; Airflow itself gives up much sooner.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask()
        except Exception as error:
            if not is_away(error) or time.monotonic() > until:
                raise
            log.warning("Airflow's API server does not answer, and is asked again: %s", error)
        time.sleep(_PAUSE)


def _readable(kept: Any) -> Kickoff | None:
    """Return a kickoff that was kept, perhaps by another version of this package; None when it makes no sense."""
    from airflow_provider_crew.service.errors import InvalidKickoffId
    from airflow_provider_crew.service.kickoff_id import checked_kickoff_id
    from airflow_provider_crew.service.watch import is_time

    told = kept if isinstance(kept, Mapping) else {}
    max_tries, at, kickoff_id, end = (told.get(name) for name in Kickoff.__slots__)
    if not (isinstance(max_tries, int) and is_time(at) and (end is None or end in get_args(End))):
        return None
    try:
        known = kickoff_id if kickoff_id is None else checked_kickoff_id(kickoff_id)
    except InvalidKickoffId:
        return None
    return Kickoff(max_tries, at, known, end)
