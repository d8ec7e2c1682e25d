"""Checks that run before a kickoff: of the inputs, and of the daily limit."""

from bisect import bisect_left
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_crew import api_server
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.models import CrewInputs
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.versions import HAS_STORE, NO_RETRIES

if TYPE_CHECKING:
    from airflow_provider_crew.client.client import CrewClient


def listed_inputs(task: Task, crew: "CrewClient") -> CrewInputs | None:
    """
    Return the inputs that the crew lists, to compare those of a kickoff with. None if there is nothing to compare.

    The request is sent even without validation, because it wakes up a sleeping crew.
    """
    validate = task.options.validate_inputs
    try:
        listed = resend(crew.inputs, wake_up_within=timing.WAKING_UP)
    except (errors.NotAllowed, errors.Rejected) as error:
        if validate:
            task.warn(f"Inputs are not checked, because the crew does not list them. {error.event}")
    except (errors.TransientError, errors.ResponseTooLarge) as error:
        # If /inputs is unreadable, the kickoff ID would be as well, and its execution would be billed but lost.
        if validate or (isinstance(error, errors.TransientError) and error.may_be_waking_up):
            raise
    else:
        return listed if validate else None
    return None


def reject_retries(task: Task) -> None:
    """Reject retries that a cluster policy has set, before Airflow 3.3."""
    if task.context.get("task_state_store") is None and task.ti.try_number <= (task.ti.max_tries or 0):
        raise errors.InvalidInputs(NO_RETRIES)


BUDGET_DAG = "crew_budget"


def today() -> str:
    """Return the day of the daily limit."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


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
    day = f"{connection}.{today()}"
    try:
        # Numbers are used in order, so a binary search finds the first one that may be free.
        numbers = range(1, limit + 1)
        number = 1 + bisect_left(
            numbers, x=True, key=lambda n: not ti.get_dr_count(dag_id=BUDGET_DAG, run_ids=[f"{day}.{n}"])
        )
        total, room = _counted(f"{day}.{number - 1}", number - 1), 0
        while total < limit and not room:
            room = min(wanted, limit - total)
            if not start_run(f"{day}.{number}", origin | {"total": total + room}):
                total, room, number = _counted(f"{day}.{number}", number), 0, number + 1
    except Exception as error:  # noqa: BLE001 - no error may send an uncounted kickoff
        if api_server.api_status(error) is not None and not api_server.is_away(error):
            raise errors.InvalidSettings(
                f"The DAG crew_budget, which max_kickoffs_per_day of connection {conn_id!r} needs, is missing: "
                f"{in_words(error)}. Add a file to your dags folder that contains "
                "`from airflow_provider_crew.dags.crew_budget import dag`."
            ) from None
        event = f"Airflow did not count the kickoff, so nothing was sent: {in_words(error)}."
        raise errors.TransientError(event, cost=errors.Cost.NONE) from None
    if not room:
        raise errors.DailyLimitReached(
            f"Connection {conn_id!r} has reached its limit of {limit} kickoffs a day (max_kickoffs_per_day)."
        )
    log.info("Kickoff %d of at most %d today.", total + room, limit)
    return room


def _counted(run_id: str, number: int) -> int:
    """Return the kickoffs up to a run of the budget DAG, which may count a block from Airflow 3.3 on."""
    total = (conf_of_run(run_id) or {}).get("total") if number and HAS_STORE else 0
    return max(number, total) if isinstance(total, int) else number


def start_run(run_id: str, conf: dict[str, Any]) -> bool:
    """
    Start a run of the budget DAG. Return whether it is the first one with this ID.

    This is the only request of a task that fails if another task was faster, because run IDs are unique in
    Airflow's database. Variables, XComs and task states are overwritten.
    """
    answer = _send("TriggerDagRun", dag_id=BUDGET_DAG, run_id=run_id, conf=conf)
    return bool(answer.type != "ErrorResponse")


def conf_of_run(run_id: str) -> Any:
    """Return the configuration of a run of the budget DAG."""
    return _send("GetDagRun", dag_id=BUDGET_DAG, run_id=run_id).conf


def _send(request: str, **fields: Any) -> Any:
    """Send a request to the API server through the supervisor. Airflow's own functions do more, or hide errors."""
    from airflow.sdk.execution_time import comms, task_runner

    return task_runner.SUPERVISOR_COMMS.send(getattr(comms, request)(**fields))
