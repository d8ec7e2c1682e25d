"""
Exceptions of tasks and of the hook, for retry policies, callbacks and ``except`` clauses.

The client defines those that know nothing about Airflow. Those of tasks are defined here.
"""

from typing import ClassVar

from airflow.providers.common.compat import sdk

from airflow_provider_crew.client.errors import *  # noqa: F403 - all errors of the client
from airflow_provider_crew.client.errors import Cost, CrewError, WaitedTooLong, WatchError


class EndedTask(BaseException):
    """
    Base of the Airflow exceptions that end a task because of a CrewError, their ``failure``.

    ``kickoff_id``, ``cost`` and ``error`` are those of the failure.
    """

    def __init__(self, failure: CrewError) -> None:
        super().__init__(failure)
        self.failure = failure
        self.kickoff_id = failure.kickoff_id
        self.cost = failure.cost
        self.error = failure.error


class CrewTaskFailed(EndedTask, sdk.AirflowFailException):
    """Raised to fail a task without a retry, because a retry would not help or would be billed."""


class CrewTaskTimeout(EndedTask, sdk.AirflowTaskTimeout):
    """Raised to end a task at its execution_timeout."""


class CrewSensorTimeout(EndedTask, sdk.AirflowSensorTimeout):
    """Raised to end a sensor at its timeout."""


class CrewTaskSkipped(EndedTask, sdk.AirflowSkipException):
    """Raised to skip a sensor instead of failing it."""


class CrewTaskError(CrewError, sdk.AirflowException):
    """An error in Airflow, not in the crew, prevented the kickoff. Airflow retries the task."""


class InvalidResultPath(CrewTaskError):
    """
    The ``result_path`` of a batch has another batch's files, or the batch has begun and its files are missing.

    ``owner``: the other batch, as JSON.
    """

    owner: str = ""
    fixes: ClassVar = {
        "owner": "Give each batch a result_path of its own.",
        "": "Restore the files. If result_path is a local folder, let all workers share it.",
    }


class BatchFailed(CrewError):
    """
    More rows of a batch failed than ``max_failed`` allows, or it has used ``max_tokens``.

    :param reasons: The most common reasons of failed rows.
    """

    cost: Cost = Cost.ENDED
    reasons: tuple[str, ...] = ()


class EndedByAirflow(CrewError):
    """Airflow ended the task while its execution was running, and ``cancel_on_kill`` applies."""

    cost: Cost = Cost.RUNNING


class OtherInputs(WatchError):
    """An execution may be running whose inputs belong to another row of a mapped task, or another item."""


class CutShort(WaitedTooLong):
    """The execution_timeout ended the wait."""
