"""
Which dialect of the status the service speaks, and where each says how an execution has ended.

A deployed crew has a ``state``: it alone decides, and ``status`` is a sentence for people, which may hold any
word. The documented answer has no ``state``, and its ``status`` is the word that decides.
"""

from collections.abc import Mapping
from typing import Any, Literal

from airflow_provider_crew.service.json_text import json_of
from airflow_provider_crew.service.storable import storable_json, storable_text, text_of

Meaning = Literal["running", "paused", "completed", "error", "not found"]

# No crew has as many tasks. An answer of 2 MB can list 700,000 empty ones, which take seconds to read.
_MOST_TASKS = 10_000

# Words for a state that are documented, or known from the field.
MEANINGS: dict[str, Meaning] = {
    "queued": "running",
    "pending": "running",
    "started": "running",
    "running": "running",
    "paused": "paused",
    "completed": "completed",
    "success": "completed",
    "error": "error",
    "failed": "error",
    "failure": "error",
    "revoked": "error",
    "not found": "not found",
    "not_found": "not found",
}


def state_of(body: Mapping[str, Any]) -> tuple[str, Meaning]:
    """Return the service's own word for how an execution is, and what it means; ValueError when it says none."""
    for said in (body.get("state"), body.get("status")):
        if word := said.strip() if isinstance(said, str) else "":
            # A word that is not known ends nothing.
            return storable_text(word), MEANINGS.get(word.lower(), "running")
    raise ValueError("it tells no status")


def result_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an execution has put out. ValueError when the documented answer holds no result."""
    result, tasks = body.get("result"), None
    if isinstance(result, Mapping) and "output" in result:
        result, tasks = result["output"], result.get("tasks")
    output = body.get("final_output") if result is None else result
    result_json = body.get("result_json")
    # A deployed crew or flow that puts out nothing says so with null. It has ended, and will never say more.
    if output is None and result_json is None and not body.get("state"):
        raise ValueError("it is completed and has no result")
    listed = tasks if isinstance(tasks, list) else []
    return {
        "output": output,
        "output_json": _output_json(result_json, output),
        "tasks": listed[-_MOST_TASKS:] or [body.get("last_executed_task")],
        "lists_tasks": 0 < len(listed) <= _MOST_TASKS,
    }


def reason_of(body: Mapping[str, Any], word: str) -> str:
    """Tell why an execution has failed: of a deployed crew the sentence says it, where nothing else does."""
    for place in ("error", "error_message", "result", "status"):
        if (said := body.get(place)) and (reason := text_of(said).strip()):
            return reason
    return word.lower()


def _output_json(result_json: Any, output: Any) -> Any:
    """Return what the service says is JSON, or the output when it holds an object or an array, else None."""
    if (parsed := _parsed(result_json)) is not None:
        return parsed
    parsed = _parsed(output)
    return parsed if isinstance(parsed, dict | list) else None


def _parsed(value: Any) -> Any:
    try:
        return json_of(value) if isinstance(value, str) else storable_json(value)
    except ValueError:
        return None
