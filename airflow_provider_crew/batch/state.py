"""Batch in the current process: its rows, its state, and the clients and threads that its parts share."""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from queue import SimpleQueue
from typing import Any, TypeVar

from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.batch.rows import Rerun, Row, Status, packed, unpacked
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.hooks.connection import load_secrets
from airflow_provider_crew.hooks.polling import SteadyClock, renewed
from airflow_provider_crew.task.output import Output
from airflow_provider_crew.task.record import Record, Store
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Options, Task

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 8
FIRST_WINDOW = 4
# Rows that have ended before a share of failed ones counts as too many.
_ENOUGH_TO_TELL = 50
# With max_tokens: executions that may run before one has reported its tokens, and that may start before that.
_UNMETERED_AT_ONCE = 4
_UNMETERED = 50


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Options):
    """Arguments of the batch operator. See there for their meaning."""

    result_path: str
    key: str | None = None
    max_active: int = 1
    max_failed: int | str | None = None
    pilot: int | None = None
    max_tokens: int | None = None
    row_timeout: float | None = None
    rerun: Rerun = "failed"
    check: Callable[[Mapping[str, Any], Any], bool] | None = None


@dataclass(kw_only=True)
class Carried:
    """
    Carried of a batch, besides its rows. It is carried whole over a deferral.

    :param plan: Hash of all rows, and the attempt.
    :param address: Address of the crew at which the running rows were started.
    :param window: Rows that the next group may have at most.
    :param not_before: Time before which no row is started, after the crew did not respond.
    :param outage_since: Time since when the crew does not respond to kickoffs.
    :param counted: Kickoffs that count against the daily limit and have started nothing.
    :param counted_on: Day on which they count.
    :param changed: Rows that earlier attempts knew with other inputs.
    :param removed: Rows of earlier attempts that are no longer among the inputs.
    :param gone: Removed rows that this attempt has found uncertain.
    :param is_billed: Whether an execution was started, also by an earlier attempt.
    :param earlier: Rows that have ended in earlier attempts.
    :param tokens: Tokens of all executions, also of removed rows and earlier attempts.
    :param metered: Executions whose tokens are known.
    :param removed_attempts: Kickoffs of removed rows.
    :param has_result: Whether an execution of an earlier attempt has completed.
    :param outlasting: Indices of rows that have ended before their execution, which may be running, by its ID.
    :param unanswered: Groups in which a kickoff has no ID. They stay in the store, so that a user can adopt one.
    :param reasons: Failed rows by reason.
    :param number: Number of the newest result file.
    :param memories: What the process has kept of each row, compressed. Only during a deferral, as the following.
    :param running: Kickoffs that are running.
    """

    plan: list[Any]
    deadline: float
    started_at: float
    logged_at: float
    address: str = ""
    window: int = FIRST_WINDOW
    not_before: float = 0.0
    outage_since: float | None = None
    counted: int = 0
    counted_on: str = ""
    changed: int = 0
    removed: int = 0
    gone: int = 0
    is_billed: bool = False
    earlier: int = 0
    tokens: int = 0
    metered: int = 0
    removed_attempts: int = 0
    has_result: bool = False
    outlasting: dict[str, int] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)
    reasons: list[dict[str, Any]] = field(default_factory=list)
    number: int = 0
    memories: str = ""
    running: list[list[Any]] = field(default_factory=list)


class BatchRun:
    """Rows of a batch, and what its parts share in this process."""

    def __init__(self, task: Task, options: BatchOptions) -> None:
        now = time.time()
        self.clock = SteadyClock()
        self.task = task
        self.options = options
        self.store = Store(task.context["task_state_store"])
        self.files = ResultFiles(options.result_path, task.ti.try_number)
        self.stop = Stop(task)
        self.output = Output(Record(task, is_shared=False))
        self.carried = Carried(plan=[], deadline=now, started_at=now, logged_at=now)
        self.carried.window = min(FIRST_WINDOW, options.max_active)
        self.rows: list[Row] = []
        self.pending: deque[Row] = deque()
        self.running: dict[str, Row] = {}
        self.trouble: CrewError | None = None
        """Error because of which no more rows are started."""
        self.is_superseded = False
        """Whether Airflow has refused a record, so that another process may have taken over."""
        self.is_blind = True
        """Whether the rows that earlier processes have started are not known yet."""
        self._threads = ThreadPoolExecutor(_THREADS)
        self._own = threading.local()
        self._renewing = threading.Lock()

    @property
    def statuses(self) -> Counter[Status]:
        """Number of rows by status."""
        return Counter(row.status for row in self.rows)

    @property
    def is_stopped(self) -> bool:
        """Whether no more rows are started in this attempt."""
        return bool(self.trouble) or self.is_late or self.has_too_many_failed(self.enough) or self.is_spent

    @property
    def is_late(self) -> bool:
        """Whether the deadline of the batch has passed."""
        return self.clock() >= self.carried.deadline

    @property
    def enough(self) -> int:
        """Number of rows that must have ended before a share of failed ones counts."""
        return min(self.options.pilot or _ENOUGH_TO_TELL, _ENOUGH_TO_TELL)

    @property
    def is_spent(self) -> bool:
        """Whether ``max_tokens`` lets no more rows start in this attempt."""
        return not self.running and self.affordable <= 0

    @property
    def affordable(self) -> float:
        """
        Number of rows that ``max_tokens`` lets start now. 0 or less: none may.

        It follows from facts that each process and attempt knows. An execution whose tokens are unknown, such as a
        running one, counts as an average one.
        """
        state, limit, counts = self.carried, self.options.max_tokens, self.statuses
        if limit is None:
            return math.inf
        if state.tokens:
            left = math.ceil((limit - state.tokens) * state.metered / state.tokens)
            return left - (self.executions - state.metered)
        if state.has_result or counts["success"] + counts["invalid_output"] > 0:  # the crew reports no tokens
            return 0
        running = len(self.running) + len(state.outlasting)
        return min(_UNMETERED_AT_ONCE - running, _UNMETERED - self.executions)

    @property
    def executions(self) -> int:
        """Number of executions that were or may have been started, by any attempt."""
        return self.carried.removed_attempts + sum(row.attempts for row in self.rows)

    def room(self) -> int:
        """Return the number of rows that may start now."""
        rows = [row for row in self.rows[: self.options.pilot or 0] if not row.has_ended] or self.rows
        waiting = sum(row.is_to_be_started for row in rows)  # the pilot's, until all of it have ended
        return int(min(self.options.max_active - len(self.running), self.affordable, waiting))

    def has_too_many_failed(self, enough: int) -> bool:
        """Whether more rows failed than ``max_failed``. A share counts from a number of rows on."""
        counts = self.statuses
        ends = len(self.rows) - counts["not_started"]
        return self.are_too_many(ends - counts["success"], ends, enough)

    def are_too_many(self, failed: int, ends: int, enough: int) -> bool:
        """Whether more of the rows that have ended failed than ``max_failed``."""
        most = self.options.max_failed
        if isinstance(most, str):
            return ends >= enough and failed > ends * float(most.rstrip("%")) / 100
        return most is not None and failed > most

    @property
    def client(self) -> CrewClient:
        """Client of this thread. A kickoff closes the kept connections of its client."""
        settings = self.task.hook.connection.settings
        if getattr(self._own, "settings", None) != settings:
            self._own.settings, self._own.client = settings, CrewClient(settings, self._secrets)
        client: CrewClient = self._own.client
        return client

    @cached_property
    def _secrets(self) -> tuple[str, ...]:
        return load_secrets(self.options.webhook_conn_id)

    @property
    def token(self) -> str:
        """Token that requests are sent with."""
        return self.task.hook.connection.settings.token

    def has_other_token(self, rejected: str) -> bool:
        """Whether the connection has another token than a rejected one."""
        with self._renewing:  # requests of several threads may be rejected together
            if self.token == rejected:
                self.renew(0.0)
            return self.token != rejected

    def renew(self, max_age: float | None = None) -> None:
        """Read the connection again, unless that was done recently."""
        max_age = timing.CONNECTION_AGE if max_age is None else max_age
        self.task.hook = renewed(self.task.hook, max_age)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[list[tuple[T, Future[R]]]]:
        """Do work on each item in threads. Yield the items that are done at a time, with their outcomes."""
        done: SimpleQueue[tuple[T, Future[R]]] = SimpleQueue()

        def note(item: T, outcome: Future[R]) -> None:
            done.put((item, outcome))

        for item in items:
            self._threads.submit(work, item).add_done_callback(partial(note, item))
        waiting = len(items)
        while waiting:
            some = [done.get(), *(done.get() for _ in range(done.qsize()))]
            waiting -= len(some)
            yield some

    def carry(self) -> Carried:
        """Return the state for the process that resumes."""
        state = self.carried
        lost = (row.lost_at if row.is_lost else None for row in self.rows)
        state.memories = packed(
            [row.attempts, at, *row.as_memory()] for row, at in zip(self.rows, lost, strict=True)
        )
        state.running = [row.sent() for row in self.running.values()]
        state.number, state.deadline = self.files.number, state.deadline + self.clock.jump
        return state

    def restore(self, state: Carried, known: Mapping[str, Any]) -> None:
        """Take over from the process that has deferred the task. ``known``: what the watch has seen."""
        self.carried, self.files.number = state, state.number
        by_id = {(row.key, row.fingerprint): row for row in self.rows}
        for row, (attempts, lost_at, *memory) in zip(self.rows, unpacked(state.memories), strict=True):
            row.attempts, row.lost_at = attempts, lost_at
            row.remember(*memory)
        for key, digest, kickoff_id, sent_at, attempts, *_, group in state.running:
            row = by_id.get((key, digest)) or Row(-1, key, digest)
            row.kickoff_id, row.sent_at, row.attempts, row.group = kickoff_id, sent_at, attempts, group
            row.began_at, row.troubles, row.first_poll_at = known.get(kickoff_id, (None, {}, None))
            self.running[kickoff_id] = row
        for kickoff_id, index in state.outlasting.items():
            if index >= 0:
                self.rows[index].kickoff_id = kickoff_id
        self.pending.extend(row for row in self.rows if row.is_to_be_started)
