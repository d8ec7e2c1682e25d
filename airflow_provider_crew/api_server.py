"""
Airflow's API server as a task of Airflow 3 meets it: everything a task asks of Airflow goes there.

While it is away Airflow repeats a request for about ten seconds, and then fails it.
"""

from __future__ import annotations


def is_away(error: Exception) -> bool:
    """Whether the API server did not answer, or failed. What it refuses, it refuses again."""
    try:
        from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    except ImportError:  # Airflow 2
        return False
    if not isinstance(error, AirflowRuntimeError) or error.error.error != ErrorType.API_SERVER_ERROR:
        return False
    status = (error.error.detail or {}).get("status_code")
    return status is None or status >= 500  # noqa: PLR2004 - the server's own failures


def denies_connection(conn_id: str) -> bool:
    """Whether there is no such connection; Airflow says that there is none also when it could not ask."""
    try:
        from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS
    except ImportError:  # Airflow 2, or not in a task
        return True
    try:
        answer = SUPERVISOR_COMMS.send(GetConnection(conn_id=conn_id))
    except Exception as error:  # noqa: BLE001 - whatever else it is, Airflow's own answer stands
        return not is_away(error)
    return isinstance(answer, ErrorResponse)
