"""Texts and JSON data that every store takes, made of whatever the service says."""

import json
import math
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# Wider integers do not fit into what carries a value from one process to another.
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

# Deeper JSON than this is no data that a crew puts out, and it breaks the recursion of whoever stores it.
_MAX_DEPTH = 64


def storable_text(text: str) -> str:
    """Replace what PostgreSQL and JSON refuse to store: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\ufffd", text)


def text_of(value: Any) -> str:
    """Return a text as it is, nothing as an empty one, and anything else as JSON."""
    if value is None:
        return ""
    return storable_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def storable_json(value: Any, depth: int = 0) -> Any:
    """
    Return JSON data that every store takes; raise ValueError when it is nested too deeply.

    Integers that are too wide become texts, so that no digit is lost.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable_text(key): storable_json(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [storable_json(item, depth + 1) for item in value]
        case float() if not math.isfinite(value):
            return None
        case int() if not MIN_INT <= value <= MAX_INT:
            return str(value)
    return value
