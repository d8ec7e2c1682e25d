"""
Listener that records, on Airflow 2, that Airflow has the result of a task.

There, success callbacks run before the success is noted, and listeners after it.
"""

from __future__ import annotations

from airflow.listeners import hookimpl


@hookimpl
def on_task_instance_success(task_instance: object) -> None:
    """Record the delivery, if the task is one of this package and has run in this process."""
    note = getattr(getattr(task_instance, "task", None), "note_crew_delivery", None)
    if note:
        note()
