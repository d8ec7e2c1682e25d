"""A table for people: labels on the left, and beside them texts that fit the terminal."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from airflow_provider_crew.service.text import LINE, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

_GAP = "  "


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Lay rows out. What must not be torn apart, such as an address, has a line of its own."""
    shown = [(f"{label}:", text) for label, text in rows if text]
    labels = max(len(label) for label, _ in shown)
    room = min(shutil.get_terminal_size().columns, LINE) - labels - len(_GAP)
    lines = []
    for label, text in shown:
        beside = wrapped(text, max(room, 20))
        left = (label, *[""] * (len(beside) - 1))
        lines += [f"{first:{labels}}{_GAP}{line}" for first, line in zip(left, beside, strict=True)]
    return "\n".join(lines)
