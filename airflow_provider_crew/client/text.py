"""Sanitize external text for a log or an error: on one line, bounded, and without secrets."""

import base64
import html
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

# Airflow's log page folds the text between two of these markers, anywhere in a line, and hides the markers.
_FOLDS = re.compile(r"::(?=(?:end)?group::)")
# Some scripts and some emoji need them to be legible.
_JOINERS = "\u200c\u200d"
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


def forms_of(*secrets: str) -> tuple[str, ...]:
    """
    Return the literal forms in which the secrets are masked, longest first.

    A server that repeats a secret in two nested encodings, in UTF-16 or in an unusual spelling can still show it.
    """
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    return tuple(sorted((form for form in forms if len(form) >= SHORTEST_SECRET), key=len, reverse=True))


def mask(text: str, forms: tuple[str, ...]) -> str:
    """Return the text with the secrets in these forms masked."""
    for form in forms:
        text = text.replace(form, _MASK)
    return text


def mask_json(value: Any, forms: tuple[str, ...]) -> Any:
    """Return parsed JSON with the secrets masked in all names and texts. Numbers stay as they are."""
    match value:
        case dict():
            return {mask(name, forms): mask_json(item, forms) for name, item in value.items()}
        case list():
            return [mask_json(item, forms) for item in value]
        case str():
            return mask(value, forms)
    return value


def _forms(secret: str) -> Iterator[str]:
    in_json = json.dumps(secret)[1:-1]
    yield from (secret, in_json, in_json.replace("/", r"\/"), html.escape(secret))
    for in_url in (quote(secret), quote(secret, safe="")):
        yield from (in_url, re.sub("%..", lambda escape: escape[0].lower(), in_url))
    # Base64 of a text that contains the secret, in each of three alignments. The characters at both ends are
    # dropped, because they depend on the adjacent text.
    for before in range(3):
        held = bytes(before) + secret.encode()
        certain = slice(before and before + 1, len(held) * 8 // 6)
        yield from (encode(held).decode()[certain] for encode in (base64.b64encode, base64.urlsafe_b64encode))
