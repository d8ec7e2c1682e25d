"""
Facts about the executions of a batch: one for each event, with its row and its kickoff.

A fact is JSON data, the same in the files and in the task state store, and never changes. ``fold.py`` derives all
else from facts.
"""

import time
from collections.abc import Mapping
from typing import Any, Literal

from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.text import one_line

What = Literal["sent", "named", "not taken", "ended", "reattached", "reported", "again"]
"""
``sent``: the kickoff may be on its way from here on. ``named``: it has a kickoff ID. ``not taken``: it certainly
started nothing. ``ended``: the execution has, or the wait for it. ``reattached``: an attempt waits for it again.
``reported``: the log reports that it is uncertain. ``again``: the row is to start again.
"""
Status = Literal["success", "error", "invalid_output", "cancelled", "uncertain", "not_started"]
STATUSES: tuple[Status, ...] = ("success", "error", "invalid_output", "cancelled", "uncertain", "not_started")
Fact = Mapping[str, Any]
# Rows of a group, which are uncertain after the death of a process.
MOST_IN_GROUP = 16

_LONGEST_REASON = 2_000


def fact(row: Any, number: int, what: What, **about: Any) -> Fact:
    """Return a fact about a kickoff of a row. The kickoffs of a row have numbers from 1 on."""
    return {"what": what, "key": row.key, "fingerprint": row.fingerprint, "number": number, **about}


def is_fact(value: Any) -> bool:
    """Whether a line of a file is a fact. A write may have been cut, and a folder may hold other files."""
    return isinstance(value, dict) and {"what", "key", "fingerprint", "number"} <= value.keys()


def failure(error: CrewError, stage: str) -> dict[str, Any]:
    """Return an error as it is stored. ``stage``: see ``docs/batch-reference.md``."""
    return {"type": type(error).__name__, "message": one_line(error.event, _LONGEST_REASON), "stage": stage}


def end(
    row: Any, status: Status, error: CrewError | None = None, stage: str = "", *, number: int = 0, **about: Any
) -> Fact:
    """
    Return the end of a row's execution, of the wait for it, or of its kickoff.

    :param number: Number of the kickoff. By default, the last one.
    :param about: Output and usage.
    """
    last = row.kickoffs.get(number or row.number)
    found = {"status": status, "error": error and failure(error, stage), "watch": last.watch if last else 0}
    named = {"kickoff_id": last.kickoff_id if last else "", "ended_at": time.time()}
    return fact(row, number or row.number, "ended", **found, **named, **about)
