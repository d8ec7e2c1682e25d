"""Decision of an attempt about an earlier kickoff: the whole table, and its invariants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from airflow_provider_crew.task.decide import Decision, End, KickoffRecord, PolledStatus, decide
from tests.unit.crew_builders import KICKOFF_ID, NOW

SENT = KickoffRecord(max_tries=3, kicked_off_at=NOW)
ANSWERED = KickoffRecord(max_tries=3, kicked_off_at=NOW, kickoff_id=KICKOFF_ID)
NOTHING_YET = "nothing yet"
REMEMBERED: dict[str, KickoffRecord | None] = {
    "nothing": None,
    "sent": SENT,
    "sent, and reported": KickoffRecord(max_tries=3, kicked_off_at=NOW, reported=True),
    "an execution": ANSWERED,
    **{
        end: KickoffRecord(max_tries=3, kicked_off_at=NOW, kickoff_id=KICKOFF_ID, end=end) for end in get_args(End)
    },
}


class Case(NamedTuple):
    """What a row of the table is looked up by."""

    remembered: str
    says: str
    cleared: str
    delivered: str
    row: str

    def decisions(self) -> set[Decision]:
        """Return the decision, which no other field of the record and no more of the task may change."""
        status: Any = None if self.says == NOTHING_YET else self.says
        cleared, same_attempt = self.cleared == "after a Clear", self.cleared == "the same"
        durable = self.cleared != "not durable"
        record = REMEMBERED[self.remembered]
        record = record and replace(record, delivered=self.delivered == "yes")
        moved = record and replace(record, max_tries=7, kicked_off_at=0.0, address="https://crew.example")
        return {
            decide(
                each,
                status,
                cleared=cleared,
                durable=durable,
                same_attempt=same_attempt,
                is_mapped=is_mapped,
                other_inputs=other_inputs,
            )
            for each, is_mapped, other_inputs in product([record, moved], [False, True], [False, True])
            if (self.row == "other") == (other_inputs and (is_mapped or not cleared))
        }


TABLE = Path(__file__).with_name("decisions.txt").read_text(encoding="utf-8")
# Below its heading.
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.splitlines() if "|" in line][2:]
CASES = [
    Case(*each)
    for each in product(
        REMEMBERED,
        [NOTHING_YET, *get_args(PolledStatus)],
        ["a retry", "the same", "after a Clear", "not durable"],
        ["no", "yes"],
        ["same", "other"],
    )
]


@cache
def rows_for(case: Case) -> list[list[str]]:
    return [row for row in ROWS if all(cell in (".", value) for cell, value in zip(row, case, strict=False))]


def test_table_has_one_row_for_every_case() -> None:
    assert {len(row) for row in ROWS} == {len(Case._fields) + 1}
    assert {case: rows_for(case) for case in CASES if len(rows_for(case)) != 1} == {}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ", ".join(cell for cell in row if cell != "."))
def test_attempt_decides_as_in_the_table(row: list[str]) -> None:
    cases = [case for case in CASES if rows_for(case) == [row]]

    assert cases
    assert set.union(*(case.decisions() for case in cases)) == {Decision[row[-1]]}


def test_table_has_every_decision() -> None:
    assert {row[-1] for row in ROWS} == {decision.name for decision in Decision}


def test_running_or_unknown_is_never_paid_again() -> None:
    known = [case for case in CASES if case.remembered == "an execution" and case.cleared != "not durable"]
    paid = [case for case in known if any(each.name.startswith("KICK_OFF") for each in case.decisions())]

    assert not {case.says for case in paid} & {"running", "unreadable", "unknown"}
