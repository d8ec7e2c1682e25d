"""End of a batch: what Airflow does, the cost, and the next step. See ``attempt/verdict.py`` for single runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_crew.attempt.verdict import Action, Verdict, fix_for
from airflow_provider_crew.batch.rows import Status
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.exceptions import CrewTaskError, CutShort, EndedByAirflow

# Only a person can do something about these.
_LASTING = (
    errors.NotAuthenticated,
    errors.NotAllowed,
    errors.Rejected,
    errors.InvalidInputs,
    errors.InvalidOutputType,
    errors.InvalidSettings,
    errors.DailyLimitReached,
    errors.WatchBroken,
)


class BatchFailed(CrewError):
    """More rows of a batch failed than ``max_failed`` allows. ``examples``: reasons of the first ones."""

    cost: Cost = Cost.ENDED
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """
    Rows of a batch at its end.

    :param statuses: Number of rows by status.
    :param running: Rows whose execution is running.
    :param started: Rows for which an execution was started.
    :param is_blind: Whether what earlier processes have started is unknown, because it was not read.
    """

    statuses: Mapping[Status, int]
    running: int
    started: int
    is_blind: bool = False


def end_of_batch(error: BaseException, counted: Counted) -> Verdict:
    """Return the end of a batch, from the exception that ends it and the rows so far."""
    event = error if isinstance(error, CrewError) else CrewError(f"The batch was ended: {in_words(error)}.")
    statuses = counted.statuses
    # Running rows count as not started, or as an error if the task no longer waits for them.
    again = max(statuses["error"] + statuses["not_started"] + statuses["cancelled"] - counted.running, 0)
    parts = ["does not run the rows again that have succeeded"]
    if counted.running:
        parts.append(f"waits for the {counted.running:,} that are running")
    if again:
        parts.append(f"starts {again:,}, which are billed")
    effect = f"continues the batch: it {', '.join(parts)}"
    action: Action = "retry"
    if isinstance(error, CutShort):
        action = "time out"
    elif isinstance(event, _LASTING) or (isinstance(event, BatchFailed) and not again):
        action = "fail"
    uncertain = statuses["uncertain"]
    fix = fix_for(event)
    if uncertain:
        fix += f" {uncertain} rows are uncertain: look for their executions in the crew's dashboard first."
        effect += f". Clearing it also starts the {uncertain:,} uncertain rows again"
    cost = Cost.UNKNOWN if uncertain or counted.is_blind else Cost.RUNNING if counted.running else Cost.ENDED
    if not (counted.started or counted.running or uncertain or counted.is_blind):
        cost = Cost.NONE
    failure = event.replace(cost=cost, next_step=f"{fix} Clearing the task {effect}.".strip())
    is_retried = action in {"retry", "time out"}
    passes_on = not isinstance(error, CrewError | CrewTaskError | EndedByAirflow)
    return Verdict("pass on" if passes_on else action, failure, effect if is_retried else "", effect, error)
