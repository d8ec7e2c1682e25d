"""Checks that run before a kickoff: of the inputs, and of the daily limit."""

from bisect import bisect_left
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from airflow_provider_crew import versions
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.options import WAKING_UP
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.text import in_words, warn
from airflow_provider_crew.hooks.crew import CrewHook


def check_inputs(hook: CrewHook, request: KickoffRequest, log: Any, *, validate: bool) -> None:
    """
    Raise errors that would make the kickoff fail, and log warnings for doubtful inputs.

    The request for the crew's inputs is sent even without validation, because it wakes up a sleeping crew.
    """
    try:
        known = resend(hook.get_conn().inputs, wake_up_within=WAKING_UP)
    except (errors.NotAllowed, errors.Rejected) as error:
        if validate:
            warn(log, f"Inputs are not checked, because the crew does not list them. {error.event}")
    except (errors.TransientError, errors.ResponseTooLarge) as error:
        # If /inputs is unreadable, the kickoff ID would be as well, and its execution would be billed but lost.
        if validate or (isinstance(error, errors.TransientError) and error.may_be_waking_up):
            raise
    else:
        for doubt in compare_inputs(request.inputs, known) if validate else ():
            warn(log, doubt)


BUDGET_DAG = "crew_budget"


def count_kickoffs(hook: CrewHook, ti: Any, origin: dict[str, Any], log: Any, wanted: int) -> int:
    """
    Count a block of kickoffs against the daily limit with one run of the budget DAG. Raise DailyLimitReached.

    Return how many there is room for.

    :param origin: DAG, run and task of the kickoffs, stored in the run that counts them.
    :param wanted: Number of kickoffs.
    """
    limit, conn_id = hook.connection.max_kickoffs_per_day, hook.crew_conn_id
    if limit is None:
        return wanted
    # Airflow rejects most other characters in a run ID.
    connection = quote(conn_id, safe="").replace("%", "~")
    day = f"{connection}.{datetime.now(UTC):%Y-%m-%d}"
    try:
        # Numbers are used in order, so a binary search finds the first one that may be free.
        numbers = range(1, limit + 1)
        number = 1 + bisect_left(
            numbers, x=True, key=lambda n: not ti.get_dr_count(dag_id=BUDGET_DAG, run_ids=[f"{day}.{n}"])
        )
        total, room = _counted(f"{day}.{number - 1}", number - 1), 0
        while total < limit and not room:
            room = min(wanted, limit - total)
            if not versions.start_run(BUDGET_DAG, f"{day}.{number}", origin | {"total": total + room}):
                total, room, number = _counted(f"{day}.{number}", number), 0, number + 1
    except Exception as error:  # noqa: BLE001 - no error may send an uncounted kickoff
        if versions.refuses_runs(error):
            raise errors.InvalidSettings(
                f"Connection {conn_id!r} is unusable. Its max_kickoffs_per_day needs the DAG crew_budget, which "
                "is missing. `python -m airflow_provider_crew dags --into DIR` copies the DAG: "
                f"{in_words(error)}.",
            ) from None
        raise errors.TransientError(
            f"Airflow did not count the kickoff, so nothing was sent: {in_words(error)}.",
            cost=Cost.NONE,
        ) from None
    if not room:
        raise errors.DailyLimitReached(
            f"Connection {conn_id!r} has reached its limit of {limit} kickoffs a day (max_kickoffs_per_day)."
        )
    log.info("Kickoff %d of at most %d today.", total + room, limit)
    return room


def _counted(run_id: str, number: int) -> int:
    """Return the kickoffs up to a run of the budget DAG, which may count a block."""
    total = (versions.conf_of_run(BUDGET_DAG, run_id) or {}).get("total") if number else 0
    return max(number, total) if isinstance(total, int) else number
