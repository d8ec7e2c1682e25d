"""Question of a crew: what of it is stored, what is read of it again, and what a user has typed."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.answers.question import Call, Undeliverable, empty_box, question_in, record_in, typed

ORIGIN = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 2}


def call(task_id: str = "q", draft: Any = "A draft") -> Call:
    return Call.of({"task_id": task_id, "task_output": draft, "meta": {"airflow": ORIGIN}})


def test_stored_question_is_read_again():
    box = call().added_to(empty_box(2))

    assert question_in(box) == {"task_id": "q", "draft": "A draft"}
    assert call().added_to(box) is None


@pytest.mark.parametrize(
    "box",
    [
        None,
        [],
        empty_box(2),
        {"question": None},
        {"question": {"task_id": 7, "draft": "A draft"}},
        {"question": {"task_id": "q", "draft": None}},
        {"question": {"task_id": "q"}},
    ],
)
def test_box_without_a_question_has_none(box):
    assert question_in(box) is None


def test_record_of_another_execution_is_none():
    kept = {"kickoff_id": "k", "outcome": "sending", "number": 2}

    assert record_in(kept, "k") == kept
    for record in (None, [kept], {"outcome": "sending"}, kept | {"kickoff_id": "another"}):
        assert record_in(record, "k") == {}


@pytest.mark.parametrize("box", [None, {}, {"try_number": 1, "known": []}, {"try_number": 2, "known": "q"}])
def test_box_of_another_attempt_takes_no_question(box):
    with pytest.raises(Undeliverable):
        call().added_to(box)


def test_last_hundred_questions_are_known():
    box: Any = empty_box(2)
    for number in range(102):
        box = call(f"q{number}").added_to(box)

    assert box["known"] == [f"q{number}" for number in range(2, 102)]


@pytest.mark.parametrize(("length", "is_cut"), [(16 * 1024, False), (16 * 1024 + 1, True)])
def test_draft_is_cut_at_16_kib(length, is_cut):
    box: Any = call(draft="x" * length).added_to(empty_box(2))
    shown = box["question"]["draft"]

    assert shown.startswith("x" * (16 * 1024))
    assert (shown != "x" * length) is is_cut


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("  yes\n", "yes"),
        (None, ""),
        (7, "7"),
        (False, "false"),
        ({"title": "Fähre"}, '{"title": "Fähre"}'),
        (["a"], '["a"]'),
    ],
)
def test_answer_is_the_text_that_was_typed(value, text):
    assert typed(value) == text


def test_first_field_counts_if_a_deployment_nests_them():
    body = {"data": {"task_id": "inner", "task_output": "inner"}, "task_id": "q", "meta": {"airflow": ORIGIN}}

    assert (Call.of(body).task_id, Call.of(body).draft) == ("q", "inner")
