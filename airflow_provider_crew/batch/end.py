"""End of a batch: what Airflow does, the cost, and the next step. See ``task/verdict.py`` for single runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.exceptions import CrewTaskError, CutShort, EndedByAirflow
from airflow_provider_crew.task.verdict import Action, Verdict, fix_for

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


_RUNS_ALL = "reruns all rows that have ended, which is billed again, and continues with the others"
# What happens to the executions of a batch that has ended.
_LEFT: dict[Cost, str] = {
    Cost.NONE: "nothing is billed",
    Cost.RUNNING: "the executions that are running keep running and are billed",
    Cost.ENDED: "nothing more is billed",
    Cost.UNKNOWN: "executions may be running and billed",
}
_MAY_RUN = "unknown; rows may be running, and one whose kickoff was on its way becomes uncertain."
_CANCELS = "the task asks the crew to cancel the running executions, which are billed up to their end"


class BatchFailed(CrewError):
    """More rows of a batch failed than ``max_failed`` allows. ``examples``: their most common reasons."""

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
    :param runs_all: Whether clearing the task runs all rows again.
    """

    statuses: Mapping[Any, int]
    running: int
    started: int
    is_blind: bool = False
    runs_all: bool = False

    @property
    def again(self) -> int:
        """Rows that the next attempt starts. Those that are running have failed, or count as not started."""
        ends = self.statuses
        return max(ends["error"] + ends["not_started"] + ends["cancelled"] - self.running, 0)


def end_of_batch(error: BaseException, counted: Counted) -> Verdict:
    """Return the end of a batch, from the exception that ends it and the rows so far."""
    event = error if isinstance(error, CrewError) else CrewError(f"The batch was ended: {in_words(error)}.")
    effect, if_cleared = _effects(counted)
    action: Action = "retry"
    if isinstance(error, CutShort):
        action = "time out"
    elif isinstance(event, _LASTING) or (isinstance(event, BatchFailed) and not counted.again):
        action = "fail"
    uncertain = counted.statuses["uncertain"]
    fix = fix_for(event)
    if uncertain:
        fix += f" Look for the executions of the uncertain rows ({uncertain:,}) in the crew's dashboard first."
    cost = Cost.UNKNOWN if uncertain or counted.is_blind else Cost.RUNNING if counted.running else Cost.ENDED
    if not (counted.started or counted.running or uncertain or counted.is_blind):
        cost = Cost.NONE
    failure = event.replace(cost=cost, next_step=f"{fix} Clearing the task {if_cleared}.".strip())
    is_retried = action in {"retry", "time out"}
    passes_on = not isinstance(error, CrewError | CrewTaskError | EndedByAirflow)
    return Verdict("pass on" if passes_on else action, failure, effect if is_retried else "", if_cleared, error)


def _effects(counted: Counted) -> tuple[str, str]:
    """Return the effects of a retry and of clearing the task."""
    parts = ["does not rerun the rows that have succeeded"]
    if counted.running:
        parts.append(f"waits for the running ones ({counted.running:,})")
    if counted.again:
        parts.append(f"starts the others ({counted.again:,}), which are billed")
    effect = f"continues the batch: it {' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))}"
    if_cleared = _RUNS_ALL if counted.runs_all else effect
    if uncertain := counted.statuses["uncertain"]:
        if_cleared += f". Clearing it also starts the uncertain rows ({uncertain:,}) again"
    return effect, if_cleared


def choices_after(if_cleared: str, cost: Cost) -> dict[str, str]:
    """Return effect and cost of what a user may do about a batch that has ended or waits for a retry."""
    return {"clear": f"it {if_cleared}", "mark": f"no retry follows, and {_LEFT[cost]}", "nothing": _LEFT[cost]}


def while_running(counted: Counted, *, cancels: bool) -> dict[str, Any]:
    """Return the sentences for a batch that has not ended, and for one whose process was killed (``if_lost``)."""
    effect, if_cleared = _effects(counted)
    after = choices_after(if_cleared, Cost.UNKNOWN)
    marked = _CANCELS if cancels else f"no further row starts, and {_LEFT[Cost.RUNNING]}"
    lost = {"cost": Cost.UNKNOWN.value, "billed": _MAY_RUN, "if_retried": effect, "choices": after}
    lost["next_step"] = f"Clearing the task {if_cleared}."
    choices = after | {"mark": marked, "nothing": "the batch continues, and each row is billed once"}
    return {"choices": choices, "if_lost": lost}
