"""Texts and JSON data that every store takes, made of whatever the service says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# Wider integers do not fit into what carries a value from one process to another.
_MIN_INT, MAX_INT = -(2**63), 2**64 - 1

# Deeper JSON than this is no data that a crew puts out, and it breaks the recursion of whoever stores it.
_MAX_DEPTH = 64


def storable_text(text: str) -> str:
    """Replace what PostgreSQL and JSON refuse to store: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\ufffd", text)


def text_of(value: Any) -> str:
    """Return a text as it is, nothing as an empty one, and anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return storable_text(value)
    try:
        return storable_text(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        return "(nested too deeply to be written down)"


def is_storable_number(value: Any) -> bool:
    """Whether it is a number that every store takes as it is."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and _MIN_INT <= value <= MAX_INT


def storable_json(value: Any, depth: int = 0) -> Any:
    """
    Return JSON data that every store takes; raise ValueError when it is nested too deeply.

    Integers that are too wide become texts, so that no digit is lost.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not _MIN_INT <= value <= MAX_INT:
        return str(value)
    if isinstance(value, Mapping):
        return {storable_text(str(key)): storable_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(item, depth + 1) for item in value]
    return value


def parse_json(text: str) -> Any:
    """Parse JSON. An integer that is too long for Python stays the text that it is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a decoder that asks about every integer takes several times as long
        return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits
