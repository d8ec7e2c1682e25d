"""
Exceptions of tasks and of the hook, for retry policies, callbacks and ``except`` clauses.

The client defines those that know nothing about Airflow. Those of tasks are defined here.
"""

from typing import Any

from airflow.providers.common.compat import sdk

from airflow_provider_crew.client.errors import (
    CallError,
    Cost,
    CrewError,
    DailyLimitReached,
    ExecutionCancelled,
    ExecutionFailed,
    ExecutionNotFound,
    ExecutionStopped,
    ExecutionUnknown,
    InvalidInputs,
    InvalidKickoffId,
    InvalidOutput,
    InvalidOutputType,
    InvalidSettings,
    LostContact,
    NotAllowed,
    NotAuthenticated,
    NotCancelled,
    RateLimited,
    Rejected,
    ResponseTooLarge,
    ServiceError,
    TransientError,
    UncertainKickoff,
    Unreachable,
    UnreadableResponse,
    WaitedTooLong,
    WaitStopped,
    WatchBroken,
    WatchError,
)

__all__ = [
    "CallError",
    "Cost",
    "CrewError",
    "CrewSensorTimeout",
    "CrewTaskError",
    "CrewTaskFailed",
    "CrewTaskSkipped",
    "CrewTaskTimeout",
    "CutShort",
    "DailyLimitReached",
    "EndedByAirflow",
    "EndedTask",
    "ExecutionCancelled",
    "ExecutionFailed",
    "ExecutionNotFound",
    "ExecutionStopped",
    "ExecutionUnknown",
    "InvalidInputs",
    "InvalidKickoffId",
    "InvalidOutput",
    "InvalidOutputType",
    "InvalidSettings",
    "LostContact",
    "NotAllowed",
    "NotAuthenticated",
    "NotCancelled",
    "OtherInputs",
    "RateLimited",
    "Rejected",
    "ResponseTooLarge",
    "ServiceError",
    "TransientError",
    "UncertainKickoff",
    "Unreachable",
    "UnreadableResponse",
    "WaitStopped",
    "WaitedTooLong",
    "WatchBroken",
    "WatchError",
]


class EndedTask(BaseException):
    """Base of the Airflow exceptions that end a task because of a CrewError, their ``failure``."""

    def __init__(self, failure: CrewError) -> None:
        super().__init__(str(failure))
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the exception with its failure."""
        return type(self), (self.failure,)

    @property
    def kickoff_id(self) -> str:
        """Kickoff ID of the execution, if there is one."""
        return self.failure.kickoff_id

    @property
    def cost(self) -> Cost:
        """Billing status of the execution."""
        return self.failure.cost

    @property
    def error(self) -> str:
        """Reason given by the crew, or else the event."""
        return self.failure.error


class CrewTaskFailed(EndedTask, sdk.AirflowFailException):
    """Raised to fail a task without a retry, because a retry would not help or would be billed."""


class CrewTaskTimeout(EndedTask, sdk.AirflowTaskTimeout):
    """Raised to end a task at its execution_timeout."""


class CrewSensorTimeout(EndedTask, sdk.AirflowSensorTimeout):
    """Raised to end a sensor at its timeout."""


class CrewTaskSkipped(EndedTask, sdk.AirflowSkipException):
    """Raised to skip a sensor instead of failing it."""


class CrewTaskError(CrewError, sdk.AirflowException):
    """An error in Airflow, and not in the crew, has prevented the kickoff. Airflow retries the task."""


class EndedByAirflow(CrewError):
    """Airflow has ended the task while its execution was running, and ``cancel_on_kill`` applies."""

    cost: Cost = Cost.RUNNING


class OtherInputs(WatchError):
    """An earlier execution may be running, and its inputs belong to another row of a mapped task, or item."""


class CutShort(WaitedTooLong):
    """The execution_timeout ended the wait."""
