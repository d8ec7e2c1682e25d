"""Batch in the current process: what is known of its rows, its state, and what its parts share."""

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from airflow_provider_crew.batch.facts import Fact
from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.batch.fold import Row, Rows, Why
from airflow_provider_crew.batch.inputs import LONGEST_KEY
from airflow_provider_crew.batch.reasons import count_reason
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError, error_record, recorded_error
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.hooks.connection import load_secrets
from airflow_provider_crew.hooks.polling import SteadyClock, renewed
from airflow_provider_crew.task.output import Output
from airflow_provider_crew.task.record import Record, Store
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Options, Task

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 16
_AT_A_TIME = 32
FIRST_WINDOW = 4
# Rows that have ended before a share of failed ones counts as too many.
_ENOUGH_TO_TELL = 50
# With max_tokens: executions that may run before one has reported its tokens, and that may start before that.
_UNMETERED_AT_ONCE = 4
_UNMETERED = 50
_LONGEST_REASON = 200


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
    rerun: Literal["failed", "all"] = "failed"
    check: Callable[[Mapping[str, Any], Any], bool] | None = None


@dataclass(kw_only=True)
class Carried:
    """
    State of a batch besides its rows, for the process that resumes after a deferral.

    :param plan: Hash of all rows, and the attempt.
    :param slots: Slots of the task state store that have been used.
    :param window: Rows that the next group may have at most.
    :param not_before: Time before which no row is started, after the crew did not respond.
    :param is_away: Whether the crew has returned no usable status for any row.
    :param outage_since: Time since when the crew does not respond to kickoffs.
    :param unread: Time since when workers cannot read how the execution of a row has ended, by the row's name.
    :param trouble: Error because of which no more rows are started.
    :param counted: Kickoffs that count against the daily limit and have started nothing.
    :param counted_on: Day on which they count.
    :param gone: Uncertain rows that this attempt has reported, and that are no longer among the inputs.
    :param earlier: Rows that have ended in earlier attempts.
    :param reasons: Failed rows by reason.
    :param rows: Rows. Only during a deferral.
    """

    plan: list[Any]
    deadline: float
    started_at: float
    logged_at: float
    slots: int = 0
    window: int = FIRST_WINDOW
    not_before: float = 0.0
    is_away: bool = False
    outage_since: float | None = None
    unread: dict[str, float] = field(default_factory=dict)
    trouble: dict[str, Any] | None = None
    counted: int = 0
    counted_on: str = ""
    gone: int = 0
    earlier: int = 0
    reasons: list[dict[str, Any]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)


class BatchRun:
    """Rows of a batch, and what its parts share in this process."""

    def __init__(self, task: Task, options: BatchOptions) -> None:
        now = time.time()
        self.clock = SteadyClock()
        self.task = task
        self.options = options
        self.store = Store(task.context["task_state_store"])
        self.files = ResultFiles(options.result_path, task.ti.try_number, str(task.ti.id))
        self.stop = Stop(task)
        self.output = Output(Record(task, is_shared=False))
        self.carried = Carried(plan=[], deadline=now, started_at=now, logged_at=now)
        self.carried.window = min(FIRST_WINDOW, options.max_active)
        self.rows = Rows([])
        self.pending: deque[Row] = deque()
        self.running: dict[str, Row] = {}
        """Rows that are watched, by name."""
        self.trouble: CrewError | None = None
        """Error because of which no more rows are started."""
        self.max_tries_before = -1
        """``max_tries`` of the attempt that has last decided about the rows. -1: there is none."""
        self.is_blind = True
        """Whether the rows that earlier processes have started are not known yet."""
        self._threads = ThreadPoolExecutor(_THREADS)
        self._own = threading.local()
        self._renewing = threading.Lock()

    # What is known.

    def record(self, facts: Iterable[Fact]) -> None:
        """Write facts to the files, and then add them to what is known."""
        self.files.append(facts := list(facts))
        for fact in facts:
            self.add(fact)
            if fact.get("error"):
                self._log_failure(fact)

    def add(self, fact: Fact) -> None:
        """Add a fact that is stored elsewhere."""
        row = self.rows.add(fact)
        if row.state == "running":
            self.running[row.name] = row
        else:
            self.running.pop(row.name, None)

    def count_reason(self, fact: Fact) -> None:
        """Count a failed row by its reason."""
        count_reason(self.carried.reasons, fact["key"], fact.get("status", "uncertain"), fact["error"]["message"])

    def _log_failure(self, fact: Fact) -> None:
        status, message = fact.get("status", "uncertain"), fact["error"]["message"]
        self.count_reason(fact)
        shown = one_line(fact["key"], LONGEST_KEY), status, one_line(message, _LONGEST_REASON)
        self.task.log.warning("Row %s, %s: %s", *shown)

    def why(self, *, cleared: bool) -> Why:
        """Return why the next attempt runs, or this one. Rows that it waits for have not failed yet."""
        reruns = cleared or self.has_too_many_failed(self.failed - self.rows.states["left"])
        return Why(cleared, reruns, self.options.rerun == "all")

    # What may start.

    @property
    def is_stopped(self) -> bool:
        """Whether no more rows are started in this attempt."""
        return bool(self.trouble) or self.is_late or self.has_too_many_failed(self.failed) or self.is_spent

    @property
    def is_late(self) -> bool:
        """Whether the deadline of the batch has passed."""
        return self.clock() >= self.carried.deadline

    @property
    def ended(self) -> int:
        """Number of rows that have ended, although their executions may be running."""
        return len(self.rows.given) - self.rows.states["not_started"] - self.rows.states["running"]

    @property
    def failed(self) -> int:
        """Number of rows that have ended without success."""
        return self.ended - self.rows.states["success"]

    def has_too_many_failed(self, failed: int) -> bool:
        """Whether more rows failed than ``max_failed``. A share counts from some rows on, and at the end."""
        ends = failed + self.rows.states["success"]
        return self.are_too_many(failed, ends, 0 if ends == len(self.rows.given) else self.enough)

    @property
    def enough(self) -> int:
        """Number of rows that must have ended before a share of failed ones counts."""
        return min(self.options.pilot or _ENOUGH_TO_TELL, _ENOUGH_TO_TELL)

    def are_too_many(self, failed: int, ends: int, enough: int) -> bool:
        """Whether more of the rows that have ended failed than ``max_failed``."""
        most = self.options.max_failed
        if isinstance(most, str):
            return ends >= enough and failed > ends * float(most.rstrip("%")) / 100
        return most is not None and failed > most

    @property
    def is_spent(self) -> bool:
        """Whether ``max_tokens`` lets no more rows start in this attempt."""
        return not self.running and self.affordable <= 0

    @property
    def affordable(self) -> float:
        """
        Number of rows that ``max_tokens`` lets start now. 0 or less: none may.

        An execution whose tokens are unknown, such as a running one, counts as an average one.
        """
        if (limit := self.options.max_tokens) is None:
            return math.inf
        tokens, metered, executions, results = self.rows.sums
        if metered:
            return math.ceil((limit - tokens) * metered / tokens) - (executions - metered) if tokens else math.inf
        if results:  # the crew reports no tokens
            return 0
        running = len(self.running) + self.rows.states["left"]
        return min(_UNMETERED_AT_ONCE - running, _UNMETERED - executions)

    def room(self) -> int:
        """Return the number of rows that may start now."""
        pilot = Counter(row.state for row in self.rows.given[: self.options.pilot or 0])
        is_first = pilot["not_started"] + pilot["running"] > 0
        waiting = pilot["not_started"] if is_first else len(self.pending)
        return int(min(self.options.max_active - len(self.running), self.affordable, waiting))

    # What the parts share.

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

    def each(
        self, work: Callable[[T], R], items: Sequence[T], *, pause: float | None = None
    ) -> Iterator[list[tuple[T, Future[R]]]]:
        """
        Do work on each item in threads. Yield items with their outcomes as soon as they are done.

        :param pause: Seconds after which nothing is yielded, if no item is done. ``None``: no limit.
        """
        for start in range(0, len(items), _AT_A_TIME):
            waiting = {self._threads.submit(work, item): item for item in items[start : start + _AT_A_TIME]}
            while waiting:
                done, _ = wait(waiting, pause, FIRST_COMPLETED)
                yield [(waiting.pop(outcome), outcome) for outcome in done]

    # Across a deferral.

    def carry(self) -> Carried:
        """Return the state for the process that resumes."""
        self.carried.rows, self.carried.deadline = self.rows.packed(), self.carried.deadline + self.clock.jump
        self.carried.trouble = error_record(self.trouble) if self.trouble else None
        return self.carried

    def restore(self, state: Carried, known: Mapping[str, Any]) -> None:
        """Take over from the process that has deferred the task. ``known``: what the watch has seen."""
        self.carried = state
        self.trouble = recorded_error(state.trouble) if state.trouble else None
        self.rows.unpack(*state.rows)
        self.begin()
        for name, row in self.running.items():
            row.began_at, row.troubles, row.first_poll_at = known.get(name, (None, {}, None))

    def begin(self) -> None:
        """List the rows that are running, and those that wait."""
        self.running = {row.name: row for row in self.rows if row.state == "running"}
        self.pending = deque(row for row in self.rows.given if row.state == "not_started")
