"""One attempt of a batch: start rows in groups, wait until some have ended, store their results, and go on."""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from hashlib import sha256
from typing import Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred
from airflow.sdk import ObjectStoragePath

from airflow_provider_crew.batch.collect import RowEnd, collect, collect_rest
from airflow_provider_crew.batch.files import MANIFEST
from airflow_provider_crew.batch.groups import save_groups
from airflow_provider_crew.batch.recall import recall
from airflow_provider_crew.batch.report import Report, manifest, spent, too_many_failed
from airflow_provider_crew.batch.rows import lines_of, rows_of
from airflow_provider_crew.batch.start import Starter
from airflow_provider_crew.batch.state import BatchOptions, Board, State
from airflow_provider_crew.batch.trigger import CrewBatchTrigger
from airflow_provider_crew.batch.watching import SHARE_IN_WORKER, BatchProgress, Watching
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError, recorded_error
from airflow_provider_crew.client.progress import ended
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.exceptions import CrewTaskError, CutShort, EndedByAirflow
from airflow_provider_crew.task.record import BATCH
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.task.verdict import Facts, verdict
from airflow_provider_crew.task.wait import BACKSTOP
from airflow_provider_crew.triggers.events import DEFERRAL, lacks_event, trigger_timed_out

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
        self.board = Board(task, options)
        self.board.is_blind = task.ti.try_number > 1 or bool(next_kwargs)
        self.report = Report(self.board)
        self.starter = Starter(self.board)
        self._next_kwargs = next_kwargs
        self._is_quick = False

    # The story of an attempt, in order.

    def run(self) -> dict[str, Any]:
        """Run the batch to its end, and return its manifest. May defer."""
        # The IDs are in the task state store and the result files. A line for each would flood the log.
        log = logging.getLogger(CrewClient.__module__)
        log.addFilter(_is_warning)
        try:
            with asyncio.Runner() as self._loop:
                return self._run()
        finally:
            log.removeFilter(_is_warning)

    def _run(self) -> dict[str, Any]:
        self._open()
        self.report.push(
            self.report.live()
        )  # before a kickoff: if the process is killed, this is all that is seen
        while True:
            self.starter.start()
            self._heed()
            if self._is_over():
                return self._finish()
            self._wait()

    def end(self, error: BaseException) -> BaseException:
        """Return the exception with which the task ends. Cancel the running rows first, if that is wanted."""
        board, is_marked = self.board, isinstance(error, EndedByAirflow)
        if isinstance(error, AirflowTaskTimeout):
            error = CutShort("execution_timeout passed before the batch had ended.")
        if isinstance(error, CutShort | EndedByAirflow):
            with suppress(Exception):  # what cannot be cancelled now keeps running
                collect_rest(board, error)
        if is_marked:
            usage = {"total_tokens": board.state.tokens}
            with suppress(Exception):  # the results are in other files
                board.files.write(MANIFEST, [manifest(board, "cancelled", board.statuses, usage)])
        has_retry = not is_marked and self.task.has_retry
        end = verdict(error, Facts(rows=self.report.counts(), has_retry=has_retry))
        known = ended(self.report.known(), end.failure, time.time())
        known["end"] = end.as_dict() | known["end"]
        self.report.push(known)
        if not board.is_blind:
            self.report.log_end()
        if end.action == "pass on":  # Airflow logs another exception as it is
            self.task.log.error("%s", end.failure)
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
        task, board, next_kwargs = self.task, self.board, self._next_kwargs
        task.check()
        board.rows = rows_of(self._inputs(), self.options.key, self.options.kickoff.get("restore_from_state_id"))
        hashed = sha256("\0".join(f"{row.key}\0{row.fingerprint}" for row in board.rows).encode())
        plan = [hashed.hexdigest(), task.ti.try_number]
        known, event = next_kwargs.get("batch") or {}, next_kwargs.get("event")
        is_same, state = known.get("plan") == plan, board.state
        if lacks_event(next_kwargs) and not is_same:
            counts = f"{len(board.rows):,}", self.options.max_active, self.options.result_path
            task.log.info("Batch: %s rows, up to %d at once. Results: %s", *counts)
        state.plan = plan
        state.deadline = known["deadline"] if is_same else task.deadline(time_to_end=math.inf, share=_SHARE_TO_END)
        if trigger_timed_out(next_kwargs):
            state.deadline = time.time()
        stored = board.store.get(BATCH)
        names = {"dag_id", "run_id", "task_id", "map_index", "iteration"}
        owner = {"schema_version": 1} | {name: value for name, value in task.origin().items() if name in names}
        board.files.claim(owner, has_begun=bool(stored))
        same_try = known.get("plan", plan)[1] == task.ti.try_number
        if is_same and event:
            board.restore(State(**known), event["known"])
        else:  # a new attempt, or a deferral that ended without an event
            recall(board, stored, is_resumed=same_try and not lacks_event(next_kwargs))
        board.is_blind = False
        if event and (is_same or not known):  # dag.test() drops what a deferral passes on
            self._take_event(event, {})
        elif "error" in next_kwargs or (event and same_try):
            collect(board, [(row, None) for row in board.running.values()], self.report.push_if_due)
            if event:  # with values that change with each process, no process would end the batch
                raise errors.InvalidInputs("The rows changed while the task was deferred, so no others started.")
            if not trigger_timed_out(next_kwargs):
                self._reject_failed_trigger()

    def _reject_failed_trigger(self) -> None:
        """Raise after an error of the trigger, which the next one would repeat. The rows are recorded."""
        if traceback := self._next_kwargs.get("traceback"):
            self.task.log.error("The trigger failed:\n%s", "".join(traceback))
        why = str(self._next_kwargs["error"]).rstrip(".")
        raise errors.LostContact(f"The triggerer no longer polls the batch: {why}. See the triggerer's log.")

    def _inputs(self) -> Iterable[Any]:
        given: Any = self.options.inputs
        if not isinstance(given, str):
            return given  # type: ignore[no-any-return]
        try:
            path: Any = ObjectStoragePath(given)
            with path.open("r") as file:
                return list(lines_of(file, given))
        except CrewError:
            raise
        except Exception as error:  # noqa: BLE001 - an object store may raise anything
            raise CrewTaskError(f"The inputs at {given} are unreadable: {in_words(error)}.") from None

    # Wait.

    def _is_over(self) -> bool:
        """Whether there is nothing left to wait for."""
        board = self.board
        return time.time() >= board.state.deadline or not (
            board.running or (board.pending and not board.is_stopped)
        )

    def _wait(self) -> None:
        """Wait until some rows have ended, or until the crew may respond again. May defer."""
        board, state = self.board, self.board.state
        self.report.push(self.report.live())
        if not board.running:
            self._pause()
        elif self.options.deferrable and not self._is_quick:
            self._defer()
        else:
            most = self.options.max_active
            watching = Watching(self.task.hook, self._watched(), self._rules(), most, share=SHARE_IN_WORKER)
            progress = BatchProgress(self.report.live(), self.task.log, state.logged_at)

            def saw(now: Watching) -> None:
                self.report.push_if_due(is_news=progress.saw(now), known=progress.as_dict)

            # A new watch forgets how long the crew has not responded, so only a task that may defer begins one.
            longest = timing.current().batch_wait if self.options.deferrable else math.inf
            self._loop.run(watching.to_wake(board.stop.is_told, saw, longest=longest))
            state.logged_at = progress.logged_at
            self._heed()
            self._take_event(watching.as_event(), watching.results)

    def _pause(self) -> None:
        """Sleep until the crew may respond to a kickoff again."""
        state = self.board.state
        while time.time() < min(state.not_before, state.deadline):
            self.report.push_if_due(is_news=False)
            time.sleep(timing.current().look)
            self._heed()

    def _take_event(self, event: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Collect what has ended during a watch. ``results``: executions that the watch has read."""
        board = self.board
        self._is_quick = event["is_quick"]
        for name, row in board.running.items():
            known = event["known"].get(name, (row.began_at, {}, None))
            row.began_at, row.troubles, row.first_poll_at = known
        ends: dict[str, RowEnd] = {name: end and recorded_error(end) for name, end in event["ends"].items()}
        ends |= results
        rows = [(board.running[name], end) for name, end in ends.items() if name in board.running]
        collect(board, rows, self.report.push_if_due)
        if event["error"]:  # the other rows are recorded, and the next attempt watches them
            raise recorded_error(event["error"])

    def _watched(self) -> list[list[Any]]:
        running = self.board.running.values()
        return [[row.kickoff_id, row.sent_at, row.began_at, row.troubles, row.first_poll_at] for row in running]

    def _rules(self) -> dict[str, Any]:
        board, options = self.board, self.options
        rules = {name: getattr(options, name) for name in ("poll_interval", "max_outage", "row_timeout")}
        address = self.task.hook.connection.settings.address
        board.state.address = board.state.address or address
        rules |= {"deadline": board.state.deadline, "address": address, "stops_at": board.state.address}
        is_backing_off = board.pending and board.room() > 0 and not board.is_stopped
        return rules | {"wake_at": board.state.not_before if is_backing_off else None}

    def _defer(self) -> NoReturn:
        board, options, now = self.board, self.options, time.time()
        if cancels := self.task.cancels_on("kill"):
            board.output.push(DEFERRAL, now, what="The time of the deferral, which cancel_on_kill needs,")
        self._heed()
        raise TaskDeferred(
            trigger=CrewBatchTrigger(
                self._watched(),
                options.crew_conn_id,
                window=options.max_active,
                rules=self._rules(),
                webhook_conn_id=options.webhook_conn_id,
                cancel_on_kill=cancels,
                deferred_at=now,
                shown={"progress": self.report.live(), "logged_at": board.state.logged_at},
            ),
            method_name="execute_complete",
            kwargs={"batch": asdict(board.carried())},
            timeout=timedelta(seconds=max(board.state.deadline - now, 0.0) + BACKSTOP),
        )

    def _heed(self) -> None:
        """Raise if Airflow is ending the task."""
        board = self.board
        if not board.stop.is_told():
            return
        event = f"Airflow is ending the task. Running rows: {len(board.running):,}."
        if board.running and board.stop.cancels():
            raise EndedByAirflow(event)
        raise CrewError(event)

    # The end.

    def _finish(self) -> dict[str, Any]:
        """Write the result files, and return the manifest. Raise if the batch has failed."""
        board, left = self.board, len(self.board.running)
        is_late = time.time() >= board.state.deadline and bool(board.running or board.pending)
        collect_rest(board, errors.WaitedTooLong("The timeout of the batch passed."))
        save_groups(board)  # Airflow refuses it to a process that it has replaced, which must not tidy up
        statuses, usage = board.files.compact(board.rows)
        failed = len(board.rows) - statuses["success"]
        reason = "partial" if failed else "succeeded"
        if board.has_too_many_failed(0):
            reason = "too_many_failed"
        elif board.pending and board.is_spent and not board.trouble:
            reason = "max_tokens"
        if is_late:
            reason = "expired"
        value = manifest(board, reason, statuses, usage)
        board.files.write(MANIFEST, [value])
        if is_late:
            event = f"The batch had not ended when its timeout passed. Running rows: {left:,}."
            raise errors.WaitedTooLong(event)
        if board.trouble:
            raise board.trouble
        if reason == "max_tokens":
            raise spent(board, self.report.known()["batch"])
        if reason == "too_many_failed" or board.pending:
            raise too_many_failed(self.report.known()["batch"], self.options)
        self.report.push(self.report.completed())
        self.report.log_end()
        return value
