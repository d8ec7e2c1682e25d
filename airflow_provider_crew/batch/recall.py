"""Beginning of an attempt: read what earlier processes of a batch have done, and decide about each row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

from airflow_provider_crew.batch.collect import failed, fit
from airflow_provider_crew.batch.facts import Fact, fact, failure
from airflow_provider_crew.batch.fold import Kickoff, Row, Why, decision_of, ending, unpack
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.batch.store import calls_since, read_slots, save_entry, save_open
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import CrewError, UncertainKickoff
from airflow_provider_crew.client.models import Failed
from airflow_provider_crew.client.wording import execution_failed
from airflow_provider_crew.task.decide import Decision, PolledStatus
from airflow_provider_crew.task.earlier import poll_earlier

_UNREPORTED = UncertainKickoff(
    "An earlier attempt ended before the kickoff's response, or the row's file is lost."
)
# What has gone wrong with a kickoff, by row and number.
_Failures = dict[tuple[str, str, int], Fact]


def recall(batch: BatchRun, entry: Mapping[str, Any] | None, *, is_resumed: bool) -> None:
    """
    Read the files and the task state store, and decide about each row.

    :param entry: Entry of the batch in the store.
    :param is_resumed: Whether this attempt has run before, so that it starts no row again.
    """
    task, rows, state = batch.task, batch.rows, batch.carried
    failures, news = _read(batch, entry)
    if entry:
        state.slots = entry["slots"]
    # Airflow 3.4 deletes the state of a task that is cleared. A batch without state is new, or was cleared.
    batch.max_tries_before = entry["max_tries"] if entry else -1
    if not is_resumed:
        why = batch.why(cleared=batch.max_tries_before != task.ti.max_tries)
        _warn(batch, why)
        news += _decided(batch, why, failures)
    reports = [*_reports(batch)]
    save_open(batch, is_decided=False)  # Airflow refuses it to a process that it has replaced
    batch.record(news)
    save_entry(batch)
    # Only now: a later attempt must not take these reports for older than the clear.
    batch.record(reports)
    batch.begin()
    logged = {(each["key"], each["fingerprint"]) for each in (*news, *reports)}
    for (*row_id, number), each in failures.items():
        row = rows.find(*row_id)
        is_last = (
            row.index >= 0 and row.number == number and row.state not in {"running", "not_started", "success"}
        )
        if is_last and (row.key, row.fingerprint) not in logged:
            batch.count_reason(each)
    state.earlier = batch.ended
    if state.earlier:
        task.log.info("Rows that have ended in earlier attempts: %d.", state.earlier)
    if batch.running:
        task.log.info("Reattached to executions of earlier attempts: %d.", len(batch.running))


def reject_move(batch: BatchRun) -> None:
    """Raise if the crew does not know rows that were started at another address, before it gets others."""
    now = batch.task.hook.connection.settings.address
    if moved := [row.kickoff for row in batch.running.values() if row.kickoff.address not in {"", now}]:
        poll_earlier(batch.task, batch.client.status, moved[0].kickoff_id, moved[0].address)


def _read(batch: BatchRun, entry: Mapping[str, Any] | None) -> tuple[_Failures, list[Fact]]:
    """Read all facts. Return those about failures, and those that are new."""
    failures = _Failures()
    used = _read_files(batch, failures)
    # Clearing deletes the entry on Airflow 3.4, but a process may have written to its slot after that.
    numbers, news = _read_store(batch, range(entry["slots"]) if entry else sorted(used))
    for each in news:
        batch.rows.add(each)
    if lost := batch.rows.add_numbers(numbers, batch.carried.started_at):
        batch.task.warn(f"Rows that earlier attempts have started, and that the files lack: {lost:,}.")
    return failures, news


def _read_store(batch: BatchRun, slots: Iterable[int]) -> tuple[list[int], list[Fact]]:
    """Read the facts in the store. Return the number of each row's last kickoff, and what the files lack."""
    rows, numbers, news = batch.rows, list[int](), list[Fact]()
    for slot, value in read_slots(batch, slots):
        news += calls_since(batch, value["facts"])
        for each in value["facts"]:
            row = rows.find(each["key"], each["fingerprint"])
            before = replace(row.kickoffs.get(each["number"], Kickoff()))
            rows.add(each)
            row.slot = slot if row.slot < 0 else row.slot
            if each["what"] != "sent" and row.kickoffs[each["number"]] != before:
                news.append(each)
        if value["plan"] == batch.carried.plan[0]:
            numbers = [max(both) for both in zip_longest(numbers, unpack(value["numbers"]), fillvalue=0)]
    return numbers, news


def _read_files(batch: BatchRun, failures: _Failures) -> set[int]:
    """Read the facts in the files, and add those about failures. Return the slots of the store that they name."""
    slots, odd = set[int](), 0
    for done in batch.each(batch.files.facts, batch.files.names()):
        for _, outcome in done:
            facts, others = outcome.result()
            odd += others or not facts
            for each in facts:
                batch.rows.add(each)
                slots |= {each["slot"]} if "slot" in each else set()
                name = each["key"], each["fingerprint"], each["number"]
                if each.get("error") and (name not in failures or ending(each) >= ending(failures[name])):
                    failures[name] = each
    if odd:
        batch.task.warn(f"Lines in {batch.files.path} that are not facts, or were cut: {odd:,}.")
    return slots


def _warn(batch: BatchRun, why: Why) -> None:
    """Warn of what may be billed again."""
    if changed := batch.rows.changed:
        batch.task.warn(f"Rows that start again (billed) because their inputs have changed: {changed:,}.")
    again = [row for row in batch.rows.given if decision_of(row, why=why) is Decision.KICK_OFF_BY_CHOICE]
    if again:
        event = f"Uncertain rows that start again because the task was cleared: {len(again):,}. Two may be billed."
        batch.task.warn(event)


def _decided(batch: BatchRun, why: Why, failures: _Failures) -> Iterator[Fact]:
    """Yield what this attempt decides. It asks the crew about an execution before it replaces that."""
    given = [row for row in batch.rows.given if row.state not in {"not_started", "running"}]
    rows = [*given, *(row for row in batch.rows.removed if row.state == "left")]
    asked = _asked(batch, [row for row in rows if decision_of(row, why=why) is Decision.ASK])
    for row in rows:
        status, found = asked.get(row.name, (None, None))
        if row.state == "left" and isinstance(found, Failed):
            batch.rows.add(since := failed(row, _ended_since(status, found)))
            yield since
        match decision_of(row, status, why=why):
            case Decision.REATTACH if row.state == "invalid_output":
                known = failures[row.key, row.fingerprint, row.number]
                yield fit(batch, row, known["raw_output"], known["output"], usage=known["usage"])
            case Decision.REATTACH if status and not isinstance(found, Failed):
                yield fact(row, row.number, "reattached", watch=row.kickoff.watch + 1)
            case Decision.KICK_OFF | Decision.KICK_OFF_BY_CHOICE | Decision.KICK_OFF_AFTER_END if row.index >= 0:
                for number, kickoff in row.kickoffs.items():  # an earlier one may have the result
                    yield fact(row, number, "again", watch=kickoff.watch, level=kickoff.level)


def _ended_since(status: PolledStatus | None, found: Failed) -> CrewError:
    """Return how an execution has ended that an earlier attempt has left."""
    error = execution_failed(found, "")
    if status == "failed" and isinstance(error, errors.ExecutionStopped):  # the batch has asked for it
        return errors.ExecutionCancelled(error.event, usage=error.usage)
    return error


def _reports(batch: BatchRun) -> Iterator[Fact]:
    """Yield reports of uncertain rows that no log has reported yet."""
    for row in batch.rows:
        if row.state == "uncertain" and not row.kickoff.reported:
            batch.carried.gone += row.index < 0
            batch.output.measure("kickoff.uncertain")
            yield fact(row, row.number, "reported", error=failure(_UNREPORTED, "kickoff"))


def _asked(batch: BatchRun, rows: Sequence[Row]) -> dict[str, tuple[PolledStatus, Any]]:
    """Return the status of earlier executions by row, and how they or the polls have failed."""
    polls = [each for done in batch.each(partial(_poll, batch), rows) for each in done]
    return {row.name: outcome.result() for row, outcome in polls}


def _poll(batch: BatchRun, row: Row) -> tuple[PolledStatus, Failed | errors.CallError | None]:
    asked = bool(row.kickoff.end and row.kickoff.end.is_asked)
    return poll_earlier(batch.task, batch.client.status, row.kickoff.kickoff_id, is_cancelled=asked)
