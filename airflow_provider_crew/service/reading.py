"""
Which dialect of the status the service speaks, and where each says how an execution has ended.

A deployed crew has a ``state``: it alone decides, and ``status`` is a sentence for people, which may hold any
word. The documented answer has no ``state``, and its ``status`` is the word that decides. Whatever stands between
may say ``error`` there too, so an end counts only with what belongs to it: a result, or the text of an error.
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

# Where the documented answer, or one seen in the field, has the text of what went wrong.
_REASONS = ("error", "error_message")


def state_of(body: Mapping[str, Any]) -> tuple[str, Meaning]:
    """Return the service's own word for how an execution is, and what it means; ValueError when it says none."""
    if word := _word(body.get("state")):
        return storable_text(word), _meaning(word)
    if word := _word(body.get("status")):
        # A gateway says ``error`` as well, of a call. What it says then stands in ``message`` or ``detail``.
        if _meaning(word) == "error" and not any(_word(body.get(place)) for place in _REASONS):
            raise ValueError("it tells of an error, and not which")
        return storable_text(word), _meaning(word)
    raise ValueError("it tells no status")


def result_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an execution has put out. ValueError when the documented answer holds no result."""
    result, tasks = body.get("result"), None
    if isinstance(result, Mapping) and "output" in result:
        result, tasks = result["output"], result.get("tasks")
    output = body.get("final_output") if result is None else result
    result_json = body.get("result_json")
    # A deployed crew or flow that puts out nothing says so with null. It has ended, and will never say more.
    if output is None and result_json is None and not _word(body.get("state")):
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
    for place in (*_REASONS, "result", "status"):
        if (said := body.get(place)) and (reason := text_of(said).strip()):
            return reason
    return word.lower()


def _word(said: Any) -> str:
    return said.strip() if isinstance(said, str) else ""


def _meaning(word: str) -> Meaning:
    # A word that is not known ends nothing.
    return MEANINGS.get(word.lower(), "running")


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
