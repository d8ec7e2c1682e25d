"""What a rescheduled sensor remembers from one poke to the next, where Airflow lets it (from 3.3)."""

from __future__ import annotations

import logging
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

    @property
    def lasts(self) -> bool:
        """Whether the next poke will know what this one saw."""
        return self._store is not None

    def recalled(self) -> WatchMemory | None:
        """Return what the poke before has kept."""
        from airflow_provider_crew.service.watch import WatchMemory

        try:
            kept = self._store.get(_KEY) if self.lasts else None
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
    """Return when the first poke began. Airflow 3 is asked for it; Airflow 2 keeps it as the task's start."""
    ti: Any = context["ti"]
    first = ti.get_first_reschedule_date(context) if hasattr(ti, "get_first_reschedule_date") else None
    began: float = (first or ti.start_date).timestamp()
    return began
