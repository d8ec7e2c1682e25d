"""One attempt of a batch: start rows in groups, wait until some have ended, store their results, and go on."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew.batch.collect import RowEnd, collect, collect_rest
from airflow_provider_crew.batch.fold import Rows
from airflow_provider_crew.batch.inputs import rows_of
from airflow_provider_crew.batch.recall import recall, reject_move
from airflow_provider_crew.batch.report import Display, manifest
from airflow_provider_crew.batch.results import write_results
from airflow_provider_crew.batch.start import Starter
from airflow_provider_crew.batch.state import BatchOptions, BatchRun, Carried
from airflow_provider_crew.batch.store import read_entry, save_open
from airflow_provider_crew.batch.trigger import CrewBatchTrigger
from airflow_provider_crew.batch.watching import BatchProgress, RowRules, Watching, count_of_rows, loop_in_thread
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import recorded_error
from airflow_provider_crew.exceptions import CutShort, EndedByAirflow
from airflow_provider_crew.task.stop import UNWATCHED
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.verdict import Facts, verdict
from airflow_provider_crew.task.wait import deferred, mark_cancels, note_end_of_deferral, polling, trigger_failed
from airflow_provider_crew.triggers.events import lacks_event, trigger_timed_out

# Share of execution_timeout before its end at which a batch ends by itself, since it may have many rows to end.
_SHARE_TO_END = 0.05


def _is_warning(line: logging.LogRecord) -> bool:
    return line.levelno >= logging.WARNING


class Batch:
    """
    One attempt of a batch in the current process.

    :param next_kwargs: Values with which Airflow resumes the task after a deferral. Empty if it starts.
    """

    kickoff_id = ""

    def __init__(self, task: Task, options: BatchOptions, *, next_kwargs: Mapping[str, Any]) -> None:
        self.task = task
        self.options = options
        self.batch = BatchRun(task, options)
        self.batch.is_blind = task.ti.try_number > 1 or bool(next_kwargs)
        self.display = Display(self.batch)
        self.starter = Starter(self.batch)
        self._next_kwargs = next_kwargs
        self._is_quick = False

    # The story of an attempt, in order.

    def run(self) -> dict[str, Any]:
        """Run the batch to its end, and return its manifest. May defer."""
        # The IDs are in the task state store and the result files. A line for each would flood the log.
        log = logging.getLogger(CrewClient.__module__)
        log.addFilter(_is_warning)
        try:
            with loop_in_thread() as self._loop:
                return self._run()
        finally:
            log.removeFilter(_is_warning)

    def _run(self) -> dict[str, Any]:
        note_end_of_deferral(self.batch.output, self._next_kwargs)
        self._open()
        # Before a kickoff: if the process is killed, this is all that is seen.
        self.display.push(self.display.live())
        while True:
            self.starter.start()
            self._heed()
            if self._is_over():
                return self._finish()
            self._wait()

    def end(self, error: BaseException) -> BaseException:
        """Return the exception with which the task ends. Cancel the running rows first, if that is wanted."""
        batch, is_marked = self.batch, isinstance(error, EndedByAirflow)
        if isinstance(error, AirflowTaskTimeout):
            error = CutShort("execution_timeout passed before the batch had ended.")
        # execution_timeout, which Airflow would retry, may pass in each of these steps.
        if isinstance(error, CutShort | EndedByAirflow):
            with suppress(BaseException):  # what cannot be cancelled now keeps running
                collect_rest(batch, error)
        if is_marked:
            with suppress(BaseException):  # the results are facts
                self._write("cancelled")
        has_retry = not is_marked and self.task.retries_left > 0
        ti, conn_id = self.task.ti, self.options.crew_conn_id
        where = ti.dag_id, ti.run_id, ti.task_id, ti.map_index
        facts = Facts(rows=self.display.counts(), has_retry=has_retry, where=where, conn_id=conn_id)
        end = verdict(error, facts)
        with suppress(BaseException):
            batch.output.progress.last = self.display.fields()
            batch.output.show_end("", end)
            if not batch.is_blind:
                self.display.log_end()
        return end.exception()

    def told_to_end(self) -> None:
        """Do nothing: the batch looks before it sends, and while it waits."""

    def returned(self, value: Any, operator: Any) -> Any:  # noqa: ARG002 - as an Attempt
        """Return the value. The batch has shown its end."""
        return value

    def succeeded(self, operator: Any) -> None:
        """Do nothing: an asset event needs no ten thousand kickoff IDs."""

    # What earlier processes have done.

    def _open(self) -> None:
        """Read the inputs, and what earlier processes have done."""
        task, batch, next_kwargs = self.task, self.batch, self._next_kwargs
        task.check()
        state_id: Any = self.options.kickoff.get("restore_from_state_id")
        rows = rows_of(self.options.inputs, self.options.key, state_id)
        batch.rows = Rows(rows)
        hashed = sha256("\0".join(f"{row.key}\0{row.fingerprint}" for row in rows).encode())
        plan = [hashed.hexdigest(), task.ti.try_number]
        known, event = next_kwargs.get("batch") or {}, next_kwargs.get("event")
        is_same, state = known.get("plan") == plan, batch.carried
        if lacks_event(next_kwargs) and not is_same:
            counts = count_of_rows(len(rows)), self.options.max_active, self.options.result_path
            task.log.info("Batch: %s, up to %d at once. Results: %s", *counts)
        state.plan = plan
        state.deadline = known["deadline"] if is_same else task.deadline(time_to_end=math.inf, share=_SHARE_TO_END)
        if trigger_timed_out(next_kwargs):
            state.deadline = time.time()
        stored = read_entry(batch)
        names = {"dag_id", "run_id", "task_id", "map_index", "iteration"}
        owner = {"schema_version": 1} | {name: value for name, value in task.origin().items() if name in names}
        batch.files.claim(owner, has_begun=bool(stored))
        same_try = known.get("plan", plan)[1] == task.ti.try_number
        if is_same and event:
            batch.restore(Carried(**known), event["known"])
        else:  # a new attempt, or a deferral that ended without an event
            batch.output.push_link()
            recall(batch, stored, is_resumed=same_try and not lacks_event(next_kwargs))
        batch.is_blind = False
        reject_move(batch)
        if event and (is_same or not known):  # dag.test() drops what a deferral passes on
            self._take_event(event, {})
        elif "error" in next_kwargs or (event and same_try):
            collect(batch, [(row, None) for row in batch.running.values()], self.display.push_if_due)
            if event:  # with values that change with each process, no process would end the batch
                raise errors.InvalidInputs("The rows changed while the task was deferred, so no others started.")
            if not trigger_timed_out(next_kwargs):
                raise trigger_failed(task, next_kwargs, "the batch")

    # Wait.

    def _is_over(self) -> bool:
        """Whether there is nothing left to wait for."""
        batch = self.batch
        return batch.is_late or not (batch.running or (batch.pending and not batch.is_stopped))

    def _wait(self) -> None:
        """Wait until some rows have ended, or until the crew may respond again. May defer."""
        if self.batch.running and (self._is_quick or not self.options.deferrable):
            self._watch()
            return
        self.display.push(self.display.live())
        if self.batch.running:
            self._defer()
        self._pause()

    def _watch(self) -> None:
        """Wait in this process. The watch goes on while other rows start."""
        batch, watching = self.batch, self._watching
        following = watching.follow(self._watched(), self._rules())
        asyncio.run_coroutine_threadsafe(following, self._loop).result()
        while not (batch.stop.is_told() or batch.is_late or watching.is_due()):
            self._show(watching)
            time.sleep(timing.BATCH_LOOK)
        self._heed()
        self._take_event(*watching.taken())

    def _show(self, watching: Watching) -> None:
        """Log and push the progress if that is due, because counting many rows takes long."""
        state, pace = self.batch.carried, self.batch.output.progress.pace
        if pace.is_due(watching.news > 0) or time.time() - state.logged_at >= timing.BATCH_WAIT:
            progress = BatchProgress(self.display.live(), self.task.log, state.logged_at)
            progress.saw(watching)
            state.logged_at = progress.logged_at
            self.display.push(progress.as_dict())

    @cached_property
    def _watching(self) -> Watching:
        return Watching(self.task.hook, self.options.max_active)

    def _pause(self) -> None:
        """Sleep until the crew may respond to a kickoff again."""
        state = self.batch.carried
        while time.time() < state.not_before and not self.batch.is_late:
            self.display.push_if_due(is_news=False)
            time.sleep(timing.LOOK)
            self._heed()

    def _take_event(self, event: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Collect what has ended during a watch. ``results``: executions that the watch has read."""
        batch = self.batch
        self._is_quick = event["is_quick"]
        for name, row in batch.running.items():
            known = event["known"].get(name, (row.began_at, {}, None))
            row.began_at, row.troubles, row.first_poll_at = known
        if not event["is_away"]:  # any usable status ends an outage
            batch.carried.outage_since = None
        ends: dict[str, RowEnd] = {name: end and recorded_error(end) for name, end in event["ends"].items()}
        ends |= results
        rows = [(batch.running[name], end) for name, end in ends.items() if name in batch.running]
        collect(batch, rows, self.display.push_if_due)
        batch.carried.is_away = event["is_away"] and bool(batch.running)

    def _watched(self) -> list[list[Any]]:
        rows = [(name, row, row.kickoff) for name, row in self.batch.running.items()]
        return [
            [name, sent.kickoff_id, sent.address, sent.sent_at, row.began_at, row.troubles, row.first_poll_at]
            for name, row, sent in rows
        ]

    def _rules(self) -> RowRules:
        batch, state = self.batch, self.batch.carried
        is_backing_off = batch.pending and batch.room() > 0 and not batch.is_stopped
        return RowRules(
            **polling(self.options),
            deadline=state.deadline + batch.clock.jump,  # a watch has a clock of its own
            exists=True,
            row_timeout=self.options.row_timeout,
            wake_at=state.not_before if is_backing_off and not state.is_away else None,
            was_away=bool(is_backing_off and state.is_away),
        )

    def _defer(self) -> NoReturn:
        batch, rules = self.batch, self._rules()
        deferral = deferred(
            batch.output,
            partial(CrewBatchTrigger, self._watched(), window=self.options.max_active),
            {"batch": asdict(batch.carry())},
            cancels=mark_cancels(self.task),
            deadline=rules.deadline,
            rules=asdict(rules),
            shown={"progress": self.display.live(), "logged_at": batch.carried.logged_at},
        )
        self._heed()
        raise deferral

    def _heed(self) -> None:
        """Raise if Airflow is ending the task."""
        if self.batch.stop.is_told():
            self.batch.stop.heed(Facts(rows=self.display.counts()))

    # The end.

    def _finish(self) -> dict[str, Any]:
        """Write the result files, and return the manifest. Raise if the batch has failed."""
        batch, running = self.batch, len(self.batch.running)
        is_late = batch.is_late and bool(batch.running or batch.pending)
        save_open(batch)  # Airflow refuses it to a process that it has replaced, which must not go on
        limit = UNWATCHED if trigger_timed_out(self._next_kwargs) else self.task.limit
        collect_rest(batch, errors.WaitedTooLong(f"The {self.task.limit} of the batch passed.", limit=limit))
        save_open(batch)
        reason, failure = self.display.why_stopped()
        value = self._write("expired" if is_late else reason)
        if is_late:
            event = f"The batch had not ended when its {self.task.limit} passed. Running rows: {running:,}."
            raise errors.WaitedTooLong(event)
        if batch.trouble or failure:
            raise batch.trouble or failure  # type: ignore[misc]  # not None
        self.display.push(self.display.completed())
        self.display.log_end()
        return value

    def _write(self, reason: str) -> dict[str, Any]:
        """Write the result files, and return the manifest."""
        batch = self.batch
        statuses, usage = write_results(batch)
        value = manifest(batch, reason, statuses, usage)
        batch.files.write(batch.files.name_of("manifest"), [value])
        self.display.has_files = True
        return value
