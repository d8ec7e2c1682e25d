"""Differences between Airflow's versions, each with its reason."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version
from airflow import sdk

if TYPE_CHECKING:
    from collections.abc import Mapping

_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])

# Airflow deletes the task state when the task is cleared, unless the user keeps it.
CLEARING_DELETES_TASK_STATE = _RELEASE >= (3, 4)
# A retry may be resumed with the event of the previous attempt: https://github.com/apache/airflow/issues/56704
KEEPS_OLD_EVENTS = _RELEASE < (3, 2)

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


def resumed_with_old_error(next_kwargs: Mapping[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event that failed an earlier attempt."""
    is_old = KEEPS_OLD_EVENTS and next_kwargs.get("try_number", ti.try_number) != ti.try_number
    return is_old and "error" in (next_kwargs.get("event") or ())


def is_traced() -> bool:
    """Whether this process has a tracer. Airflow 3.1 sets none in a task's process. This imports nothing."""
    api = sys.modules.get("opentelemetry.trace")
    none = (api.ProxyTracerProvider, api.NoOpTracerProvider) if api else ()
    return api is not None and not isinstance(api.get_tracer_provider(), none)
