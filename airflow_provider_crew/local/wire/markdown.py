"""Markdown as HTML: headings, lists, tables, code, bold text and links."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from html import escape

_CODE = re.compile(r"(`[^`]+`)")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
# The lengths are limited, so that a hostile text takes linear time.
_LINK = re.compile(r"\[([^\[\]<>]{1,500})\]\((https?://[^\s()<>]{1,2000})\)")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_HEADING = re.compile(r" {0,3}(#{1,6}) +(.*)")
_RULE = re.compile(r" {0,3}(?:-{3,}|\*{3,}|_{3,}) *$")
_ITEM = re.compile(r"( *)(?:[-*+]|(\d{1,9})[.)]) +(.*)")
_ROW = re.compile(r" {0,3}\|")
_CELL_END = re.compile(r"(?<!\\)\|")
_LOWEST_HEADING = 6
_DEEPEST_ITEM = 3


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
    parts[::2] = [
        _LINK.sub(r'<a href="\2" rel="noreferrer">\1</a>', _BOLD.sub(r"<strong>\1</strong>", each))
        for each in parts[::2]
    ]
    return "".join(parts)
