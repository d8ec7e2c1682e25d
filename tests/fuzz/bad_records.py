"""What travels from one process to the next, and may come from another version, or from nobody knows where."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import CrewError, ServiceError, Unreachable, error_record, recorded_error
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.client.watch import Watch, WatchMemory, WatchRules
from airflow_provider_crew.durable.wait import SeenBefore
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.fuzz.bad_answers import NOW
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import presentable, storable
from tests.fuzz.bad_tasks import Store, TaskInstance, context, ended, needed_by
from tests.fuzz.bad_values import STATUSES, any_json

COMPLETED = {"status": "completed", "result": {"output": "Done.", "tasks": []}}
RUNNING = {"status": "running", "current_task": "research"}
FAILED = {"state": "FAILED", "status": "out of credit", "usage_metrics": {"total_tokens": 312}}
UNKNOWN = {"state": "NOT FOUND", "status": "Task not found or Invalid kickoff id"}
PAUSED = {"state": "PAUSED", "status": "Task is Paused"}
MISSING = object()


def spoilt(good: dict[str, Any], values: Any = any_json) -> st.SearchStrategy[Any]:
    """Take what is good, and replace or leave out some of it, or now and then all."""
    some = st.dictionaries(st.sampled_from([*good, "unknown"]), values | st.just(MISSING), min_size=1, max_size=3)
    return st.one_of(*[some] * 4).map(
        lambda put: {key: value for key, value in {**good, **put}.items() if value is not MISSING}
    ) | st.one_of(values, st.just(good))


def answering(document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


KIND_NAMES = [name for name in vars(errors) if name[0] != "_"]
records = spoilt(
    {"kind": "LostContact", "message": "Lost.", "facts": {"kickoff_id": "4711"}}
) | st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KIND_NAMES) | any_json,
        "message": any_json,
        "facts": st.dictionaries(st.sampled_from(["kickoff_id", "lasted", "self", "message", "args"]), st.text()),
    }
)


def a_record_is_an_error(_: World, record: Any) -> None:
    try:
        error = recorded_error(record)
    except ValueError:
        return
    assert isinstance(error, CrewError)
    assert isinstance(str(error), str)
    storable(json.loads(json.dumps(error_record(error)), parse_constant=lambda _: None))


TASK = {"task_id": "research", "agent": "Writer", "output": "Facts.", "execution_time": None}
MEMORY = {
    "started_at": NOW - 100,
    "seen": False,
    "progress": "task 1 of 3",
    "progress_since": NOW - 50,
    "said_at": NOW - 20,
    "troubles": {"silent": None},
    "said_trouble": "",
    "said_about": "",
    "polled_at": NOW - 10,
    "pause": 10.0,
    "tasks": [TASK],
}
near_tasks = st.lists(spoilt(TASK), max_size=3)
times = st.sampled_from([NOW, NOW - 20, NOW - 700, NOW + 700, 0.0, 2.0**33, -(2.0**33)])
memories = (
    spoilt(MEMORY)
    | spoilt(MEMORY, near_tasks | times | st.booleans())
    | st.builds(lambda since, seen: {**MEMORY, "troubles": {"unknown": since}, "seen": seen}, times, st.booleans())
)
_LOOKS = [
    *(read_execution(document, "4711") for document in STATUSES[:-1]),
    read_execution({"status": "queued"}, "4711"),
    ServiceError("502", retry_after=5.0),
    Unreachable("Nothing came."),
    errors.NotAuthenticated("401"),
    errors.ExecutionNotFound("404"),
    errors.ExecutionNotFound("404", address="https://crew.example"),
]
_WATCHED = st.fixed_dictionaries(
    {},
    optional={
        "exists": st.booleans(),
        "human_input": st.booleans(),
        "address": st.sampled_from(["", "https://crew.example", "https://other.example"]),
        "max_outage": st.sampled_from([600.0, None, float("inf"), 0.0, 10.0]),
        "kicked_off_at": st.sampled_from([None, NOW - 10, NOW - 1000, NOW + 1000]),
        "poll_interval": st.sampled_from([None, 0.5, 10.0, 300.0]),
    },
)


def any_memory_can_be_gone_on_with(_: World, case: Any) -> None:
    kept, looks, given = case
    rules = WatchRules(deadline=NOW + 50, **given)
    watches = [
        Watch("4711", rules, clock=lambda: NOW, random=lambda: 0.1, memory=WatchMemory.recalled(kept))
        for _ in looks[::2]
    ]
    for number, look in enumerate(looks):
        watch = watches[number // 2]
        step = watch.on_error(look) if isinstance(look, errors.CallError) else watch.on_status(look)
        assert 0 <= step.poll_again_in < 400
        assert step.error or step.completed or step.poll_again_in > 0
        storable(watch.memory.carried())
        assert isinstance(watch.memory.seen, bool)
        assert WatchMemory.recalled(watch.memory.carried())
        if step.error:
            presentable(step.error)
        assert bool(step.completed) is (getattr(look, "status", "") == "completed")
        if step.completed:
            storable(step.completed.result())


def a_poke_remembers_or_begins_anew(_: World, kept: Any) -> None:
    store = Store(kept)
    memory = SeenBefore(context(store), "4711")

    told = kept if isinstance(kept, dict) else {}
    of_this = told["try"].get("kickoff_id") == "4711" if isinstance(told.get("try"), dict) else False
    assert isinstance(memory.exists, bool)
    assert of_this or not memory.exists
    recalled = memory.recall()
    assert recalled is None or (of_this and isinstance(recalled, WatchMemory))
    if recalled:
        any_memory_can_be_gone_on_with(_, (recalled.carried(), _LOOKS, {"kicked_off_at": NOW - 10}))

    memory.keep(WatchMemory(started_at=NOW, seen=True))
    assert memory.exists
    assert SeenBefore(context(store), "4711").exists


RULES = {
    "poll_interval": 10.0,
    "deadline": time.time() + 3600,
    "max_outage": 600.0,
    "kicked_off_at": NOW,
    "exists": True,
    "address": "",
    "human_input": False,
}


async def _fired(trigger: CrewExecutionTrigger) -> Any:
    (event,) = [event async for event in trigger.run()]
    return event.payload


def a_trigger_fires_in_any_case(world: World, case: Any) -> None:
    put, memory, document = case
    world.service.answer = answering(document)
    trigger = CrewExecutionTrigger("4711", "crew_default", rules={**RULES, **put}, deferred_at=NOW, memory=memory)
    payload = json.loads(json.dumps(asyncio.run(_fired(trigger))))

    came = _resumed(world, CrewRunOperator, payload, COMPLETED, xcom="4711")
    if not put and document is COMPLETED:
        assert came["output"] == "Done."
    if document is not COMPLETED:
        assert isinstance(came, BaseException)
    assert world.service.kickoffs == 0


EVENT = {
    "kickoff_id": "4711",
    "deadline": NOW,
    "result": json.dumps(read_execution(COMPLETED, "4711").result()),
}
FAILED_EVENT = {
    "kickoff_id": "4711",
    "deadline": NOW,
    "error": json.dumps(error_record(errors.LostContact("Lost 4711.", kickoff_id="4711"))),
}


def _resumed(world: World, kind: Any, event: Any, document: dict[str, Any], *, xcom: str | None) -> Any:
    world.service.answer = answering(document)
    world.service.asked.clear()
    task = kind(task_id="crew", **needed_by(kind))
    ti = TaskInstance()
    if xcom:
        ti.xcoms["kickoff_id"] = xcom
    store = Store({"max_tries": 3, "kicked_off_at": NOW, "kickoff_id": "4711"})
    context = {"ti": ti, "task_state_store": store}
    return ended(lambda: task.resume_execution("execute_complete", {"event": event}, context))


def a_task_resumes_with_any_event(world: World, case: Any) -> None:
    kind, event, document = case
    came = _resumed(world, kind, event, document, xcom="4711")

    assert world.service.kickoffs == 0
    if isinstance(came, dict):
        storable(came)
        assert {"output", "output_json"} <= came.keys()
    elif document is COMPLETED:
        # There is a result to be had, unless somebody has said otherwise, or speaks of another execution.
        assert event.get("error") or event["kickoff_id"] != "4711"


KICKOFF = {
    "max_tries": 3,
    "kicked_off_at": NOW,
    "kickoff_id": "4711",
    "end": None,
    "reported": False,
    "address": "",
    "delivered": False,
    "name": "",
    "fingerprint": "",
}
_near_kickoff = st.sampled_from(
    ["4711", "completed", "returned", "failed", "unknown", 3, 4, True, None, time.time(), "https://crew.example"]
)
kept_kickoffs = spoilt(KICKOFF, any_json | _near_kickoff) | spoilt(KICKOFF, _near_kickoff)


def a_task_with_any_memory_pays_once(world: World, case: Any) -> None:
    kept, document = case
    world.service.answer = answering(document)
    world.service.asked.clear()
    task = CrewRunOperator(task_id="crew", inputs={}, poll_interval=0.001, timeout=30.0, validate_inputs=False)
    came = ended(lambda: task.execute(context(Store(kept))))

    may_kick_off = _may_pay(kept, document)
    assert world.service.kickoffs <= may_kick_off
    if kept is KICKOFF and document is COMPLETED:
        assert came["output"] == "Done."
    if not may_kick_off and not (isinstance(kept, dict) and kept.get("kickoff_id")):
        assert isinstance(came, CrewTaskFailed)


# What pydantic takes for true.
TRUE = (True, "true", "True", 1.0, "1", "yes", "on", "t", "y")


def _may_pay(kept: Any, document: dict[str, Any]) -> bool:
    """Say whether any reading of what was kept lets a try pay, by the least that has to hold for that."""
    if kept is None:
        return True
    told = kept if isinstance(kept, dict) else {}
    max_tries, end, kickoff_id = (told.get(name) for name in ("max_tries", "end", "kickoff_id"))
    cleared = max_tries != TaskInstance.max_tries
    if kickoff_id is None:
        return cleared and told.get("reported") in TRUE
    if end in ("failed", "completed"):
        return end == "failed" or (cleared and told.get("delivered") in TRUE)
    if document is COMPLETED and cleared and told.get("delivered") in TRUE:
        return True
    # That of NOW is longer ago than abandon_unknown_after.
    return document is FAILED or (document is UNKNOWN and cleared and told.get("kicked_off_at") != time.time())


documents = st.sampled_from([COMPLETED, RUNNING, FAILED, UNKNOWN, PAUSED])
_ODD: tuple[Any, ...] = (7, "x", [None], {}, 10**400)

KINDS = (
    Kind("recorded error", records, a_record_is_an_error, weight=5),
    Kind(
        "memory of a watch",
        st.tuples(
            memories,
            st.permutations(_LOOKS),
            _WATCHED,
        ),
        any_memory_can_be_gone_on_with,
        weight=5,
        known=(
            (MEMORY, _LOOKS, {"max_outage": float("inf"), "kicked_off_at": NOW - 10}),
            *(
                (MEMORY | {name: odd}, _LOOKS, {"max_outage": None, "kicked_off_at": NOW - 10, "exists": True})
                for name in MEMORY
                for odd in _ODD
            ),
        ),
    ),
    Kind(
        "memory of a poke",
        spoilt({"try": {"kickoff_id": "4711", "try_number": 2}, "seen": MEMORY}, memories)
        | st.builds(
            lambda of, seen: {"try": of, "seen": seen},
            spoilt({"kickoff_id": "4711", "try_number": 2}) | st.just({"kickoff_id": "4711", "try_number": 1}),
            memories,
        ),
        a_poke_remembers_or_begins_anew,
        weight=3,
        known=tuple(
            {"try": {"kickoff_id": kickoff_id, "try_number": number}, "seen": {**MEMORY, "seen": seen}}
            for kickoff_id in ("4711", "another", None)
            for number in (1, 2)
            for seen in (True, False)
        ),
    ),
    Kind(
        "arguments of a trigger",
        st.tuples(st.just({}), any_json | memories, st.just(COMPLETED)),
        a_trigger_fires_in_any_case,
        weight=2,
        known=tuple(
            ({**put, "max_outage": 60.0, "deadline": time.time() + 300}, None, document)
            for document in (UNKNOWN, FAILED, PAUSED)
            for put in ({}, {"exists": False}, {"human_input": True}, {"address": "https://other.example"})
        ),
    ),
    Kind(
        "event of a trigger",
        st.tuples(
            st.sampled_from([CrewRunOperator, CrewExecutionSensor]),
            spoilt(
                EVENT, any_json | any_json.map(json.dumps) | st.sampled_from(["{", "{}", '{"output": 1}', "nul"])
            )
            | spoilt(FAILED_EVENT, any_json | records.map(json.dumps)),
            documents,
        ),
        a_task_resumes_with_any_event,
        weight=2,
        known=tuple(
            (kind, {**EVENT, key: odd}, COMPLETED)
            for kind in (CrewRunOperator, CrewExecutionSensor)
            for key in ("kickoff_id", "deadline", "result", "error")
            for odd in (None, 7, "{", "{}", "[]", ["x"])
        ),
    ),
    Kind(
        "memory of a task",
        st.tuples(kept_kickoffs, documents),
        a_task_with_any_memory_pays_once,
        weight=2,
        known=tuple(({**KICKOFF, "kickoff_id": odd}, COMPLETED) for odd in ("a\x00\ud800", "", 7, ["x"]))
        + tuple(
            ({**KICKOFF, "kickoff_id": kickoff_id, "max_tries": max_tries, "told": told, "end": end}, document)
            for kickoff_id, end in ((None, None), ("4711", None), ("4711", "returned"), ("4711", "completed"))
            for max_tries in (2, 3)
            for told in (False, True, 1, "yes")
            for document in (COMPLETED, FAILED, UNKNOWN)
        ),
    ),
)
