"""Kickoff ids on their way from the service to a person, a sensor or a trigger, and back into a path."""

import math
from typing import Any
from urllib.parse import quote

from airflow_provider_crew.service.errors import InvalidKickoffId

_LONGEST = 1_000


def issued_kickoff_id(value: Any) -> str:
    """Keep the id as the service sent it, as a text; ValueError when there is none that could be asked after."""
    # Python reads NaN, Infinity and 1e309 from JSON, and writes them in another way than the service.
    is_usable = type(value) in (str, int) or (type(value) is float and math.isfinite(value))
    text = str(value) if is_usable else ""
    if not text:
        raise ValueError("it holds no kickoff_id")
    if fault := _fault_of(text):
        raise ValueError(f"its kickoff_id {fault}")
    return text


def checked_kickoff_id(kickoff_id: str) -> str:
    """Refuse an id that no kickoff has returned, before it reaches a path."""
    if not (fault := _fault_of(kickoff_id)):
        return kickoff_id
    raise InvalidKickoffId(
        f"Kickoff ID {kickoff_id!r:.80} {fault}.", next_step="Pass the ID that the kickoff returned."
    )


def path_segment(kickoff_id: str) -> str:
    """Encode a checked id for a path, in which dots alone would be a step."""
    return quote(kickoff_id, safe="").replace(".", "%2E")


def _fault_of(kickoff_id: Any) -> str:
    if not isinstance(kickoff_id, str) or not kickoff_id:
        return "is empty, or no text"
    if len(kickoff_id) > _LONGEST:
        return f"is longer than {_LONGEST:,} characters"
    return "" if kickoff_id.isprintable() else "has characters that cannot be printed"
