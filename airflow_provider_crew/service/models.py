"""
What the service says, in one shape whichever dialect it speaks.

What matters is read strictly: whether an execution has ended, and how. Everything that only decorates
(progress, per-task results, times) is taken when it makes sense and left out when it does not, because a
result that was paid for must not be lost to a detail.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
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

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# Wider integers do not fit into what carries a value from one process to another.
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1

# A value takes up to a hundred times the memory of its text. An answer with more of them holds no crew's result.
_MAX_TOKENS = 2_000_000
_MAX_TASKS = 10_000
_MAX_INPUTS = 10_000
_TOKEN = re.compile(r'[,\[{]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)

# Deeper JSON than this is no data that a crew puts out, and it breaks the recursion of whoever stores it.
_MAX_DEPTH = 64

_KNOWN_WORDS: dict[str, Literal["running", "completed", "error", "not found"]] = {
    "running": "running",
    "pending": "running",
    "started": "running",
    "completed": "completed",
    "success": "completed",
    "error": "error",
    "failed": "error",
    "failure": "error",
    "not found": "not found",
    "not_found": "not found",
}


_DOCUMENTED_WORDS = frozenset({"running", "pending", "completed", "error"})


class TooManyValues(ValueError):
    """A JSON text that would take far more memory than its length tells."""


def storable_text(text: str) -> str:
    """Replace what PostgreSQL and JSON refuse to store: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\ufffd", text)


def parse_json(text: str) -> Any:
    """
    Parse JSON; ValueError when it holds too many values.

    An integer that is too long for Python stays the text that it is.
    """
    if _has_too_many_values(text):
        raise TooManyValues("it holds too many values")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a decoder that asks about every integer takes several times as long
        return json.loads(text, parse_int=_integer)


def _has_too_many_values(text: str) -> bool:
    # Quickly told of nearly every text, since each value but the first follows one of these.
    if sum(map(text.count, ",[{")) <= _MAX_TOKENS:
        return False
    return next(islice(_TOKEN.finditer(text), _MAX_TOKENS, None), None) is not None


def _integer(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


def storable_json(value: Any, depth: int = 0) -> Any:
    """
    Return JSON data that every store takes; raise ValueError when it is nested too deeply.

    Integers that are too wide become texts, so that no digit is lost.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
        return str(value)
    if isinstance(value, Mapping):
        return {storable_text(str(key)): storable_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [storable_json(item, depth + 1) for item in value]
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return storable_text(value)
    return storable_text(json.dumps(value, ensure_ascii=False))


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
    return handler([entry for entry in entries[:_MAX_TASKS] if isinstance(entry, Mapping)])


Text = Annotated[str, BeforeValidator(_text)]
OptionalText = Annotated[str | None, BeforeValidator(_text_or_none)]
Seconds = Annotated[
    Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, WrapValidator(_if_it_fits), Field(default=None)
]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Progress(_Shape):
    """How many of the crew's tasks are done."""

    completed_tasks: int = Field(ge=0)
    total_tasks: int = Field(ge=0)


class TaskResult(_Shape):
    """What one task of the crew put out."""

    task_id: Text = ""
    agent: Text = ""
    output: Text = ""
    execution_time: Seconds


class Running(_Shape):
    """Not over: running, or in a state this package has no word for (``word`` is what the service said)."""

    status: Literal["running"]
    kickoff_id: str
    word: str
    current_task: OptionalText = None
    progress: Annotated[Progress | None, WrapValidator(_if_it_fits)] = None

    @property
    def is_known(self) -> bool:
        """Whether the service's own word is one that is documented or known from the field."""
        return self.word.lower() in _KNOWN_WORDS


class Completed(_Shape):
    """Over, with a result."""

    status: Literal["completed"]
    kickoff_id: str
    output: Text
    output_json: Any = None
    tasks: Annotated[tuple[TaskResult, ...], WrapValidator(_each_that_fits)] = ()
    execution_time: Seconds

    def result(self) -> dict[str, Any]:
        """Return the result as plain JSON data, the same in every mode of waiting."""
        return {
            "kickoff_id": self.kickoff_id,
            "output": self.output,
            "output_json": self.output_json,
            "tasks": [task.model_dump() for task in self.tasks],
            "execution_time": self.execution_time,
        }


class Failed(_Shape):
    """Over, without a result."""

    status: Literal["error"]
    kickoff_id: str
    error: Text
    execution_time: Seconds


Execution = Annotated[Running | Completed | Failed, Field(discriminator="status")]
_EXECUTION: TypeAdapter[Running | Completed | Failed] = TypeAdapter(Execution)


class CrewInput(_Shape):
    """One input that the crew takes."""

    name: Annotated[str, BeforeValidator(_storable)] = Field(min_length=1)
    required: bool = True
    type: OptionalText = None
    description: OptionalText = None


class CrewInputs(_Shape):
    """The inputs that the crew takes. It may list only the required ones."""

    inputs: tuple[CrewInput, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name listed, in the service's order."""
        return tuple(known.name for known in self.inputs)

    @property
    def required(self) -> tuple[str, ...]:
        """The names without which the service refuses a kickoff."""
        return tuple(known.name for known in self.inputs if known.required)


class ErrorBody(_Shape):
    """The documented error body."""

    error: str
    message: str


def read_execution(body: Mapping[str, Any], kickoff_id: str) -> Running | Completed | Failed | None:
    """
    Read either dialect; None when the service says that it does not know the execution.

    Raises ValueError (pydantic's ValidationError is one) for a body that tells no status, or no result.
    """
    word = _status_word(body)
    status = _KNOWN_WORDS.get(word.lower(), "running")
    if status == "not found":
        return None
    documented: dict[str, Any] = {**body, "status": status, "kickoff_id": kickoff_id, "word": word}
    if status == "completed":
        documented |= _read_result(body)
    if status == "error":
        documented["error"] = _read_error(body)
    return _EXECUTION.validate_python(documented)


def read_inputs(body: Mapping[str, Any]) -> CrewInputs:
    """Read a list of names, a list of objects, or an object of names; ValueError for anything else."""
    listed = body.get("inputs")
    if isinstance(listed, Mapping):
        entries = [_described_input(name, described) for name, described in listed.items()]
    elif isinstance(listed, list):
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in listed]
    else:
        raise ValueError("it lists no inputs")  # noqa: TRY004 - the caller reads every misfit as one kind
    if len(entries) > _MAX_INPUTS:
        raise ValueError(f"it lists more than {_MAX_INPUTS:,} inputs")
    return CrewInputs.model_validate({"inputs": entries})


def _described_input(name: str, described: Any) -> dict[str, Any]:
    if isinstance(described, Mapping):
        return {**described, "name": name}
    return {"name": name, "description": described}


def _status_word(body: Mapping[str, Any]) -> str:
    """
    Choose between the documented field and that of the deployed dialect.

    The documented one comes first, when it holds one of its words: a ``status`` of "success" beside a ``state``
    speaks of the call.
    """
    said = [body.get("status"), body.get("state")]
    words = [word.strip() if isinstance(word, str) else "" for word in said]
    if words[0].lower() in _DOCUMENTED_WORDS:
        return words[0]
    known = [word for word in reversed(words) if word.lower() in _KNOWN_WORDS]
    if not any(words):
        raise ValueError("it tells no status")
    return storable_text(next(word for word in (*known, *words) if word))


def _read_result(body: Mapping[str, Any]) -> dict[str, Any]:
    result = body.get("result")
    inner: Mapping[str, Any] = result if isinstance(result, Mapping) else {}
    if {"output", "final_output"} & inner.keys() or result == {}:
        said = [inner.get("output"), inner.get("final_output"), body.get("final_output")]
    else:
        said = [result, body.get("final_output")]
    result_json = _first(body.get("result_json"), inner.get("result_json"))
    if result_json is None and all(output is None for output in said):
        raise ValueError("it is completed and has no result")
    output = _first(*said)
    return {
        "output": output,
        "output_json": _output_json(result_json, output),
        "tasks": inner.get("tasks") or body.get("tasks"),
    }


def _read_error(body: Mapping[str, Any]) -> str:
    said = _first(*(body.get(key) for key in ("error", "error_message", "result", "message")))
    return _text(said) or "the service gives no reason"


def _first(*values: Any) -> Any:
    """Return the first that says something; an empty text does not."""
    return next((value for value in values if value is not None and value != ""), None)


def _output_json(result_json: Any, output: Any) -> Any:
    """Return what the service says is JSON, or the output when it is an object or an array, else None."""
    if (parsed := _parsed(result_json)) is not None:
        return parsed
    parsed = _parsed(output)
    return parsed if isinstance(parsed, Mapping | Sequence) and not isinstance(parsed, str) else None


def _parsed(value: Any) -> Any:
    try:
        return storable_json(parse_json(value) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return None
