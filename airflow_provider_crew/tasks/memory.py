"""
What a task remembers of its kickoff from one try to the next.

It outlives the process and even its supervisor, and decides whether an execution is paid for twice. Without a
store (``store.py`` says where there is one) the task forgets.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import Context

from airflow_provider_crew import compat
from airflow_provider_crew.service.text import warn
from airflow_provider_crew.tasks.decide import KickoffRecord
from airflow_provider_crew.tasks.record import StoredRecord, read_record
from airflow_provider_crew.tasks.store import KEY, VariableStore, store_of
from airflow_provider_crew.tasks.xcom import kickoff_id_left_by

log = logging.getLogger(__name__)

# An XCom's key that names an execution, for a try that is not allowed to read the value any more.
_LEFT_BEHIND = "crew_execution:"
# Airflow ends a task whose heartbeats fail for about as long.
_PATIENCE = 120.0
_PAUSE = 2.0


class KickoffMemory:
    """Keeps the last kickoff of a task."""

    def __init__(self, context: Context, *, wanted: bool) -> None:
        self._store = store_of(context) if wanted else None
        self._ti: Any = context["ti"]
        self._max_tries: int = self._ti.max_tries
        clears: int = getattr(context.get("dag_run"), "clear_number", 0) or 0
        retries = getattr(getattr(self._ti, "task", None), "retries", self._max_tries)
        self.may_follow_a_clear = self._ti.try_number > 1 and (clears > 0 or self._max_tries > retries)
        """Whether somebody has perhaps cleared the task since an earlier try."""
        self.last: KickoffRecord | None = None
        self._before: KickoffRecord | None = None
        self._besides: Mapping[str, Any] = {}
        self._besides_before: Mapping[str, Any] = {}
        self._keeping = threading.Lock()
        self._was_refused = False
        self.has_given_up = False
        """Whether this try has given up the last kickoff, and is to kick off anew."""
        self.has_other_inputs = False
        """Whether the task has other inputs now than the last kickoff had."""
        self._recall()

    @property
    def lasts(self) -> bool:
        """Whether the next try will know what this one did."""
        return self._store is not None and not self._was_refused

    @property
    def going_on(self) -> str | None:
        """The execution of an earlier try that may be running."""
        return self.last.kickoff_id if self.last and not self.last.end else None

    @property
    def was_cleared(self) -> bool:
        """Whether somebody has cleared the task since a try has kicked off, or reattached."""
        return self.last is not None and self.last.max_tries != self._max_tries

    @property
    def may_have_forgotten(self) -> bool:
        """Whether Airflow has perhaps forgotten a kickoff: from 3.4 on a Clear does so, unless told to keep it."""
        return compat.FORGETS_AT_CLEAR and self.lasts and self.last is None and self.may_follow_a_clear

    def note_sending(self, address: str, name: str, fingerprint: str) -> None:
        """Remember that a kickoff is on its way. When this fails, nothing is sent."""
        self._before, self._besides_before = self.last, self._besides
        self._besides = {}
        self.last = KickoffRecord(
            self._max_tries, time.time(), address=address, name=name, fingerprint=fingerprint
        )
        try:
            self._keep()
        except Exception:
            self._restore()
            raise

    def note_again(self) -> None:
        """
        Keep the record once more, when the process is told to end.

        From Airflow 3.4 on, the Clear that ends the process has deleted it. A signal's handler calls this, perhaps
        in the middle of a question to Airflow, which another thread can wait for.
        """
        if compat.FORGETS_AT_CLEAR and self.last:
            threading.Thread(target=self._keep_if_possible, daemon=True).start()

    def forget_sending(self) -> None:
        """Forget a kickoff that certainly started nothing; what was remembered before it counts again."""
        self._restore()
        self._keep_if_possible()

    def _restore(self) -> None:
        self.last, self._besides = self._before, self._besides_before

    def note_answer(self, kickoff_id: str) -> None:
        """Remember the answer to a kickoff, if it is not known yet. The execution runs, whether this succeeds."""
        if self.last and self.last.kickoff_id is None and not self.note(kickoff_id=kickoff_id):
            self._leave_behind(kickoff_id)
            self._was_refused = True  # the next try may not know, so nothing may count on it

    def note_report(self) -> bool:
        """
        Remember that the log reports the kickoff as uncertain. A later Clear then means: kick off anew.

        A Clear before the report, while the process was still there, does not.
        """
        return not compat.is_cleared_meanwhile(self._ti) and self.note(max_tries=self._max_tries, reported=True)

    def note_reattached(self) -> None:
        """Count the last kickoff as one of this try: a Clear that led to it is none for the next try."""
        self.note(max_tries=self._max_tries)

    def note_delivery(self) -> None:
        """
        Remember that Airflow has what the task returned; until then it is wanted even after a Clear.

        From Airflow 3.4 on a task that was cleared may go on to its end, and its outcome is discarded then.
        """
        if not (compat.FORGETS_AT_CLEAR and compat.is_cleared_meanwhile(self._ti)):
            self.note(delivered=True)

    def note(self, **changes: Any) -> bool:
        """Remember more of the last kickoff, if there is one; return whether Airflow has taken it."""
        if self.last is None:
            return True
        self.last = replace(self.last, **changes)
        return self._keep_if_possible()

    def late_answer(self) -> str | None:
        """Return the kickoff id that another process has left, or remembered, since this one has begun."""
        kept = self._store.get(KEY) if self._store is not None else None
        answer = self._read(kept).record.kickoff_id
        if isinstance(self._store, VariableStore):  # takes every answer; an XCom may be older
            return answer
        return answer or kickoff_id_left_by(self._ti)

    def _read(self, kept: Any) -> StoredRecord:
        return read_record(kept, max_tries=self._max_tries, now=time.time())

    def _recall(self) -> None:
        kept = _repeat_while_away(partial(self._store.get, KEY)) if self._store is not None else None
        if kept is None:
            return
        stored = self._read(kept)
        self.last, self._besides = stored.record, stored.besides
        if stored.unread:
            self._warn_of_unread(stored)
            # Kept, so that a Clear can be told from a retry.
            self._keep_if_possible()
        for key in compat.xcom_keys_left_behind(self._ti):
            if key.startswith(_LEFT_BEHIND):
                self.note_answer(key.removeprefix(_LEFT_BEHIND))

    def _warn_of_unread(self, stored: StoredRecord) -> None:
        """Show what cannot be read, before anything is written over it."""
        if kickoff_id := stored.record.kickoff_id:
            warn(log, f"Execution {kickoff_id}: its kickoff record cannot be read in full.\n{stored.unread}")
            return
        warn(
            log,
            "What this task remembers of an earlier kickoff cannot be read. It is taken for one that was sent "
            f"and never answered.\n{stored.unread}",
        )

    def _leave_behind(self, kickoff_id: str) -> None:
        """
        Leave the id where the next try sees it.

        Airflow 3.3 gives a task that is cleared while it runs a new identity. The process that is still there may
        write no more to the store, but it may push XComs. The next try is told their keys, to delete them.
        """
        key = f"{_LEFT_BEHIND}{kickoff_id}"
        try:
            _repeat_while_away(partial(self._ti.xcom_push, key=key, value=kickoff_id))
        except Exception as error:  # noqa: BLE001 - the log names the execution, too
            warn(log, f"Execution {kickoff_id}: the next try cannot be told of it: {error}")

    def _keep_if_possible(self) -> bool:
        try:
            self._keep()
        except Exception as error:  # noqa: BLE001 - an execution that is paid for must not be lost to its bookkeeping
            warn(
                log,
                "Airflow does not take what there is to remember. A retry of this task will not know.\n"
                f"{self.last}: {error}",
            )
            return False
        return True

    def _keep(self) -> None:
        if self._store is None:
            return
        with self._keeping:  # so that what is kept last is what is known last
            if self.last:
                value = StoredRecord(self.last, self._besides).as_dict()
                keep = partial(self._store.set, KEY, value, **compat.never_expires())
            else:
                keep = partial(self._store.delete, KEY)
            _repeat_while_away(keep)


def _repeat_while_away(ask: Callable[[], Any]) -> Any:
    """
    Ask the store, and again as long as Airflow's API server is away.

    What is remembered decides whether an execution is paid for twice; Airflow itself gives up much sooner.
    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask()
        except Exception as error:
            if not compat.api_server_is_away(error) or time.monotonic() > until:
                raise
            warn(log, f"Airflow's API server does not answer, and is asked again: {error}")
        time.sleep(_PAUSE)
