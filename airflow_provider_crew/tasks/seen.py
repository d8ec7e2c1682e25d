"""What a sensor remembers between two pokes and between tries, where Airflow lets it (from 3.3)."""

from __future__ import annotations

import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_crew.compat import first_poke
from airflow_provider_crew.service.watch_state import WatchMemory

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)

_KEY = "crew_watch"


class SeenBefore:
    """
    Keeps what the watch of one try has seen, and for all tries that the service has known the execution.

    It is a convenience, so that losing it fails nothing.
    """

    def __init__(self, context: Context, kickoff_id: str) -> None:
        self._context = context
        self._store: Any = context.get("task_state_store")
        self._kickoff_id = kickoff_id
        self._try = {"kickoff_id": kickoff_id, "try_number": context["ti"].try_number}
        self._kept = self._read()

    @property
    def lasts(self) -> bool:
        """Whether the next process will know what this one saw."""
        return self._store is not None

    @property
    def exists(self) -> bool:
        """Whether the service has known the execution, in this try or in one before."""
        return bool(self._kept.get("seen", {}).get("seen"))

    @cached_property
    def begun_at(self) -> float:
        """When the first poke of this try began."""
        return first_poke(self._context)

    @property
    def grace_from(self) -> float:
        """When the execution may have been kicked off at the earliest: a poke that remembers none begins anew."""
        return self.begun_at if self.lasts else time.time()

    def recall(self) -> WatchMemory | None:
        """Return what the poke before has kept, or at least when the first began."""
        if not self.lasts:
            return WatchMemory(started_at=self.begun_at, said_at=time.time())
        return WatchMemory.recalled(self._kept["seen"]) if self._kept.get("try") == self._try else None

    def keep(self, memory: WatchMemory) -> None:
        """Keep it for the next process, which most of the time is to know what this one was told already."""
        # A new try begins a new watch, and what an earlier one has seen still exists.
        kept = {"try": self._try, "seen": memory.carried() | {"seen": memory.seen or self.exists}}
        if not self.lasts or kept == self._kept:
            return
        try:
            self._store.set(_KEY, kept)
        except Exception as error:  # noqa: BLE001
            log.warning("What was seen of the execution cannot be kept for the next process: %s", error)
        else:
            self._kept = kept

    def keep_that_it_exists(self, memory: WatchMemory) -> None:
        """Keep it as soon as the service knows the execution: from then on, unknown is not gone."""
        if memory.seen and not self.exists:
            self.keep(memory)

    def _read(self) -> dict[str, Any]:
        if not self.lasts:
            return {}
        try:
            match self._store.get(_KEY):
                case {"try": {"kickoff_id": self._kickoff_id}, "seen": {}} as kept:
                    return dict(kept)
        except Exception as error:  # noqa: BLE001
            log.warning("What was seen of the execution before cannot be read: %s", error)
        return {}
