"""
Where a task leaves what its next try has to know: Airflow's store of task states (from 3.3), or a variable.

Before 3.3 Airflow has nothing that belongs to a task and outlives a try. A variable does outlive it, but whoever
may edit variables can see and change it. So that is opted into: ``[crew] remember_in_variables``.
"""

import json
from hashlib import sha256
from typing import Any, Protocol

from airflow.providers.common.compat.sdk import Context, conf

from airflow_provider_crew import compat

KEY = "crew_kickoff"
_PREFIX = f"{KEY}_"


class Store(Protocol):
    """What Airflow's store of task states offers."""

    def get(self, key: str) -> Any:
        """Return what is kept, None when there is nothing."""
        ...

    def set(self, key: str, value: Any, **options: Any) -> None:
        """Keep it; when this returns, the next try finds it."""
        ...

    def delete(self, key: str) -> None:
        """Keep nothing."""
        ...


class Superseded(Exception):
    """A later try of the task has taken over, so that this one has nothing to remember any more."""


class VariableStore:
    """
    Keeps the kickoff of one task in a variable, for as long as a try may want it.

    A process that Airflow does not count with any more may be alive. It must not write over what a later try has
    kept, but for the answer to its own kickoff, for which the later try waits.
    """

    def __init__(self, ti: Any) -> None:
        which = (ti.dag_id, ti.run_id, ti.task_id, ti.map_index)
        self._name = _PREFIX + sha256(json.dumps(which).encode()).hexdigest()[:40]
        number = f" {ti.map_index}" if ti.map_index >= 0 else ""
        task = f"Task {ti.task_id}{number} of {ti.dag_id}, run {ti.run_id}"
        self._about = f"{task}: its kickoff. Deleted when the task has returned."
        self._try: int = ti.try_number

    def get(self, key: str) -> Any:
        """Return what was kept by the last try that did."""
        return (self._kept() or {}).get(key)

    def set(self, key: str, value: dict[str, Any], **_: Any) -> None:
        """Keep it, unless the next try would not ask for it."""
        kept = self._kept()
        by = self._try
        if kept and kept["try"] > self._try:
            if not _answers(kept.get(key), value):
                raise Superseded(f"try {kept['try']} of the task has taken over")
            by = kept["try"]
        if value.get("delivered") or value.get("end") == "failed":
            compat.delete_variable(self._name)
            return
        compat.set_variable(self._name, json.dumps({"try": by, key: value}), self._about)

    def delete(self, key: str) -> None:
        """Keep nothing, unless a later try does."""
        kept = self._kept()
        if kept and kept["try"] <= self._try and key in kept:
            compat.delete_variable(self._name)

    def _kept(self) -> dict[str, Any] | None:
        text = compat.variable(self._name)
        if text is None:
            return None
        try:
            kept = json.loads(text)
        except ValueError:
            kept = text
        if isinstance(kept, dict) and type(kept.get("try")) is int:
            return kept
        # Somebody has edited it, or a newer version has written it: the memory reads what it can.
        told = kept.get(KEY, kept) if isinstance(kept, dict) else kept
        return {"try": 0, KEY: told}


def store_of(context: Context) -> Store | None:
    """Return where this task may remember; None when it forgets."""
    store: Store | None = context.get("task_state_store")  # type: ignore[assignment] # Airflow 2 does not know it
    if store is None and conf.getboolean("crew", "remember_in_variables", fallback=False):
        return VariableStore(context["ti"])
    return store


def _answers(kept: Any, value: dict[str, Any]) -> bool:
    """Whether this is the answer to the kickoff that is kept without one."""
    return (
        isinstance(kept, dict)
        and kept.get("kickoff_id") is None
        and kept.get("kicked_off_at") == value["kicked_off_at"]
    )
