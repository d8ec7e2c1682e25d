"""Differences between Airflow's versions, each with its reason."""

from __future__ import annotations

import sys

from airflow import __version__ as airflow_version
from airflow import sdk

_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])

# Airflow deletes the task state when the task is cleared, unless the user keeps it.
CLEARING_DELETES_TASK_STATE = _RELEASE >= (3, 4)

# The task state store outlives an attempt. A deferred task resumes when a user answers its request under Required
# Actions, and its trigger learns that a user has marked it.
HAS_STORE = _RELEASE >= (3, 3)

# Keep a store entry as long as its run. Airflow deletes other entries earlier.
RETENTION = {"retention": sdk.NEVER_EXPIRE} if HAS_STORE else {}  # type: ignore[attr-defined]  # the stub lacks it

NO_RETRIES = (
    "Before Airflow 3.3, a task that starts executions needs retries=0: a retry would start another execution "
    "(billed). Use CrewKickoffOperator with retries=0, and CrewExecutionSensor with retries."
)
KEEP = " with 'Keep task state and resume'"
KEEPING = KEEP if CLEARING_DELETES_TASK_STATE else ""


def is_traced() -> bool:
    """Whether this process has a tracer. Airflow 3.1 sets none in a task's process. This imports nothing."""
    api = sys.modules.get("opentelemetry.trace")
    none = (api.ProxyTracerProvider, api.NoOpTracerProvider) if api else ()
    return api is not None and not isinstance(api.get_tracer_provider(), none)
