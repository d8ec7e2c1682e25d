"""Trigger events reach the task unchanged, through JSON and Airflow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import storable_json
from airflow_provider_crew.client.models import Completed
from airflow_provider_crew.triggers.events import (
    read_event,
    told_completed,
)
from tests.unit.crew_builders import KICKOFF_ID, NOW

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
).map(storable_json)

GOOD = {"kickoff_id": KICKOFF_ID, "deadline": NOW}


def completed(**result: Any) -> Completed:
    return Completed(status="completed", kickoff_id=KICKOFF_ID, **{"output": "Done.", **result})


def stored(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as Airflow's database returns it. Texts and numbers mean nothing to Airflow's encodings."""
    assert all(isinstance(value, str | int | float) for value in event.values())
    return json.loads(json.dumps(event, allow_nan=False))


def event_of(ended: Completed) -> dict[str, Any]:
    return GOOD | told_completed(ended)


@example(output="", output_json={"__classname__": "os.system", "__var": 1, "__type": "dict"})
@given(output=st.text(), output_json=plain_json)
def test_result_round_trips_whatever_its_keys_mean_to_airflow(output: str, output_json: Any) -> None:
    facts = {"usage": {"total_tokens": 312}, "tasks": [{"task_id": "facts_task", "output": "Facts."}]}
    ended = completed(output=output, output_json=output_json, **facts)

    end = read_event(stored(event_of(ended)))

    assert (end.kickoff_id, end.deadline, end.error) == (KICKOFF_ID, NOW, None)
    assert end.result == ended.result()


@pytest.mark.parametrize(("over", "carried"), [(0, True), (1, False)], ids=["64 KB", "a byte more"])
@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f6a2"], ids=["ascii", "latin", "ship"])
def test_result_is_carried_up_to_64_kb(over: int, *, carried: bool, letter: str) -> None:
    empty = len(json.dumps(completed(output="").result()))
    width = len(json.dumps(letter)) - 2
    letters, rest = divmod(64 * 1024 - empty, width)
    ended = completed(output=letter * letters + "y" * (rest + over))

    event = event_of(ended)
    end = read_event(stored(event))

    assert end.result == (ended.result() if carried else None)
    assert len(json.dumps(event).encode()) < 80 * 1024
    assert (end.kickoff_id, end.error) == (KICKOFF_ID, None)
