"""
JSON in what a crew has written: all of it, a block fenced by backticks, or a stretch between sentences.

Crews write what they like, as long as they like. So each character is looked at a fixed number of times, and of
several stretches one is chosen before any is parsed: the longest, and of equally long ones the last. If that one
is broken, none is taken in its stead, since what stands inside broken JSON is only a part of what was meant.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from airflow_provider_crew.service.storable import storable_json

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*+")
# A line that opens or closes a block: its backticks, and what the block is said to hold.
_FENCE = re.compile(r"^[ \t]*+(`{3,}+)[ \t]*+([^`\n]*+)$", re.MULTILINE)
# As data begins, and prose does not, which has footnotes [1], {placeholders} and [links](…).
_BEGIN = re.compile(
    r"""
    \{\s*+ (?: "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+" | '[^'\n]*+' ) \s*+:
    | \[\s*+ (?: ["'\[] | \{\s*+["'] )
    """,
    re.VERBOSE,
)
# A text ends with its line, even where its quotation mark is missing.
_TOKEN = re.compile(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?|[{}\[\]]')


class _Stretch(NamedTuple):
    begin: int
    end: int


def json_of(text: str) -> Any:
    """
    Return the JSON value that a text is, or that its one fenced block holds.

    The block has to say that it is ``json``. ValueError tells why there is none.
    """
    return _read(text, _only_block(text) or _Stretch(0, len(text)))


def json_within(text: str) -> Any:
    """
    Return the JSON value that a text is, or the object or array that stands somewhere in it.

    Blocks that say that they are ``json`` count before anything else. ValueError tells why there is none.
    """
    try:
        return _read(text, _Stretch(0, len(text)))
    except ValueError:
        fenced = [block for kind, block in _blocks(text) if kind == "json"]
    longest = _longest(fenced or _stretches(text))
    if longest is None:
        raise ValueError("it holds no JSON object or array")
    return _read(text, longest)


def doubt_about(text: str) -> str:
    """Say what is wrong with a text that looks like a JSON object or array, and is none."""
    stretch = _only_block(text) or _Stretch(0, len(text))
    if _BEGIN.match(text, _without_space(text, stretch.begin)):
        try:
            _read(text, stretch)
        except ValueError as error:
            return str(error)
    return ""


def _read(text: str, stretch: _Stretch) -> Any:
    """Return the value of a stretch in a form that every store takes; ValueError when it is none."""
    try:
        value, end = _DECODER.raw_decode(text, _without_space(text, stretch.begin))
    except json.JSONDecodeError as error:
        raise _broken(error) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not _SPACE.fullmatch(text, end, stretch.end):
        raise _broken(json.JSONDecodeError("Extra data", text, end))
    return storable_json(value)


def _broken(error: json.JSONDecodeError) -> ValueError:
    return ValueError(f"{error.msg.strip(' :')}, in line {error.lineno}, column {error.colno}")


def _without_space(text: str, begin: int) -> int:
    """Return where something begins."""
    found = _SPACE.match(text, begin)
    return found.end() if found else begin


def _only_block(text: str) -> _Stretch | None:
    """Return the one block of a text, if it has one alone and that one says that it is JSON."""
    blocks = _blocks(text)
    kind, block = next(blocks, ("", None))
    return block if kind == "json" and next(blocks, None) is None else None


def _blocks(text: str) -> Iterator[tuple[str, _Stretch]]:
    """Tell every fenced block, and what it is said to hold. One that nothing closes runs to the end."""
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif not fence[2].strip() and len(fence[1]) >= len(opened[1]):
            yield _kind(opened), _Stretch(opened.end(), fence.start())
            opened = None
    if opened:
        yield _kind(opened), _Stretch(opened.end(), len(text))


def _kind(fence: re.Match[str]) -> str:
    words = fence[2].split(maxsplit=1)
    return words[0].lower() if words else ""


def _stretches(text: str) -> Iterator[_Stretch]:
    """Tell every stretch that begins like data, up to where its brackets are closed, or to the end."""
    position = 0
    while found := _BEGIN.search(text, position):
        position = _end_of(text, found.start())
        yield _Stretch(found.start(), position)


def _end_of(text: str, begin: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(text, begin):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        if not depth:
            return token.end()
    return len(text)


def _longest(stretches: Iterable[_Stretch]) -> _Stretch | None:
    return max(stretches, key=lambda stretch: (stretch.end - stretch.begin, stretch.begin), default=None)
