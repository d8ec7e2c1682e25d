"""What tasks leave in XCom, and under which keys."""

from typing import Any

KICKOFF_ID = "kickoff_id"
RETURN_VALUE = "return_value"
USAGE = "usage"
RESULT = "crew_result"
"""Of a result that is not returned, since the output is not of the type that was asked for."""

# Airflow's serializers refuse objects with these keys, or read another meaning into them.
_RESERVED_KEYS = frozenset({"__id__", "__classname__", "__var"})


def kickoff_id_left_by(ti: Any) -> str | None:
    """
    Return the kickoff id that this try has left before it was deferred, or a process that should be gone by now.

    Airflow deletes that of another try, but for that of a mapped task in 3.0.
    """
    found: str | None = ti.xcom_pull(task_ids=ti.task_id, key=KICKOFF_ID, map_indexes=ti.map_index)
    return found


def without_reserved_keys(value: Any) -> Any:
    """Return JSON data as Airflow stores it."""
    if isinstance(value, dict):
        renamed = {key: f"{key}_" if key in _RESERVED_KEYS else key for key in value}
        return {renamed[key]: without_reserved_keys(item) for key, item in value.items()}
    return [without_reserved_keys(item) for item in value] if isinstance(value, list) else value
