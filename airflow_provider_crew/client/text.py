"""Sanitize external text for a log or an error: on one line, bounded, and without secrets."""

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from html.entities import html5
from typing import Any
from urllib.parse import quote, unquote

# Airflow's log page folds the text between two of these markers, anywhere in a line, and hides the markers.
_FOLDS = re.compile(r"(?:::|##\[\]?)(?=(?:end)?group(?:::|\]))")
# Some scripts and some emoji need them to be legible.
_JOINERS = "\u200c\u200d"
_TAB = 4


def one_line(text: str, most: int) -> str:
    """
    Return text on one line, shortened, and without control characters or bidirectional overrides.

    Otherwise, external text could forge the next line of a log or hide part of a line.
    """
    if len(text) <= most and text.isprintable() and "  " not in text and "group" not in text:
        return text.strip()
    # Cut first: external text may be as long as an answer.
    line = " ".join(text[: 4 * most].split())
    shown = _unfolded("".join(character if character.isprintable() else "\ufffd" for character in line[:most]))
    return shown if len(line) <= most and len(text) <= 4 * most else f"{shown}…"


def warn(log: Any, text: str) -> None:
    """Log a warning whose text may contain percent signs."""
    log.warning("%s", text)


def quoted(text: str, most: int) -> tuple[str, bool]:
    """
    Return up to ``most`` bytes of a text, each line prefixed with a bar, and whether the text is cut.

    The prefix prevents forged log lines. Terminal commands and Airflow's fold markers are neutralized.
    """
    beginning = text[:most].encode(errors="replace")[:most].decode(errors="ignore")
    lines = beginning.expandtabs(_TAB).splitlines()
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


_MASK = "***"
# A shorter secret would match inside ordinary words.
SHORTEST_SECRET = 8
# JSON inside JSON, or a URL inside HTML inside JSON, nests escapes.
_LAYERS = 4
# The characters of an escape may be escaped themselves.
_OF_ESCAPES = "%&#;\\"
_NAMES = {character: name for name, character in html5.items() if name.endswith(";") and len(character) == 1}


@lru_cache(maxsize=64)
def forms_of(*secrets: str) -> tuple[bytes, ...]:
    """Return the secrets in plain, JSON and base64 form, longest first."""
    forms = {form for secret in secrets for form in _forms(secret)}
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return tuple(form.encode() for form in longest_first if len(form) >= SHORTEST_SECRET)


def _forms(secret: str) -> Iterator[str]:
    if not secret:
        return
    yield from (secret, json.dumps(secret)[1:-1])
    # Base64 of a text that contains the secret, in each of three alignments. The characters at both ends are
    # dropped, because they depend on the adjacent text.
    for before in range(3):
        held = bytes(before) + secret.encode()
        certain = slice(before and before + 1, len(held) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(held).decode()[certain]


@lru_cache(maxsize=64)
def secrets_of(forms: tuple[bytes, ...]) -> "Secrets":
    """Return the masking for secrets in these forms."""
    return Secrets(forms)


class Secrets:
    """Masks secrets in text. A malicious server can still disguise a secret in another encoding."""

    def __init__(self, forms: tuple[bytes, ...]) -> None:
        self._forms = [form.decode() for form in forms]
        self._escape = _escape_of({*"".join(self._forms), *_OF_ESCAPES})

    def may_be_in(self, text: str) -> bool:
        """Whether a text may need masking: it contains a secret, or an escape of a character in a secret."""
        return any(form in text for form in self._forms) or (
            bool(self._forms) and self._escape.search(text) is not None
        )

    def masked(self, text: str) -> str:
        """Return the text with its secrets masked and everything else unchanged."""
        if not self.may_be_in(text):
            return text
        kept, end = [], 0
        for first, last in _merged(sorted(self._spans(text))):
            kept += [text[end:first], _MASK]
            end = last
        return "".join([*kept, text[end:]])

    def mask(self, document: dict[str, Any]) -> None:
        """Mask the secrets in every name and value of parsed JSON, at any depth."""
        unread: list[Any] = [document]
        while unread:
            holder = unread.pop()
            if isinstance(holder, dict):
                told = {self.masked(name): self._masked(value) for name, value in holder.items()}
                holder.clear()
                holder.update(told)
            else:
                holder[:] = map(self._masked, holder)
            values = holder.values() if isinstance(holder, dict) else holder
            unread += [value for value in values if isinstance(value, dict | list)]

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.masked(value)
        is_number = isinstance(value, int | float)
        return _MASK if is_number and any(form in str(value) for form in self._forms) else value

    def _spans(self, text: str, layers: int = _LAYERS) -> Iterator[tuple[int, int]]:
        """Find the positions of secrets in the text and in its unescaped form."""
        for form in self._forms:
            first = text.find(form)
            while first >= 0:
                yield first, first + len(form)
                first = text.find(form, first + len(form))
        if layers and self._are_spelled_in(text, layers):
            spelled = _Spelled(text, list(self._escape.finditer(text)))
            for first, last in self._spans(spelled.text, layers - 1):
                yield spelled.begin_of(first), spelled.end_of(last - 1)

    def _are_spelled_in(self, text: str, layers: int) -> bool:
        for _ in range(layers):
            text, escapes = self._escape.subn(lambda escape: _spelled_by(escape[0]), text)
            if not escapes:
                break
            if any(form in text for form in self._forms):
                return True
        return False


class _Spelled:
    """Unescaped text, with the original position of each character."""

    def __init__(self, raw: str, escapes: list[re.Match[str]]) -> None:
        pieces: list[str] = []
        # For every piece: its start in the unescaped text, and its start and end in the raw text.
        self._begins: list[int] = []
        self._raw: list[tuple[int, int]] = []
        length = end = 0
        for begin, after, piece in _pieces(raw, escapes):
            pieces.append(piece)
            self._begins.append(length)
            self._raw.append((begin, after))
            length, end = length + len(piece), after
        self.text = "".join([*pieces, raw[end:]])
        self._begins.append(length)
        self._raw.append((end, len(raw)))

    def begin_of(self, place: int) -> int:
        """Return the raw position at which a character begins."""
        return self._range_of(place)[0]

    def end_of(self, place: int) -> int:
        """Return the raw position at which a character ends."""
        return self._range_of(place)[1]

    def _range_of(self, place: int) -> tuple[int, int]:
        at = bisect_right(self._begins, place) - 1
        begin, after = self._raw[at]
        length = (self._begins[at + 1] if at + 1 < len(self._begins) else len(self.text)) - self._begins[at]
        if after - begin != length:
            return begin, after
        return begin + place - self._begins[at], begin + place - self._begins[at] + 1


def _pieces(raw: str, escapes: list[re.Match[str]]) -> Iterator[tuple[int, int, str]]:
    end = 0
    for escape in escapes:
        begin, after = escape.span()
        if begin > end:
            yield end, begin, raw[end:begin]
        yield begin, after, _spelled_by(escape[0])
        end = after


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    begin = end = -1
    for first, last in spans:
        if first > end:
            if end >= 0:
                yield begin, end
            begin = first
        end = max(end, last)
    if end >= 0:
        yield begin, end


@lru_cache(maxsize=4096)
def _spelled_by(escape: str) -> str:
    if escape == "\0":
        return ""
    if escape[0] == "%":
        return unquote(escape)
    if escape[0] == "&":
        return html.unescape(escape)
    kind = escape.lstrip("\\")
    if kind[0] == "x":
        return chr(int(kind[1:], 16))
    return str(json.loads('"' + re.sub(r"\\+u", r"\\u", escape) + '"')) if kind[0] == "u" else kind


def _escape_of(characters: set[str]) -> re.Pattern[str]:
    """
    Return a pattern for escapes of the characters in JSON (backslashes may be doubled), URLs or HTML.

    The pattern also matches the NULs of UTF-16. Each alternative begins with one fixed character, so a search
    through megabytes skips all others.
    """
    plain = sorted(each for each in characters if each.isascii())
    others = sorted(characters - {*plain})
    code = _any_hex(plain)
    in_json = [rf"u00(?:{code})", rf"x(?:{code})", *(re.escape(each) for each in plain if each in '/"')]
    in_json += [_any_case(json.dumps(each)[2:-1].replace("\\", r"\\+"), "u") for each in others]
    in_url = [code, *(_any_case(quote(each)[1:]) for each in others)]
    numbers = "|".join(str(ord(each)) for each in (*plain, *others))
    wide = [_any_case(f"{ord(each):x}") for each in others]
    in_html = [rf"#0{{0,9}}+(?:{numbers})(?![0-9]);?"]
    in_html += [rf"#[xX]0{{0,9}}+(?:{'|'.join([code, *wide])})(?![0-9a-fA-F]);?"]
    in_html += [re.escape(_NAMES[each]) for each in (*plain, *others) if each in _NAMES]
    escapes = (
        # Match only at the first of several backslashes: a search from each of them would take minutes.
        rf"\\(?<!\\\\)\\{{0,31}}+(?:{'|'.join(in_json)})",
        f"%(?:{'|'.join(in_url)})",
        f"&(?:{'|'.join(in_html)})",
        "\\0",
    )
    return re.compile("|".join(escapes))


def _any_hex(characters: list[str]) -> str:
    """Return a pattern for the two-digit hex codes of ASCII characters, in either case."""
    codes = [f"{ord(each):02x}" for each in characters]
    second = {first: "".join(code[1] for code in codes if code[0] == first) for first in "234567"}
    return "|".join(f"{first}[{digits}{digits.upper()}]" for first, digits in second.items() if digits)


def _any_case(code: str, kept: str = "") -> str:
    """Return a pattern for a code with its hex digits in either case."""
    return "".join(f"[{each}{each.swapcase()}]" if each.isalpha() and each not in kept else each for each in code)
