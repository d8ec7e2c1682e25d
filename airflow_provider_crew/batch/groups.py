"""
Kickoff records of a batch: in the task state store and in the result files, a group of rows in each.

Before a group is sent, its rows are recorded in both. Airflow refuses that to a process that it has replaced, so
two processes never start rows side by side.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from airflow_provider_crew.api_server import is_away
from airflow_provider_crew.batch.files import SENT
from airflow_provider_crew.batch.rows import Row, packed, unpacked, with_execution
from airflow_provider_crew.batch.state import BatchRun
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.task.record import BATCH
from airflow_provider_crew.task.send import called
from airflow_provider_crew.task.stop import shielded


def save_intents(batch: BatchRun, name: str, rows: Sequence[Row]) -> None:
    """Record the rows of a group before their kickoffs are sent. If this raises, none may be sent."""
    group = name.removeprefix(f"{SENT}/")
    for row in rows:
        row.group = group
    try:
        _save_group(batch, group, rows)
        batch.files.write(name, [row.sent() for row in rows])
        save_groups(batch, group)  # last, because Airflow refuses it to a process that it has replaced
    except Exception as error:
        if isinstance(error, CrewError):
            raise
        event = f"Airflow did not store the kickoff records, so nothing was sent: {in_words(error)}."
        raise CrewTaskError(event) from None


def forget_intents(batch: BatchRun, name: str) -> None:
    """Remove the records of a group that was not sent."""
    with suppress(Exception):  # the error that prevented the kickoffs is raised
        _save_group(batch, name.removeprefix(f"{SENT}/"), [])
    batch.files.delete(name)


def save_kickoff_ids(batch: BatchRun, group: str, rows: Sequence[Row], *, is_last: bool = True) -> bool:
    """
    Record kickoff IDs, and return whether Airflow has stored them.

    If Airflow refuses, another process may have taken over, so nothing more is sent.

    :param is_last: Whether to wait while Airflow is away. Otherwise the caller tries again later.
    """
    try:
        _save_group(batch, group, rows, is_patient=is_last)
    except Exception as error:  # noqa: BLE001 - the executions are running
        if not is_last and is_away(error):
            return False
        event = f"Airflow did not store kickoff IDs, but the result files contain them: {in_words(error)}."
        batch.task.warn(event)
        batch.is_superseded, batch.trouble = True, batch.trouble or CrewTaskError(event)
        return False
    return True


def _save_group(batch: BatchRun, group: str, rows: Sequence[Row], *, is_patient: bool = True) -> None:
    sent = [row.sent() for row in rows if row.sent_at is not None]
    batch.store.set(f"{BATCH}_{group}", sent, is_patient=is_patient)
    unanswered = set(batch.carried.unanswered)
    (unanswered.discard if all(line[2] for line in sent) else unanswered.add)(group)
    batch.carried.unanswered = sorted(unanswered)


def save_groups(batch: BatchRun, *new: str) -> None:
    """Record which groups are running, and how often each row was started."""
    groups = {row.group for row in batch.running.values() if row.group}
    if new:
        batch.carried.address = batch.carried.address or batch.task.hook.connection.settings.address
    entry = {
        "address": batch.carried.address,
        "groups": sorted(groups.union(new, batch.carried.unanswered)),
        "max_tries": batch.task.ti.max_tries,
        "plan": batch.carried.plan[0],
        "is_billed": batch.carried.is_billed,
        # The rows of a new group are in its own entry, until it is entry whether they were sent.
        "started": packed(row.attempts - (row.group in new) for row in batch.rows),
    }
    batch.store.set(BATCH, entry)


def delete_groups(batch: BatchRun, groups: Collection[str]) -> None:
    """Remove the records of groups whose rows have ended. The store keeps that they were started."""
    if groups:
        save_groups(batch)
    for group in groups:
        batch.files.delete(f"{SENT}/{group}")
        if group not in batch.carried.unanswered:
            with suppress(Exception):  # a later attempt finds that its rows have ended
                batch.store.delete(f"{BATCH}_{group}")


def sent_in_groups(batch: BatchRun, entry: Any) -> list[list[Any]]:
    """
    Return the kickoffs that earlier processes have recorded, with or without a kickoff ID.

    :param entry: Entry of the batch in the store. A group that it does not list was not sent. Airflow 3.4 deletes
        it when it clears the task, whose process may have recorded kickoff IDs since.
    """
    in_folder = [name.removeprefix(f"{SENT}/") for name in batch.files.names(SENT)]
    groups = entry["groups"] if entry else in_folder
    stored = [line for group in groups for line in _with_calls(batch, group)]
    in_files = [line for name in in_folder for line in batch.files.read(f"{SENT}/{name}")]
    sent = stored + [line for line in in_files if line[2] or line[-1] in groups or not entry]
    batch.carried.unanswered = sorted({line[-1] for line in sent if not line[2]})
    for group in {*batch.carried.unanswered} - {line[-1] for line in stored}:  # adopt reads only the store
        batch.store.set(f"{BATCH}_{group}", [line for line in sent if line[-1] == group])
    return sent


def _with_calls(batch: BatchRun, group: str) -> list[list[Any]]:
    """Return the kickoffs of a group in the store, with the IDs with which their crews have called since."""
    lines: list[list[Any]] = batch.store.get(f"{BATCH}_{group}") or []
    calls = {line[5]: line[3] for line in lines if line[5]}
    if calls and (found := shielded(partial(called, batch.task, calls))):
        lines = [with_execution(line, found[line[5]]) if line[5] in found else line for line in lines]
        with suppress(Exception):  # what the crew has called is stored as well
            batch.store.set(f"{BATCH}_{group}", lines, is_patient=False)
            batch.files.write(f"{SENT}/{group}", lines)  # clearing may delete the store's
    return lines


def kickoffs_of_rows(entry: Any, plan: str) -> list[int]:
    """Return for each row how often earlier processes have started it, as the store has it. Empty if unknown."""
    if not entry or entry.get("plan") != plan:
        return []
    return unpacked(entry["started"])
