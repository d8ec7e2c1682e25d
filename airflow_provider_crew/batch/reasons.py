"""Failed rows of a batch, grouped by the reason. Each group is JSON data, so that it survives a deferral."""

import re
from functools import lru_cache
from typing import Any

from airflow_provider_crew.client.text import one_line

_MOST_GROUPS = 50
_MOST_KEYS = 3
_LONGEST_REASON = 200
_COMPARED = 150
# IDs and times, which differ from row to row. A status code or a line number tells two reasons apart.
_DIFFERS = re.compile(r"\b(?=[\w-]*\d)[\w-]{12,}\b|\b\d+(?:\.\d+)? ?(?:h|m|s|ms)\b(?: \d+[ms]\b)?")


def count_reason(groups: list[dict[str, Any]], key: str, status: str, message: str) -> None:
    """Count a failed row in the group of its reason, which has the words of its first row."""
    reason = one_line(message, _LONGEST_REASON)
    core = _core(reason)
    alike = [group for group in groups if group["status"] == status and _core(group["reason"]) == core]
    if not alike and len(groups) < _MOST_GROUPS:
        alike = [{"status": status, "reason": reason, "count": 0, "keys": []}]
        groups += alike
    for group in alike:
        group["count"] += 1
        group["keys"] = [*group["keys"], key][:_MOST_KEYS]


@lru_cache(maxsize=2 * _MOST_GROUPS)
def _core(reason: str) -> str:
    return _DIFFERS.sub("…", reason)[:_COMPARED]
