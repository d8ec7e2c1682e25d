"""
Scenario of the local server: its behavior after a kickoff, and the format of its responses.

A scenario file needs only the settings that matter for your test or demo:

    dialect = "deployed"
    kind = "flow"
    output = "Facts about {city}"
    usage = {total_tokens = 1200, successful_requests = 2}

    [[inputs]]
    name = "city"

    [[tasks]]
    name = "research_task"
    agent = "Researcher"
    seconds = 5
    output = "Notes on {city}"
    human_input = 30

    [[faults]]
    kind = "answer"
    status = 503
    on = "status"
    times = 2
    retry_after = 1
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, ValidationError, model_validator

from airflow_provider_crew.local.faults.kinds import Fault
from airflow_provider_crew.local.unusable import Unusable

DialectName = Literal["documented", "deployed"]

# The field that identifies a flow's state. A client must not send it.
_STATE_ID = "id"


class ScenarioError(Unusable):
    """A scenario file that cannot be used. The message names the file and the position."""


class _Strict(BaseModel):
    # Reject misspelled keys in a scenario file. If they were ignored, the test would prove nothing.
    model_config = ConfigDict(frozen=True, extra="forbid")


class CrewInput(_Strict):
    """One input that the crew asks for."""

    name: str = Field(min_length=1)
    required: bool = True
    type: str = "string"
    description: str = ""


class ScenarioTask(_Strict):
    """
    One task of the crew, or one step of the flow. With ``error`` the execution fails at the end of this task.

    With ``human_input`` its work waits for a person: for that many seconds or, if it is true, until you approve
    the execution. Only then is the task completed. This wait is not included in ``execution_time``.
    """

    name: str = Field(min_length=1)
    agent: str = "Agent"
    description: str = ""
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    output: str = ""
    error: str | None = None
    human_input: StrictBool | Annotated[float, Field(gt=0, allow_inf_nan=False)] = False

    @model_validator(mode="after")
    def _a_failure_needs_no_person(self) -> Self:
        if self.error is not None and self.human_input:
            raise ValueError("a task with an error has no work for human_input; let the next task fail")
        return self

    @property
    def patience(self) -> float:
        """Seconds that the work waits for human input."""
        return math.inf if self.human_input is True else float(self.human_input)


_DEMO_INPUTS = (
    CrewInput(name="topic", description="What the briefing is about"),
    CrewInput(name="audience", description="Who is going to read it"),
)

_DEMO_TASKS = (
    ScenarioTask(
        name="research_task",
        agent="Researcher",
        description="Find out what matters about {topic}",
        seconds=5,
        output="Three points about {topic} that matter to {audience}: what changed, why now, what to do.",
    ),
    ScenarioTask(
        name="writing_task",
        agent="Writer",
        description="Write one page about {topic}",
        seconds=6,
        output="A first draft about {topic}, one page, written for {audience}.",
    ),
    ScenarioTask(
        name="review_task",
        agent="Editor",
        description="Make it a briefing for {audience}",
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


_DEMO_USAGE = {
    "total_tokens": 4200,
    "prompt_tokens": 3100,
    "cached_prompt_tokens": 800,
    "completion_tokens": 1100,
    "successful_requests": 6,
}


class _Course(_Strict):
    """Course of an execution: its tasks and its result."""

    tasks: Annotated[tuple[ScenarioTask, ...], Field(min_length=1)] = _DEMO_TASKS
    output: str | None = None
    result_json: JsonValue = None
    usage: dict[str, Annotated[int, Field(ge=0, strict=True)]] = _DEMO_USAGE
    statuses: tuple[JsonValue, ...] = ()


class When(_Course, extra="allow"):
    """
    Other outcome for kickoffs with these inputs: ``When(company="Globex", output="Globex sells everything")``.

    Each further key is an input with the value that it must have. Without ``tasks``, ``output``, ``result_json``,
    ``usage`` or ``statuses``, those of the scenario apply.
    """

    @property
    def inputs(self) -> dict[str, JsonValue]:
        """Inputs that a kickoff must have."""
        return self.model_extra or {}

    @property
    def changes(self) -> dict[str, Any]:
        """Keys that replace those of the scenario."""
        return {name: getattr(self, name) for name in self.model_fields_set & _Course.model_fields.keys()}


class Delivery(_Strict):
    """
    Delivery of a webhook: late, repeated, nested, to another address or with IDs that no kickoff has returned.

    ``again``: each delivery is followed by all earlier ones, so they arrive in the wrong order.
    """

    delay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    times: int = Field(default=1, ge=0)
    again: StrictBool = False
    nested: Literal["", "data", "body", "payload"] = ""
    other_ids: StrictBool = False
    wrong_address: StrictBool = False


class Scenario(_Course):
    """
    Scenario of the local server: the tasks and the outcome of each execution, and the responses about it.

    Texts may contain ``{name}`` for an input. Any other brace is left as it is, so that an output can be JSON.

    :param statuses: Bodies to return for polls, one each, instead of the tasks' progress. The last one repeats.
    :param when: Other outcomes for certain inputs. The first match applies.
    :param dialect: ``documented`` for the API reference, or ``deployed`` for the behavior of deployments. Only the
        latter has ``result_json``, ``usage`` and ``kind``, and only the former has ``inputs_shape``.
    :param kind: A crew needs all its required inputs. A flow needs none, drops unknown ones, reports steps instead
        of tasks, and stays known while it waits for human input.
    :param usage: Token counts to return at the end. An empty table is returned as null.
    :param required_inputs: Whether a list of names has this field beside it, as since crewai 1.15.38.
    :param status_paths: Status paths to serve. The other one is an unknown path.
    :param unknown_path: Whether the 404 of an unknown path has the documented error body.
    :param resume: How the crew takes an answer. ``both`` accepts either spelling, and the execution keeps its ID.
        ``documented`` accepts snake_case only. ``failing`` accepts camelCase and any ID, and returns an ID that
        fails, while the execution waits. ``production`` accepts camelCase and any ID, ignores ``isApprove``, and
        continues under the ID that it returns. A text other than a short approval makes the task run again.
    :param human_input_webhook: Delivery of a crew's webhook. A flow calls none.
    :param started_webhook: Delivery of the start event and of ``crewWebhookUrl``.
    :param cold_start: Seconds for which a gateway returns 503, from the first request on, which wakes the crew.
    """

    inputs: tuple[CrewInput, ...] = _DEMO_INPUTS
    when: tuple[When, ...] = ()

    dialect: DialectName = "documented"
    kind: Literal["crew", "flow"] = "crew"
    inputs_shape: Literal["names", "objects", "mapping"] = "names"
    required_inputs: bool = True
    status_paths: Literal["both", "status_first", "id_first"] = "both"
    unknown_path: Literal["bare", "error_body"] = "bare"

    token: str = Field(default="local-organization-token", min_length=1)
    user_token: str = Field(default="local-user-token", min_length=1)
    user_token_may_kickoff: bool = True

    resume: Literal["both", "documented", "failing", "production"] = "both"
    human_input_webhook: Delivery = Delivery()
    started_webhook: Delivery = Delivery()

    cold_start: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _conditions_are_inputs(self) -> Self:
        known = {wanted.name for wanted in self.inputs}
        for index, when in enumerate(self.when):
            if unknown := sorted(when.inputs.keys() - known):
                raise ValueError(f"when[{index}].{unknown[0]} is neither an input of the crew nor a key of when")
            if not when.inputs:
                raise ValueError(f"when[{index}] names no input")
        return self

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a scenario from a TOML file. ScenarioError names the error and its position."""
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls.model_validate(found)
        except OSError as error:
            raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise ScenarioError(f"{path}: {_complaints(error)}") from None
        except ValueError as error:
            raise ScenarioError(f"{path}: is not TOML: {error}") from error

    def for_inputs(self, inputs: Mapping[str, JsonValue]) -> Self:
        """Return the same scenario with the course for these inputs."""
        for when in self.when:
            if all(name in inputs and inputs[name] == value for name, value in when.inputs.items()):
                return self.model_copy(update=when.changes)
        return self

    def without_waiting(self) -> Self:
        """Return the same scenario with every task completed at once, without human input."""
        return self._with_each_task(seconds=0.0, human_input=False)

    def lasting(self, seconds: float) -> Self:
        """Return the same scenario with every task taking this many seconds."""
        return self._with_each_task(seconds=seconds)

    def failing(self, reason: str) -> Self:
        """Return the same scenario with a failure at the end of the last task."""
        failure = {"error": reason, "human_input": False}
        return self._with_tasks(lambda tasks: (*tasks[:-1], tasks[-1].model_copy(update=failure)))

    def _with_each_task(self, **change: float) -> Self:
        return self._with_tasks(lambda tasks: tuple(task.model_copy(update=change) for task in tasks))

    def _with_tasks(self, change: Callable[[tuple[ScenarioTask, ...]], tuple[ScenarioTask, ...]]) -> Self:
        when = tuple(
            each.model_copy(update={"tasks": change(each.tasks)}) if "tasks" in each.changes else each
            for each in self.when
        )
        return self.model_copy(update={"tasks": change(self.tasks), "when": when})

    @property
    def is_flow(self) -> bool:
        """Whether the deployed dialect reports a flow."""
        return self.kind == "flow"

    @property
    def needs_nothing(self) -> bool:
        """Whether a kickoff may leave out every input. In the documented dialect there are no flows."""
        return self.is_flow and self.dialect == "deployed"

    def state_fields(self) -> tuple[str, ...]:
        """Return the field names of a flow's state."""
        return tuple(dict.fromkeys([_STATE_ID, *(wanted.name for wanted in self.inputs)]))

    def received(
        self, given: Mapping[str, JsonValue], state: Mapping[str, JsonValue] | None = None
    ) -> dict[str, JsonValue]:
        """Return the crew's inputs. A flow adds those given to a state, an earlier one or an empty one."""
        if not self.needs_nothing:
            return dict(given)
        fields = self.state_fields()
        defaults: dict[str, JsonValue] = {wanted.name: "" for wanted in self.inputs}
        before = {name: value for name, value in (state or {}).items() if name != _STATE_ID}
        return {name: value for name, value in {**defaults, **before, **given}.items() if name in fields}

    def listed(self) -> dict[str, JsonValue]:
        """Return the names of the inputs, and which are required. In the older form, a crew lists only those."""
        if self.needs_nothing:
            taken, required = self.state_fields(), []
        else:
            taken, required = tuple(wanted.name for wanted in self.inputs), self.missing({})
        if self.required_inputs:
            return {"inputs": [*taken], "required_inputs": [*required]}
        return {"inputs": [*(taken if self.needs_nothing else required)]}

    def missing(self, given: Mapping[str, JsonValue]) -> list[str]:
        """Return the names of the missing required inputs."""
        return [wanted.name for wanted in self.inputs if wanted.required and wanted.name not in given]

    def final_output(self) -> str:
        """Return the template of the crew's output."""
        return self.tasks[-1].output if self.output is None else self.output


def _complaints(error: ValidationError) -> str:
    found = [(complaint["loc"], complaint["msg"]) for complaint in error.errors()]
    # A list without its faulty item may be too short. Don't report that as a second error.
    apart = [each for each in found if not any(_is_part(other, each[0]) for other, _ in found)]
    return "; ".join(_complaint(location, message) for location, message in apart)


def _is_part(location: Sequence[str | int], whole: Sequence[str | int]) -> bool:
    return len(location) > len(whole) and location[: len(whole)] == whole


def _complaint(location: Sequence[str | int], message: str) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    return f"{place}: {message}" if place else message
