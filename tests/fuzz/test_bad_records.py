"""Data that travels from one process to the next: records and events of any content."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import error_record
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.fuzz.bad_tasks import Store, TaskInstance, context, ended
from tests.fuzz.bad_values import any_json
from tests.fuzz.cases import assert_storable, cases
from tests.fuzz.world import World

NOW = 1_750_000_000.0
COMPLETED = {"status": "completed", "result": {"output": "Done.", "tasks": []}}
RUNNING = {"status": "running", "current_task": "research"}
FAILED = {"state": "FAILED", "status": "out of credit", "usage_metrics": {"total_tokens": 312}}
UNKNOWN = {"state": "NOT FOUND", "status": "Task not found or Invalid kickoff id"}
PAUSED = {"state": "PAUSED", "status": "Task is Paused"}
documents = st.sampled_from([COMPLETED, RUNNING, FAILED, UNKNOWN, PAUSED])
MISSING = object()


def spoilt(good: dict[str, Any], values: Any = any_json) -> st.SearchStrategy[Any]:
    """Replace or leave out some fields, or sometimes all."""
    some = st.dictionaries(st.sampled_from([*good, "unknown"]), values | st.just(MISSING), min_size=1, max_size=3)
    return st.one_of(*[some] * 4).map(
        lambda put: {key: value for key, value in {**good, **put}.items() if value is not MISSING}
    ) | st.one_of(values, st.just(good))


def resumed(world: World, kind: Any, event: Any, document: dict[str, Any]) -> Any:
    world.prepare(document)
    needed: dict[str, Any] = {"inputs": {}} if kind is CrewRunOperator else {"kickoff_id": "4711"}
    task = kind(task_id="crew", **needed)
    ti = TaskInstance()
    ti.xcoms["kickoff_id"] = "4711"
    store = Store({"max_tries": 3, "kicked_off_at": NOW, "kickoff_id": "4711"})
    return ended(lambda: task.resume_execution("execute_complete", {"event": event}, context(store, ti)))


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
    st.tuples(
        st.sampled_from([CrewRunOperator, CrewExecutionSensor]),
        spoilt(EVENT, any_json | any_json.map(json.dumps) | st.sampled_from(["{", "{}", '{"output": 1}', "nul"]))
        | spoilt(FAILED_EVENT, any_json | records.map(json.dumps)),
        documents,
    ),
    known=[
        (kind, {**EVENT, key: odd}, COMPLETED)
        for kind in (CrewRunOperator, CrewExecutionSensor)
        for key in EVENT.keys() | {"error"}
        for odd in (None, 7, "{", "{}", "[]", ["x"])
    ],
)
def test_resumed_task_never_starts_an_execution(world: World, case: Any) -> None:
    kind, event, document = case
    result = resumed(world, kind, event, document)

    assert world.kickoffs == 0
    if isinstance(result, dict):
        assert_storable(result)
        assert "output_json" in result
    elif document is COMPLETED:
        # The result is there, unless the event has an error or names another execution.
        assert event.get("error") or event["kickoff_id"] != "4711"


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
    st.tuples(spoilt(KICKOFF, any_json | near) | spoilt(KICKOFF, near), documents),
    known=[
        *(({**KICKOFF, "kickoff_id": odd}, COMPLETED) for odd in ("a\x00\ud800", "", 7, ["x"])),
        *(
            (
                {**KICKOFF, "kickoff_id": kickoff_id, "max_tries": max_tries, "reported": reported, "end": end},
                document,
            )
            for kickoff_id, end in ((None, None), ("4711", None), ("4711", "returned"), ("4711", "completed"))
            for max_tries in (2, 3)
            for reported in (False, True, 1, "yes")
            for document in (COMPLETED, FAILED, UNKNOWN)
        ),
    ],
)
def test_attempt_with_any_record_pays_at_most_once(world: World, case: Any) -> None:
    kept, document = case
    world.prepare(document)
    task = CrewRunOperator(task_id="crew", inputs={}, poll_interval=0.001, timeout=30.0, validate_inputs=False)
    result = ended(lambda: task.execute(context(Store(kept))))

    may_start = may_start_another(kept, document)
    assert world.kickoffs <= may_start
    if kept is KICKOFF and document is COMPLETED:
        assert result["output"] == "Done."
    if not may_start and not (isinstance(kept, dict) and kept.get("kickoff_id")):
        assert isinstance(result, CrewTaskFailed)


# The values that pydantic reads as true.
TRUE = (True, "true", "True", 1.0, "1", "yes", "on", "t", "y")


def may_start_another(kept: Any, document: dict[str, Any]) -> bool:
    """Whether any reading of the record allows another kickoff, by the least that has to hold for it."""
    if kept is None:
        return True
    fields = kept if isinstance(kept, dict) else {}
    end, kickoff_id = fields.get("end"), fields.get("kickoff_id")
    cleared = fields.get("max_tries") != TaskInstance.max_tries
    delivered = cleared and fields.get("delivered") in TRUE
    if kickoff_id is None:
        return cleared and fields.get("reported") in TRUE
    if end in ("failed", "completed"):
        return end == "failed" or delivered
    if document is COMPLETED and delivered:
        return True
    # The kickoff of NOW is longer ago than abandon_unknown_after.
    return document is FAILED or (document is UNKNOWN and cleared and fields.get("kicked_off_at") != time.time())
