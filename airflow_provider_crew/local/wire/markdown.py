"""Markdown as HTML: headings, lists, tables, code, bold text and links."""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from html import escape, unescape
from urllib.parse import urlsplit

_CODE = re.compile(r"(`[^`]+`)")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
# The lengths are limited, so that a hostile text takes linear time.
_LINK = re.compile(r"\[([^\[\]<>]{1,500})\]\((https?://[^\s()<>]{1,2000})\)")
_DOMAIN = re.compile(r"(?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,24}")
_SLASHES = re.compile(r"^(https?:)/+", re.IGNORECASE)
# Invisible, or they change the direction of the text around them, so a text could look like another one.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_HEADING = re.compile(r" {0,3}(#{1,6}) +(.*)")
_RULE = re.compile(r" {0,3}(?:-{3,}|\*{3,}|_{3,}) *$")
_ITEM = re.compile(r"( *)(?:[-*+]|(\d{1,9})[.)]) +(.*)")
_ROW = re.compile(r" {0,3}\|")
_CELL_END = re.compile(r"(?<!\\)\|")
_LOWEST_HEADING = 6
_DEEPEST_ITEM = 3


def visible(text: str) -> str:
    """Return a text whose hidden characters are visible."""
    return _HIDDEN.sub(lambda hidden: f"⟨U+{ord(hidden[0]):04X}⟩", text)


def html_of(text: str) -> str:
    """Return a text as HTML. It is escaped first, so it cannot add markup of its own."""
    return "\n".join(_blocks(deque(escape(text).splitlines())))


def _blocks(lines: deque[str]) -> Iterator[str]:
    while lines:
        line = lines.popleft()
        if _FENCE.match(line):
            yield _code(lines)
        elif heading := _HEADING.match(line):
            level = min(len(heading[1]) + 2, _LOWEST_HEADING)
            yield f"<h{level}>{_inline(heading[2])}</h{level}>"
        elif _RULE.match(line):
            yield "<hr>"
        elif "|" in line and lines and "-" in lines[0] and set(lines[0]) <= set("|:- "):
            lines.popleft()
            rows = [_row(line, "th"), *(_row(each, "td") for each in _taken(lines, lambda each: "|" in each))]
            yield f'<div class="wide"><table>{"".join(rows)}</table></div>'
        elif _ITEM.match(line):
            yield f"<ol>{''.join(map(_item, [line, *_taken(lines, _ITEM.match)]))}</ol>"
        elif line.strip():
            paragraph = "\n".join([line, *_taken(lines, _continues_paragraph)])
            yield f"<p>{_inline(paragraph)}</p>"


def _taken(lines: deque[str], condition: Callable[[str], object]) -> Iterator[str]:
    """Take lines from the front for as long as they meet the condition."""
    while lines and condition(lines[0]):
        yield lines.popleft()


def _code(lines: deque[str]) -> str:
    """Take the lines before the closing fence, and the fence."""
    code = "\n".join(_taken(lines, lambda line: not _FENCE.match(line)))
    if lines:
        lines.popleft()
    return f"<pre>{code}</pre>"


def _continues_paragraph(line: str) -> bool:
    return bool(line.strip()) and not any(each.match(line) for each in (_FENCE, _HEADING, _RULE, _ITEM, _ROW))


def _item(line: str) -> str:
    indentation, number, text = _ITEM.findall(line)[0]
    kind = f'value="{number}"' if number else 'class="bullet"'
    level = min(len(indentation) // 2, _DEEPEST_ITEM)
    return f'<li {kind} data-level="{level}">{_inline(text)}</li>'


def _row(line: str, cell: str) -> str:
    cells = _CELL_END.split(line.strip().removeprefix("|").removesuffix("|"))
    texts = (_inline(each.strip().replace("\\|", "|")) for each in cells)
    return f"<tr>{''.join(f'<{cell}>{text}</{cell}>' for text in texts)}</tr>"


def _inline(text: str) -> str:
    parts = _CODE.split(text)
    parts[1::2] = [f"<code>{code[1:-1]}</code>" for code in parts[1::2]]
    parts[::2] = [_LINK.sub(_link, _BOLD.sub(r"<strong>\1</strong>", each)) for each in parts[::2]]
    return "".join(parts)


def _link(found: re.Match[str]) -> str:
    """Return a link, followed by its host if its label looks like another address."""
    label, address = found.groups()
    try:
        url = urlsplit(_SLASHES.sub(r"\1//", unescape(address).replace("\\", "/")))  # as browsers read it
        host, user = url.hostname or "", url.username
    except ValueError:
        return found[0]
    named = _DOMAIN.search(unicodedata.normalize("NFKC", unescape(label)))
    misleads = named is not None and host not in {named[0].lower(), f"www.{named[0].lower()}"}
    shown = f" ({escape(host)})" if misleads or user is not None or "xn--" in host or not host.isascii() else ""
    return f'<a href="{address}" rel="noreferrer">{label}</a>{shown}'
