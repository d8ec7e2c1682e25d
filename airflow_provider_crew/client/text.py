"""Sanitize external text for a log or an error: on one line, bounded, and without secrets."""

import html
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

# Airflow's log page folds the text between two of these markers, anywhere in a line, and hides the markers.
_FOLDS = re.compile(r"::(?=(?:end)?group::)")
# Some scripts and some emoji need them to be legible.
_JOINERS = "\u200c\u200d"
_JSON_ESCAPES = re.compile(r'(?:\\u[\da-fA-F]{4})+|\\["\\/bfnrt]', re.ASCII)
_MASK = "***"
# A shorter secret would match inside ordinary words.
SHORTEST_SECRET = 8


def one_line(text: str, most: int) -> str:
    """
    Return text on one line, shortened, and without control characters or bidirectional overrides.

    Otherwise, external text could forge the next line of a log or hide part of a line.
    """
    # Cut first: external text may be as long as a response.
    line = " ".join(text[: 4 * most].split())
    shown = line[:most]
    if not shown.isprintable():  # each poll calls this for texts that are
        shown = "".join(character if character.isprintable() else "\ufffd" for character in shown)
    shown = _unfolded(shown)
    return shown if len(line) <= most and len(text) <= 4 * most else f"{shown}…"


# IDs and times, which differ from execution to execution. A status code or a line number tells two reasons apart.
_VARIES = re.compile(r"\b(?=[\w-]*\d)[\w-]{12,}\b|\b\d+(?:\.\d+)? ?(?:h|m|s|ms)\b(?: \d+[ms]\b)?")
_COMPARED = 150


@lru_cache(maxsize=128)
def core_of(reason: str) -> str:
    """Return what executions that failed for the same reason have in common."""
    return _VARIES.sub("…", reason)[:_COMPARED]


def warn(log: Any, text: str) -> None:
    """Log a warning whose text may contain percent signs."""
    log.warning("%s", text)


def in_words(error: BaseException) -> str:
    """Return the class and the text of an exception from another library."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def quoted(text: str, most: int) -> tuple[str, bool]:
    """
    Return up to ``most`` bytes of a text, each line prefixed with a bar, and whether the text is cut.

    The prefix prevents forged log lines. Terminal commands and Airflow's fold markers are neutralized.
    """
    beginning = text[:most].encode(errors="replace")[:most].decode(errors="ignore")
    lines = beginning.expandtabs(4).splitlines()
    shown = [f"| {_unfolded(''.join(map(_shown, line)))}".rstrip() for line in lines]
    is_cut = len(beginning) < len(text)
    return "\n".join([*shown, "| …"] if is_cut else shown), is_cut


def size(text: str) -> str:
    """Return the size of a text in readable form: ``4.2 KB``."""
    from pydantic import ByteSize

    return ByteSize(len(text.encode(errors="replace"))).human_readable(decimal=True, separator=" ")


def _shown(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    return " " if character.isspace() else "\ufffd"


def _unfolded(text: str) -> str:
    return _FOLDS.sub(lambda mark: f"{mark[0][0]} {mark[0][1:]}", text)


def maskable(*secrets: str) -> tuple[str, ...]:
    """Return the secrets in the order in which to mask them: one may contain another."""
    return tuple(sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True))


def mask(text: str, secrets: tuple[str, ...], *, in_result: bool = False) -> str:
    """
    Return the text with the secrets masked. If one is left once escapes are undone, return its size instead.

    :param in_result: Whether to mask the secret alone then, because a result is billed.
    """
    for secret in secrets:
        text = text.replace(secret, _MASK)
    undone = {text}
    for undo in (_without_json_escapes, unquote, html.unescape):
        undone |= {undo(each) for each in undone}
    if not any(secret in each for each in undone for secret in secrets):
        return text
    escaped = "|".join("".join(map(_escapes_of, secret)) for secret in secrets)
    return re.sub(escaped, _MASK, text) if in_result else f"text of {len(text):,} characters"


def mask_json(value: Any, mask_text: Callable[[str], str]) -> Any:
    """Return parsed JSON with all names and texts masked. Numbers stay as they are."""
    match value:
        case dict():
            return {mask_text(name): mask_json(item, mask_text) for name, item in value.items()}
        case list():
            return [mask_json(item, mask_text) for item in value]
        case str():
            return mask_text(value)
    return value


def _without_json_escapes(text: str) -> str:
    return _JSON_ESCAPES.sub(lambda escapes: str(json.loads(f'"{escapes[0]}"')), text)


def _escapes_of(character: str) -> str:
    """Return a pattern of a character of a token, which is in ASCII."""
    code, in_html = ord(character), re.escape(html.escape(character))
    return rf"(?:{in_html}|\\?{re.escape(character)}|(?i:\\u00{code:x}|%{code:x}|&#0*{code};?|&#x0*{code:x};?))"
