"""Failed rows of a batch, grouped by the reason. Each group is JSON data, so that it survives a deferral."""

from typing import Any

from airflow_provider_crew.client.text import core_of, one_line

_MOST_GROUPS = 50
_MOST_KEYS = 3
_LONGEST_REASON = 200


def count_reason(groups: list[dict[str, Any]], key: str, status: str, message: str) -> None:
    """Count a failed row in the group of its reason, which has the words of its first row."""
    reason = one_line(message, _LONGEST_REASON)
    core = core_of(reason)
    alike = [group for group in groups if group["status"] == status and core_of(group["reason"]) == core]
    if not alike and len(groups) < _MOST_GROUPS:
        alike = [{"status": status, "reason": reason, "count": 0, "keys": []}]
        groups += alike
    for group in alike:
        group["count"] += 1
        group["keys"] = [*group["keys"], key][:_MOST_KEYS]
