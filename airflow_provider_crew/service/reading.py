"""
Which dialect of the status the service speaks, and which field of it says what.

A deployed crew has a ``state``: it alone decides, and ``status`` is a sentence for people, which may hold any
word. The documented answer has no ``state``, and its ``status`` is the word that decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from airflow_provider_crew.service.storable import (
    is_storable_number,
    storable_json,
    storable_text,
    text_of,
)

_MEANINGS: dict[str, Literal["running", "paused", "completed", "error", "not found"]] = {
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
# A sentence that says no more than a state does: "Task is Running".
_STOCK_SENTENCE = re.compile(r"(?:task )?(?:(?:is|was|has) )?(.{1,20}?)[.!]?", re.IGNORECASE)


class State(NamedTuple):
    """How an execution is: the service's own word, what it means, and whether it is that of a deployed crew."""

    word: str
    meaning: Literal["running", "paused", "completed", "error", "not found"]
    is_live: bool


def state_of(body: Mapping[str, Any]) -> State:
    """Tell how an execution is; ValueError when the answer does not say. A word that is not known ends nothing."""
    for key in ("state", "status"):
        said = body.get(key)
        if word := said.strip() if isinstance(said, str) else "":
            return State(storable_text(word), _MEANINGS.get(word.lower(), "running"), key == "state")
    raise ValueError("it tells no status")


def is_known_word(word: str) -> bool:
    """Whether a word for a state is documented, or known from the field."""
    return word.lower() in _MEANINGS


def fields_of(body: Mapping[str, Any], state: State) -> dict[str, Any]:
    """
    Return the fields of either dialect under one name.

    Those that both have under the same name are there as they came. ValueError when a result is missing.
    """
    progress = told if isinstance(told := body.get("progress"), Mapping) else {}
    fields = {
        **body,
        "status": state.meaning,
        "word": state.word,
        "progress": _progress(progress),
        "current_task": _first_text(body.get("current_task"), progress.get("current")),
        "current_agent": _first_text(body.get("current_agent"), progress.get("current_agent")),
        "last_task": _last_task(body.get("last_executed_task")),
        "usage": _usage(body),
    }
    if state.meaning == "completed":
        fields |= _result(body, state, fields["last_task"])
    if state.meaning == "error":
        fields["error"] = _error(body, state)
    return fields


def _progress(told: Mapping[str, Any]) -> dict[str, Any] | None:
    if "completed" in told:
        unit = "step" if told.get("unit") == "step" else "task"
        return {"completed": told["completed"], "total": told.get("total"), "unit": unit}
    if told.get("total_tasks") is None:  # which only the other dialect leaves open
        return None
    return {"completed": told.get("completed_tasks"), "total": told["total_tasks"]}


def _last_task(told: Any) -> dict[str, Any] | None:
    if not isinstance(told, Mapping):
        return None
    name = _first(told.get("name"), told.get("task_id"))
    if name is None and told.get("output") is None:
        return None
    return {**told, "task_id": name}


def _usage(body: Mapping[str, Any]) -> dict[str, int | float] | None:
    for key in ("usage_metrics", "token_usage", "usage"):
        told = body.get(key)
        counts = told.items() if isinstance(told, Mapping) else ()
        if usage := {storable_text(name): count for name, count in counts if is_storable_number(count)}:
            return usage
    return None


def _result(body: Mapping[str, Any], state: State, last_task: dict[str, Any] | None) -> dict[str, Any]:
    result = body.get("result")
    inner: Mapping[str, Any] = result if isinstance(result, Mapping) else {}
    is_documented = bool({"output", "final_output"} & inner.keys())
    if is_documented or result == {}:
        said = [inner.get("output"), inner.get("final_output"), body.get("final_output")]
    else:
        said = [result, body.get("final_output")]
    result_json = _first(body.get("result_json"), inner.get("result_json"))
    # A deployed crew or flow that puts out nothing says so with null. It has ended, and will never say more.
    if not state.is_live and result_json is None and all(output is None for output in said):
        raise ValueError("it is completed and has no result")
    output = _first(*said)
    listed = (inner.get("tasks") if is_documented else None) or body.get("tasks")
    lists_tasks = isinstance(listed, list) and any(isinstance(task, Mapping) for task in listed)
    return {
        "output": output,
        "output_json": _output_json(result_json, output),
        "tasks": listed if lists_tasks or last_task is None else [last_task],
        "lists_tasks": lists_tasks,
    }


def _error(body: Mapping[str, Any], state: State) -> str:
    """Return what is named an error, or the sentence of a deployed crew, or whatever else may hold the reason."""
    errors = [body.get("error"), body.get("error_message")]
    reason, stock_sentence = _sentence(body, state)
    others = [*errors, body.get("result"), body.get("message"), body.get("detail"), stock_sentence]
    for said in (*(error for error in errors if isinstance(error, str)), reason, *others):
        if said and (text := text_of(said)).strip():
            return text
    return "the execution was revoked" if state.word.lower() == "revoked" else "the service gives no reason"


def _sentence(body: Mapping[str, Any], state: State) -> tuple[str, str]:
    """Return the sentence of a deployed crew: as a reason, or as one that says no more than a state does."""
    said = body.get("status")
    if not state.is_live or not isinstance(said, str) or is_known_word(said.strip()):
        return "", ""
    stock = _STOCK_SENTENCE.fullmatch(said.strip())
    return ("", said) if stock and is_known_word(stock[1]) else (said, "")


def _first(*values: Any) -> Any:
    """Return the first that says something; an empty text does not."""
    return next((value for value in values if value is not None and value != ""), None)


def _first_text(*values: Any) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


def _output_json(result_json: Any, output: Any) -> Any:
    """Return what the service says is JSON, or the output when it is an object or an array, else None."""
    if (parsed := _parsed(result_json)) is not None:
        return parsed
    parsed = _parsed(output)
    return parsed if isinstance(parsed, Mapping | Sequence) and not isinstance(parsed, str) else None


def _parsed(value: Any) -> Any:
    try:
        return storable_json(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return None
