"""
How many kickoffs in a day a connection allows, counted where all workers see it.

Each kickoff is a run of one DAG, and its name holds the connection, the day and a number. Airflow's database
accepts a name only once. So each number goes to one task, however many ask at the same time.
"""

from bisect import bisect_left
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from airflow_provider_crew.compat import has_run, refuses_runs, start_run
from airflow_provider_crew.service.errors import BudgetSpent, Cost, InvalidSettings, TransientError
from airflow_provider_crew.tasks.running import RunningTask

BUDGET_DAG = "crew_budget"


def count_kickoff(task: RunningTask, origin: dict[str, Any]) -> None:
    """Count the kickoff that is to come, or raise BudgetSpent. ``origin``: where it comes from, for people."""
    limit = task.hook.connection.max_kickoffs_per_day
    if limit is None:
        return
    try:
        number = _number_of_this(task, limit, origin)
    except Exception as error:  # noqa: BLE001 - whatever it is, nothing is sent
        why = f"{type(error).__name__}: {error}"
        if refuses_runs(error):
            raise InvalidSettings(
                f"It sets max_kickoffs_per_day, and there is no DAG crew_budget to count its kickoffs: {why}.",
                next_step="Add the DAG crew_budget, or clear max_kickoffs_per_day.",
                conn_id=task.crew_conn_id,
            ) from None
        raise TransientError(
            f"Airflow did not count the kickoff, so nothing was sent: {why}.",
            cost=Cost.NONE,
            next_step="Try again later.",
        ) from None
    if not number:
        raise BudgetSpent(
            f"Connection {task.crew_conn_id!r} allows {limit} kickoffs a day (max_kickoffs_per_day), which is "
            "reached.",
            next_step="Wait until midnight (UTC), or raise max_kickoffs_per_day.",
        )
    task.log.info("Kickoff %d of at most %d today.", number, limit)


def _number_of_this(task: RunningTask, limit: int, origin: dict[str, Any]) -> int | None:
    """
    Return which kickoff of the day this is; None if there may be no more.

    Numbers are taken in order, so a binary search finds the first that may be free.
    """
    # An Airflow refuses most other characters in the name of a run.
    connection = quote(task.crew_conn_id, safe="").replace("%", "~")
    day = f"{connection}.{datetime.now(UTC):%Y-%m-%d}"
    numbers = range(1, limit + 1)
    gone = bisect_left(numbers, x=True, key=lambda number: not has_run(task.ti, BUDGET_DAG, f"{day}.{number}"))
    return next((number for number in numbers[gone:] if start_run(BUDGET_DAG, f"{day}.{number}", origin)), None)
