"""
The two ways in which deployed crews talk: what each answers, and how it describes that.

``documented`` is what the reference of the service says; ``deployed`` is what its deployments say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow_provider_crew.local import answers, deployed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import JsonValue

    from airflow_provider_crew.local.executions import Execution
    from airflow_provider_crew.local.record import Operation
    from airflow_provider_crew.local.scenario import DialectName, Scenario

Bodies = Mapping["Operation", Mapping[int, Any]]


@dataclass(frozen=True)
class Told:
    """What the service says to one request."""

    status: int
    body: JsonValue
    plain: bool = False
    """Whether the body is a text of its own, not JSON."""


class Dialect(Protocol):
    """Where the dialects differ."""

    bodies: ClassVar[Bodies]
    """The model of every answer, by its HTTP status; ``str`` is plain text."""

    def refusal(self, status: int, error: str, message: str, /) -> Told:
        """Refuse a request."""
        ...

    def no_json(self, reason: str, /) -> Told:
        """Refuse a kickoff whose body cannot be read."""
        ...

    def no_kickoff(self, reason: str, /) -> Told:
        """Refuse a kickoff whose body is JSON of another shape."""
        ...

    def missing_inputs(self, names: Sequence[str], /) -> Told:
        """Refuse a kickoff without these inputs."""
        ...

    def unknown_execution(self, kickoff_id: str, /) -> Told:
        """Tell that there is no such execution."""
        ...

    def inputs(self, scenario: Scenario) -> JsonValue:
        """Tell the inputs that the crew asks for."""
        ...

    def standing(self, execution: Execution, now: float) -> JsonValue:
        """Tell how an execution stands."""
        ...


class _Documented:
    bodies: ClassVar[Bodies] = {
        "inputs": {200: answers.InputsAnswer, 401: answers.ErrorBody, 500: answers.ErrorBody},
        "kickoff": {
            200: answers.KickoffAnswer,
            400: answers.ErrorBody,
            401: answers.ErrorBody,
            403: answers.ErrorBody,
            422: answers.MissingInputsBody,
            500: answers.ErrorBody,
        },
        "status": {
            200: answers.Running | answers.Completed | answers.Failed,
            401: answers.ErrorBody,
            404: answers.ErrorBody,
            500: answers.ErrorBody,
        },
    }

    def refusal(self, status: int, error: str, message: str, /) -> Told:
        return Told(status, {"error": error, "message": message})

    def no_json(self, reason: str, /) -> Told:
        return self.no_kickoff(f"The body is not JSON: {reason}.")

    def no_kickoff(self, reason: str, /) -> Told:
        return self.refusal(400, "Bad request", reason)

    def missing_inputs(self, names: Sequence[str], /) -> Told:
        message = f"These inputs are required: {', '.join(names)}."
        details: JsonValue = {"missing_inputs": [*names]}
        return Told(422, {"error": "Missing inputs", "message": message, "details": details})

    def unknown_execution(self, kickoff_id: str, /) -> Told:
        return self.refusal(404, "Execution not found", f"No execution exists with the id {kickoff_id}.")

    def inputs(self, scenario: Scenario) -> JsonValue:
        """Shapes that cannot call an input optional leave those out."""
        required = [wanted for wanted in scenario.inputs if wanted.required]
        if scenario.inputs_shape == "names":
            return {"inputs": [wanted.name for wanted in required]}
        if scenario.inputs_shape == "mapping":
            return {"inputs": {wanted.name: wanted.description for wanted in required}}
        return {"inputs": [wanted.model_dump() for wanted in scenario.inputs]}

    def standing(self, execution: Execution, now: float) -> JsonValue:
        body: JsonValue = answers.documented(execution, now).model_dump()
        return body


class _Deployed:
    bodies: ClassVar[Bodies] = {
        "inputs": {200: deployed.InputNames, 401: deployed.Detail},
        "kickoff": {
            200: answers.KickoffAnswer,
            401: deployed.Detail,
            403: deployed.Detail,
            422: deployed.Detail,
            500: str,
        },
        "status": {200: deployed.Deployed, 401: deployed.Detail},
    }

    def refusal(self, status: int, _: str, message: str, /) -> Told:
        return Told(status, {"detail": message})

    def no_json(self, _: str, /) -> Told:
        return Told(500, "Internal Server Error", plain=True)

    def no_kickoff(self, reason: str, /) -> Told:
        return Told(422, {"detail": reason})

    def missing_inputs(self, names: Sequence[str], /) -> Told:
        return Told(422, {"detail": f"Missing inputs: {', '.join(sorted(names))}"})

    def unknown_execution(self, _: str, /) -> Told:
        return Told(200, deployed.unknown().model_dump())

    def inputs(self, scenario: Scenario) -> JsonValue:
        """Tell all fields of a flow's state; of a crew what it needs, since a crew has nothing else."""
        if scenario.is_flow:
            return {"inputs": [*scenario.state_fields()]}
        return {"inputs": [wanted.name for wanted in scenario.inputs if wanted.required]}

    def standing(self, execution: Execution, now: float) -> JsonValue:
        body: JsonValue = deployed.deployed(execution, now).model_dump()
        return body


DIALECTS: Mapping[DialectName, Dialect] = MappingProxyType({"documented": _Documented(), "deployed": _Deployed()})
