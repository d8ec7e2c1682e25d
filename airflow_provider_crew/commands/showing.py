"""A table for people: labels on the left, and beside them texts that fit the terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

from airflow_provider_crew.service.text import LINE

if TYPE_CHECKING:
    from collections.abc import Iterable

_GAP = "  "


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Lay rows out. What must not be torn apart, such as an address, has a line of its own."""
    shown = [(f"{label}:", text) for label, text in rows if text]
    labels = max(len(label) for label, _ in shown)
    room = min(shutil.get_terminal_size().columns, LINE) - labels - len(_GAP)
    wrap = textwrap.TextWrapper(max(room, 20), break_long_words=False, break_on_hyphens=False).wrap
    lines = []
    for label, text in shown:
        wrapped = [line for paragraph in text.splitlines() for line in wrap(paragraph)]
        beside = (label, *[""] * (len(wrapped) - 1))
        lines += [f"{left:{labels}}{_GAP}{line}" for left, line in zip(beside, wrapped, strict=True)]
    return "\n".join(lines)
