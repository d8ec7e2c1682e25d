"""What a rescheduled sensor remembers from one poke to the next, where Airflow lets it (from 3.3)."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_crew.service.watch import WatchMemory

log = logging.getLogger(__name__)

_KEY = "crew_watch"


class PokeMemory:
    """Keeps what the watch of one try has seen. It is a convenience, so that losing it fails nothing."""

    def __init__(self, context: Context, kickoff_id: str) -> None:
        self._store: Any = context.get("task_state_store")
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}
        self._kept: dict[str, Any] | None = None
        self.begun_at = _first_poke(context)
        # A crew that does not know the execution is given a moment; a poke that remembers none gives it anew.
        self.grace_from = self.begun_at if self.lasts else time.time()

    @property
    def lasts(self) -> bool:
        """Whether the next poke will know what this one saw."""
        return self._store is not None

    def recalled(self) -> WatchMemory | None:
        """Return what the poke before has kept, or at least when the first began."""
        from airflow_provider_crew.service.watch import WatchMemory

        if not self.lasts:
            return WatchMemory(started_at=self.begun_at, said_at=time.time())
        try:
            kept = self._store.get(_KEY)
            seen = WatchMemory.recalled(kept["seen"]) if kept and kept["try"] == self._try else None
        except Exception as error:  # noqa: BLE001
            log.warning("What the poke before has seen cannot be read: %s", error)
            return None
        self._kept = asdict(seen) if seen else None
        return seen

    def keep(self, memory: WatchMemory) -> None:
        """Keep it for the next poke, which most of the time is to know what this one was told already."""
        seen = asdict(memory)
        if not self.lasts or seen == self._kept:
            return
        try:
            self._store.set(_KEY, {"try": self._try, "seen": seen})
        except Exception as error:  # noqa: BLE001
            log.warning("What this poke has seen cannot be kept for the next: %s", error)


def _first_poke(context: Context) -> float:
    """Return when the first poke of this try began, which Airflow 2 has another place for."""
    ti: Any = context["ti"]
    if hasattr(ti, "get_first_reschedule_date"):
        first = ti.get_first_reschedule_date(context)
    else:
        from airflow.sensors.base import _orig_start_date

        names = ("dag_id", "task_id", "run_id", "map_index", "try_number")
        first = _orig_start_date(**{name: getattr(ti, name) for name in names})
    began: float = (first or ti.start_date).timestamp()
    return began
