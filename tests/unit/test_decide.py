"""Decision of an attempt about an earlier kickoff: the whole table, and its invariants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple, get_args

import pytest

from airflow_provider_crew.task.decide import Decision, End, KickoffRecord, PolledStatus, decide
from tests.unit.crew_builders import KICKOFF_ID, NOW

# A dot: any value. "old": the kickoff is older than abandon_unknown_after. "delivered": Airflow has the result.
# "twice": on_uncertain_kickoff="retry". "row": "other" if a mapped task's inputs differ from those of the
# kickoff, so the record may be that of another row. "the same" attempt has sent the kickoff itself.
TABLE = """
    remembered         | service says | the try is    | old | delivered | twice | row   | decision
    -------------------|--------------|---------------|-----|-----------|-------|-------|------------------------
    nothing            | .            | .             | .   | .         | .     | .     | KICK_OFF

    sent               | .            | .             | .   | .         | no    | .     | FAIL_UNCERTAIN
    sent               | .            | .             | .   | .         | yes   | .     | KICK_OFF_BY_CHOICE
    sent, and reported | .            | a retry       | .   | .         | no    | .     | FAIL_UNCERTAIN
    sent, and reported | .            | the same      | .   | .         | no    | .     | FAIL_UNCERTAIN
    sent, and reported | .            | after a Clear | .   | .         | no    | .     | KICK_OFF_BY_CHOICE
    sent, and reported | .            | .             | .   | .         | yes   | .     | KICK_OFF_BY_CHOICE

    failed             | .            | .             | .   | .         | .     | .     | KICK_OFF_AFTER_END
    stopped            | .            | a retry       | .   | .         | .     | .     | FAIL_STOPPED
    stopped            | .            | the same      | .   | .         | .     | .     | FAIL_STOPPED
    stopped            | .            | after a Clear | .   | .         | .     | .     | KICK_OFF_AFTER_END
    completed          | .            | a retry       | .   | .         | .     | .     | REATTACH
    completed          | .            | the same      | .   | .         | .     | same  | REATTACH
    completed          | .            | the same      | .   | .         | .     | other | KICK_OFF_AFTER_END
    completed          | .            | after a Clear | .   | no        | .     | same  | REATTACH
    completed          | .            | after a Clear | .   | no        | .     | other | KICK_OFF_AFTER_END
    completed          | .            | after a Clear | .   | yes       | .     | .     | KICK_OFF_AFTER_END

    an execution       | nothing yet  | .             | .   | .         | .     | .     | ASK
    an execution       | running      | a retry       | .   | .         | .     | .     | REATTACH
    an execution       | running      | the same      | .   | .         | .     | same  | REATTACH
    an execution       | running      | the same      | .   | .         | .     | other | FAIL_OTHER_INPUTS
    an execution       | running      | after a Clear | .   | .         | .     | same  | REATTACH
    an execution       | running      | after a Clear | .   | .         | .     | other | FAIL_OTHER_INPUTS
    an execution       | unreadable   | a retry       | .   | .         | .     | .     | REATTACH
    an execution       | unreadable   | the same      | .   | .         | .     | same  | REATTACH
    an execution       | unreadable   | the same      | .   | .         | .     | other | FAIL_OTHER_INPUTS
    an execution       | unreadable   | after a Clear | .   | .         | .     | same  | REATTACH
    an execution       | unreadable   | after a Clear | .   | .         | .     | other | FAIL_OTHER_INPUTS
    an execution       | failed       | .             | .   | .         | .     | .     | KICK_OFF_AFTER_END
    an execution       | stopped      | a retry       | .   | .         | .     | .     | FAIL_STOPPED
    an execution       | stopped      | the same      | .   | .         | .     | .     | FAIL_STOPPED
    an execution       | stopped      | after a Clear | .   | .         | .     | .     | KICK_OFF_AFTER_END
    an execution       | completed    | the same      | .   | .         | .     | same  | REATTACH
    an execution       | completed    | the same      | .   | .         | .     | other | KICK_OFF_AFTER_END
    an execution       | completed    | a retry       | .   | .         | .     | .     | REATTACH
    an execution       | completed    | after a Clear | .   | no        | .     | same  | REATTACH
    an execution       | completed    | after a Clear | .   | no        | .     | other | KICK_OFF_AFTER_END
    an execution       | completed    | after a Clear | .   | yes       | .     | .     | KICK_OFF_AFTER_END
    an execution       | unknown      | a retry       | .   | .         | .     | .     | REATTACH
    an execution       | unknown      | the same      | .   | .         | .     | same  | REATTACH
    an execution       | unknown      | the same      | .   | .         | .     | other | FAIL_OTHER_INPUTS
    an execution       | unknown      | after a Clear | no  | .         | .     | same  | REATTACH
    an execution       | unknown      | after a Clear | no  | .         | .     | other | FAIL_OTHER_INPUTS
    an execution       | unknown      | after a Clear | yes | .         | .     | .     | KICK_OFF_AFTER_EXPIRY
"""
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
    old: str
    delivered: str
    twice: str
    row: str

    def decision(self) -> Decision:
        status: Any = None if self.says == NOTHING_YET else self.says
        record = REMEMBERED[self.remembered]
        return decide(
            record and replace(record, delivered=self.delivered == "yes"),
            status,
            cleared=self.cleared == "after a Clear",
            same_attempt=self.cleared == "the same",
            is_old=self.old == "yes",
            chooses_twice=self.twice == "yes",
            is_mapped=self.row == "other" and self.cleared != "the same",
            other_inputs=self.row == "other",
        )


ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()[2:] if line.strip()]
CASES = [
    Case(*each)
    for each in product(
        REMEMBERED,
        [NOTHING_YET, *get_args(PolledStatus)],
        ["a retry", "the same", "after a Clear"],
        ["no", "yes"],
        ["no", "yes"],
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
    assert {case.decision() for case in cases} == {Decision[row[-1]]}


def test_table_has_every_decision() -> None:
    assert {row[-1] for row in ROWS} == {decision.name for decision in Decision}


KICKS_OFF = {decision for decision in Decision if decision.name.startswith("KICK_OFF")}
KICKOFFS = [
    None,
    *(
        KickoffRecord(3, NOW, kickoff_id, end, reported=reported, delivered=delivered)
        for kickoff_id, end, reported, delivered in product(
            [None, KICKOFF_ID], [None, *get_args(End)], [False, True], [False, True]
        )
    ),
]


class Circumstances(NamedTuple):
    """What counts besides what is remembered and what the service says."""

    cleared: bool
    same_attempt: bool
    chooses_twice: bool
    is_old: bool
    is_mapped: bool
    other_inputs: bool

    @property
    def is_another_row(self) -> bool:
        return self.other_inputs and (self.same_attempt or (self.cleared and self.is_mapped))


CIRCUMSTANCES = [Circumstances(*each) for each in product([False, True], repeat=6) if not (each[0] and each[1])]
ALL = list(product(KICKOFFS, CIRCUMSTANCES, [None, *get_args(PolledStatus)]))


def decided(remembered: KickoffRecord | None, given: Circumstances, status: Any) -> Decision:
    return decide(remembered, status, **given._asdict())


def paid_for(remembered: KickoffRecord | None, given: Circumstances, status: Any) -> bool:
    return decided(remembered, given, status) in KICKS_OFF


def is_unanswered(remembered: KickoffRecord | None) -> bool:
    return remembered is not None and remembered.kickoff_id is None


def how_it_stands(remembered: KickoffRecord | None, status: Any) -> Any:
    """Return how the execution stands, as remembered or as told, None when there is none."""
    if remembered is None or remembered.kickoff_id is None:
        return None
    return remembered.end or status


def test_retry_pays_again_only_after_a_failure_or_by_choice() -> None:
    for remembered, given, status in ALL:
        if not given.cleared and paid_for(remembered, given, status):
            stands = how_it_stands(remembered, status)
            is_next_item = given.is_another_row and stands == "completed"
            was_chosen = is_unanswered(remembered) and given.chooses_twice
            assert remembered is None or stands == "failed" or is_next_item or was_chosen


def test_stopped_execution_is_paid_again_only_after_a_clear() -> None:
    for remembered, given, status in ALL:
        if how_it_stands(remembered, status) == "stopped":
            assert paid_for(remembered, given, status) is given.cleared


def test_running_execution_is_never_paid_for_again() -> None:
    for remembered, given, status in ALL:
        if how_it_stands(remembered, status) in ("running", "unreadable"):
            expected = Decision.FAIL_OTHER_INPUTS if given.is_another_row else Decision.REATTACH
            assert decided(remembered, given, status) is expected


def test_another_row_is_never_handed_an_execution() -> None:
    for remembered, given, status in ALL:
        if given.is_another_row:
            assert decided(remembered, given, status) is not Decision.REATTACH


def test_other_inputs_change_nothing_but_for_another_row() -> None:
    for remembered, given, status in ALL:
        if not given.is_another_row:
            same = given._replace(is_mapped=False, other_inputs=False)
            assert decided(remembered, given, status) is decided(remembered, same, status)


def test_unknown_is_replaced_only_if_old_and_cleared() -> None:
    for remembered, given, status in ALL:
        if how_it_stands(remembered, status) == "unknown":
            assert paid_for(remembered, given, status) is (given.cleared and given.is_old)


def test_uncertain_kickoff_is_repeated_only_by_choice() -> None:
    for remembered, given, status in ALL:
        if remembered and is_unanswered(remembered):
            chosen = given.chooses_twice or (remembered.reported and given.cleared)
            decision = Decision.KICK_OFF_BY_CHOICE if chosen else Decision.FAIL_UNCERTAIN
            assert decided(remembered, given, status) is decision


def test_undelivered_result_is_not_paid_for_twice() -> None:
    for remembered, given, status in ALL:
        stands = how_it_stands(remembered, status)
        is_wanted = remembered and not remembered.delivered and not given.is_another_row
        if is_wanted and stands == "completed":
            assert decided(remembered, given, status) is Decision.REATTACH


def test_clearing_after_the_end_kicks_off() -> None:
    for remembered, given, status in ALL:
        stands = how_it_stands(remembered, status)
        is_done = stands in ("failed", "stopped") or (
            stands == "completed" and remembered and remembered.delivered
        )
        if is_done and given.cleared:
            assert decided(remembered, given, status) is Decision.KICK_OFF_AFTER_END


def test_service_is_polled_only_for_an_unended_execution() -> None:
    for remembered, given, status in ALL:
        asks = decided(remembered, given, status) is Decision.ASK
        assert asks is bool(remembered and remembered.kickoff_id and not remembered.end and status is None)


def test_attempt_without_a_record_kicks_off() -> None:
    assert {decided(*each) for each in ALL if each[0] is None} == {Decision.KICK_OFF}


def test_time_address_and_attempt_do_not_matter() -> None:
    for remembered, given, status in ALL:
        if remembered:
            other = replace(remembered, max_tries=7, kicked_off_at=0.0, address="https://crew.example")
            assert decided(other, given, status) is decided(remembered, given, status)
