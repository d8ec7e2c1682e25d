"""
Values of expressions, as in ``values/*.txt``.

To add an expression, write it into a file. The line below it is its value, or the error that it raises. Imports
and assignments in a file are for the expressions below them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from pprint import saferepr
from typing import Any

import pytest

TABLES = sorted(Path(__file__).with_name("values").glob("*.txt"))


def value(expression: str, names: dict[str, Any]) -> str:
    try:
        return saferepr(eval(expression, names))  # noqa: S307 - our own
    except Exception as error:  # noqa: BLE001 - a value among others
        cost = f" (cost: {error.cost})" if hasattr(error, "cost") else ""
        return f"! {type(error).__name__}{cost}: {getattr(error, 'event', error)}"


def table(known: list[str]) -> Iterator[str]:
    names: dict[str, Any] = {}
    for line in known:
        if not line.startswith("    "):
            yield line
            if isinstance(code := next(iter(ast.parse(line).body), None), ast.Expr):
                yield f"    {value(line, names)}"
            elif code:
                exec(line, names)  # noqa: S102 - our own


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_values_are_those_of_the_table(printed: Any, path: Path) -> None:
    printed(f"values/{path.name}", table)
