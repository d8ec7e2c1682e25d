"""Kickoff ids on their way from the service to a person, a sensor or a trigger, and back into a path."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from airflow_provider_crew.service.errors import InvalidKickoffId
from airflow_provider_crew.service.storable import storable_text

_STEPS = frozenset({".", ".."})
_LONGEST = 1_000
# Everything else might mean something where a person puts it: in Python, in a template, in a shell.
_PLAIN = re.compile(r"[\w.~:@+=,-]+")
_ESCAPES_NOTHING = re.compile(r"%(?![0-9A-Fa-f]{2})")


def issued_kickoff_id(value: Any) -> str:
    """
    Keep the id that the service sent, whatever it is; ValueError when there is none.

    One that would be refused from a person, or is no mere word, is kept percent-encoded, so that it survives the
    way through XCom, a sensor, a DAG's source and a trigger to the status path.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ValueError("it holds no kickoff_id")
    text = str(value)
    kept = text
    if text in _STEPS or not _PLAIN.fullmatch(text):
        kept = quote(text, safe="", errors="surrogatepass").replace(".", "%2E")
    if len(kept) > _LONGEST:
        raise ValueError(f"its kickoff_id is longer than {_LONGEST:,} characters")
    return kept


def checked_kickoff_id(kickoff_id: str) -> str:
    """Refuse an id that no kickoff has returned, before it reaches a path."""
    if not isinstance(kickoff_id, str):
        # Not the value itself: not everything can be shown, and an integer may be too long to be.
        kind = type(kickoff_id).__name__
        raise InvalidKickoffId(f"The kickoff id is of type {kind}, which is no text. Nothing was asked.")
    if not kickoff_id:
        raise InvalidKickoffId("The kickoff id is empty. Give the id that a kickoff returned.")
    if fault := _fault_of(kickoff_id):
        shown = storable_text(kickoff_id[:80])
        raise InvalidKickoffId(
            f"The kickoff id {shown!r} {fault}. Nothing was asked. Give the id exactly as the kickoff returned "
            "it.",
            kickoff_id=shown,
        )
    return kickoff_id


def _fault_of(kickoff_id: str) -> str:
    if len(kickoff_id) > _LONGEST:
        return f"is longer than {_LONGEST:,} characters"
    if kickoff_id in _STEPS:
        return "is a step in a path"
    if any(character.isspace() or not character.isprintable() for character in kickoff_id):
        return "has white space or a control character in it"
    if "/" in kickoff_id or "\\" in kickoff_id:
        return "has a slash in it"
    return "has a percent sign that escapes nothing" if _ESCAPES_NOTHING.search(kickoff_id) else ""


def path_segment(kickoff_id: str) -> str:
    """Encode a checked id for a path; escapes that it holds stay as they are."""
    return quote(kickoff_id, safe="%")
