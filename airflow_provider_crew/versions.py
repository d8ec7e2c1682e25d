"""Differences between Airflow's versions, each with its reason."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from collections.abc import Mapping

_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])

# Airflow deletes the task state when the task is cleared, unless the user keeps it.
CLEARING_DELETES_TASK_STATE = _RELEASE >= (3, 4)
# A retry may be resumed with the event of the previous attempt: https://github.com/apache/airflow/issues/56704
_KEEPS_OLD_EVENTS = _RELEASE < (3, 2)

# The task state store outlives an attempt.
HAS_STORE = _RELEASE >= (3, 3)
# A deferred task resumes when a user answers its request under Required Actions.
HAS_REQUIRED_ACTIONS = _RELEASE >= (3, 3)
# A trigger learns that a user has marked its task, and can cancel the execution.
TRIGGERS_CANCEL = _RELEASE >= (3, 3)

KEEP = " with 'Keep task state and resume'"
KEEPING = KEEP if CLEARING_DELETES_TASK_STATE else ""

# The scheduler sometimes fails a task that starts again within about a second of its deferral or reschedule,
# because it has not yet recorded the end of the previous process.
MIN_DEFERRAL_SECONDS = 10.0


def resumed_with_old_error(next_kwargs: Mapping[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event that failed an earlier attempt."""
    return resumed_with_old_event(next_kwargs, ti) and "error" in (next_kwargs.get("event") or ())


def resumed_with_old_event(next_kwargs: Mapping[str, Any], ti: Any) -> bool:
    """Whether Airflow resumes a retry with the event of an earlier attempt, instead of running it."""
    return _KEEPS_OLD_EVENTS and next_kwargs.get("try_number", ti.try_number) != ti.try_number


def _send(request: str, **fields: Any) -> Any:
    """Send a request to the API server through the supervisor. Airflow's own functions do more, or hide errors."""
    from airflow.sdk.execution_time import comms, task_runner

    return task_runner.SUPERVISOR_COMMS.send(getattr(comms, request)(**fields))


def never_expires() -> dict[str, Any]:
    """Return the arguments that keep a store entry as long as its run. Airflow deletes other entries earlier."""
    if not HAS_STORE:
        return {}
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    return {"retention": NEVER_EXPIRE}


def keeps_record(durable: bool) -> bool:  # noqa: FBT001 - the operator's own argument
    """Whether attempts of a task share a kickoff record."""
    return durable and (HAS_STORE or conf.getboolean("crew", "kickoff_records_in_variables", fallback=False))


def variable(name: str) -> str | None:
    """
    Return a variable from Airflow's database, or None if it does not exist.

    Airflow's own API asks other backends first, and reports a missing variable even if the request failed.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

    answer = _send("GetVariable", key=name)
    if answer.type != "ErrorResponse":
        return str(answer.value)
    if answer.error == ErrorType.VARIABLE_NOT_FOUND:
        return None
    raise AirflowRuntimeError(answer)


def set_variable(name: str, value: str, about: str) -> None:
    """Set a variable in Airflow's database, even if another backend has a variable of that name."""
    _send("PutVariable", key=name, value=value, description=about)


def delete_variable(name: str) -> None:
    """Delete a variable from Airflow's database, if it exists."""
    _send("DeleteVariable", key=name)


def is_traced() -> bool:
    """Whether this process has a tracer. Airflow 3.1 sets none in a task's process. This imports nothing."""
    api = sys.modules.get("opentelemetry.trace")
    none = (api.ProxyTracerProvider, api.NoOpTracerProvider) if api else ()
    return api is not None and not isinstance(api.get_tracer_provider(), none)
