"""JSON in what a crew has written: all of it, a block fenced as ``json``, or an object or array in prose."""

import json
import re
from typing import Any

from airflow_provider_crew.service.storable import storable_json

_DECODER = json.JSONDecoder()
_FENCED = re.compile(
    r"^[ \t]*+`{3,}+[ \t]*+json\b[^\n]*+\n(.*?)(?:^[ \t]*+`{3,}|\Z)", re.DOTALL | re.IGNORECASE | re.MULTILINE
)
# As data begins, and prose does not, which has footnotes [1], {placeholders} and [links](…).
_BEGIN = re.compile(
    r"""
    \{\s*+ (?: "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+" | '[^'\n]*+' ) \s*+:
    | \[\s*+ (?: ["'\[] | \{\s*+["'] )
    """,
    re.VERBOSE,
)


def json_of(text: str) -> Any:
    """Return the JSON value that a text is, or its only fenced block. ValueError says why there is none."""
    return _read(_only_block(text) or text)


def json_within(text: str) -> Any:
    """Return the JSON value that a text is, or its longest fenced block, or the first one in prose."""
    try:
        return _read(text)
    except ValueError:
        if blocks := _FENCED.findall(text):
            return _read(max(blocks, key=len))
    if found := _BEGIN.search(text):
        return _read(text, found.start(), only=False)
    raise ValueError("it holds no JSON object or array")


def doubt_about(text: str) -> str:
    """Return what is wrong with a text that looks like a JSON object or array, and is neither."""
    if _BEGIN.match((_only_block(text) or text).lstrip()):
        try:
            json_of(text)
        except ValueError as error:
            return str(error)
    return ""


def _only_block(text: str) -> str:
    blocks = _FENCED.findall(text)
    return str(blocks[0]) if len(blocks) == 1 else ""


def _read(text: str, begin: int = 0, *, only: bool = True) -> Any:
    """Return a value in a form that every store takes. If it is the only one, nothing may follow it."""
    try:
        value, end = _DECODER.raw_decode(text, begin or len(text) - len(text.lstrip()))
    except json.JSONDecodeError as error:
        raise _broken(error) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if only and text[end:].strip():
        raise _broken(json.JSONDecodeError("Extra data", text, end))
    return storable_json(value)


def _broken(error: json.JSONDecodeError) -> ValueError:
    return ValueError(f"{error.msg.strip(' :')}, in line {error.lineno}, column {error.colno}")
