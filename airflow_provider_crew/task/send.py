"""Kickoff of one execution: the request, sending it once, and checks before. Same for a run, a row and a call."""

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_crew import api_server
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import CrewError, UncertainKickoff
from airflow_provider_crew.client.models import CrewInputs
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Task
from airflow_provider_crew.versions import HAS_STORE, NO_RETRIES

if TYPE_CHECKING:
    from airflow_provider_crew.client.client import CrewClient


def webhook_secret(task: Task) -> Any:
    """Return the secret that the crew sends with events, or None."""
    conn_id = task.options.webhook_conn_id
    return load_secret(conn_id) if conn_id else None


def request_of(task: Task, inputs: Any, secret: Any, record: str, **about: Any) -> KickoffRequest:
    """
    Return the kickoff request for some inputs.

    :param record: Key of its kickoff record.
    :param about: What the meta says besides the task.
    """
    options: Any = dict(task.options.kickoff)
    if options.get("meta") is None:
        options["meta"] = {"airflow": task.origin() | about}
    request = KickoffRequest.of(inputs, webhook_secret=secret, **options)
    if is_on("settle_kickoffs", task.log):
        from airflow_provider_crew.settle.kickoff import asking

        return asking(task, request, record)
    return request


def kick_off(
    task: Task, kickoff: Callable[[KickoffRequest], str], request: KickoffRequest, interrupted: Event
) -> str:
    """Send a kickoff, and return the kickoff ID in the response, or else in the call of its crew."""
    sent_at = time.time()
    try:
        return kickoff(request)
    except UncertainKickoff as error:
        if error.kickoff_id:  # whatever its status, a response that names an execution has started one
            task.warn(error.event)
            return error.kickoff_id
        if not request.call:
            raise
        found = called(task, {request.call: sent_at}, interrupted, must_know=False)
        if not found:
            raise error.replace(f"{error.event} Airflow got no call from the crew.") from None
        return found[request.call]


def called(
    task: Task, calls: Mapping[str, float], interrupted: Event, *, must_know: bool = True
) -> Mapping[str, str]:
    """Return the kickoff IDs of kickoffs without a response. See ``wait_for_calls()``."""
    from airflow_provider_crew.settle.kickoff import wait_for_calls

    return wait_for_calls(task, calls, interrupted, must_know=must_know)


def send(
    kickoff: Callable[[], str],
    stop: Stop,
    interrupted: Event,
    *,
    save_intent: Callable[[], object],
    delete_intent: Callable[[], object] = lambda: None,
) -> str:
    """
    Send a kickoff once, and return the kickoff ID. Call this where no signal interrupts it.

    Store the intent, look whether the task may still send, and send. A crash in between leaves a trace: the next
    attempt reports an uncertain kickoff instead of sending another. The kickoff is sent again only if the crew
    certainly did not receive it.

    :param kickoff: Sends the request once.
    :param save_intent: Records a kickoff that may have been sent from here on. If it raises, nothing is sent.
    :param delete_intent: Removes the record of a kickoff that certainly started nothing.
    """

    def once() -> str:
        save_intent()
        try:
            stop.look_before("kickoff", interrupted)
            return kickoff()
        except CrewError as error:
            if not isinstance(error, UncertainKickoff):
                delete_intent()
            raise

    return resend(once, only_if_not_started=True, sleep=interrupted.wait)


# Before it.


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
        if (status := api_server.api_status(error)) is not None and not api_server.is_away(error):
            raise errors.InvalidSettings(
                f"The DAG crew_budget, which max_kickoffs_per_day of connection {conn_id!r} needs, is missing or "
                f"has import errors (Airflow returned {status}). "
                "Add a file to your dags folder with `from airflow_provider_crew.dags.crew_budget import dag`."
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
    answer = _ask_airflow("TriggerDagRun", dag_id=BUDGET_DAG, run_id=run_id, conf=conf)
    return bool(answer.type != "ErrorResponse")


def conf_of_run(run_id: str) -> Any:
    """Return the configuration of a run of the budget DAG."""
    return _ask_airflow("GetDagRun", dag_id=BUDGET_DAG, run_id=run_id).conf


def _ask_airflow(request: str, **fields: Any) -> Any:
    """Send a request to the API server through the supervisor. Airflow's own functions do more, or hide errors."""
    from airflow.sdk.execution_time import comms, task_runner

    return task_runner.SUPERVISOR_COMMS.send(getattr(comms, request)(**fields))
