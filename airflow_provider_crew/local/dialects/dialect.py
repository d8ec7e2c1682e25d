"""The interface of a dialect."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from pydantic import JsonValue

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.record import Operation
from airflow_provider_crew.local.scenario import Scenario

Bodies = Mapping[Operation, Mapping[int, Any]]


class Dialect(Protocol):
    """Dialect of a crew."""

    bodies: ClassVar[Bodies]
    """The model of every answer, by its HTTP status; ``str`` is plain text."""

    def refusal(self, status: int, error: str, message: str, /) -> Answer:
        """Reject a request."""
        ...

    def no_json(self, reason: str, /) -> Answer:
        """Reject a kickoff whose body cannot be parsed."""
        ...

    def no_kickoff(self, reason: str, /) -> Answer:
        """Reject a kickoff whose body is JSON of another shape."""
        ...

    def missing_inputs(self, names: Sequence[str], /) -> Answer:
        """Reject a kickoff without these inputs."""
        ...

    def unknown_execution(self, kickoff_id: str, /) -> Answer:
        """Return NOT FOUND for an execution."""
        ...

    def inputs(self, scenario: Scenario, /) -> JsonValue:
        """Return the inputs that the crew asks for."""
        ...

    def standing(self, execution: Execution, now: float, /) -> JsonValue:
        """Return the status of an execution."""
        ...

    def state(self, execution: Execution, now: float, /) -> str:
        """Return the status of an execution in one word."""
        ...
