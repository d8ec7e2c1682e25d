"""What a task remembers of its kickoff from one try to the next, where Airflow lets it (from 3.3)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from airflow_provider_crew.api_server import is_away
from airflow_provider_crew.compat import CLEARING, FORGETS_AT_CLEAR
from airflow_provider_crew.operators.decide import End, Kickoff
from airflow_provider_crew.xcom import left_in_xcom

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Context

log = logging.getLogger(__name__)

_KEY = "crew_kickoff"
HOW_TO_GIVE_UP = (
    f"To give it up and kick off anew: on the task's page, tab Task State Store, delete {_KEY}, then clear the "
    "task."
)
# An XCom's key that names an execution, for a try that is not allowed to read the value any more.
_LEFT_BEHIND = "crew_execution:"
_LONGEST_KEY = 512
_NOT_IN_A_KEY = frozenset("%?#")
# Airflow ends a task whose heartbeats fail for about as long.
_PATIENCE = 120.0
# Those of a task that nobody has cleared, as long as its process is there.
_OWN_STATES = frozenset({"running", "success", "failed", "up_for_retry"})
_PAUSE = 2.0


class KickoffMemory:
    """
    Keeps the last kickoff of a task in Airflow's store of task states.

    It outlives the process and even its supervisor. Without a store it forgets.
    """

    def __init__(self, context: Context, *, wanted: bool) -> None:
        self._store: Any = context.get("task_state_store") if wanted else None
        self._ti: Any = context["ti"]
        self._max_tries: int = self._ti.max_tries
        clears: int = getattr(context.get("dag_run"), "clear_number", 0) or 0
        retries = getattr(getattr(self._ti, "task", None), "retries", self._max_tries)
        self._may_follow_a_clear = self._ti.try_number > 1 and (clears > 0 or self._max_tries > retries)
        self.last: Kickoff | None = None
        self._before: Kickoff | None = None
        self._keeping = threading.Lock()
        self._was_refused = False
        self._is_last_time = False
        self._recall()

    @property
    def lasts(self) -> bool:
        """Whether the next try will know what this one did."""
        return self._store is not None and not self._was_refused

    @property
    def was_cleared(self) -> bool:
        """Whether somebody has cleared the task since its last kickoff."""
        return self.last is not None and self.last.max_tries != self._max_tries

    @property
    def may_have_forgotten(self) -> bool:
        """Whether Airflow has perhaps forgotten a kickoff: from 3.4 on a Clear does so, unless told to keep it."""
        return FORGETS_AT_CLEAR and self.lasts and self.last is None and self._may_follow_a_clear

    def what_goes_on(self) -> str:
        """Say which execution of an earlier try may be running, when this one could not go on with it."""
        running = self._running()
        return f"{running} Mend this; {CLEARING} waits for it." if running else ""

    def before_kickoff(self) -> str:
        """Say what a try leaves that ends before it has kicked off."""
        running = self._running()
        then = (
            f"{running} A retry of this task, or {CLEARING}, goes on with it."
            if running
            else (" This try has started nothing. A retry of this task, or clearing it, kicks off.")
        )
        return f"before the crew was kicked off.{then}"

    def sending(self, address: str) -> None:
        """Remember that a kickoff is on its way. When this fails, nothing is sent."""
        self._before = self.last
        self.last = Kickoff(self._max_tries, time.time(), address=address)
        try:
            self._keep()
        except Exception:
            self.last = self._before
            raise

    def keep_again(self) -> None:
        """
        Remember it once more, when the process is told to end.

        From Airflow 3.4 on the Clear that ends it has made Airflow forget. A signal's handler calls this, perhaps
        in the middle of a question to Airflow, which another thread can wait for.
        """
        if FORGETS_AT_CLEAR and self._store is not None:
            threading.Thread(target=self._keep_last, daemon=True).start()

    def not_taken(self) -> None:
        """Forget a kickoff that certainly started nothing; what was remembered before it counts again."""
        self.last = self._before
        try:
            if self.last:
                self._keep()
            elif self._store is not None:
                _patiently(partial(self._store.delete, _KEY))
        except Exception as error:  # noqa: BLE001 - why the crew did not take it is what has to be told
            log.warning(
                "Airflow's store of task states does not forget the kickoff that started nothing: %s", error
            )

    def answered(self, kickoff_id: str) -> None:
        """Remember the execution. It runs, whether or not this succeeds."""
        if not self._note(kickoff_id=kickoff_id):
            self._leave_behind(kickoff_id)
            self._was_refused = True  # the next try may not know, so nothing may count on it

    def told(self) -> bool:
        """
        Remember that people are told that nobody knows what became of it: a Clear is their answer.

        Not one that has come already, while the process was still there.
        """
        return not self._is_cleared_meanwhile() and self._note(max_tries=self._max_tries, told=True)

    def adopted(self) -> None:
        """Take the last kickoff for that of this try, and return for the last time what a Clear asks for."""
        self._is_last_time = self.last is not None and self.last.end == "completed" and self.was_cleared
        self._note(max_tries=self._max_tries)

    def ended(self, end: End, kickoff_id: str | None) -> None:
        """Remember how the execution ended, and which it was, lest the answer could not be remembered."""
        if self.last and self.last.end == "returned":
            return
        is_over = end == "completed" and self._is_last_time
        self._note(kickoff_id=kickoff_id, end="returned" if is_over else end)

    def given(self) -> None:
        """Remember that Airflow has what the task returned."""
        self._note(given=True)

    def found(self, kickoff_id: str) -> None:
        """Take note of the answer to a kickoff that another process was given, as far as nobody has yet."""
        if self.last and self.last.kickoff_id is None and not self._note(kickoff_id=kickoff_id):
            self._leave_behind(kickoff_id)

    def late_answer(self) -> str | None:
        """Return the kickoff id that another process has left, or remembered, since this one has begun."""
        kept = _readable(self._store.get(_KEY)) if self._store is not None else None
        return left_in_xcom(self._ti) or (kept.kickoff_id if kept else None)

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
        if self.last.kickoff_id is None and (left := _left_behind(self._ti)):
            self.found(left)

    def _leave_behind(self, kickoff_id: str) -> None:
        """
        Leave the id where the next try sees it.

        Airflow 3.3 gives a task that is cleared while it runs a new identity. The process that is still there may
        write no more to the store, but it may push XComs. The next try is told their keys, to delete them.
        """
        key = f"{_LEFT_BEHIND}{kickoff_id}"
        if len(key) > _LONGEST_KEY or _NOT_IN_A_KEY & set(key):
            return
        try:
            _patiently(partial(self._ti.xcom_push, key=key, value=kickoff_id))
        except Exception as error:  # noqa: BLE001 - the log names the execution, too
            log.warning("Execution %s: the next try cannot be told of it: %s", kickoff_id, error)

    @property
    def outcome_counts(self) -> bool:
        """Whether Airflow takes what this try returns: from 3.4 on a cleared one may say so until it ends."""
        return not (FORGETS_AT_CLEAR and self._is_cleared_meanwhile())

    def _is_cleared_meanwhile(self) -> bool:
        ti = self._ti
        which = {"dag_id": ti.dag_id, "task_ids": [ti.task_id], "run_ids": [ti.run_id]}
        try:
            told = ti.get_task_states(**which, map_index=None if ti.map_index < 0 else ti.map_index)
        except Exception:  # noqa: BLE001 - then it is not known, and as likely as ever
            return False
        return any(state not in _OWN_STATES for states in told.values() for state in states.values())

    def _note(self, **changes: Any) -> bool:
        if self.last is None:
            return True
        self.last = replace(self.last, **changes)
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - an execution that is paid for must not be lost to its bookkeeping
            log.warning(
                "Airflow's store of task states does not take that %s: %s. A retry of this task will not know.",
                ", ".join(f"{name} is {value}" for name, value in changes.items()),
                error,
            )
            return False
        return True

    def _keep_last(self) -> None:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - it changes nothing about the kickoff
            log.warning("Airflow's store of task states does not take the kickoff once more: %s", error)

    def _keep(self) -> None:
        if self._store is None:
            return
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        with self._keeping:  # so that what is kept last is what is known last
            if self.last:
                _patiently(partial(self._store.set, _KEY, asdict(self.last), retention=NEVER_EXPIRE))


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


def _left_behind(ti: Any) -> str | None:
    told: Any = getattr(ti, "_ti_context_from_server", None)
    keys: list[str] = (told and told.xcom_keys_to_clear) or []
    return next((key.removeprefix(_LEFT_BEHIND) for key in keys if key.startswith(_LEFT_BEHIND)), None)


def _readable(kept: Any) -> Kickoff | None:
    """Return a kickoff that was kept, perhaps by another version of this package; None when it makes no sense."""
    from airflow_provider_crew.service.errors import InvalidKickoffId
    from airflow_provider_crew.service.kickoff_id import checked_kickoff_id
    from airflow_provider_crew.service.watch_state import is_time

    record = kept if isinstance(kept, Mapping) else {}
    max_tries, at, kickoff_id, end = (
        record.get(name) for name in ("max_tries", "kicked_off_at", "kickoff_id", "end")
    )
    if end == "unknown":  # which an earlier version took for an end
        end = None
    told, address, given = record.get("told", False), record.get("address", ""), record.get("given", False)
    if not (isinstance(max_tries, int) and is_time(at) and (end is None or end in get_args(End))):
        return None
    if not (isinstance(told, bool) and isinstance(address, str) and isinstance(given, bool)):
        return None
    try:
        known = kickoff_id if kickoff_id is None else checked_kickoff_id(kickoff_id)
    except InvalidKickoffId:
        return None
    return Kickoff(max_tries, at, known, end, told, address, given)
