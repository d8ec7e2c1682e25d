"""
Models of the crew's responses, in one form for both dialects of the API.

Whether and how an execution has ended is read strictly. Any other malformed field is dropped, so that a detail
cannot cost the result of a billed execution.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, OnErrorOmit

from airflow_provider_crew.client.errors import MAX_INT, MIN_INT, storable_json, storable_text
from airflow_provider_crew.client.text import one_line

_FENCED = re.compile(
    r"^[ \t]*+`{3,}+[ \t]*+json\b[^\n]*+\n(.*?)(?:^[ \t]*+`{3,}|\Z)", re.DOTALL | re.IGNORECASE | re.MULTILINE
)


# Python reads no integer of more than 4,300 digits. It stays a text.
JSON = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) <= 4_300 else digits)  # noqa: PLR2004


def text_of(value: Any) -> str:
    """Return a string as it is, None as an empty string, and anything else as JSON."""
    if value is None:
        return ""
    return storable_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def json_of(text: str) -> Any:
    """Return the JSON value of a text or of its only fenced block. ValueError gives the reason on failure."""
    blocks = _FENCED.findall(text)
    return _read(blocks[0] if len(blocks) == 1 and blocks[0] else text)


def json_within(text: str) -> Any:
    """Return the JSON value of a text, of its longest fenced block, or at the first brackets in prose."""
    try:
        return _read(text)
    except ValueError:
        if blocks := _FENCED.findall(text):
            return _read(max(blocks, key=len))
    if found := re.search(r"[{\[]", text):
        return _read(text, found.start())
    raise ValueError("it contains no JSON object or array")


def _read(text: str, begin: int | None = None) -> Any:
    """Return a value that every store accepts. If it has a ``begin``, any text may follow it."""
    try:
        value = JSON.decode(text.rstrip()) if begin is None else JSON.raw_decode(text, begin)[0]
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg.strip(' :')}, in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return storable_json(value)


Meaning = Literal["running", "paused", "completed", "error", "stopped", "not found"]

# Build at first use: a task's process uses one or two models, and none if it resumes with a result.
WHEN_USED = ConfigDict(defer_build=True)

_MAX_NAME = 200
_MOST_STEPS = 50
# Outputs are too large for a trigger's row or the task state store. Only the newest tasks are kept.
_MOST_CARRIED = 16 * 1024
# A triggerer keeps thousands of watches in memory for days.
_MOST_KEPT = 64 * 1024
# No crew has this many tasks. A 2 MB response can list 700,000 empty ones, which take seconds to read.
_MOST_TASKS_READ = 10_000

# State names, documented or observed in the field.
_STATES: dict[Meaning, tuple[str, ...]] = {
    "running": ("queued", "pending", "started", "running"),
    "paused": ("paused",),
    "completed": ("completed", "success"),
    "error": ("error", "failed", "failure"),
    # "revoked" was observed. The others are guesses: the state of an execution that was ended from outside.
    "stopped": ("revoked", "cancelled", "canceled", "stopped", "killed", "aborted", "timeout", "timed_out"),
    "not found": ("not found", "not_found"),
}
MEANINGS: dict[str, Meaning] = {state: meaning for meaning, states in _STATES.items() for state in states}

# Reasons of a stopped execution in a dialect that has no such state.
_REASONS_OF_STOP = frozenset({"revoked", "task was revoked", "the execution was revoked"})

# Fields that hold the error in documented responses or in responses observed in the field.
_REASONS = ("error", "error_message")


def state_of(body: Mapping[str, Any]) -> tuple[str, Meaning]:
    """Return the crew's name for the state of an execution, and its meaning. Raise ValueError if missing."""
    state = _word(body.get("state"))
    word = state or _word(body.get("status"))
    if not word:
        raise ValueError("it has no status")
    # Treat an unrecognized state as running.
    meaning = MEANINGS.get(word.lower(), "running")
    # A gateway also reports ``error`` if a call fails, with its reason in ``message`` or ``detail``.
    if meaning == "error" and not state and not any(_word(body.get(key)) for key in _REASONS):
        raise ValueError("it reports an error without a reason")
    return storable_text(word), meaning


def result_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output of an execution. Raise ValueError if a documented response lacks a result."""
    result, tasks = body.get("result"), None
    if isinstance(result, Mapping) and "output" in result:
        result, tasks = result["output"], result.get("tasks")
    output = body.get("final_output") if result is None else result
    result_json = body.get("result_json")
    # A deployed crew or flow without output sends null. The execution has ended, so waiting adds nothing.
    if output is None and result_json is None and not tasks and not _word(body.get("state")):
        raise ValueError("it is completed, but has no result")
    listed = tasks if isinstance(tasks, list) else []
    return {
        "output": output,
        "output_json": _output_json(result_json, output),
        "tasks": listed[-_MOST_TASKS_READ:] or [body.get("last_executed_task")],
        "lists_tasks": 0 < len(listed) <= _MOST_TASKS_READ,
    }


def reason_of(body: Mapping[str, Any], word: str) -> str:
    """Return the reason of a failed execution. A deployed crew may give it only in its status sentence."""
    reasons = (text_of(body.get(key) or "").strip() for key in (*_REASONS, "result", "status"))
    return next(filter(None, reasons), word.lower())


def _word(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _output_json(result_json: Any, output: Any) -> Any:
    """Return the crew's JSON result, or else the output if it is a JSON object or array, or else None."""
    if (parsed := _parsed(result_json)) is not None:
        return parsed
    parsed = _parsed(output)
    return parsed if isinstance(parsed, dict | list) else None


def _parsed(value: Any) -> Any:
    try:
        return json_of(value) if isinstance(value, str) else storable_json(value)
    except ValueError:
        return None


class OrNone:
    """Annotation for a field that falls back to None if its value is invalid. It is fast, as a core schema."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> Any:
        return {"type": "default", "schema": handler(source), "default": None, "on_error": "default"}


def _storable(value: Any) -> Any:
    return storable_text(value) if isinstance(value, str) else value


Words = Annotated[str, BeforeValidator(_storable), Field(min_length=1)]
Text = Annotated[str, BeforeValidator(text_of)]
OptionalText = Annotated[Words | None, OrNone]
# A watch adds one to a count, so the largest must leave room below MAX_INT. JavaScript rounds larger numbers.
Count = Annotated[int, Field(ge=0, lt=2**53)]
Seconds = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, OrNone]
# In the year 2242. A later time exceeds the maximum sleep, and is not a clock reading.
LAST_TIME = 2.0**33
Time = Annotated[float, Field(strict=True, ge=-LAST_TIME, le=LAST_TIME)]
StorableInt = Annotated[int, Field(strict=True, ge=MIN_INT, le=MAX_INT)]
Number = StorableInt | Annotated[float, Field(strict=True, allow_inf_nan=False)]
Usage = Annotated[dict[Words, OnErrorOmit[Number]] | None, OrNone, Field(validation_alias="usage_metrics")]
# Deployed crews repeat the meta of the kickoff in the last completed task.
Meta = Annotated[dict[str, Any] | None, OrNone, Field(validation_alias=AliasPath("last_executed_task", "meta"))]


class _Shape(BaseModel):
    model_config = WHEN_USED | ConfigDict(frozen=True, extra="ignore", validate_by_name=True)


class Progress(_Shape):
    """Number of completed tasks of a crew or steps of a flow. A flow reports no total."""

    completed: Count = Field(validation_alias=AliasChoices("completed", "completed_tasks"))
    total: Count | None = Field(default=None, validation_alias=AliasChoices("total", "total_tasks"))
    unit: Literal["task", "step"] = "task"


class TaskResult(_Shape):
    """Output of one task of the crew."""

    task_id: Text = Field(default="", validation_alias=AliasChoices("task_id", "name"))
    agent: Text = ""
    output: Text = ""
    execution_time: Seconds = None


class _Ongoing(_Shape):
    """Base class of executions that have not ended. ``word`` is the crew's name for the state."""

    kickoff_id: str
    word: str
    current_task: OptionalText = Field(
        default=None, validation_alias=AliasChoices("current_task", AliasPath("progress", "current"))
    )
    current_agent: OptionalText = Field(default=None, validation_alias=AliasPath("progress", "current_agent"))
    progress: Annotated[Progress | None, OrNone] = None
    duration: Seconds = Field(default=None, validation_alias=AliasPath("progress", "duration_seconds"))
    last_task: Annotated[TaskResult | None, OrNone] = Field(default=None, validation_alias="last_executed_task")
    meta: Meta = None

    @property
    def is_known(self) -> bool:
        """Whether the crew's name for the state is documented or was observed in the field."""
        return self.word.lower() in MEANINGS

    @property
    def place(self) -> str:
        """Position: ``task 2 of 3, writing_task (Writer)``, or for a flow ``step 4, write_summary``."""
        parts = []
        if (progress := self.progress) and progress.total != 0:
            step, total = progress.completed + 1, progress.total
            parts.append(f"{progress.unit} {step if total is None else f'{min(step, total)} of {total}'}")
        if self.current_task:
            agent = f" ({self.current_agent})" if self.current_agent else ""
            parts.append(f"{self.current_task}{agent}")
        return one_line(", ".join(parts), _MAX_NAME)

    @cached_property
    def doing(self) -> str:
        """Position, followed by the state if there is no position or the state is unrecognized."""
        where = self.place
        if where and self.is_known:
            return where
        return one_line(", ".join(filter(None, (where, self.word.lower()))), _MAX_NAME)


class Running(_Ongoing):
    """Execution that is running, or whose state this package does not recognize."""

    status: Literal["running"]


class Paused(_Ongoing):
    """Execution that waits for human input."""

    status: Literal["paused"]


class Completed(_Shape):
    """Execution that ended with a result. ``lists_tasks``: the response itself lists the tasks."""

    status: Literal["completed"]
    kickoff_id: str
    output: Text
    output_json: Any = None
    tasks: tuple[OnErrorOmit[TaskResult], ...] = ()
    lists_tasks: bool = False
    progress: Annotated[Progress | None, OrNone] = None
    usage: Usage = None
    execution_time: Seconds = Field(
        default=None, validation_alias=AliasChoices("execution_time", AliasPath("progress", "duration_seconds"))
    )
    meta: Meta = None

    @property
    def tasks_complete(self) -> bool:
        """Whether ``tasks`` is certainly complete: the response lists them, or the crew counts as many."""
        if self.lists_tasks:
            return True
        counted = self.progress.total if self.progress and self.progress.unit == "task" else None
        return bool(counted) and counted == len({task.task_id or task for task in self.tasks})

    def result(self) -> dict[str, Any]:
        """Return the result as plain JSON data, the same in every mode of waiting."""
        fields = self.model_dump(mode="json", exclude={"status", "lists_tasks", "progress", "meta"})
        return fields | {"tasks_complete": self.tasks_complete}


class Failed(_Shape):
    """Execution that ended without a result. ``word`` is the crew's name for the state."""

    status: Literal["error"]
    kickoff_id: str
    error: Text
    word: str = ""
    last_task: Annotated[TaskResult | None, OrNone] = Field(default=None, validation_alias="last_executed_task")
    meta: Meta = None
    usage: Usage = None
    execution_time: Seconds = None

    @property
    def was_stopped(self) -> bool:
        """Whether the execution was ended from outside. A crew may itself fail because something was revoked."""
        is_told_by_reason = self.error.lower().rstrip(". ") in _REASONS_OF_STOP
        return is_told_by_reason or MEANINGS.get(self.word.lower()) == "stopped"


Execution = Running | Paused | Completed | Failed


class CrewInput(_Shape):
    """Input that the crew takes. ``required`` defaults to None, if the crew does not specify it."""

    name: Words
    required: Annotated[bool | None, OrNone] = None


class CrewInputs(_Shape):
    """Inputs that the crew takes. The list may be incomplete."""

    inputs: tuple[CrewInput, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All listed names, in the crew's order."""
        return tuple(each.name for each in self.inputs)


@dataclass(slots=True)
class SeenTask:
    """Task of a crew or step of a flow in progress, the number of those before it, and the first such poll."""

    task_id: str
    agent: str
    number: int | None
    started_at: Time


@dataclass(slots=True)
class History:
    """
    Tasks of one execution from its polls, for its result and for display. No decision depends on it.

    It is plain data, so that the next process can add to it.
    """

    tasks: list[TaskResult] = field(default_factory=list)
    """Outputs of the crew's tasks, as far as they were seen. Some crews report only the last task."""
    steps: list[SeenTask] = field(default_factory=list)
    """Newest tasks or steps that polls saw in progress."""
    began_at: Time | None = None
    """Start time of the execution. ``None`` if the crew does not report how long it has run."""
    position: dict[str, Any] = field(default_factory=dict)
    """Last known position. The full response would be too large."""
    changed_at: Time = 0.0
    """Time at which a poll last saw another position or state."""

    def follow(self, execution: Running | Paused, now: float) -> None:
        """Keep the output of the last task, and the task in progress."""
        self.keep(execution.last_task)
        if self.began_at is None and execution.duration is not None:
            self.began_at = max(now - execution.duration, 0.0)
        name = one_line(execution.current_task or "", _MAX_NAME)
        number = execution.progress.completed if execution.progress else None
        last = self.steps[-1] if self.steps else None
        if name and (last is None or (last.task_id, last.number) != (name, number)):
            agent = one_line(execution.current_agent or "", _MAX_NAME)
            self.steps = [*self.steps, SeenTask(name, agent, number, now)][-_MOST_STEPS:]

    def keep(self, task: TaskResult | None) -> None:
        """Keep the output of a task if it is new, and drop the oldest outputs beyond the size limit."""
        tasks = self.tasks
        if task is None or task in reversed(tasks) or _size(task) > _MOST_KEPT:
            return
        tasks.append(task)
        while sum(map(_size, tasks)) > _MOST_KEPT:
            tasks.pop(0)

    def added_to(self, execution: Completed) -> Completed:
        """Return a completed execution with the tasks that polls saw, unless it lists all of them."""
        if execution.lists_tasks or not self.tasks:
            return execution
        return execution.model_copy(update={"tasks": tuple(dict.fromkeys((*self.tasks, *execution.tasks)))})

    def carried(self) -> dict[str, Any]:
        """Return the history as plain data with only its newest tasks, which another process may get."""
        known = asdict(self)
        tasks = [task.model_dump() for task in self.tasks]
        return known | {"tasks": _newest(tasks), "steps": _newest(known["steps"])}


def _newest(items: list[Any]) -> list[Any]:
    sizes = accumulate(len(json.dumps(item)) for item in reversed(items))
    return items[len(items) - sum(size <= _MOST_CARRIED for size in sizes) :]


def _size(task: TaskResult) -> int:
    """Return the memory size of a task's texts without encoding them."""
    return sum(map(sys.getsizeof, (task.task_id, task.agent, task.output)))


def read_execution(body: Mapping[str, Any], kickoff_id: str) -> Execution | None:
    """
    Read a response of either dialect. Return None if the execution is unknown to the crew.

    Raise ValueError (or its subclass ValidationError, from pydantic) for a body without a status or a result.
    """
    word, meaning = state_of(body)
    fields = {**body, "status": meaning, "kickoff_id": kickoff_id, "word": word}
    match meaning:
        case "running":
            return Running.model_validate(fields)
        case "paused":
            return Paused.model_validate(fields)
        case "completed":
            return Completed.model_validate({**fields, **result_of(body)})
        case "error" | "stopped":
            return Failed.model_validate({**fields, "status": "error", "error": reason_of(body, word)})
    return None


def read_inputs(body: Mapping[str, Any]) -> CrewInputs:
    """
    Read a list of names, a list of objects, or an object keyed by name. Raise ValueError for anything else.

    ``required_inputs`` is ignored unless it is a list of such names, because the kickoff itself may work.
    """
    listed = body.get("inputs")
    if isinstance(listed, Mapping):
        listed = [
            {**(facts if isinstance(facts, Mapping) else {}), "name": name} for name, facts in listed.items()
        ]
    elif isinstance(listed, list):
        listed = [{"name": entry} if isinstance(entry, str) else entry for entry in listed]
    else:
        raise ValueError("it lists no inputs")  # noqa: TRY004 - callers handle all malformed responses alike
    found = CrewInputs.model_validate({"inputs": listed})
    needed = body.get("required_inputs")  # since crewai 1.15.38
    if not isinstance(needed, list) or not all(isinstance(name, str) for name in needed):
        return found
    required = {storable_text(name) for name in needed}
    if not required <= {*found.names}:
        return found
    inputs = (
        each if each.required is not None else CrewInput(name=each.name, required=each.name in required)
        for each in found.inputs
    )
    return CrewInputs(inputs=tuple(inputs))
