"""
What the service says, in one shape whichever dialect it speaks.

What matters is read strictly: whether an execution has ended, and how. Everything that only decorates
(progress, per-task results, times) is taken when it makes sense and left out when it does not, because a
result that was paid for must not be lost to a detail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from airflow_provider_crew.service.reading import fields_of, is_known_word, state_of
from airflow_provider_crew.service.storable import MAX_INT, storable_text, text_of


def _storable(value: Any) -> Any:
    return storable_text(value) if isinstance(value, str) else value


def _text_or_none(value: Any) -> str | None:
    return storable_text(value) if isinstance(value, str) and value else None


def _if_it_fits(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None


def _each_that_fits(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    entries = value if isinstance(value, list) else []
    return handler([entry for entry in entries if isinstance(entry, Mapping)])


Text = Annotated[str, BeforeValidator(text_of)]
OptionalText = Annotated[str | None, BeforeValidator(_text_or_none)]
Seconds = Annotated[
    Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, WrapValidator(_if_it_fits), Field(default=None)
]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Progress(_Shape):
    """How many of the crew's tasks, or of the flow's steps, are done; a flow does not tell of how many."""

    completed: int = Field(ge=0, le=MAX_INT)
    total: Annotated[int, Field(ge=0, le=MAX_INT)] | None
    unit: Literal["task", "step"] = "task"


class TaskResult(_Shape):
    """What one task of the crew put out."""

    task_id: Text = ""
    agent: Text = ""
    output: Text = ""
    execution_time: Seconds


OptionalProgress = Annotated[Progress | None, WrapValidator(_if_it_fits)]
OptionalTask = Annotated[TaskResult | None, WrapValidator(_if_it_fits)]


class _Ongoing(_Shape):
    """Not over. ``word`` is what the service said."""

    kickoff_id: str
    word: str
    current_task: OptionalText = None
    current_agent: OptionalText = None
    progress: OptionalProgress = None
    last_task: OptionalTask = None

    @property
    def is_known(self) -> bool:
        """Whether the service's own word is one that is documented or known from the field."""
        return is_known_word(self.word)


class Running(_Ongoing):
    """Not over: running, or in a state this package has no word for."""

    status: Literal["running"]


class Paused(_Ongoing):
    """Not over: it waits for a person's answer."""

    status: Literal["paused"]


class Completed(_Shape):
    """Over, with a result. ``lists_tasks``: it is the answer itself that lists the tasks."""

    status: Literal["completed"]
    kickoff_id: str
    output: Text
    output_json: Any = None
    tasks: Annotated[tuple[TaskResult, ...], WrapValidator(_each_that_fits)] = ()
    lists_tasks: bool = False
    progress: OptionalProgress = None
    usage: dict[str, int | float] | None = None
    execution_time: Seconds

    @property
    def tasks_complete(self) -> bool:
        """Whether ``tasks`` are certainly all: they are listed, or as many as the service counts."""
        if self.lists_tasks:
            return True
        counted = self.progress.total if self.progress and self.progress.unit == "task" else None
        return bool(counted) and counted == len({task.task_id or task for task in self.tasks})

    def including(self, seen: Sequence[TaskResult]) -> Completed:
        """Return it with tasks that were seen before, each once, for a service that tells only the last one."""
        if self.lists_tasks or not seen:
            return self
        return self.model_copy(update={"tasks": tuple(dict.fromkeys((*seen, *self.tasks)))})

    def result(self) -> dict[str, Any]:
        """Return the result as plain JSON data, the same in every mode of waiting."""
        return {
            "kickoff_id": self.kickoff_id,
            "output": self.output,
            "output_json": self.output_json,
            "tasks": [task.model_dump() for task in self.tasks],
            "tasks_complete": self.tasks_complete,
            "usage": self.usage,
            "execution_time": self.execution_time,
        }


class Failed(_Shape):
    """Over, without a result."""

    status: Literal["error"]
    kickoff_id: str
    error: Text
    usage: dict[str, int | float] | None = None
    execution_time: Seconds


Execution = Annotated[Running | Paused | Completed | Failed, Field(discriminator="status")]
_EXECUTION: TypeAdapter[Running | Paused | Completed | Failed] = TypeAdapter(Execution)


class CrewInput(_Shape):
    """One input that the crew takes. ``required`` is None where the service does not say."""

    name: Annotated[str, BeforeValidator(_storable)] = Field(min_length=1)
    required: Annotated[bool | None, WrapValidator(_if_it_fits)] = None
    type: OptionalText = None
    description: OptionalText = None


class CrewInputs(_Shape):
    """The inputs that the crew takes. It may list only some of them."""

    inputs: tuple[CrewInput, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name listed, in the service's order."""
        return tuple(known.name for known in self.inputs)

    @property
    def required(self) -> tuple[str, ...]:
        """The names that the service says are needed."""
        return tuple(known.name for known in self.inputs if known.required)

    @property
    def optional(self) -> tuple[str, ...]:
        """The names that the service says may be left out."""
        return tuple(known.name for known in self.inputs if known.required is False)


class ErrorBody(_Shape):
    """The documented error body."""

    error: str
    message: str


def read_execution(body: Mapping[str, Any], kickoff_id: str) -> Running | Paused | Completed | Failed | None:
    """
    Read either dialect; None when the service says that it does not know the execution.

    Raises ValueError (pydantic's ValidationError is one) for a body that tells no status, or no result.
    """
    state = state_of(body)
    if state.meaning == "not found":
        return None
    return _EXECUTION.validate_python(fields_of(body, state) | {"kickoff_id": kickoff_id})


def read_inputs(body: Mapping[str, Any]) -> CrewInputs:
    """Read a list of names, a list of objects, or an object of names; ValueError for anything else."""
    listed = body.get("inputs")
    if isinstance(listed, Mapping):
        entries = [_described_input(name, described) for name, described in listed.items()]
    elif isinstance(listed, list):
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in listed]
    else:
        raise ValueError("it lists no inputs")  # noqa: TRY004 - the caller reads every misfit as one kind
    return CrewInputs.model_validate({"inputs": entries})


def _described_input(name: str, described: Any) -> dict[str, Any]:
    if isinstance(described, Mapping):
        return {**described, "name": name}
    return {"name": name, "description": described}
