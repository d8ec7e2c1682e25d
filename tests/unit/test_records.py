"""Errors recorded for another process keep their class, message and facts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import error_record, recorded_error, storable_text
from tests.unit.test_errors import ONE_OF_EACH, facts

any_text = st.text(st.characters(exclude_categories=()), max_size=12)


def carried(error: errors.CrewError) -> Any:
    """Send an error to another process, as text."""
    return recorded_error(json.loads(json.dumps(error_record(error))))


@pytest.mark.parametrize(
    "error",
    [
        errors.ExecutionFailed("failed", usage={}),
        *(error for error in ONE_OF_EACH if not vars(error).keys() & {"misfits", "missing_inputs"}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_recorded_error_keeps_class_message_and_facts(error: errors.CrewError) -> None:
    arrived = carried(error)

    assert facts(arrived) == facts(error)
    assert arrived.args == error.args


@pytest.mark.parametrize("weather", ["bad", {"wind": 7}])
def test_fact_of_a_newer_version_is_dropped(weather: object) -> None:
    record = {"kind": "LostContact", "message": "Lost.", "facts": {"kickoff_id": "7", "weather": weather}}

    arrived: Any = recorded_error(record)

    assert (type(arrived), arrived.args) == (errors.LostContact, ("Lost.",))
    assert arrived.kickoff_id == "7"


@pytest.mark.parametrize("kind", ["SolarStorm", "annotations", "TYPE_CHECKING", "__name__", "Exception", "eval"])
def test_class_of_a_newer_version_or_of_another_kind_is_generic(kind: str) -> None:
    arrived = recorded_error({"kind": kind, "message": "It storms.", "facts": {"kickoff_id": "7"}})

    assert (type(arrived), arrived.args) == (errors.CrewError, ("It storms.",))


@example(message="\x00\ud800", told="\udfff\x00", names=["\ud800", "\x00"])
@given(message=any_text, told=any_text, names=st.lists(any_text, max_size=2))
def test_record_of_any_text_can_be_stored(message: str, told: str, names: list[str]) -> None:
    usage = dict.fromkeys(names, 7)
    failed = errors.ExecutionFailed(message, kickoff_id=told, error=told, usage=usage)
    text = json.dumps(error_record(failed), ensure_ascii=False)

    text.encode()
    assert "\\u0000" not in text
    arrived: Any = recorded_error(json.loads(text))
    assert (arrived.args[0], arrived.error) == (storable_text(message), storable_text(told or message))
    assert arrived.usage == dict.fromkeys(map(storable_text, names), 7)


@pytest.mark.parametrize(
    "record",
    [
        None,
        "LostContact",
        {},
        {"kind": ["LostContact"], "message": {"x": 1}, "facts": 7},
        {"kind": "LostContact", "facts": None},
    ],
    ids=str,
)
def test_invalid_record_is_rejected(record: object) -> None:
    with pytest.raises(ValueError, match="error"):
        recorded_error(record)


def test_error_of_a_task_keeps_its_class() -> None:
    from airflow_provider_crew.exceptions import CutShort, OtherInputs

    assert {type(carried(kind("passed", kickoff_id="7"))) for kind in (CutShort, OtherInputs)} == {
        CutShort,
        OtherInputs,
    }
