"""
One attempt of a batch: start rows in groups, wait until some have ended, store their results, and go on.

Before a group is sent, its rows are recorded in Airflow's task state store and in the result files. Airflow
refuses that to a process that it has replaced, so two processes never start rows side by side.
"""

import asyncio
import logging
import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Literal, NoReturn

from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred
from airflow.sdk import ObjectStoragePath

from airflow_provider_crew import api_server, versions
from airflow_provider_crew.batch.files import (
    FAILED,
    MANIFEST,
    SENT,
    ResultFiles,
)
from airflow_provider_crew.batch.reasons import count_reason, most_common
from airflow_provider_crew.batch.rows import (
    STATUSES,
    Rerun,
    Row,
    Status,
    decision_of,
    failure,
    lines_of,
    merged,
    rows_of,
)
from airflow_provider_crew.batch.trigger import CrewBatchTrigger
from airflow_provider_crew.batch.watching import LONGEST_WAIT, SHARE_IN_WORKER, BatchProgress, Watching, line_of
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError, recorded_error
from airflow_provider_crew.client.models import Completed, Execution, Failed
from airflow_provider_crew.client.options import WAKING_UP, KickoffOptions, OnUncertainKickoff
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.progress import PROGRESS, begun, ended
from airflow_provider_crew.client.text import in_words, one_line, warn
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.exceptions import BatchFailed, CrewTaskError, CutShort, EndedByAirflow
from airflow_provider_crew.hooks.connection import TokenType, load_secret, load_secrets
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task.checks import count_kickoffs
from airflow_provider_crew.task.decide import Decision, PolledStatus
from airflow_provider_crew.task.record import BATCH
from airflow_provider_crew.task.result import adapter_of, fitted
from airflow_provider_crew.task.shielded import shielded
from airflow_provider_crew.task.verdict import Facts, RowCounts, verdict, while_rows_run
from airflow_provider_crew.triggers.events import DEFERRAL, lacks_event, trigger_timed_out

# A group is one entry of less than 64 KB.
_MOST_IN_GROUP = 50
_FIRST_WINDOW = 4
_THREADS = 8
_JITTER = 0.5
# Rows that have ended before a share of failed ones counts as too many.
_ENOUGH_TO_TELL = 50
_LONGEST_REASON = 200
# Seconds without new kickoffs after the crew did not respond to one.
_BACK_OFF = 15.0
_LONGEST_BACK_OFF = 300.0
_BACKSTOP = 60.0
_LOOK = 0.5
# Seconds between two updates of the Crew tab by a task that does not defer.
_PAUSE = 10.0
# Share of execution_timeout after which a batch ends by itself.
_OWN_SHARE = 0.95
_SIGNS: dict[Status, str] = dict(zip(STATUSES, "seicu.", strict=True))
_STATUSES = {sign: status for status, sign in _SIGNS.items()}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of the operator, after rendering. See there for their meaning."""

    crew_conn_id: str
    inputs: Any
    result_path: str
    key: str | None
    max_active: int
    max_failed: int | str | None
    row_timeout: float | None
    timeout: float
    rerun: Rerun
    check: Callable[[Mapping[str, Any], Any], bool] | None
    output_type: object
    on_uncertain_kickoff: OnUncertainKickoff
    deferrable: bool
    poll_interval: float | None
    max_outage: float | None
    validate_inputs: bool
    cancel_on_kill: bool | None
    cancel_on_timeout: bool | None
    token_type: TokenType | None
    webhook_conn_id: str | None
    execution_timeout: timedelta | None
    kickoff: KickoffOptions = field(default_factory=KickoffOptions)


def _is_warning(line: logging.LogRecord) -> bool:
    return line.levelno >= logging.WARNING


class Batch:
    """
    One attempt of a batch in the current process.

    :param next_kwargs: Values with which Airflow resumes the task after a deferral. Empty if it starts.
    """

    record = None
    kickoff_id = ""

    def __init__(
        self,
        options: Options,
        context: Any,
        log: Any,
        *,
        next_kwargs: Mapping[str, Any],
        is_told_to_end: Callable[[], bool],
    ) -> None:
        self.options, self.context, self.log = options, context, log
        self.ti: Any = context["ti"]
        self._next_kwargs = next_kwargs
        self._is_told_to_end = is_told_to_end
        self._store: Any = context["task_state_store"]
        self._files = ResultFiles(options.result_path, self.ti.try_number)
        self._began = time.monotonic()
        self._pool = ThreadPoolExecutor(_THREADS)
        self._own = threading.local()
        self._rows: list[Row] = []
        self._pending: deque[Row] = deque()
        self._running: dict[str, Row] = {}
        self._window = min(_FIRST_WINDOW, options.max_active)
        self._trouble: CrewError | None = None
        self._outage_since: float | None = None
        self._not_before = 0.0
        self._is_superseded = self._has_warned = self._is_quick = False
        self._is_blind = self.ti.try_number > 1 or bool(next_kwargs)
        self._changed = self._removed = self._tokens = self._earlier = 0
        self._left: set[str] = set()
        # Groups in which a kickoff has no ID. They stay in the store, so that a user can adopt its execution.
        self._unanswered: set[str] = set()
        self._reasons: list[dict[str, Any]] = []
        self._pushed_at = 0.0
        self.started_at = self.deadline = self._logged_at = time.time()

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
        self._push(self._live())  # before a kickoff: if the process is killed, this is all that a user sees
        while True:
            self._start_rows()
            if self._is_over():
                return self._finish()
            self._wait()

    def end(self, error: BaseException) -> BaseException:
        """Return the exception with which the task ends. Cancel the running rows first, if that is wanted."""
        if isinstance(error, AirflowTaskTimeout):
            error = CutShort("execution_timeout passed before the batch had ended.")
        if isinstance(error, CutShort | EndedByAirflow):
            with suppress(Exception):  # what cannot be cancelled now keeps running
                self._collect_rest(errors.WaitedTooLong(error.event))
        if isinstance(error, EndedByAirflow):
            statuses = Counter(row.status for row in self._rows)
            with suppress(Exception):  # the results are in other files
                self._files.write(
                    MANIFEST, [self._manifest("cancelled", statuses, {"total_tokens": self._tokens})]
                )
        has_retry = self.ti.try_number <= (self.ti.max_tries or 0)
        end = verdict(error, Facts(rows=self._count(), has_retry=has_retry))
        known = ended(self._progress(), end.failure, time.time())
        known["end"] = end.as_dict() | known["end"]
        self._push(known)
        return end.exception()

    def told_to_end(self) -> None:
        """Do nothing: the batch looks before it sends, and while it waits."""

    def succeeded(self, operator: Any) -> None:
        """Do nothing: an asset event needs no ten thousand kickoff IDs."""

    # What earlier processes have done.

    def _open(self) -> None:
        """Read the inputs, and what earlier processes have done."""
        if self.options.output_type is not None:
            adapter_of(self.options.output_type)
        self._rows = rows_of(self._inputs(), self.options.key, self.options.kickoff.get("restore_from_state_id"))
        plan = sha256("\0".join(f"{row.key}\0{row.fingerprint}" for row in self._rows).encode())
        self._plan = [plan.hexdigest(), self.ti.try_number]
        known, event = self._next_kwargs.get("batch") or {}, self._next_kwargs.get("event")
        is_same = known.get("plan") == self._plan
        self.deadline = known["deadline"] if is_same else self._deadline()
        if trigger_timed_out(self._next_kwargs):
            self.deadline = time.time()
        names = ("dag_id", "run_id", "task_id", "map_index")
        stored = self._store.get(BATCH)
        self._files.claim(
            {"schema_version": 1} | {name: getattr(self.ti, name) for name in names}, has_begun=bool(stored)
        )
        if not (is_same and event):  # a new attempt, or a deferral that ended without an event
            same_try = known.get("plan", self._plan)[1] == self.ti.try_number
            self._recall(stored, is_resumed=same_try and not lacks_event(self._next_kwargs))
        else:
            self._restore(known, event)
        self._is_blind = False
        if event and (is_same or not known):  # dag.test() drops what a deferral passes on
            self._take_event(event)

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

    def _deadline(self) -> float:
        deadline, limit = time.time() + self.options.timeout, self.options.execution_timeout
        return min(deadline, time.time() + limit.total_seconds() * _OWN_SHARE) if limit else deadline

    def _recall(self, stored: Any, *, is_resumed: bool) -> None:
        """
        Read the result files and the task state store, and decide about each row.

        :param is_resumed: Whether this attempt has run before, so that it starts no row again.
        """
        ti, options, files = self.ti, self.options, self._files
        files.number_on()
        groups: list[str] = stored["groups"] if stored else []
        sent = [line for name in files.names(SENT) for line in files.read(name)]
        stored_lines = [line for group in groups for line in self._store.get(f"{BATCH}_{group}") or ()]
        self._unanswered = {group for _, _, kickoff_id, *_, group in stored_lines if not kickoff_id}
        sent += stored_lines
        removed = merged(self._rows, files.lines(), sent)
        keys = {row.key for row in self._rows}
        self._changed = sum(row.key in keys for row in removed)
        self._removed = len(removed) - self._changed
        # Airflow 3.4 deletes the state of a task that is cleared. A batch without state is new, or was cleared.
        cleared = not stored or stored["max_tries"] != ti.max_tries
        decide_on = partial(
            decision_of,
            cleared=cleared,
            chooses_twice=options.on_uncertain_kickoff == "retry",
            rerun=options.rerun,
        )
        decisions = [
            (row, Decision.REATTACH if is_resumed and row.has_ended else decide_on(row))
            for row in (*self._rows, *removed)
        ]
        asked = [row for row, decision in decisions if decision is Decision.ASK]
        polled = zip(asked, self._pool.map(self._poll_earlier, asked), strict=True)
        running = [row for row, status in polled if is_resumed or not self._restarts(row, decide_on(row, status))]
        self._running = {row.kickoff_id: row for row in running}
        news = [row for row, decision in decisions if self._settle(row, decision)]
        self._store_ends([row for row in news if row.is_to_be_started])
        self._save_groups(*groups)  # only now: rows that start again are in the files
        # Only now: a later attempt must not take these reports for older than the clear.
        self._store_ends([row for row in news if not row.is_to_be_started])
        for row in self._rows:
            if row.line and row.line.get("error"):
                count_reason(self._reasons, row.key, row.status, row.line["error"]["message"])
            row.line = row.line and {"status": row.status}  # an output may be large
        self._earlier = sum(not (row.is_to_be_started or row.sent_at) for row in self._rows)
        if self._earlier:
            self.log.info("%d rows have ended in earlier attempts.", self._earlier)
        if self._running:
            self.log.info("Reattached to %d executions of earlier attempts.", len(self._running))

    def _settle(self, row: Row, decision: Decision) -> bool:
        """Put a row where it belongs. Return whether that is news for the result files."""
        line = row.line or {}
        match decision:
            case Decision.ASK if row.kickoff_id in self._running:
                row.sent_at, row.line = row.sent_at or line["started_at"], None
            case Decision.ASK if row.index < 0:  # it has failed
                return False
            case Decision.FAIL_UNCERTAIN if row.sent_at is not None:
                event = "An earlier attempt ended before the response to the kickoff."
                self._end_row(row, "uncertain", errors.UncertainKickoff(event), "kickoff")
                return True
            case Decision.REATTACH if row.status == "invalid_output":  # it was billed
                row.kickoff_id, row.sent_at = line["kickoff_id"], line["started_at"]
                self._fit(row, line["raw_output"], None, {name: line[name] for name in ("usage", "ended_at")})
                return True
            case _ if row.index < 0:
                pass
            case Decision.KICK_OFF:
                row.line = None
                self._pending.append(row)
            case Decision.ASK | Decision.KICK_OFF_AFTER_END | Decision.KICK_OFF_BY_CHOICE:
                row.kickoff_id, row.sent_at = "", None
                row.end("not_started")
                self._pending.append(row)
                return True
        return False

    def _poll_earlier(self, row: Row) -> PolledStatus:
        """Return the status of an execution that an earlier attempt has started."""
        try:
            execution = self._client.status(row.kickoff_id)
        except CrewError:
            return "unreadable"
        if isinstance(execution, Failed):
            return "stopped" if execution.was_stopped else "failed"
        return "completed" if isinstance(execution, Completed) else "running"

    def _restarts(self, row: Row, decision: Decision) -> bool:
        """Whether an execution of an earlier attempt has failed, so that its row is started again."""
        if decision is not Decision.KICK_OFF_AFTER_END:
            return False
        self.log.info("Execution %s of row %s has ended without a result.", row.kickoff_id, row.key)
        return True

    def _restore(self, known: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Take over from the process that has deferred the task."""
        by_id = {(row.key, row.fingerprint): row for row in self._rows}
        for row, sign in zip(self._rows, known["ends"], strict=True):
            row.line = {"status": _STATUSES[sign]}
            row.attempts = known["attempts"].get(str(row.index), 0)
        for key, digest, kickoff_id, sent_at, attempts, group in known["running"]:
            row = by_id.get((key, digest)) or Row(-1, key, digest)
            row.kickoff_id, row.sent_at, row.attempts, row.group = kickoff_id, sent_at, attempts, group
            row.began_at, row.troubles = event["known"].get(kickoff_id, (None, {}))
            self._running[kickoff_id] = row
        self._pending.extend(row for row in self._rows if row.is_to_be_started)
        self._changed, self._removed, self._window = known["changed"], known["removed"], known["window"]
        self._outage_since, self._not_before = known["outage_since"], known["not_before"]
        self._unanswered = set(known["unanswered"])
        self._reasons, self._tokens, self.started_at = known["reasons"], known["tokens"], known["started_at"]
        self._earlier, self._logged_at = known["earlier"], known["logged_at"]
        self._files.number = known["number"]

    def _carried(self) -> dict[str, Any]:
        """Return what the process after a deferral has to know."""
        return {
            "plan": self._plan,
            "deadline": self.deadline,
            "ends": "".join(_SIGNS[row.status] for row in self._rows),
            "attempts": {str(row.index): row.attempts for row in self._pending if row.attempts},
            "running": [row.sent() for row in self._running.values()],
            "changed": self._changed,
            "removed": self._removed,
            "window": self._window,
            "unanswered": sorted(self._unanswered),
            "outage_since": self._outage_since,
            "not_before": self._not_before,
            "reasons": self._reasons,
            "tokens": self._tokens,
            "earlier": self._earlier,
            "logged_at": self._logged_at,
            "started_at": self.started_at,
            "number": self._files.number,
        }

    # Start rows.

    def _start_rows(self) -> None:
        """Start groups of rows until max_active rows are running. Each group may be larger than the last."""
        most = self.options.max_active
        while (room := min(most - len(self._running), self._window, _MOST_IN_GROUP)) > 0 and self._may_start():
            rows = [self._pending.popleft() for _ in range(min(room, len(self._pending)))]
            shielded(partial(self._start_group, rows))
            self._push_if_due(self._live)
            if time.time() >= self._not_before:
                self._window = min(self._window * 2, most)
            time.sleep(random.random() * _JITTER)  # noqa: S311 - not a secret

    def _may_start(self) -> bool:
        self._heed()
        if not self._pending or self._is_stopped() or time.time() < self._not_before:
            return False
        try:
            _ = self._listed  # wakes up the crew
        except errors.TransientError as error:
            self._back_off(error)
        except CrewError as error:
            self._trouble = error
        return not self._trouble and time.time() >= self._not_before

    def _is_stopped(self) -> bool:
        """Whether no more rows are started in this attempt."""
        return bool(self._trouble) or time.time() >= self.deadline or self._has_too_many_failed(_ENOUGH_TO_TELL)

    def _has_too_many_failed(self, enough: int) -> bool:
        """Whether more rows failed than ``max_failed``. A share counts from a number of rows on."""
        counts, most = Counter(row.status for row in self._rows), self.options.max_failed
        ends = len(self._rows) - counts["not_started"]
        failed = ends - counts["success"]
        if isinstance(most, str):
            return ends >= enough and failed > ends * float(most.rstrip("%")) / 100
        return most is not None and failed > most

    def _start_group(self, rows: list[Row], interrupted: threading.Event) -> None:
        """Record the rows, send their kickoffs, and record the kickoff IDs."""
        requests = {row.index: request for row in rows if (request := self._request(row))}
        self._store_ends([row for row in rows if row.index not in requests])
        rows = self._counted([row for row in rows if row.index in requests])
        if not rows:
            return
        name = self._files.new_name(SENT)
        group = name.removeprefix(f"{SENT}/")
        for row in rows:
            row.sent_at, row.attempts, row.group = time.time(), row.attempts + 1, group
        try:
            self._save_group(group, rows)
            self._files.write(name, [row.sent() for row in rows])
            self._save_groups(group)  # last, because Airflow refuses it to a process that it has replaced
        except Exception as error:
            self._take_back(rows)
            self._save_if_possible(group, [])
            self._files.delete(name)
            if isinstance(error, CrewError):
                raise
            event = f"Airflow did not store the kickoff records, so nothing was sent: {in_words(error)}."
            raise CrewTaskError(event) from None
        sending = {self._pool.submit(self._send, requests[row.index], interrupted): row for row in rows}
        while sending:
            for sent in wait(sending, return_when=FIRST_COMPLETED).done:
                self._note(sending.pop(sent), sent)
            self._save_if_possible(group, rows)
        with self._files.best_effort(self.log):  # the task state store has them as well
            self._files.write(name, [row.sent() for row in rows if row.sent_at is not None])
        self._store_ends([row for row in rows if row.line and row.line["status"] != "not_started"])

    def _request(self, row: Row) -> KickoffRequest | None:
        """Return the kickoff of a row. None if the row ends because of its inputs."""
        options: Any = dict(self.options.kickoff)
        if options.get("meta") is None:
            names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
            options["meta"] = {"airflow": {name: getattr(self.ti, name) for name in names} | {"row": row.key}}
        try:
            doubts = compare_inputs(row.inputs, self._listed) if self._listed else []
            request = KickoffRequest.of(row.inputs, webhook_secret=self._webhook_secret, **options)
        except errors.InvalidInputs as error:
            self._end_row(row, "error", error, "inputs")
            return None
        if doubts and not self._has_warned:
            self._has_warned = True
            warn(self.log, f"Row {row.key}: {' '.join(doubts)}")
        return request

    @cached_property
    def _listed(self) -> Any:
        """Inputs that the crew lists, for comparison. None if it lists none. The request wakes up the crew."""
        try:
            listed = resend(self._client.inputs, wake_up_within=WAKING_UP)
        except (errors.NotAllowed, errors.Rejected):
            return None
        return listed if self.options.validate_inputs else None

    @cached_property
    def _webhook_secret(self) -> Any:
        return load_secret(self.options.webhook_conn_id) if self.options.webhook_conn_id else None

    def _counted(self, rows: list[Row]) -> list[Row]:
        """Count rows against the daily limit, and return those for which there is room."""
        if not rows:
            return rows
        origin = {name: getattr(self.ti, name) for name in ("dag_id", "run_id", "task_id")}
        try:
            room = count_kickoffs(self.hook, self.ti, origin, self.log, len(rows))
        except CrewError as error:
            self._trouble, room = error, 0
        self._pending.extendleft(reversed(rows[room:]))
        return rows[:room]

    def _send(self, request: KickoffRequest, interrupted: threading.Event) -> str:
        """Send a kickoff once, unless the task is being ended or another process has taken over."""
        client, limit = self._client, self.options.execution_timeout

        def once() -> str:
            is_late = limit and time.monotonic() - self._began >= limit.total_seconds()
            is_unwanted = is_late or self._is_superseded or time.time() < self._not_before
            if interrupted.is_set() or is_unwanted or self._is_told_to_end():
                raise CrewTaskError("The row was not started.")
            return client.kickoff(request)

        return resend(once, only_if_not_started=True, sleep=interrupted.wait)

    def _note(self, row: Row, sent: Future[str]) -> None:
        """Note the outcome of a kickoff."""
        match sent.exception():
            case None:
                row.kickoff_id, row.line = sent.result(), None
                self._running[row.kickoff_id] = row
                self._outage_since = None
            case errors.Rejected(blames_inputs=True) as error:
                self._end_row(row, "error", error, "kickoff")
                row.sent_at = None
            case errors.TransientError() as error:
                self._back_off(error)
                self._take_back([row])
            case errors.UncertainKickoff() as error:
                self._back_off(error)  # others would be uncertain as well
                row.kickoff_id = error.kickoff_id
                self._end_row(row, "uncertain", error, "kickoff")
            case CrewTaskError():  # the next attempt starts it
                self._take_back([row])
            case CrewError() as error:
                self._trouble = error
                self._take_back([row])
            case error:
                event = f"The kickoff may have started an execution: {in_words(error)}."
                self._end_row(row, "uncertain", errors.UncertainKickoff(event), "kickoff")

    def _take_back(self, rows: Sequence[Row]) -> None:
        """Put rows back whose kickoff was not sent, or certainly started nothing."""
        for row in rows:
            row.sent_at, row.attempts = None, row.attempts - 1
        self._pending.extendleft(reversed(rows))

    def _back_off(self, error: CrewError) -> None:
        """Start nothing for a while, and a single row after that. An outage fails no row."""
        now, limit = time.time(), self.options.max_outage
        self._window = 1
        self._outage_since = self._outage_since or now
        lasting = now - self._outage_since
        wanted = error.retry_after if isinstance(error, errors.TransientError) else None
        self._not_before = now + max(wanted or 0.0, _BACK_OFF, min(lasting, _LONGEST_BACK_OFF))
        if limit is not None and lasting > limit and not self._running:  # if rows are running, the crew is busy
            self._trouble = error

    # The kickoff records of groups.

    def _save_group(self, group: str, rows: Sequence[Row]) -> None:
        sent = [row.sent() for row in rows if row.sent_at is not None]
        self._store.set(f"{BATCH}_{group}", sent, **versions.never_expires())
        (self._unanswered.discard if all(line[2] for line in sent) else self._unanswered.add)(group)

    def _save_groups(self, *new: str) -> None:
        groups = {row.group for row in self._running.values() if row.group}
        known = {"groups": sorted(groups.union(new, self._unanswered)), "max_tries": self.ti.max_tries}
        self._store.set(BATCH, known, **versions.never_expires())

    def _save_if_possible(self, group: str, rows: Sequence[Row]) -> None:
        """Record kickoff IDs. If Airflow refuses, another process may have taken over, so nothing more is sent."""
        try:
            self._save_group(group, rows)
        except Exception as error:  # noqa: BLE001 - the executions are running
            event = f"Airflow did not store kickoff IDs, but the result files have them: {in_words(error)}."
            warn(self.log, event)
            self._is_superseded, self._trouble = True, self._trouble or CrewTaskError(event)

    # Collect results.

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Collect what has ended while the rows were being watched."""
        self._is_quick = event["is_quick"]
        for name, row in self._running.items():
            row.began_at, row.troubles = event["known"].get(name, (row.began_at, {}))
        over = {name: recorded_error(record) for name, record in event["over"].items()}
        names = [name for name in (*event["ended"], *over) if name in self._running]
        self._collect([(self._running[name], over.get(name)) for name in names])
        if event["error"]:  # the other rows are recorded, and the next attempt watches them
            raise recorded_error(event["error"])

    def _collect_rest(self, why: errors.WaitedTooLong) -> None:
        """End all running rows, whose executions may keep running. A later attempt watches those again."""
        self._collect([(row, why) for row in self._running.values() if row.status == "not_started"])

    def _collect(self, rows: Sequence[tuple[Row, CrewError | None]]) -> None:
        """Read results, and store them: they may be gone tomorrow."""
        for start in range(0, len(rows), _MOST_IN_GROUP):
            some = rows[start : start + _MOST_IN_GROUP]
            list(self._pool.map(lambda item: self._read_end(*item), some))
            done = [row for row, _ in some if row.line]
            self._trace(done)
            self._store_ends(done)
            for row in done:
                del self._running[row.kickoff_id]
            self._push_if_due(self._live)
        left = {row.group for row in self._running.values()}
        for group in {row.group for row, _ in rows} - left - {""}:
            self._files.delete(f"{SENT}/{group}")
            if group not in self._unanswered:
                with suppress(Exception):  # a later attempt finds that its rows have ended
                    self._store.delete(f"{BATCH}_{group}")

    def _trace(self, rows: Sequence[Row]) -> None:
        """Record the spans of executions that have ended, if Airflow traces its tasks."""
        if versions.is_traced():
            from airflow_provider_crew.tracing import record_rows

            with suppress(Exception):  # traces are best effort
                record_rows(self, rows)

    def _read_end(self, row: Row, over: CrewError | None) -> None:
        """End a row as the crew reports it. It goes on if it has not ended, or if that is unreadable now."""
        row.line = None
        event: Literal["kill", "timeout"] = "kill" if self._is_told_to_end() else "timeout"
        cancels = isinstance(over, errors.WaitedTooLong) and self._cancels_on(event)
        try:
            if over is None or cancels:
                execution = (self._client.cancel if cancels else self._client.status)(row.kickoff_id)
                self._end_as_polled(row, execution, over)
                return
        except (errors.NotAuthenticated, errors.NotAllowed, errors.Rejected) as error:
            self._trouble = error
            if over is None:
                return
        except errors.ResponseTooLarge as error:
            over = error
        except CrewError as error:
            if over is None:
                return
            over = over.replace(f"{over.event} {error.event}")
        if over is not None:
            self._end_row(row, "error", over, "wait")
            self._left.add(row.kickoff_id)

    def _end_as_polled(self, row: Row, execution: Execution, over: CrewError | None) -> None:
        match execution:
            case Completed():
                result = execution.result()
                self._fit(row, result["output"], result["output_json"], {"usage": result["usage"]})
            case Failed():
                error = execution_failed(execution, "")
                if over and execution.was_stopped:
                    error = errors.ExecutionCancelled(over.event, kickoff_id=row.kickoff_id)
                status: Status = "cancelled" if execution.was_stopped else "error"
                self._end_row(row, status, error, "execution", usage=execution.usage)

    def _fit(self, row: Row, output: str, data: Any, about: Mapping[str, Any]) -> None:
        """End a completed row, whose output matches or not."""
        event = ""
        try:
            if self.options.output_type is not None:
                data = fitted(self.options.output_type, row.kickoff_id, output, data)
            data = output if data is None else data
            if self.options.check and not self.options.check(row.inputs or {}, data):
                event = "check has rejected the output."
        except errors.InvalidOutput as error:
            event = error.event
        except Exception as error:  # noqa: BLE001 - raised by a function of the author
            event = f"check raised {in_words(error)}."
        if event:
            self._end_row(row, "invalid_output", errors.InvalidOutput(event), "output", raw_output=output, **about)
        else:
            row.end("success", output=data, raw_output=output, **about)

    @staticmethod
    def _end_row(row: Row, status: Status, error: CrewError, stage: str, **fields: Any) -> None:
        row.end(status, error=failure(error, stage), **fields)

    def _store_ends(self, rows: Sequence[Row]) -> None:
        """Write the lines of rows that have ended, and log those that failed."""
        self._files.append(row.line for row in rows)
        for row in rows:
            line: dict[str, Any] = row.line or {}
            self._tokens += (line["usage"] or {}).get("total_tokens") or 0
            if line["error"]:
                message = line["error"]["message"]
                count_reason(self._reasons, row.key, row.status, message)
                self.log.warning("Row %s, %s: %s", row.key, row.status, one_line(message, _LONGEST_REASON))
            row.line = {"status": line["status"]}  # an output may be large
            row.sent_at = None

    # Wait.

    def _is_over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return time.time() >= self.deadline or not (self._running or (self._pending and not self._is_stopped()))

    def _wait(self) -> None:
        """Wait until some rows have ended, or until the crew may respond again. May defer."""
        self._push(self._live())
        if not self._running:
            while time.time() < min(self._not_before, self.deadline):
                self._heed()
                self._push_if_due(self._live)
                time.sleep(_LOOK)
        elif self.options.deferrable and not self._is_quick:
            self._defer()
        else:
            most = self.options.max_active
            watching = Watching(self.hook, self._watched(), self._rules(), most, share=SHARE_IN_WORKER)
            report = BatchProgress(self._live(), self.log, self._logged_at)

            def saw(now: Watching) -> None:
                report.saw(now)
                self._push_if_due(report.as_dict)

            # A new watch forgets how long the crew has not responded, so only a task that may defer begins one.
            longest = LONGEST_WAIT if self.options.deferrable else math.inf
            self._loop.run(watching.to_wake(self._is_told_to_end, saw, longest=longest))
            self._logged_at = report.logged_at
            self._heed()
            self._take_event(watching.as_event())

    def _watched(self) -> list[list[Any]]:
        running = self._running.values()
        return [[row.kickoff_id, row.sent_at, row.began_at, row.troubles] for row in running]

    def _rules(self) -> dict[str, Any]:
        names = ("poll_interval", "max_outage", "row_timeout")
        rules = {name: getattr(self.options, name) for name in names}
        rules |= {"deadline": self.deadline, "address": self.hook.connection.settings.address}
        is_backing_off = self._pending and len(self._running) < self.options.max_active and not self._is_stopped()
        return rules | {"wake_at": self._not_before if is_backing_off else None}

    def _defer(self) -> NoReturn:
        options, now, cancels = self.options, time.time(), self._cancels_on("kill")
        if cancels:
            self.ti.xcom_push(key=DEFERRAL, value=now)
        self._heed()
        raise TaskDeferred(
            trigger=CrewBatchTrigger(
                self._watched(),
                options.crew_conn_id,
                window=options.max_active,
                rules=self._rules(),
                token_type=options.token_type,
                webhook_conn_id=options.webhook_conn_id,
                cancel_on_kill=cancels,
                deferred_at=now,
                shown={"progress": self._live(), "logged_at": self._logged_at},
            ),
            method_name="execute_complete",
            kwargs={"batch": self._carried()},
            timeout=timedelta(seconds=max(self.deadline - now, 0.0) + _BACKSTOP),
        )

    def _heed(self) -> None:
        """Raise if Airflow is ending the task."""
        if not self._is_told_to_end():
            return
        event = f"Airflow is ending the task. {len(self._running)} rows are running."
        if self._running and self._cancels_on("kill") and api_server.has_ended(self.ti):
            raise EndedByAirflow(event)
        raise CrewError(event)

    def _cancels_on(self, event: Literal["kill", "timeout"]) -> bool:
        name = f"cancel_on_{event}"
        own = getattr(self.options, name)
        return bool(getattr(self.hook.connection, name) if own is None else own)

    # The end.

    def _finish(self) -> dict[str, Any]:
        """Write the result files, and return the manifest. Raise if the batch has failed."""
        left = len(self._running)
        is_late = time.time() >= self.deadline and bool(self._running or self._pending)
        self._collect_rest(errors.WaitedTooLong("The timeout of the batch passed."))
        self._save_groups()  # Airflow refuses it to a process that it has replaced, which must not tidy up
        statuses, usage = self._files.compact(self._rows)
        failed = len(self._rows) - statuses["success"]
        reason = "partial" if failed else "succeeded"
        if self._has_too_many_failed(0):
            reason = "too_many_failed"
        if is_late:
            reason = "expired"
        manifest = self._manifest(reason, statuses, usage)
        self._files.write(MANIFEST, [manifest])
        if is_late:
            event = f"The batch had not ended when its timeout passed: {left:,} rows were running."
            raise errors.WaitedTooLong(event)
        if self._trouble:
            raise self._trouble
        if reason == "too_many_failed" or self._pending:
            groups = most_common(self._reasons)[:3]
            reasons = tuple(f"{group['reason'].rstrip('. ')} ({group['count']:,})" for group in groups)
            event = (
                f"{failed:,} of {len(self._rows):,} rows failed or were not started (max_failed: "
                f"{self.options.max_failed}): {', '.join(reasons)}. Details: {self.options.result_path}/{FAILED}"
            )
            raise BatchFailed(event, reasons=reasons)
        self._push(self._live() | {"state": "completed"})
        return manifest

    def _manifest(self, reason: str, statuses: Mapping[Any, int], usage: Mapping[str, float]) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "result_path": self.options.result_path,
            "request_count": len(self._rows),
            "counts": {status: statuses[status] for status in STATUSES},
            "terminal_reason": reason,
            "usage": usage,
            "changed": self._changed,
            "removed": self._removed,
        }

    # Access to Airflow and to the crew.

    @cached_property
    def hook(self) -> CrewHook:
        """Hook for the connection."""
        options = self.options
        hook = CrewHook(
            options.crew_conn_id, token_type=options.token_type, webhook_conn_id=options.webhook_conn_id
        )
        _ = hook.connection, self._secrets  # before other threads need them
        return hook

    @property
    def _client(self) -> CrewClient:
        """Client of this thread. A kickoff closes the kept connections of its client."""
        if not hasattr(self._own, "client"):
            self._own.client = CrewClient(self.hook.connection.settings, self._secrets)
        client: CrewClient = self._own.client
        return client

    @cached_property
    def _secrets(self) -> tuple[str, ...]:
        return load_secrets(self.options.webhook_conn_id)

    def _progress(self) -> dict[str, Any]:
        """Return what the Crew tab and alerts show."""
        statuses, total, now = Counter(row.status for row in self._rows), len(self._rows), time.time()
        ends, uncertain = total - statuses["not_started"], statuses["uncertain"]
        batch = {"total": total, "ended": ends, "unread": 0, "running": len(self._running) + len(self._left)}
        batch |= {"failed": ends - statuses["success"] - uncertain, "uncertain": uncertain}
        batch |= {"waiting": len(self._pending), "earlier": self._earlier}
        about = {
            "tokens": self._tokens,
            "reasons": most_common(self._reasons),
            "result_path": self.options.result_path,
        }
        told = {"batch": batch | about, "doing": line_of(batch), "since": now, "polled_at": now}
        return begun("", self.started_at) | told | {"deadline": self.deadline}

    def _live(self) -> dict[str, Any]:
        """Return the progress of a batch that has not ended."""
        cancels = bool(self._running) and self._cancels_on("kill")
        return self._progress() | while_rows_run(self._count(), cancels=cancels)

    def _count(self) -> RowCounts:
        running = self._running.keys() | self._left
        return RowCounts(
            Counter(row.status for row in self._rows if row.kickoff_id not in running),
            len(running),
            started=sum(row.attempts > 0 for row in self._rows),
            is_blind=self._is_blind,
            runs_all=self.options.rerun == "all",
            may_start_twice=self.options.on_uncertain_kickoff == "retry",
        )

    def _push_if_due(self, progress: Callable[[], Mapping[str, Any]]) -> None:
        if time.monotonic() - self._pushed_at >= _PAUSE:
            self._push(progress())

    def _push(self, progress: Mapping[str, Any]) -> None:
        self._pushed_at = time.monotonic()
        try:
            self.ti.xcom_push(key=PROGRESS, value=progress)
        except Exception as error:  # noqa: BLE001 - it is only shown
            warn(self.log, f"Progress was not pushed to XCom, but the batch continues: {error}")
