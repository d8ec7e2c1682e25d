"""Where the dialects differ."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from pydantic import JsonValue

from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.record import Operation
from airflow_provider_crew.local.scenario import Scenario

Bodies = Mapping[Operation, Mapping[int, Any]]


class Dialect(Protocol):
    """How a crew talks."""

    bodies: ClassVar[Bodies]
    """The model of every answer, by its HTTP status; ``str`` is plain text."""

    def refusal(self, status: int, error: str, message: str, /) -> Answer:
        """Refuse a request."""
        ...

    def no_json(self, reason: str, /) -> Answer:
        """Refuse a kickoff whose body cannot be read."""
        ...

    def no_kickoff(self, reason: str, /) -> Answer:
        """Refuse a kickoff whose body is JSON of another shape."""
        ...

    def missing_inputs(self, names: Sequence[str], /) -> Answer:
        """Refuse a kickoff without these inputs."""
        ...

    def unknown_execution(self, kickoff_id: str, /) -> Answer:
        """Tell that there is no such execution."""
        ...

    def inputs(self, scenario: Scenario, /) -> JsonValue:
        """Tell the inputs that the crew asks for."""
        ...

    def standing(self, execution: Execution, now: float, /) -> JsonValue:
        """Tell how an execution stands."""
        ...
