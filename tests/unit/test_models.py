"""
Meaning of a crew's bodies, as in ``bodies.txt``.

To add a body, write it into the file. The line below it is its meaning, without fields that have their default.
``errors.txt`` has the bodies of errors, with their sender, the missing inputs and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from airflow_provider_crew.client.models import Completed, Failed, Paused, Running, read_execution, read_inputs
from tests.unit.crew_builders import KICKOFF_ID, answer

# What a task returns.
KEYS = {"kickoff_id", "output", "output_json", "tasks", "tasks_complete", "usage", "execution_time"}


def meaning(body: dict[str, Any]) -> str:
    try:
        if "inputs" in body:
            listed = read_inputs(body)
            named = {
                given: tuple(it.name for it in listed.inputs if it.required is given) for given in (True, False)
            }
            return f"names: {listed.names}, required: {named[True]}, optional: {named[False]}"
        execution = read_execution(body, KICKOFF_ID)
    except ValidationError:
        return "invalid"
    except ValueError as error:
        return f"invalid: {error}"
    if execution is None:
        return "unknown"
    fields = execution.model_dump(exclude_defaults=True, exclude={"kickoff_id", "status"})
    note = ""
    match execution:
        case Running() | Paused():
            note = "" if execution.is_known else " of an unknown state"
        case Failed():
            note = ", stopped" if execution.was_stopped else ""
        case Completed():
            note = ", with all its tasks" if execution.tasks_complete else ""
            assert execution.result().keys() == KEYS
    return f"{type(execution).__name__}{note} {json.dumps(fields, allow_nan=False)}"


def bodies(known: list[str]) -> Iterator[str]:
    for line in known:
        if not line.startswith("    "):
            yield line
        if line.startswith("{"):
            yield f"    {meaning(json.loads(line))}"


def test_bodies_mean_what_the_table_says(printed: Any) -> None:
    printed("bodies.txt", bodies)


def error(body: bytes | dict[str, Any]) -> Iterator[str]:
    """Yield the sender of an error, the missing inputs and the reason."""
    received = answer(422, body, {"Content-Type": "text/html"})
    whose = "the crew" if received.has_error_body else "another"
    missing = f", missing {received.missing_inputs}" if received.missing_inputs else ""
    yield f"{whose}{missing}:{received.reason() or ' nothing'}"


def test_errors_are_read_as_in_the_table(evaluated: Any) -> None:
    evaluated("errors.txt", error=error)
