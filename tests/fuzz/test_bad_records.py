"""Data that travels from one process to the next: records and events of any content."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import error_record
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.task.record import as_stored, read_record
from airflow_provider_crew.triggers.events import read_event
from tests.fuzz.bad_values import any_json
from tests.fuzz.cases import assert_presentable, assert_storable, cases

NOW = 1_750_000_000.0
COMPLETED = {"status": "completed", "result": {"output": "Done.", "tasks": []}}
MISSING = object()


def spoilt(good: dict[str, Any], values: Any = any_json) -> st.SearchStrategy[Any]:
    """Replace or leave out some fields, or sometimes all."""
    some = st.dictionaries(st.sampled_from([*good, "unknown"]), values | st.just(MISSING), min_size=1, max_size=3)
    return st.one_of(*[some] * 4).map(
        lambda put: {key: value for key, value in {**good, **put}.items() if value is not MISSING}
    ) | st.one_of(values, st.just(good))


EVENT = {"kickoff_id": "4711", "deadline": NOW, "result": json.dumps(read_execution(COMPLETED, "4711").result())}
LOST = error_record(errors.LostContact("Lost 4711.", kickoff_id="4711"))
FAILED_EVENT = {"kickoff_id": "4711", "deadline": NOW, "error": json.dumps(LOST)}
ERROR_NAMES = [name for name in vars(errors) if name[0] != "_"]
records = spoilt(LOST) | st.fixed_dictionaries(
    {
        "kind": st.sampled_from(ERROR_NAMES) | any_json,
        "message": any_json,
        "facts": st.dictionaries(st.sampled_from(["kickoff_id", "lasted", "self", "message", "args"]), st.text()),
    }
)


@cases(
    spoilt(EVENT, any_json | any_json.map(json.dumps) | st.sampled_from(["{", "{}", '{"output": 1}', "nul"]))
    | spoilt(FAILED_EVENT, any_json | records.map(json.dumps)),
    known=[{**EVENT, key: odd} for key in EVENT.keys() | {"error"} for odd in (None, 7, "{", "{}", "[]", ["x"])],
)
def test_event_is_read_or_names_no_execution(event: Any) -> None:
    end = read_event(event)

    assert end is None or end.kickoff_id == event["kickoff_id"]
    if end and end.result:
        assert_storable(end.result)
    if end and end.error:
        assert_presentable(end.error)


KICKOFF = {
    "max_tries": 3,
    "kicked_off_at": NOW,
    "kickoff_id": "4711",
    "end": None,
    "reported": False,
    "address": "",
    "delivered": False,
    "fingerprint": "",
}
near = st.sampled_from(
    ["4711", "completed", "returned", "failed", "unknown", 3, 4, True, None, time.time(), "https://crew.example"]
)


@cases(
    spoilt(KICKOFF, any_json | near) | spoilt(KICKOFF, near),
    known=[{**KICKOFF, "kickoff_id": odd} for odd in ("a\x00\ud800", "", 7, ["x"])],
)
def test_record_is_read_or_counts_as_unreported(kept: Any) -> None:
    record, _ = read_record(kept, max_tries=3, now=NOW)

    if record.kickoff_id is not None:
        assert record.kickoff_id == kept["kickoff_id"]
    for name in ("reported", "delivered"):
        assert not getattr(record, name) or kept[name] in TRUE
    assert read_record(as_stored(record), max_tries=3, now=NOW)[0] == record


# The values that pydantic reads as true.
TRUE = (True, "true", "True", 1.0, "1", "yes", "on", "t", "y")
