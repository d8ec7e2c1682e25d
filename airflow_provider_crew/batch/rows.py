"""Rows of a batch: their names, what is known about them, and what an attempt does with each. Little I/O."""

import base64
import json
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from airflow_provider_crew.client.errors import CrewError, InvalidInputs
from airflow_provider_crew.client.payload import plain, some_names
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.client.watch import Trouble
from airflow_provider_crew.task.decide import (
    AFTER_PILOT,
    BILLED,
    Decision,
    End,
    KickoffRecord,
    PolledStatus,
    Step,
    decide,
    foreseen,
)
from airflow_provider_crew.task.record import BATCH, fingerprint

Status = Literal["success", "error", "invalid_output", "cancelled", "uncertain", "not_started"]
STATUSES: tuple[Status, ...] = ("success", "error", "invalid_output", "cancelled", "uncertain", "not_started")
Rerun = Literal["failed", "all"]

# The form of a line in failed.jsonl, which can be the next batch's inputs.
_FAILED = {"key", "index", "status", "inputs", "error"}
LONGEST_KEY = 200
_LONGEST_REASON = 2_000


# Kinds of rows in the words of the verdict.
_KINDS = dict(zip(STATUSES, ("successful", "failed", "invalid", "failed", "uncertain", ""), strict=True))


@dataclass(slots=True)
class Row:
    """
    Row of a batch.

    :param index: Position among the inputs. -1: an earlier attempt has started it, and it is no longer there.
    :param line: Last line about the row in the result files. ``None`` if there is none.
    :param kickoff_id: Execution that may be running. Empty if there is none.
    :param sent_at: Time of its kickoff. ``None`` if no kickoff is recorded that the line does not report.
    :param began_at: Time at which a poll saw the execution begin. Before that, it was queued.
    :param troubles: Time since when each trouble of its polls lasts.
    :param first_poll_at: Time before which it is not polled, because its status is large.
    :param attempts: Kickoffs of the row that may have started an execution.
    :param group: Name under which its kickoff is recorded.
    :param call: Hash of the address that the crew calls if there is no response. Empty if there is none.
    :param lost_at: Time of an uncertain kickoff. ``None`` if there is none, or an execution has followed.
    """

    index: int
    key: str
    fingerprint: str
    inputs: Any = None
    line: dict[str, Any] | None = None
    kickoff_id: str = ""
    sent_at: float | None = None
    began_at: float | None = None
    troubles: dict[Trouble, float | None] = field(default_factory=dict)
    first_poll_at: float | None = None
    attempts: int = 0
    group: str = ""
    call: str = ""
    lost_at: float | None = None

    @property
    def status(self) -> Status:
        """Status of the row, as in its last line."""
        return self.line["status"] if self.line else "not_started"

    @property
    def error(self) -> Mapping[str, Any]:
        """Error in its last line. Empty if there is none."""
        return (self.line or {}).get("error") or {}

    @property
    def usage(self) -> Mapping[str, Any]:
        """Token usage in its last line. Empty if there is none."""
        return (self.line or {}).get("usage") or {}

    @property
    def tokens(self) -> int:
        """Tokens in its last line."""
        return self.usage.get("total_tokens") or 0

    @property
    def is_stopped(self) -> bool:
        """Whether a person has stopped its execution, by its last line. Only a person may start another."""
        return bool(self.error.get("type") == "ExecutionStopped")

    @property
    def is_cancelled(self) -> bool:
        """Whether the batch has asked the crew to cancel its execution, by its last line."""
        return self.error.get("type") in {"NotCancelled", "ExecutionCancelled"}

    @property
    def outlasts(self) -> bool:
        """Whether its execution may be running although its wait has failed, by its last line."""
        return bool(self.error.get("stage") == "wait")

    def as_memory(self) -> list[Any]:
        """Return what the next attempt decides by, as JSON data."""
        return [self.status, self.error.get("stage"), self.error.get("type")]

    def remember(self, status: Status, stage: str | None, kind: str | None) -> None:
        """Keep what the next attempt decides by, instead of its line, whose output may be large."""
        error = {"stage": stage, "type": kind}
        self.line = {"status": status, "error": stage and error, "kickoff_id": self.kickoff_id, "ended_at": 0.0}

    @property
    def is_lost(self) -> bool:
        """Whether it has no later execution than one of an uncertain kickoff, which a user chose to repeat."""
        return bool(self.lost_at) and not self.kickoff_id and self.status != "uncertain"

    def sent(self) -> list[Any]:
        """Return what the next process has to know about a kickoff, as JSON data."""
        call = "" if self.kickoff_id else self.call
        return [self.key, self.fingerprint, self.kickoff_id, self.sent_at, self.attempts, call, self.group]

    @property
    def has_ended(self) -> bool:
        """Whether the row has ended, and no later kickoff is recorded."""
        return self.sent_at is None and self.status != "not_started"

    @property
    def is_to_be_started(self) -> bool:
        """Whether the row waits for its kickoff."""
        return self.sent_at is None and self.status == "not_started"

    def as_line(self, status: Status, **fields: Any) -> dict[str, Any]:
        """Return a line about the row for the result files."""
        return {
            "key": self.key,
            "index": self.index,
            "fingerprint": self.fingerprint,
            "kickoff_id": self.kickoff_id or None,
            "status": status,
            **dict.fromkeys(("output", "raw_output", "error", "usage")),
            "attempts": self.attempts,
            "started_at": self.sent_at or self.lost_at,
            "ended_at": time.time(),
            **fields,
        }

    def end(self, status: Status, **fields: Any) -> None:
        """End the row."""
        self.line = self.as_line(status, **fields)


@dataclass(slots=True)
class RowUsage:
    """
    Token usage of all executions of a row, from its lines, by the number of the kickoff.

    ``executions`` counts those that have reported their tokens.
    """

    up_to: int = -1
    earlier: Mapping[str, float] = field(default_factory=dict)
    others: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def with_line(self, line: Mapping[str, Any], *, is_final: bool) -> dict[str, float] | None:
        """Return the sum with the next line, which includes earlier kickoffs if it is one of a final file."""
        number = line["attempts"]
        usage = {name: n for name, n in (line["usage"] or {}).items() if isinstance(n, int | float)}
        covered = number - _is_open(line)
        if is_final and covered >= self.up_to:
            self.up_to, self.earlier = covered, usage
        elif usage and not is_final:  # not by time: the clocks of workers differ
            self.others[number] = {"executions": int(usage.get("total_tokens", 0) > 0)} | usage
        total = Counter(self.earlier)
        for kickoff, spent in self.others.items():
            total.update(spent if kickoff > self.up_to else {})
        return dict(total) or None


def _is_open(line: Mapping[str, Any]) -> bool:
    """Whether the row's last execution may still end, so that the line lacks its usage."""
    is_uncertain = line["status"] == "uncertain" or (line["started_at"] and not line["kickoff_id"])
    return bool(is_uncertain or (line["error"] or {}).get("stage") == "wait")


def failure(error: CrewError, stage: str) -> dict[str, Any]:
    """Return an error for a line. ``stage``: see ``docs/batch-reference.md``."""
    return {"type": type(error).__name__, "message": one_line(error.event, _LONGEST_REASON), "stage": stage}


def rows_of(given: Iterable[Any], key: str | None, state_id: Any) -> list[Row]:
    """Return the rows of a batch. Raise InvalidInputs if one is unusable, before anything is sent."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidInputs(f"inputs must be a list of objects, not {type(given).__name__}.")
    rows = [_row_of(index, item, key, state_id) for index, item in enumerate(given)]
    if not rows:
        raise InvalidInputs("inputs is empty.")
    if twice := [name for name, times in Counter(row.key for row in rows).items() if times > 1]:
        raise InvalidInputs(f"Keys that name more than one row: {some_names(twice)}.")
    return rows


def _row_of(index: int, item: Any, key: str | None, state_id: Any) -> Row:
    is_of_failed_file = isinstance(item, Mapping) and item.keys() == _FAILED
    inputs = item["inputs"] if is_of_failed_file else item
    if not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs[{index}] must be an object, not {type(inputs).__name__}.")
    inputs = plain(inputs, f"inputs[{index}]")
    if key is not None and inputs.get(key) in (None, ""):
        raise InvalidInputs(f"inputs[{index}] has no {key!r}, which is the key of the batch.")
    name = str(index if key is None else inputs[key])
    if len(name) > LONGEST_KEY:
        raise InvalidInputs(f"The key of inputs[{index}] is longer than {LONGEST_KEY} characters.")
    return Row(index, name, fingerprint(inputs, state_id), inputs)


def lines_of(text: Iterable[str], path: str) -> Iterable[Any]:
    """Yield the values of JSON lines. Raise InvalidInputs for a line that is not JSON."""
    for number, line in enumerate(text, start=1):
        try:
            if line.strip():
                yield json.loads(line)
        except ValueError:
            raise InvalidInputs(f"Line {number} of {path} is not JSON.") from None


def decision_of(row: Row, status: PolledStatus | None = None, *, cleared: bool, rerun: Rerun) -> Decision:
    """Return what an attempt does with a row: the decision for a single task with the same past."""
    return decide(_record_of(row, is_run_again=cleared and rerun == "all"), status, cleared=cleared)


def steps_of(rows: Sequence[Row], *, cleared: bool, rerun: Rerun, pilot: int = 0) -> Counter[Step]:
    """Return what an attempt does with how many rows. Until those of a pilot have ended, it starts no others."""
    pilots, steps = (_steps(some, cleared=cleared, rerun=rerun) for some in (rows[:pilot], rows[pilot:]))
    if any(verb in {"waits for", *BILLED} for verb, _ in pilots):
        steps[AFTER_PILOT] = sum(steps.pop(step) for step in [*steps] if step[0] in BILLED)
    return pilots + steps


def _steps(rows: Iterable[Row], *, cleared: bool, rerun: Rerun) -> Counter[Step]:
    """Return what an attempt does with how many rows. It asks once for all that are alike."""
    alike: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        alike[(*row.as_memory(), row.sent_at is None, bool(row.kickoff_id))].append(row)
    steps = Counter[Step]()
    for some in alike.values():
        steps[_step_of(some[0], cleared=cleared, rerun=rerun)] += len(some)
    return steps


def _step_of(row: Row, *, cleared: bool, rerun: Rerun) -> Step:
    """Return what an attempt does with a row, and the kind of the row, in the words of the verdict."""
    record = _record_of(row, is_run_again=cleared and rerun == "all")
    kind, decision = _KINDS[row.status], foreseen(record, cleared=cleared)
    match decision:
        case Decision.ASK:
            return "waits for", "running"
        case Decision.KICK_OFF:
            return "starts", kind and "rejected"
        case Decision.FAIL_UNCERTAIN if row.sent_at is not None:
            return "reports", "uncertain"
        case Decision.REATTACH | Decision.FAIL_UNCERTAIN:
            return "rechecks" if kind == "invalid" else "keeps", kind
    return ("keeps", "stopped") if decision is Decision.FAIL_STOPPED else ("reruns", kind)


def _record_of(row: Row, *, is_run_again: bool) -> KickoffRecord | None:
    """Return the kickoff record of a row. None if it has no execution, and none is possible."""
    line = row.line
    if row.sent_at is not None:  # a kickoff that no line reports
        return KickoffRecord(0, row.sent_at, row.kickoff_id or None)
    if line is None or line["status"] == "not_started":
        return None
    if line["status"] == "uncertain":
        return KickoffRecord(0, line["ended_at"], reported=True)
    if row.error.get("stage") in {"inputs", "kickoff"}:
        return None
    if row.outlasts:  # the execution may have completed since, so its result was not delivered
        return KickoffRecord(0, line["ended_at"], line["kickoff_id"])
    has_failed = line["status"] in {"error", "cancelled"}
    end: End = "stopped" if row.is_stopped else "failed" if has_failed else "completed"
    return KickoffRecord(0, line["ended_at"], line["kickoff_id"], end, delivered=is_run_again)


def merged(rows: Sequence[Row], lines: Iterable[Mapping[str, Any]], sent: Iterable[Sequence[Any]]) -> list[Row]:
    """
    Add what is stored about earlier attempts to the rows, and return rows that are no longer among the inputs.

    :param lines: Lines of the result files, older ones first.
    :param sent: Kickoffs that earlier attempts have recorded, with or without a kickoff ID.
    """
    by_id = {(row.key, row.fingerprint): row for row in rows}
    removed: dict[tuple[str, str], Row] = {}

    def named(key: str, digest: str) -> Row:
        return by_id.get((key, digest)) or removed.setdefault((key, digest), Row(-1, key, digest))

    for line in lines:
        row = named(line["key"], line["fingerprint"])
        # A process that Airflow has replaced may write later that its wait has failed.
        is_late = row.status == "success" and (line["error"] or {}).get("stage") == "wait"
        if line["attempts"] >= row.attempts + is_late:
            row.line, row.attempts = dict(line) | {"index": row.index}, line["attempts"]
            row.lost_at = None if line["kickoff_id"] else line["started_at"]
    for key, digest, kickoff_id, sent_at, attempts, _, group in sent:
        row = named(key, digest)
        # Not by time: the clocks of workers differ. Each kickoff of a row has a higher number than the last.
        is_newer = attempts > row.attempts
        is_same = attempts == row.attempts and kickoff_id and not row.kickoff_id
        if is_newer or (is_same and (row.sent_at is not None or row.status == "uncertain" or row.is_lost)):
            row.kickoff_id, row.sent_at, row.attempts, row.group = kickoff_id, sent_at, attempts, group
    for row in (*rows, *removed.values()):
        if row.sent_at is None and row.line and row.status in {"error", "cancelled"}:
            row.kickoff_id = row.line["kickoff_id"] or ""
    return list(removed.values())


def last_kickoff(entries: Mapping[str, Any], key: str) -> tuple[str, KickoffRecord | None]:
    """
    Return the last kickoff of a row in the task state store, and the key of its group.

    A row with the same key and other inputs may have more kickoffs, so the names of the groups tell which is last.
    """
    groups = [f"{BATCH}_{group}" for group in entries.get(BATCH, {}).get("groups", ())]
    sent = [(line, group) for group in groups for line in entries.get(group) or () if line[0] == key]
    if not sent:
        return "", None
    (_, _, kickoff_id, sent_at, *_), group = max(sent, key=itemgetter(1))
    return group, KickoffRecord(0, sent_at, kickoff_id or None)


def with_execution(line: Sequence[Any], kickoff_id: str) -> list[Any]:
    """Return the kickoff of a row with its execution, which no call replaces."""
    key, digest, _, sent_at, attempts, _, group = line
    return [key, digest, kickoff_id, sent_at, attempts, "", group]


def packed(values: Iterable[Any]) -> str:
    """Return JSON data of rows, which are mostly alike, as a short text."""
    return base64.b64encode(zlib.compress(json.dumps([*values]).encode())).decode()


def unpacked(text: str) -> list[Any]:
    """Return the values of a text."""
    return list(json.loads(zlib.decompress(base64.b64decode(text))))
