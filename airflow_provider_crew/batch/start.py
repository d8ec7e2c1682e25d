"""Start rows of a batch in groups, until as many run as may."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from airflow_provider_crew.api_server import is_away, is_cleared_meanwhile
from airflow_provider_crew.batch.facts import MOST_IN_GROUP, Fact, end, fact, failure
from airflow_provider_crew.batch.fold import Row
from airflow_provider_crew.batch.inputs import LONGEST_KEY
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.batch.store import free_slot, save_slot, slot_key
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.errors import CrewError, UncertainKickoff
from airflow_provider_crew.client.models import CrewInputs
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.text import in_words, one_line
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.task.send import (
    count_kickoffs,
    kick_off,
    listed_inputs,
    request_of,
    send,
    today,
    webhook_secret,
)
from airflow_provider_crew.task.stop import shielded
from airflow_provider_crew.task.task import reject_nothing

_LONGEST_BACK_OFF = 300.0


class Starter:
    """Kickoffs of a batch. Each group may be larger than the last."""

    def __init__(self, batch: BatchRun) -> None:
        self._batch = batch
        self._secret: Any = None
        self._is_awake = self._has_warned = False
        self._listed: CrewInputs | None = None
        self._fencing = threading.Lock()
        self._fenced_at = 0.0
        self._is_superseded = False
        """Whether Airflow has refused a write, so that another process may have taken over."""
        self._doubts: dict[str, CrewError] = {}
        self._ids = set[str]()
        """Kickoff IDs that the crew has returned to this process."""

    def start(self) -> None:
        """Start groups of rows until as many are running as may."""
        batch, most = self._batch, self._batch.options.max_active
        while (room := min(batch.room(), batch.carried.window, MOST_IN_GROUP)) > 0 and self._may_start():
            rows = [batch.pending.popleft() for _ in range(min(room, len(batch.pending)))]
            shielded(partial(self._start_group, rows))
            if time.time() >= batch.carried.not_before:
                batch.carried.window = min(batch.carried.window * 2, most)

    def _may_start(self) -> bool:
        batch = self._batch
        state = batch.carried
        if not batch.pending or batch.is_stopped or state.is_away or batch.stop.is_told():
            return False
        if time.time() < state.not_before:
            return False
        batch.renew()
        try:
            batch.stop.look_before("next kickoff")
            if not self._is_awake:
                self._listed, self._secret = listed_inputs(batch.task, batch.client), webhook_secret(batch.task)
                self._is_awake = True
        except errors.TransientError as error:
            self._back_off(error)
        except CrewError as error:
            batch.trouble = error
        return not batch.trouble and time.time() >= batch.carried.not_before

    def _start_group(self, rows: list[Row], interrupted: threading.Event) -> None:
        """Record the rows, send their kickoffs, and record how that ended."""
        batch, slot = self._batch, free_slot(self._batch)
        requests = self._requests(rows, slot)
        if not (rows := self._counted([row for row in rows if row.name in requests])):
            return
        self._intend(slot, rows, requests)

        def send_row(row: Row) -> str:
            kickoff = partial(kick_off, batch.task, batch.client.kickoff, requests[row.name], interrupted)
            return send(kickoff, batch.stop, interrupted, save_intent=partial(self._look, slot, rows))

        token, found, is_stored, saved_at = batch.token, list[Fact](), True, time.monotonic()
        for done in batch.each(send_row, rows, pause=timing.BATCH_SAVE):  # another kickoff may take minutes
            for row, outcome in done:
                if each := self._found(row, outcome, token):
                    batch.add(each)  # before the next response, which may have the same kickoff ID
                    found, is_stored = [*found, each], False
            if not is_stored and time.monotonic() - saved_at >= timing.BATCH_SAVE:
                is_stored = self._save_ids(slot, rows, is_patient=False)
                saved_at = time.monotonic()
        is_stored = is_stored or self._save_ids(slot, rows, is_patient=False)
        batch.record(found)
        if not is_stored:  # only now: the process may be killed while it waits for Airflow
            self._save_ids(slot, rows, is_patient=True)
        self._report([row for row in rows if row.state == "uncertain"])

    def _intend(self, slot: int, rows: Sequence[Row], requests: Mapping[str, KickoffRequest]) -> None:
        """Record the kickoffs of a group before they are sent. If this raises, none may be sent."""
        batch, now = self._batch, time.time()
        about = {"at": now, "address": batch.task.hook.connection.settings.address, "slot": slot}
        calls = {row.name: requests[row.name].call for row in rows}
        sent = [fact(row, row.next_number, "sent", call=calls[row.name], **about) for row in rows]
        for row, each in zip(rows, sent, strict=True):
            batch.add(each)
            row.slot = slot
        try:
            self._fence(slot, rows)  # first: a process that Airflow has replaced leaves no trace
            batch.files.append(sent)
        except Exception as error:  # noqa: BLE001 - another is raised
            for each in (not_taken := [fact(row, row.number, "not taken") for row in rows]):
                batch.add(each)
            with suppress(Exception):
                save_slot(batch, slot, rows, is_patient=False)
            with suppress(Exception):
                batch.files.append(not_taken)
            self._take_back(rows)
            event = f"The kickoff records were not stored, so nothing was sent: {in_words(error)}."
            raise CrewTaskError(event) from None

    def _fence(self, slot: int, rows: Sequence[Row]) -> None:
        """Write the rows to the store. Airflow refuses that to a process that it has replaced."""
        save_slot(self._batch, slot, rows)
        self._fenced_at = timing.ticks()

    def _look(self, slot: int, rows: Sequence[Row]) -> None:
        """Raise if no row may be sent any more. The group has stored the intent of each."""
        with self._fencing:
            if not self._is_superseded and timing.ticks() - self._fenced_at > timing.FENCE_AGE:
                try:
                    self._fence(slot, rows)
                except Exception as error:  # noqa: BLE001 - the rows of this group that were sent are running
                    self._lost_touch(error)
        if self._is_superseded or time.time() < self._batch.carried.not_before:
            raise CrewTaskError("The row was not started.")

    def _lost_touch(self, error: Exception) -> None:
        """Send nothing more: if Airflow refuses a write, another process may have taken over."""
        event = f"Airflow did not store kickoff IDs, but the files will contain them: {in_words(error)}."
        self._batch.task.warn(event)
        self._is_superseded, self._batch.trouble = True, self._batch.trouble or CrewTaskError(event)

    def _save_ids(self, slot: int, rows: Sequence[Row], *, is_patient: bool) -> bool:
        """
        Write kickoff IDs to the store, and return whether that is done.

        :param is_patient: Whether to wait while Airflow is away. Otherwise the caller tries again later.
        """
        try:
            save_slot(self._batch, slot, rows, is_patient=is_patient)
        except Exception as error:  # noqa: BLE001 - the executions are running
            if not is_patient and is_away(error):
                return False
            self._lost_touch(error)
        return True

    def _report(self, rows: Sequence[Row]) -> None:
        """Report uncertain rows. If the task was cleared meanwhile, the next attempt does that first."""
        batch = self._batch
        if rows and not batch.stop.is_told() and not is_cleared_meanwhile(batch.task.ti):
            errors_of = [(row, failure(self._doubts[row.name], "kickoff")) for row in rows]
            batch.record(fact(row, row.number, "reported", error=error) for row, error in errors_of)

    def _requests(self, rows: Sequence[Row], slot: int) -> dict[str, KickoffRequest]:
        """Return the kickoffs of rows by name. A row whose inputs cannot be sent ends."""
        found: dict[str, KickoffRequest] = {}
        for row in rows:
            try:
                found[row.name] = self._request(row, slot)
            except errors.InvalidInputs as error:
                self._batch.output.measure("kickoff.not_taken")
                self._batch.record([end(row, "error", error, "inputs", number=row.next_number)])
        return found

    def _request(self, row: Row, slot: int) -> KickoffRequest:
        task = self._batch.task
        doubts = compare_inputs(row.inputs, self._listed) if self._listed else []
        request = request_of(task, row.inputs, self._secret, slot_key(slot), row=row.key)
        if isinstance(templates := task.options.given["inputs"], list | tuple):  # others are data
            reject_nothing("inputs", request.inputs, templates[row.index])
        if doubts and not self._has_warned:
            self._has_warned = True
            task.warn(f"Row {one_line(row.key, LONGEST_KEY)}: {' '.join(doubts)}")
        return request

    def _counted(self, rows: list[Row]) -> list[Row]:
        """Count rows against the daily limit, and return those for which there is room."""
        batch, task, state = self._batch, self._batch.task, self._batch.carried
        if state.counted_on != (day := today()):
            state.counted_on, state.counted = day, 0
        room = min(state.counted, len(rows))  # rows that were taken back are counted already
        if missing := len(rows) - room:
            try:
                room += count_kickoffs(task.hook, task.ti, task.origin(), task.log, missing)
            except CrewError as error:
                batch.trouble = error
        state.counted = max(state.counted - room, 0)
        batch.pending.extendleft(reversed(rows[room:]))
        return rows[:room]

    def _found(self, row: Row, sent: Future[str], token: str) -> Fact | None:
        """Return the outcome of a kickoff that was sent with a token. None if it is uncertain."""
        batch, output = self._batch, self._batch.output
        match self._error_of(sent):
            case None:
                batch.carried.outage_since = None
                output.measure("kickoff.started")
                return fact(row, row.number, "named", kickoff_id=sent.result())
            case errors.Rejected(blames_inputs=True) as error:
                output.measure("kickoff.not_taken")
                return end(row, "error", error, "kickoff")
            case UncertainKickoff() as error:
                self._back_off(error)  # others would be uncertain as well
                self._doubts[row.name] = error
                output.measure("kickoff.uncertain")
                return None
            case errors.TransientError() as error:
                self._back_off(error)
            case errors.NotAuthenticated() if batch.has_other_token(token):
                pass
            case CrewTaskError():  # the next attempt starts it
                pass
            case CrewError() as error:
                batch.trouble = error
            case error:
                event = f"The kickoff may have started an execution: {in_words(error)}."
                self._doubts[row.name] = UncertainKickoff(event)
                output.measure("kickoff.uncertain")
                return None
        self._take_back([row])
        return fact(row, row.number, "not taken")

    def _error_of(self, sent: Future[str]) -> BaseException | None:
        """Return the error of a kickoff. The ID of another row does not name its execution."""
        if (error := sent.exception()) is not None:
            return error
        known = self._ids | {row.kickoff.kickoff_id for row in self._batch.running.values()}
        if sent.result() in known:
            return UncertainKickoff(f"The kickoff ID is that of another row: {sent.result()}.")
        self._ids.add(sent.result())
        return None

    def _take_back(self, rows: Sequence[Row]) -> None:
        """Put rows back whose kickoff was not sent, or certainly started nothing."""
        self._batch.carried.counted += len(rows)
        self._batch.pending.extendleft(reversed(rows))

    def _back_off(self, error: CrewError) -> None:
        """Start nothing for a while, and a single row after that. An outage fails no row."""
        batch, state, now = self._batch, self._batch.carried, time.time()
        limit = batch.options.max_outage
        state.window = 1
        state.outage_since = state.outage_since or now
        lasting = now - state.outage_since
        wanted = error.retry_after if isinstance(error, errors.TransientError) else None
        least = timing.BATCH_BACK_OFF
        state.not_before = now + max(least, min(max(wanted or 0.0, lasting), _LONGEST_BACK_OFF))
        if limit is not None and lasting > limit and not batch.running:  # if rows are running, the crew is busy
            batch.trouble = error
