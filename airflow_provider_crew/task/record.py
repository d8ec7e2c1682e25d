"""Kickoff record shared by all attempts of a task: its fields, where it is stored, and how it is read."""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from hashlib import sha256
from typing import Any

from airflow.providers.common.compat.sdk import Context
from pydantic import TypeAdapter, ValidationError

from airflow_provider_crew import api_server, versions
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.payload import plain
from airflow_provider_crew.client.text import one_line, warn
from airflow_provider_crew.task.decide import KickoffRecord, Next
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.verdict import if_lost

_adapter_of: Any = cache(TypeAdapter)  # built when used: a new task has no record
KICKOFF_ID = "kickoff_id"


def kickoff_id_left_by(ti: Any) -> Any:
    """
    Return the kickoff ID that an earlier process of this attempt pushed to XCom.

    Airflow deletes the kickoff ID of an earlier attempt.
    """
    return ti.xcom_pull(task_ids=ti.task_id, key=KICKOFF_ID, map_indexes=ti.map_index)


def was_rescheduled(ti: Any) -> bool:
    """Whether this attempt has run before. Airflow 3.1 and 3.2 restart an attempt whose DAG cannot be loaded."""
    from_server: Any = getattr(ti, "_ti_context_from_server", None)
    return bool(from_server and from_server.task_reschedule_count)


def fingerprint(inputs: Any, restore_from_state_id: Any) -> str:
    """
    Return the SHA-256 of the canonical JSON of both arguments, as 64 hexadecimal digits.

    Raises InvalidInputs for inputs that are not JSON. An option that is not set counts as ``None``.
    """
    state = str(restore_from_state_id) if restore_from_state_id else None
    data = {"inputs": plain(inputs, "inputs"), "restore_from_state_id": state}
    return sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_record(kept: Any, *, max_tries: int, now: float) -> tuple[KickoffRecord, str]:
    """
    Return a stored record, or one of a kickoff without a response and the unreadable text on one line.

    :param max_tries: That of this attempt, which so counts as a retry.
    :param now: Time of this attempt, so that the execution does not count as old.
    """
    try:
        return _adapter_of(KickoffRecord).validate_python(kept), ""
    except ValidationError:
        return KickoffRecord(max_tries, now), one_line(repr(kept), 500)


KEY = "crew_kickoff"
BATCH = "crew_batch"
"""Key of the groups of a batch. Each has a kickoff record by its name."""
CALLS = "crew_calls"
"""
Key of the calls of an agent's task, in order: the connection of each, and those that got the same inputs before.
Each has a kickoff record by its number.
"""


def as_stored(record: KickoffRecord, *, meta: str = "", durable: bool = True, cleared: bool = False) -> Any:
    """Return a record as it is stored, with what the Crew tab shows if the task leaves no report."""
    return asdict(record) | {"if_lost": if_lost(Next(record, durable, cleared)) | {"meta": meta}}


def end_of(error: BaseException, *, rejects_misfits: bool) -> dict[str, Any]:
    """Return how an execution has ended, as fields of its record. Empty if it may be running."""
    match error:
        case errors.ExecutionStopped():
            return {"end": "stopped"}
        case errors.ExecutionFailed():
            return {"end": "failed"}
        case errors.InvalidOutput() if error.misfits and not rejects_misfits:
            return {"end": "rejected"}
        case errors.ExecutionUnknown(has_completed=True):
            return {"end": "completed", "delivered": True}
    return {}


log = logging.getLogger(__name__)


class Store:
    """
    Task state store that waits while Airflow's API server is unreachable.

    Airflow itself gives up much sooner, but a lost record could start a second billed execution.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: str, *, is_patient: bool = True) -> Any:
        """Return the value of a key. None if there is none."""
        return _answer(partial(self._store.get, key), is_patient=is_patient)

    def set(self, key: str, value: Any, *, is_patient: bool = True) -> None:
        """Store a value for as long as the run exists."""
        _answer(partial(self._store.set, key, value, **versions.RETENTION), is_patient=is_patient)

    def delete(self, key: str) -> None:
        """Delete a key."""
        _answer(partial(self._store.delete, key))


def store_of(context: Context) -> Store | None:
    """Return the store that all attempts of a task share. None before Airflow 3.3."""
    store = context.get("task_state_store")
    return None if store is None else Store(store)


def callbacks_of(operator: Any, kind: str) -> list[Any]:
    """Return the callbacks of an operator as its own list, which may be changed."""
    own = getattr(operator, kind) or []
    callbacks = [*own] if isinstance(own, Sequence) else [own]
    setattr(operator, kind, callbacks)
    return callbacks


class Record:
    """
    Kickoff record of a task, with access to its store.

    :param is_shared: Whether all attempts share the record, if Airflow has a store.
    :param key: Key of the record in the store. A task with several executions has several records.
    """

    def __init__(self, task: Task, *, is_shared: bool, key: str = KEY) -> None:
        self.task = task
        self._ti: Any = task.ti
        self._wants_store = is_shared
        self.key = key
        self._store: Store | None = None
        self._max_tries: int = self._ti.max_tries
        clears: int = getattr(task.context.get("dag_run"), "clear_number", 0) or 0
        retries = getattr(getattr(self._ti, "task", None), "retries", self._max_tries)
        self._may_follow_a_clear = self._ti.try_number > 1 and (clears > 0 or self._max_tries > retries)
        self.last: KickoffRecord | None = None
        self.ended_id = ""
        """Execution whose end an earlier attempt has seen, and so has traced."""
        self._before: KickoffRecord | None = None
        self._saving = threading.Lock()
        self.is_unnamed = False
        """Whether Airflow has refused the kickoff ID, so that the next attempt finds a kickoff without one."""
        self.is_read = self.is_unreadable = self._is_behind = False

    def read(self, handed_over: Any = None) -> None:
        """
        Read what earlier attempts have stored. If this raises, the next attempt reads it, or sends nothing.

        :param handed_over: Record that the process before a deferral has stored.
        """
        self.last, self.ended_id, self.is_read, self.is_unreadable = None, "", False, True
        self._store = store_of(self.task.context) if self._wants_store else None
        kept = handed_over if handed_over or self._store is None else self._store.get(self.key)
        self.is_read, self.is_unreadable = True, False
        if kept is None:
            return
        self.last, unread = read_record(kept, max_tries=self._max_tries, now=time.time())
        self.ended_id = self.last_id if self.last.end else ""
        if unread:
            # Log it before it is overwritten, with this attempt's max_tries: the next counts as a retry.
            warn(log, f"The kickoff record is unreadable, so its kickoff counts as uncertain: {unread}")
            self._save_if_possible()

    @property
    def last_id(self) -> str:
        """Kickoff ID in the record. Empty if there is none."""
        return (self.last and self.last.kickoff_id) or ""

    @property
    def is_shared(self) -> bool:
        """Whether the next attempt can read the record of this one."""
        return self._store is not None and not self.is_unnamed

    @property
    def next(self) -> Next:
        """Facts that the next attempt will find."""
        return Next(
            self.last if self._store else None,
            self.task.options.durable,
            self.was_cleared,
            self.is_unnamed,
            self.is_unreadable,
            self.may_be_forgotten,
        )

    @property
    def running(self) -> str | None:
        """Kickoff ID of an earlier attempt's execution that may be running."""
        return self.last.kickoff_id if self.last and not self.last.end else None

    @property
    def was_cleared(self) -> bool:
        """Whether the task was cleared since an attempt last started an execution or reattached."""
        return self.last is not None and self.last.max_tries != self._max_tries

    @property
    def may_be_forgotten(self) -> bool:
        """Whether the task may have been cleared without its record: before Airflow 3.3, and from 3.4 on."""
        is_deleted = self._store is None or versions.CLEARING_DELETES_TASK_STATE
        return is_deleted and self.last is None and self._may_follow_a_clear

    @property
    def is_of_this_attempt(self) -> bool:
        """Whether this very attempt has sent the kickoff, and was not started again by Airflow."""
        is_own = self.last is not None and self.last.try_number == self._ti.try_number
        return is_own and not was_rescheduled(self._ti)

    def save_intent(self, address: str, digest: str, call: str = "") -> None:
        """Record a kickoff before it is sent. If this raises, the kickoff must not be sent."""
        if not self.is_read:
            raise RuntimeError("The kickoff record was not read.")
        self._before, number = self.last, self._ti.try_number
        self.last = KickoffRecord(
            self._max_tries, time.time(), address=address, fingerprint=digest, try_number=number, call=call
        )
        try:
            self._save()
        except Exception as error:
            self.last = self._before
            # Airflow may have stored it, although its response was lost.
            self.is_unnamed = api_server.is_away(error) and not self._save_if_possible()
            raise

    def save_again(self) -> None:
        """
        Store the record again when Airflow stops the process.

        On Airflow 3.4 and later, clearing a running task deletes the record before it stops the process. A signal
        handler calls this, possibly during a request to Airflow, so a separate thread waits for that request.
        """
        if versions.CLEARING_DELETES_TASK_STATE and self.last:
            threading.Thread(target=self._save_if_possible, daemon=True).start()

    def delete_intent(self) -> None:
        """Remove the record of a kickoff that certainly started nothing, and restore the one before it."""
        self.last = self._before
        self.is_unnamed = not self._save_if_possible()

    def save_kickoff_id(self, kickoff_id: str) -> None:
        """Record the kickoff ID, unless it is known. The execution is running even if the store fails."""
        if self.last and self.last.kickoff_id is None:
            self.is_unnamed = not self.update(kickoff_id=kickoff_id, call="")

    def save_report(self) -> bool:
        """
        Record that the log reports the kickoff as uncertain, so clearing the task later starts another execution.

        Return False if the task was cleared before the report, while the process was still running.
        """
        is_current = not api_server.is_cleared_meanwhile(self._ti)
        if is_current and not self.update(max_tries=self._max_tries, reported=True):
            self.last = self.last and replace(self.last, reported=False)
            return False
        return is_current

    def save_delivery_on_success(self, operator: Any) -> None:
        """
        Record the delivery as soon as Airflow has recorded the success of the task, when success callbacks run.

        Call this while the task runs, so that neither a cluster policy nor an assignment replaces the list. The
        callback is the first, so it does not depend on the author's callbacks.
        """
        if self.last is None or self._store is None:
            return
        own = callbacks_of(operator, "on_success_callback")
        if not (own and isinstance(own[0], _Deliveries)):
            own.insert(0, _Deliveries(self._ti))
        own[0].records.append(self)

    def save_end(self, kickoff_id: str, error: BaseException) -> None:
        """Record how the execution has ended, for the next attempt and for the verdict on this one."""
        before = self.last
        changes = end_of(error, rejects_misfits=self.task.options.on_invalid_output == "fail")
        if changes and not self.update(kickoff_id=kickoff_id, **changes):
            self.last = before  # the next attempt asks the crew
        self.save_completion()

    def note_completion(self, kickoff_id: str) -> None:
        """Take note that the execution has completed. The next write stores that. Until then, an attempt polls."""
        if self.last and self.last.end != "completed":
            self.last, self._is_behind = replace(self.last, kickoff_id=kickoff_id, end="completed"), True

    def save_completion(self) -> None:
        """Record that the execution has completed, unless that is stored."""
        if self._is_behind:
            self._save_if_possible()

    def save_cancelling(self, *, is_asked: bool) -> None:
        """Record whether the task itself asks the crew to cancel. Without it, a late stop counts as a person's."""
        if self.last and self.task.is_told_to_end():  # no retry follows a mark
            self.last = replace(self.last, cancelled=is_asked)
        else:
            self.update(is_patient=False, cancelled=is_asked)

    def update(self, *, is_patient: bool = True, **changes: Any) -> bool:
        """Update the record, if there is one. Return whether Airflow has stored it."""
        if self.last is None:
            return True
        self.last = replace(self.last, **changes)
        return self._save_if_possible(is_patient=is_patient)

    def _save_if_possible(self, *, is_patient: bool = True) -> bool:
        try:
            self._save(is_patient=is_patient)
        except Exception as error:  # noqa: BLE001 - a billed execution must not be lost to its bookkeeping
            which = f" of execution {self.last_id}" if self.last_id else ""
            warn(log, f"Airflow did not store the kickoff record{which}: {error}")
            return False
        return True

    def _save(self, *, is_patient: bool = True) -> None:
        if self._store is None:
            return
        with self._saving:  # so that the last write stores the latest record
            self._is_behind = False
            if stored := self.stored:
                self._store.set(self.key, stored, is_patient=is_patient)
            else:
                self._store.delete(self.key)

    @property
    def stored(self) -> dict[str, Any]:
        """The record as it is stored. Empty if there is none."""
        own: Any = {"durable": self.task.options.durable, "cleared": self.was_cleared}
        return as_stored(self.last, meta=self.task.meta, **own) if self.last else {}


class _Deliveries:
    """
    Success callback that records that Airflow has stored the return value, for all executions of a task.

    Until then, a cleared task returns the same results again.
    """

    def __init__(self, ti: Any) -> None:
        self._ti = ti
        self.records: list[Record] = []

    def __call__(self, _: Context) -> None:
        # If Airflow clears the task in the same second, it may have read the state of the running task, and drop
        # the success and the return value. So this reads the state a moment later.
        time.sleep(timing.TIME_TO_CLEAR)
        if api_server.has_succeeded(self._ti):
            for record in self.records:
                record.update(delivered=True)


def _answer(ask: Callable[[], Any], *, is_patient: bool = True) -> Any:
    """Return the response of the store. If it is patient, ask again while Airflow's API server is unreachable."""
    until = time.monotonic() + timing.STORE_OUTAGE if is_patient else 0.0
    while True:
        try:
            return ask()
        except Exception as error:
            if not api_server.is_away(error) or time.monotonic() > until:
                raise
            warn(log, f"Airflow's API server does not respond. Trying again: {error}")
        time.sleep(timing.STORE_PAUSE)
