"""As many task instances as are to be deferred: paused, so that Airflow makes their rows and nothing more."""

from __future__ import annotations

from airflow.sdk import DAG, task

from benchmarks.seeding import MOST


@task
def wait(number: int) -> int:
    """Never run: the benchmark defers it by hand."""
    return number


with DAG("deferred", schedule=None, is_paused_upon_creation=True):
    for half in range(2):  # Airflow maps a task to 1,024 at most
        wait.override(task_id=f"wait_{half}").expand(number=list(range(MOST)))
