"""
Writes docs/messages.md from the package: what it says when something ends badly, and what it warns of.

    python -m tests.message_page
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from airflow_provider_crew.compat import KEEPING
from airflow_provider_crew.service.messages import Message

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_provider_crew"
PAGE = ROOT / "docs" / "messages.md"
CATALOGUES = tuple(
    import_module(f"airflow_provider_crew.{name}") for name in ("service.messages", "tasks.messages")
)
_BEGIN = "<!-- written by tests/message_page.py -->"
_SHOWN = {
    "execution": "Execution ID",
    "call": "GET /inputs",
    "after": " after 4m 10s",
    "place": ", at task 2 of 3, writing_task",
    "lasted": "10m 0s",
    "kind": "MemoryError",
    "status": "500",
    "conn_id": "'crew_default'",
    "connection": "'crew_default'",
    "host": "my-crew.example:443",
    "id": "ID",
    "running": "ID",
    "names": "topic, audience",
    "variable": "AIRFLOW_CONN_CREW_DEFAULT",
}
_HEADER = "| What | Money | Next | Details |\n|---|---|---|---|\n"


class _Words(dict[str, str]):
    """What stands in a message: an example where it helps, else its name."""

    def __missing__(self, name: str) -> str:
        return _SHOWN.get(name, f"[{name.replace('_', ' ')}]")


def page() -> str:
    """Return the page as it should be: what was written by hand, and the tables."""
    by_hand = PAGE.read_text().partition(_BEGIN)[0]
    tables = "".join(_of_catalogue(catalogue) for catalogue in CATALOGUES)
    return f"{by_hand}{_BEGIN}\n{tables}{_of_dags()}{_of_warnings()}"


def said_in(catalogue: ModuleType) -> dict[str, Message]:
    """Return the messages of a catalogue, and what an end means for a task, by their names."""
    return {name: each for name, each in vars(catalogue).items() if name.isupper() and _is_said(each)}


def _is_said(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "next")


def _of_catalogue(catalogue: ModuleType) -> str:
    """Return a table for each part of a catalogue: a comment that stands alone begins one."""
    lines = Path(str(catalogue.__file__)).read_text().splitlines()
    parts: dict[str, list[str]] = defaultdict(list)
    title = ""
    said = said_in(catalogue)
    for number, line in enumerate(lines):
        if line.startswith("# ") and not lines[number + 1]:
            title = line.removeprefix("# ").split(". ")[0].rstrip(".")
        name = line.split(" ")[0]
        if name in said and line.startswith(f"{name} ="):
            parts[title].append(_row(said[name]))
    return "".join(f"\n## {title}\n\n{_HEADER}{''.join(rows)}" for title, rows in parts.items())


def _row(said: Message) -> str:
    """Show a message; an end has no first line of its own."""
    what, details = getattr(said, "what", "…"), getattr(said, "details", "") or getattr(said, "also", "")
    texts = (text.format_map(_Words()).replace(KEEPING, "") for text in (what, said.next, details))
    what, following, details = texts
    return _table_row(what, said.money.sentence if said.money else "…", following, details)


def _of_dags() -> str:
    texts = sorted(text for _, text in refused_at_parsing())
    rows = "".join(_table_row(text, "Nothing was started.", "Correct the DAG.", "") for text in texts)
    return f"\n## When Airflow parses a DAG\n\n{_HEADER}{rows}"


def _of_warnings() -> str:
    texts = sorted({text for text in _warnings() if text.strip("… ")})
    return "\n## Warnings, with which a task goes on\n\n" + "".join(f"- {_plain(text)}\n" for text in texts)


def refused_at_parsing() -> Iterator[tuple[str, str]]:
    """Find what an operator refuses before a DAG runs with it."""
    for path in sorted((PACKAGE / "operators").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id="ValueError"), args=[said, *_])):
                    yield path.name, text_of(said)


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """Parse the package, but for the local service, which talks to nobody at three in the morning."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.is_relative_to(PACKAGE / "local"):
            yield path, ast.parse(path.read_text())


def _warnings() -> Iterator[str]:
    for _, tree in sources():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="warning" | "warn"), args=[said, *_]):
                    yield text_of(said)
                case ast.Call(func=ast.Attribute(attr="_in_trouble"), args=[said, more]):
                    yield f"{text_of(said)} {text_of(more)}"


def text_of(said: ast.expr) -> str:
    """Return the text of a literal, with signs where something is filled in; else nothing."""
    match said:
        case ast.Constant(value=str(text)):
            return text.replace("%s", "…").replace("%r", "…").replace("%.1f", "…").replace("%.0f", "…")
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) if isinstance(part, ast.Constant) else "…" for part in parts)
    return ""


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").strip()


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
