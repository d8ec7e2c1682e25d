"""
Reading any answer to a request, without repeating a secret from it.

``errors.txt`` has the bodies of errors. The line below each has its sender, the inputs that it reports as missing,
and the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tests.unit.crew_builders import answer


def table(known: list[str]) -> Iterator[str]:
    for line in known:
        if not line.startswith("    "):
            yield line
        if line and line[0] not in "# ":
            received = answer(422, ast.literal_eval(line), {"Content-Type": "text/html"})
            whose = "the crew" if received.has_error_body else "another"
            missing = f", missing {received.missing_inputs}" if received.missing_inputs else ""
            yield f"    {whose}{missing}:{received.reason() or ' nothing'}"


def test_errors_are_read_as_in_the_table(printed: Any) -> None:
    printed("errors.txt", table)
