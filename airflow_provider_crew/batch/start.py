"""Start rows of a batch in groups, until as many run as may."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from airflow_provider_crew.batch.collect import end_row, store_ends
from airflow_provider_crew.batch.files import SENT
from airflow_provider_crew.batch.groups import forget_intents, save_intents, save_kickoff_ids
from airflow_provider_crew.batch.rows import LONGEST_KEY, Row
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.models import CrewInputs
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.text import in_words, one_line
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.task.checks import count_kickoffs, listed_inputs, today
from airflow_provider_crew.task.record import BATCH
from airflow_provider_crew.task.send import kick_off, request_of, send, webhook_secret
from airflow_provider_crew.task.stop import shielded
from airflow_provider_crew.task.task import reject_nothing

# A group is one entry of less than 64 KB.
MOST_IN_GROUP = 50
_LONGEST_BACK_OFF = 300.0


class Starter:
    """Kickoffs of a batch. Each group may be larger than the last."""

    def __init__(self, batch: BatchRun) -> None:
        self._batch = batch
        self._secret: Any = None
        self._has_secret = self._has_warned = False
        self._listed: CrewInputs | None = None
        self._is_awake = False

    def start(self) -> None:
        """Start groups of rows until as many are running as may."""
        batch, most = self._batch, self._batch.options.max_active
        while (room := min(batch.room(), batch.carried.window, MOST_IN_GROUP)) > 0 and self._may_start():
            rows = [batch.pending.popleft() for _ in range(min(room, len(batch.pending)))]
            shielded(partial(self._start_group, rows))
            if time.time() >= batch.carried.not_before:
                batch.carried.window = min(batch.carried.window * 2, most)
            time.sleep(random.random() * timing.BATCH_JITTER)  # noqa: S311 - not a secret

    def _may_start(self) -> bool:
        batch = self._batch
        if not batch.pending or batch.is_stopped or time.time() < batch.carried.not_before or batch.stop.is_told():
            return False
        batch.renew()
        try:
            batch.stop.look_before("next kickoff")
            if not self._is_awake:
                self._listed, self._is_awake = listed_inputs(batch.task, batch.client), True
        except errors.TransientError as error:
            self._back_off(error)
        except CrewError as error:
            batch.trouble = error
        return not batch.trouble and time.time() >= batch.carried.not_before

    def _start_group(self, rows: list[Row], interrupted: threading.Event) -> None:
        """Record the rows, send their kickoffs, and record the kickoff IDs."""
        batch = self._batch
        name = batch.files.new_name(SENT)
        group = name.removeprefix(f"{SENT}/")
        requests = {row.index: request for row in rows if (request := self._request(row, group))}
        store_ends(batch, [row for row in rows if row.index not in requests])
        rows = self._counted([row for row in rows if row.index in requests])
        if not rows:
            return
        for row in rows:
            row.sent_at, row.attempts = time.time(), row.attempts + 1
            row.call = requests[row.index].call
        try:
            save_intents(batch, name, rows)
        except BaseException:
            self._take_back(rows)
            forget_intents(batch, name)
            raise

        token, is_stored = batch.token, True

        def send_row(row: Row) -> str:
            kickoff = partial(kick_off, batch.task, batch.client.kickoff, requests[row.index], interrupted)
            return send(kickoff, batch.stop, interrupted, save_intent=self._check_if_open)

        for done in batch.each(send_row, rows):
            for row, sent in done:
                self._note(row, sent, token)
            is_stored = save_kickoff_ids(batch, group, rows, is_last=False)
        with suppress(CrewTaskError):  # the task state store has them as well
            batch.files.write(name, [row.sent() for row in rows if row.sent_at is not None])
        if not is_stored:  # only now: the process may be killed while it waits for Airflow
            save_kickoff_ids(batch, group, rows)
        store_ends(batch, [row for row in rows if row.line and row.line["status"] != "not_started"])

    def _request(self, row: Row, group: str) -> KickoffRequest | None:
        """Return the kickoff of a row. None if the row ends because of its inputs."""
        task = self._batch.task
        if not self._has_secret:
            self._secret, self._has_secret = webhook_secret(task), True
        try:
            doubts = compare_inputs(row.inputs, self._listed) if self._listed else []
            request = request_of(task, row.inputs, self._secret, f"{BATCH}_{group}", row=row.key)
            if isinstance(templates := task.options.given["inputs"], list | tuple):  # others are data
                reject_nothing("inputs", request.inputs, templates[row.index])
        except errors.InvalidInputs as error:
            end_row(row, "error", error, "inputs")
            self._batch.output.measure("kickoff.not_taken")
            return None
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

    def _check_if_open(self) -> None:
        """Raise if no row may be sent any more. The group has stored the intent of each."""
        if self._batch.is_superseded or time.time() < self._batch.carried.not_before:
            raise CrewTaskError("The row was not started.")

    def _note(self, row: Row, sent: Future[str], token: str) -> None:
        """Note the outcome of a kickoff that was sent with a token."""
        batch, output = self._batch, self._batch.output
        match self._error_of(sent):
            case None:
                row.kickoff_id, row.line = sent.result(), None
                batch.running[row.kickoff_id] = row
                batch.carried.outage_since, batch.carried.is_billed = None, True
                output.measure("kickoff.started")
            case errors.Rejected(blames_inputs=True) as error:
                row.sent_at, row.attempts = None, row.attempts - 1
                end_row(row, "error", error, "kickoff")
                output.measure("kickoff.not_taken")
            case errors.TransientError() as error:
                self._back_off(error)
                self._take_back([row])
            case errors.UncertainKickoff() as error:
                self._back_off(error)  # others would be uncertain as well
                row.kickoff_id = error.kickoff_id
                self._end_uncertain(row, error)
            case errors.NotAuthenticated() if batch.has_other_token(token):
                self._take_back([row])  # the token was renewed
            case CrewTaskError():  # the next attempt starts it
                self._take_back([row])
            case CrewError() as error:
                batch.trouble = error
                self._take_back([row])
            case error:
                event = f"The kickoff may have started an execution: {in_words(error)}."
                self._end_uncertain(row, errors.UncertainKickoff(event))

    def _error_of(self, sent: Future[str]) -> BaseException | None:
        """Return the error of a kickoff. The ID of another row does not name its execution."""
        if (error := sent.exception()) is None and sent.result() in self._batch.running:
            return errors.UncertainKickoff(f"The kickoff ID is that of another row: {sent.result()}.")
        return error

    def _end_uncertain(self, row: Row, error: errors.UncertainKickoff) -> None:
        batch = self._batch
        batch.carried.is_billed = True
        end_row(row, "uncertain", error, "kickoff")
        batch.output.measure("kickoff.uncertain")

    def _take_back(self, rows: Sequence[Row]) -> None:
        """Put rows back whose kickoff was not sent, or certainly started nothing."""
        for row in rows:
            row.sent_at, row.attempts = None, row.attempts - 1
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
