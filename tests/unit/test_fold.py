"""
What follows from facts about the rows of a batch, in any order, and what an attempt does with a row.

To add a line to ``rows.txt``, write its first two columns.
"""

from __future__ import annotations

import json
import random
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.batch.facts import Fact, fact
from airflow_provider_crew.batch.fold import OPEN, Row, Rows, Why, decision_of, fold, steps_of
from airflow_provider_crew.batch.reasons import count_reason
from airflow_provider_crew.task.decide import Decision

ROW = Row(0, "a", "digest")


def ended(
    number: int, status: str, stage: str = "", error: str = "", *, watch: int = 0, tokens: Any = None
) -> Fact:
    about = {"status": status, "error": stage and {"type": error, "message": "", "stage": stage}, "watch": watch}
    usage = None if tokens is None else {"total_tokens": tokens}
    return fact(ROW, number, "ended", **about, kickoff_id="", usage=usage)


# A fact by its name, about the first kickoff, or about the one with that number.
KINDS: dict[str, Any] = {
    "sent": lambda n: fact(ROW, n, "sent", at=float(n), address="", call=""),
    "named": lambda n: fact(ROW, n, "named", kickoff_id=f"k{n}"),
    "not taken": lambda n: fact(ROW, n, "not taken"),
    "reported": lambda n: fact(ROW, n, "reported", error=None),
    "success": lambda n: ended(n, "success", tokens=7),
    "invalid": lambda n: ended(n, "invalid_output", "output", "InvalidOutput", tokens=7),
    "failed": lambda n: ended(n, "error", "execution", "ExecutionFailed", tokens=7),
    "failed since": lambda n: ended(n, "error", "execution", "ExecutionFailed", watch=1),
    "cancelled": lambda n: ended(n, "cancelled", "execution", "ExecutionCancelled"),
    "stopped": lambda n: ended(n, "cancelled", "execution", "ExecutionStopped"),
    "left": lambda n: ended(n, "error", "wait", "WaitedTooLong"),
    "refused": lambda n: ended(n, "error", "kickoff", "Rejected"),
    "reattached": lambda n: fact(ROW, n, "reattached", watch=1),
    **{
        f"again after {name}": lambda n, level=level: fact(ROW, n, "again", watch=0, level=level)
        for name, level in {"uncertain": 0, "failed": 3, "success": 5}.items()
    },
}
WHYS = [
    Why(cleared=False, reruns=False),
    Why(cleared=False, reruns=True),
    Why(cleared=True, reruns=True),
    Why(cleared=True, reruns=True, runs_all=True),
]


def fact_of(name: str) -> Fact:
    kind, number = name.rpartition(" ")[::2] if name[-1].isdigit() else (name, "1")
    return KINDS[kind](int(number))


def folded(names: str) -> Rows:
    return fold([Row(0, "a", "digest")], [fact_of(name) for name in names.split("; ") if name])


def meaning(names: str, status: Any) -> tuple[str, ...]:
    """Return the state of a row, and the decisions of each kind of attempt."""
    rows = folded(names)
    (row,) = rows.given
    sums = f"{rows.sums.executions} sent, {rows.sums.tokens} tokens"
    found = f"{row.state} {row.number}{', lost' if row.is_lost else ''}; {sums}"
    return found, *(decision_of(row, status or None, why=why).name for why in WHYS)


def test_rows_go_on_as_in_the_table(tabulated: Any) -> None:
    tabulated("rows.txt", 2, meaning)


# The fold.

given = st.integers(0, 2)
facts = st.lists(st.tuples(st.sampled_from([*KINDS]), st.integers(1, 3), given), max_size=25)


def rows_of(count: int = 3) -> list[Row]:
    return [Row(index, f"row {index}", "digest") for index in range(count)]


def as_facts(found: Any) -> list[Fact]:
    return [{**KINDS[kind](number), "key": f"row {index}"} for kind, number, index in found]


def known(rows: Rows) -> Any:
    """What a later attempt decides by."""
    states = [(row.key, row.state, row.number, row.executions, row.is_lost, row.next_number) for row in rows]
    names = [bool(row.kickoff.kickoff_id) for row in rows if row.state in OPEN]
    return states, names, rows.sums, rows.states, [[decision_of(row, why=why) for row in rows] for why in WHYS]


@hypothesis.given(facts, st.randoms(use_true_random=False))
def test_order_and_doubles_make_no_difference(found: Any, chance: random.Random) -> None:
    once = as_facts(found)
    again = chance.choices(once, k=len(once)) + once if once else []
    chance.shuffle(again)
    assert known(fold(rows_of(), once)) == known(fold(rows_of(), again))


@hypothesis.settings(max_examples=300)
@hypothesis.given(facts, facts)
def test_state_over_a_deferral_is_the_fold(before: Any, after: Any) -> None:
    carried = json.loads(json.dumps(fold(rows_of(), as_facts(before)).packed()))
    rows = Rows(rows_of())
    rows.unpack(*carried)
    for each in as_facts(after):
        rows.add(each)
    assert known(rows) == known(fold(rows_of(), as_facts(before + after)))


@hypothesis.given(facts)
def test_no_result_is_hidden_unless_it_was_to_be_replaced(found: Any) -> None:
    rows = fold(rows_of(), as_facts(found))
    replaced = {index for kind, _, index in found if kind == "again after success"}
    for kind, _, index in found:
        if kind == "success" and index not in replaced:
            assert rows.given[index].state in {"success", "running", "uncertain", "left", "invalid_output"}


# Attempts that are killed anywhere, and lose the files or the entries of the store.

moves = st.lists(
    st.fixed_dictionaries(
        {
            "cleared": st.booleans(),
            "dies": st.sampled_from(
                ["", "before it is sent", "before its response", "before its end", "at its end"]
            ),
            "ends": st.sampled_from(["", "failed", "success"]),
            "loses": st.sampled_from(["", "", "files", "store"]),
        }
    ),
    max_size=8,
)


@hypothesis.settings(max_examples=300)
@hypothesis.given(moves)
def test_no_kickoff_is_sent_while_an_execution_may_run(attempts: Any) -> None:  # noqa: C901 - a small world
    files, store = list[Fact](), list[Fact]()
    running: set[int] = set()
    results = sent = 0
    for move in attempts:
        rows = fold([Row(0, "a", "digest")], files + store)
        (row,) = rows.given
        why = Why(cleared=move["cleared"], reruns=move["cleared"])
        decision = decision_of(row, "running" if row.number in running else None, why=why)
        if decision is Decision.FAIL_UNCERTAIN:
            files.append(fact(row, row.number, "reported", error=None))
        if decision is Decision.KICK_OFF_BY_CHOICE:
            running.clear()  # a user has looked
        if (
            decision in {Decision.ASK, Decision.KICK_OFF_AFTER_END}
            and row.state in {"error", "left"}
            and not running
        ):
            files.append(fact(row, row.number, "again", watch=row.kickoff.watch, level=row.kickoff.level))
            decision = Decision.KICK_OFF
        if decision not in {Decision.KICK_OFF, Decision.KICK_OFF_BY_CHOICE}:
            continue
        assert not running
        number = row.next_number
        news = [fact(row, number, "sent", at=1.0, address="", call="")]
        if move["dies"] != "before it is sent":
            sent += 1
            running.add(number)
            if move["dies"] != "before its response":
                news.append(fact(row, number, "named", kickoff_id=f"k{number}"))
        files += news
        store += news
        if move["ends"] and number in running:
            running.discard(number)
            if move["dies"] == "":
                files.append({**KINDS[move["ends"]](number), "key": "a"})
                results += move["ends"] == "success"
        # One of them may be lost, until the next attempt has both.
        if move["loses"] == "files":
            files[:] = store
        elif move["loses"] == "store":
            store[:] = [each for each in files if each["what"] in {"sent", "named"}]
    assert results <= 1 + sent


def test_tokens_that_no_crew_can_have_used_are_unknown() -> None:
    for tokens in (-1_000, 1.5e308, True, "7", 10**400):
        rows = fold([Row(0, "a", "digest")], [KINDS["sent"](1), ended(1, "success", tokens=tokens)])
        assert rows.sums[:3] == (0, 0, 1)
    rows = fold([Row(0, "a", "digest")], [KINDS["sent"](1), ended(1, "success", tokens=0)])
    assert rows.sums[:2] == (0, 1)


@pytest.mark.parametrize("why", WHYS)
def test_many_rows_are_counted_as_one_by_one(why: Why) -> None:
    rows = [row for names in ("", "sent", "sent; named", "sent; success", "sent; failed") for row in folded(names)]
    one_by_one = [step for row in rows for step in steps_of([row], why=why)]
    assert sorted(steps_of(rows, why=why).elements()) == sorted(one_by_one)


# Reasons.


def test_reasons_of_many_rows_stay_small() -> None:
    groups: list[dict[str, Any]] = []
    for number in range(10_000):
        count_reason(groups, "k" * 200, "error", f"{number}: {'r' * 2_000}")

    assert len(json.dumps(groups)) < 64 * 1024


def reasons() -> list[tuple[Any, ...]]:
    """Return the most common of some reasons of failed rows."""
    groups: list[dict[str, Any]] = []
    for number in range(4):
        count_reason(groups, f"late {number}", "error", f"Execution 57a13a6e-0d6f-{number} ran for {number}m 10s.")
    for status in ("error", "uncertain"):
        count_reason(groups, "gone", status, "503: no response")
    count_reason(groups, "poor", "error", "402: out of credit")
    for number in range(5):
        count_reason(groups, f"busy {number}", "error", "503: busy")
    return [
        (each["count"], each["status"], each["reason"], each["keys"])
        for each in sorted(groups, key=lambda group: -group["count"])
    ]
