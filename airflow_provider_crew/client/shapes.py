"""Shapes of the crew's responses, for a report that may be published. No text of a response is part of them."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow_provider_crew.client.api import Response
from airflow_provider_crew.client.models import MEANINGS

# Names that are documented or were observed. Any other name may be the user's, such as that of an input.
_KNOWN = """
    agent cached_prompt_tokens completed completed_tasks completion_tokens current current_agent current_task
    description detail details duration_seconds error error_message events events_by_type events_count
    execution_id execution_origin execution_time final_output flow_id id inputs instance kickoffId kickoff_id
    last_event last_executed_task last_step message meta missing_inputs name output progress prompt_tokens raw
    remaining required required_inputs result result_json source started_at state status successful_requests
    task_id tasks timestamp title total total_tasks total_tokens triggered_by type unit updated_at usage_metrics
"""
_NAMES = frozenset(_KNOWN.split())
_DEEPEST, _MOST_ITEMS = 8, 1_000
_KINDS = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean"}


class Shapes:
    """Shapes of all responses of a client, each with its number and times."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def note(self, response: Response, seconds: float) -> None:
        """Add a response. An error must not lose it, because it may have a kickoff ID."""
        request, body = response.request, "not JSON" if response.body else "empty"
        with suppress(ValueError, RecursionError):
            body = _shape(json.loads(response.body))
        own = request.kickoff_id or None
        path = "/".join("{kickoff_id}" if part == own else part for part in request.path.split("/"))
        seen = {"request": f"{request.method} {path}", "http_status": response.status, "body": body}
        self._seconds.setdefault(json.dumps(seen), []).append(round(seconds, 3))

    def all(self) -> list[dict[str, Any]]:
        """Return the shapes in the order of their first response."""
        return [
            json.loads(seen) | {"times": len(each), "seconds": [min(each), max(each)]}
            for seen, each in self._seconds.items()
        ]


def _shape(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST or not isinstance(value, list | dict):
        return _kind(value)
    if isinstance(value, list):
        shapes = {json.dumps(_shape(each, depth + 1)) for each in value[:_MOST_ITEMS]}
        return {"array of": len(value), "items": [json.loads(each) for each in sorted(shapes)]}
    known = {
        name: _shape(value[name], depth + 1) if _is_ours(name, value[name]) else _kind(value[name])
        for name in sorted(_NAMES & value.keys())
    }
    for name in {"state", "status"} & known.keys():
        if str(value[name]).lower() in MEANINGS:
            known[name] = str(value[name]).lower()
    return known | ({"other names": len(value) - len(known)} if len(value) > len(known) else {})


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "null")


def _is_ours(name: str, value: Any) -> bool:
    """Whether the service chooses the names in a value, and not the crew or its user."""
    if name == "result":
        return isinstance(value, Mapping) and "output" in value
    return name not in {"meta", "output", "result_json"} and not (name == "inputs" and isinstance(value, Mapping))
