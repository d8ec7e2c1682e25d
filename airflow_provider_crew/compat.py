"""What differs between versions of Airflow, each with its reason."""

from __future__ import annotations

from airflow import __version__ as airflow_version

_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])

# It enforces execution_timeout while a task is deferred, and then needs time to resume it.
IS_AIRFLOW_2 = _RELEASE < (3,)
# There a retry may be told once more what the try before was: https://github.com/apache/airflow/issues/56704
TELLS_AGAIN = (3,) <= _RELEASE < (3, 2)
# It forgets what a task remembers whenever the task is cleared, unless the person who does so keeps it.
FORGETS_AT_CLEAR = _RELEASE >= (3, 4)
KEEPING = " with 'Keep task state'" if FORGETS_AT_CLEAR else ""
CLEARING = f"clearing it{KEEPING}"
