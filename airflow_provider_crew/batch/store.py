"""
Kickoffs of a batch in the task state store: those that may be running, a group in each of a few slots.

Before a group is sent, its rows are written to its slot. Airflow refuses that to a process that it has replaced,
so two processes never start rows side by side. Nothing is deleted: what a slot has had before remains true.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from airflow_provider_crew.batch.facts import MOST_IN_GROUP, Fact, fact
from airflow_provider_crew.batch.fold import OPEN, Row, fold
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.exceptions import InvalidResultPath
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import BATCH
from airflow_provider_crew.task.send import called
from airflow_provider_crew.task.stop import shielded

_VERSION = 1


def slot_key(slot: int) -> str:
    """Return the key of a slot."""
    return f"{BATCH}_{slot}"


def free_slot(batch: BatchRun) -> int:
    """Return a slot without rows whose executions may be running."""
    used = {row.slot for row in batch.rows if row.state in OPEN}
    slot = next(slot for slot in range(len(used) + 1) if slot not in used)
    if slot >= batch.carried.slots:
        batch.carried.slots = 2 * slot + 1  # few writes while the first rows start
        save_entry(batch)
    return slot


def read_entry(batch: BatchRun) -> Any:
    """Return what the store has of the batch. Raise if another version has written it."""
    entry: Any = batch.store.get(BATCH)
    if entry and entry.get("version") != _VERSION:
        raise InvalidResultPath("Another version of the package has begun the batch.", owner="another version")
    return entry


def save_entry(batch: BatchRun, *, is_decided: bool = True) -> None:
    """
    Write where the slots are, and what the next attempt compares.

    :param is_decided: Whether this attempt has decided about all rows.
    """
    max_tries = batch.task.ti.max_tries if is_decided else batch.max_tries_before
    batch.store.set(BATCH, {"version": _VERSION, "slots": batch.carried.slots, "max_tries": max_tries})


def save_slot(batch: BatchRun, slot: int, rows: Sequence[Row], *, is_patient: bool = True) -> None:
    """Write the last kickoffs of some rows to a slot, and how often each row of the batch was started."""
    # A late name may tell that one is running which a rejected kickoff was to replace.
    numbers = [(row, number) for row in rows for number in row.kickoffs.keys() & {row.number, max(row.kickoffs)}]
    facts = [each for row, number in numbers for each in _facts_of(row, number)]
    value = {"plan": batch.carried.plan[0], "numbers": batch.rows.numbers, "facts": facts}
    batch.store.set(slot_key(slot), value, is_patient=is_patient)


def save_open(batch: BatchRun, *, is_decided: bool = True) -> None:
    """
    Write all rows that are running or uncertain to the first slots.

    A row never moves to a later slot, so a process that is killed meanwhile has overwritten none that it has not
    written elsewhere.
    """
    rows = sorted((row for row in batch.rows if row.state in OPEN), key=lambda row: (row.slot < 0, row.slot))
    groups = [rows[start : start + MOST_IN_GROUP] for start in range(0, len(rows), MOST_IN_GROUP)] or [[]]
    batch.carried.slots = max(batch.carried.slots, len(groups))
    save_entry(batch, is_decided=is_decided)
    for slot, group in enumerate(groups):
        for row in group:
            row.slot = slot
        save_slot(batch, slot, group)


def _facts_of(row: Row, number: int) -> Iterator[Fact]:
    kickoff = row.kickoffs[number]
    call = "" if kickoff.kickoff_id else kickoff.call
    yield fact(row, number, "sent", at=kickoff.sent_at, address=kickoff.address, call=call)
    if kickoff.kickoff_id:
        yield fact(row, number, "named", kickoff_id=kickoff.kickoff_id)
    elif kickoff.not_taken or kickoff.end:  # if its end is lost, the row starts again
        yield fact(row, number, "not taken")
    if kickoff.reported:
        yield fact(row, number, "reported")


def read_slots(batch: BatchRun, slots: Iterable[int]) -> Iterator[tuple[int, Any]]:
    """Yield each slot that holds something, with its value."""
    for slot in slots:
        if value := batch.store.get(slot_key(slot)):
            yield slot, value


def calls_since(batch: BatchRun, facts: Sequence[Fact]) -> list[Fact]:
    """Return the names with which crews have called since, for kickoffs without a response."""
    known = {_id_of(each) for each in facts if each["what"] in {"named", "not taken"}}
    sent = [each for each in facts if each.get("call") and _id_of(each) not in known]
    calls = {each["call"]: each["at"] for each in sent}
    found = shielded(partial(called, batch.task, calls)) if calls else {}
    return [{**each, "what": "named", "kickoff_id": found[each["call"]]} for each in sent if each["call"] in found]


def _id_of(each: Fact) -> tuple[Any, ...]:
    return each["key"], each["fingerprint"], each["number"]


# For the command ``adopt``, which cannot read the files.


def keys_of(entry: Mapping[str, Any]) -> list[str]:
    """Return the keys of the slots that an entry lists. That of another version lists none."""
    return [slot_key(slot) for slot in range(entry.get("slots", 0))]


def last_kickoff(entries: Mapping[str, Any], key: str) -> tuple[str, KickoffRecord | None]:
    """Return the last kickoff of a row in the task state store, and the key of its slot."""
    facts = {name: value["facts"] for name, value in entries.items() if name.startswith(f"{BATCH}_")}
    row = _last_of([each for some in facts.values() for each in some], key)
    if row is None:
        return "", None
    its = row.fingerprint, row.number
    slot = next(name for name in facts if its in {(each["fingerprint"], each["number"]) for each in facts[name]})
    return slot, KickoffRecord(0, row.kickoff.sent_at, row.kickoff.kickoff_id or None, address=row.kickoff.address)


def with_execution(value: Mapping[str, Any], key: str, kickoff_id: str) -> dict[str, Any]:
    """Return a slot in which the last kickoff of a row has a name."""
    row: Any = _last_of(value["facts"], key)
    return {**value, "facts": [*value["facts"], fact(row, row.number, "named", kickoff_id=kickoff_id)]}


def _last_of(facts: Sequence[Fact], key: str) -> Row | None:
    """Return the row of a key that was sent last. It may have had other inputs before."""
    rows = fold([], (each for each in facts if each["key"] == key)).removed
    return max(rows, key=lambda row: row.kickoff.sent_at, default=None)
