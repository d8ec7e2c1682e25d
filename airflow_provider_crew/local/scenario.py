"""
What the local crew does when it is kicked off, and how it talks about it.

As a file, with as much or as little of it as a test or a demo needs:

    dialect = "deployed"
    output = "All there is to know about {city}"

    [[inputs]]
    name = "city"

    [[tasks]]
    name = "research_task"
    agent = "Researcher"
    seconds = 5
    output = "Notes on {city}"

    [[faults]]
    kind = "answer"
    status = 503
    on = "status"
    times = 2
    retry_after = 1
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from airflow_provider_crew.local.fault_kinds import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


class ScenarioError(ValueError):
    """A scenario file that cannot be used. The message names the file, the place and what is wrong there."""


class _Strict(BaseModel):
    # A misspelt key in a scenario file must be an error: ignored, it would be a test that proves nothing.
    model_config = ConfigDict(frozen=True, extra="forbid")


class CrewInput(_Strict):
    """One input that the crew asks for."""

    name: str = Field(min_length=1)
    required: bool = True
    type: str = "string"
    description: str = ""


class ScenarioTask(_Strict):
    """One task of the crew. With ``error`` the execution fails at the end of this task."""

    name: str = Field(min_length=1)
    agent: str = "Agent"
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: str = ""
    error: str | None = None


_DEMO_INPUTS = (
    CrewInput(name="topic", description="What the briefing is about"),
    CrewInput(name="audience", description="Who is going to read it"),
)

_DEMO_TASKS = (
    ScenarioTask(
        name="research_task",
        agent="Researcher",
        seconds=5,
        output="Three points about {topic} that matter to {audience}: what changed, why now, what to do.",
    ),
    ScenarioTask(
        name="writing_task",
        agent="Writer",
        seconds=6,
        output="A first draft about {topic}, one page, written for {audience}.",
    ),
    ScenarioTask(
        name="review_task",
        agent="Editor",
        seconds=4,
        output=(
            "Briefing: {topic}\n"
            "For: {audience}\n\n"
            "What changed: {topic} moved from an experiment to something people plan their week around.\n"
            "Why it matters now: waiting has become more expensive than trying.\n"
            "What to do next: choose one small case, give it an owner, and look at the result in a month."
        ),
    ),
)


class Scenario(_Strict):
    """
    The story of every execution, and the habits of the service that tells it.

    Texts may hold ``{name}`` for an input; any other brace is left as it is, so that JSON can be put out.
    ``statuses`` replaces what the tasks say: one body per look, and the last one stays.

    ``status_paths`` tells which of the two paths of the status is served; the other one is an unknown path.
    ``unknown_path`` tells whether its 404 carries the documented error body. ``unknown_execution`` tells whether
    an unknown id is a 404 or, in the deployed dialect, the state ``NOT FOUND``.
    """

    inputs: tuple[CrewInput, ...] = _DEMO_INPUTS
    tasks: Annotated[tuple[ScenarioTask, ...], Field(min_length=1)] = _DEMO_TASKS
    output: str | None = None
    result_json: JsonValue = None
    statuses: tuple[JsonValue, ...] = ()

    dialect: Literal["documented", "deployed"] = "documented"
    inputs_shape: Literal["names", "objects", "mapping"] = "names"
    status_paths: Literal["both", "status_first", "id_first"] = "both"
    unknown_path: Literal["bare", "error_body"] = "bare"
    unknown_execution: Literal["404", "state"] = "404"

    token: str = Field(default="local-organization-token", min_length=1)
    user_token: str = Field(default="local-user-token", min_length=1)
    user_token_may_kickoff: bool = True

    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _only_the_deployed_dialect_has_a_state(self) -> Self:
        if self.unknown_execution == "state" and self.dialect != "deployed":
            raise ValueError('unknown_execution = "state" needs dialect = "deployed"')
        return self

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a scenario from a TOML file; ScenarioError says what is wrong with it and where."""
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls.model_validate(found)
        except OSError as error:
            raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise ScenarioError(f"{path}: {_complaints(error)}") from None
        except ValueError as error:
            raise ScenarioError(f"{path}: is not TOML: {error}") from error

    def without_waiting(self) -> Self:
        """Return the same scenario with every task done at once."""
        return self.model_copy(
            update={"tasks": tuple(task.model_copy(update={"seconds": 0.0}) for task in self.tasks)}
        )

    def missing(self, given: Mapping[str, JsonValue]) -> list[str]:
        """Return the names of the required inputs that a kickoff left out."""
        return [wanted.name for wanted in self.inputs if wanted.required and wanted.name not in given]

    def inputs_body(self) -> dict[str, JsonValue]:
        """Return the answer of GET /inputs. Shapes that cannot call an input optional leave those out."""
        required = [wanted for wanted in self.inputs if wanted.required]
        if self.inputs_shape == "names":
            return {"inputs": [wanted.name for wanted in required]}
        if self.inputs_shape == "mapping":
            return {"inputs": {wanted.name: wanted.description for wanted in required}}
        return {"inputs": [wanted.model_dump() for wanted in self.inputs]}

    def final_output(self) -> str:
        """Return the template of the crew's output."""
        return self.tasks[-1].output if self.output is None else self.output


def filled(template: str, inputs: Mapping[str, JsonValue]) -> str:
    """Put the inputs into a template; what is not an input stays as it is written."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in inputs:
            return match[0]
        given = inputs[name]
        return given if isinstance(given, str) else json.dumps(given)

    return _PLACEHOLDER.sub(value, template)


def _complaints(error: ValidationError) -> str:
    return "; ".join(_complaint(found["loc"], found["msg"]) for found in error.errors())


def _complaint(location: Sequence[str | int], message: str) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return f"{place}: {message}" if place else message
