"""Rows of a batch, and what its files have of them."""

from __future__ import annotations

import json
from typing import Any


def rows(count: int = 10) -> list[dict[str, Any]]:
    return [{"topic": f"topic {number}", "audience": "sailors"} for number in range(count)]


def lines(folder: Any, name: str = "results.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def statuses(folder: Any) -> dict[str, str]:
    return {line["key"]: line["status"] for line in lines(folder)}
