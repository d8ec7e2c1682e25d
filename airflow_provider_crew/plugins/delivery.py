"""
Listener that records, on Airflow 2, that Airflow has stored the result of a task.

Airflow 2 runs success callbacks before it stores the success, and listeners afterwards.
"""

from __future__ import annotations

from airflow.listeners import hookimpl


@hookimpl
def on_task_instance_success(task_instance: object) -> None:
    """Record the delivery if the task belongs to this package and ran in this process."""
    note = getattr(getattr(task_instance, "task", None), "save_crew_delivery", None)
    if note:
        note()
