"""
Structured output: a fitting output is dumped as JSON, and an error names misfits but no values.

``output_types.txt`` has types with outputs, and their outcomes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal  # noqa: F401 - in the table
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, Literal  # noqa: F401 - in the table

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from airflow_provider_crew.client.errors import InvalidOutput, InvalidOutputType
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.task.result import adapter_of, fitted

HERE = "tests.unit.test_output_type"


class Port(BaseModel):
    name: str
    berths: int = Field(default=1, ge=0)


class Report(BaseModel):
    title: str
    ports: list[Port] = []
    day: date | None = None


class Summary(TypedDict):
    title: str


class Mood(Enum):
    GOOD = "good"


@dataclass
class Trip:
    hours: float
    mood: Mood = Mood.GOOD


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    day: date
    ports: tuple[str, ...] = ()


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Choosy(BaseModel):
    title: str

    @pydantic.field_validator("title")
    @classmethod
    def looked_at(cls, title: str) -> str:
        if title == "refused":
            raise ValueError("no such title. Choose another.")
        raise KeyError(title)


class Unfinished(BaseModel):
    other: ThatIsNowhere  # type: ignore[name-defined]  # noqa: F821


class Shy(BaseModel):
    title: str

    @pydantic.field_serializer("title")
    def shown(self, title: str) -> str:
        raise LookupError(title)


def fit(output_type: object, output: str) -> Any:
    return fitted(output_type, "4711", output, None)


def misfit(output_type: object, output: str) -> InvalidOutput:
    with pytest.raises(InvalidOutput, match="4711") as caught:
        fit(output_type, output)
    assert caught.value.kickoff_id == "4711"
    assert caught.value.__suppress_context__
    return caught.value


def outcome(output_type: object, output: str) -> str:
    """Return the value as JSON, or the class of the error that the type raises, or the misfits."""
    try:
        return json.dumps(fit(output_type, output), allow_nan=False)
    except InvalidOutput:
        error = misfit(output_type, output)
    assert "SECRET" not in f"{error} {error.misfits}"
    assert [each for each in error.misfits if each not in str(error)] == []
    return f"! {'; '.join(error.misfits) or re.findall('[A-Z][A-Za-z]+Error', str(error))[0]}"


def table(known: list[str]) -> Iterator[str]:
    for line in known:
        if not line.startswith("    "):
            yield line
        if " <- " in line:
            output_type, _, output = line.partition(" <- ")
            yield f"    {outcome(eval(output_type), output)}"  # noqa: S307 - our own


def test_outputs_fit_their_types_as_in_the_table(printed: Any) -> None:
    printed("output_types.txt", table)


def test_output_json_comes_before_the_text() -> None:
    assert fitted(Summary, "4711", '{"title": "in the text"}', {"title": "given"}) == {"title": "given"}


def test_misfits_are_limited_and_printable() -> None:
    output = {f"{'name' * 100}\n\x1b[31m {number}": None for number in range(50)}

    error = misfit(dict[str, int], json.dumps(output))

    assert len(error.misfits) == 10
    assert "40" in str(error)
    assert len(str(error)) < 4000
    assert str(error).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("output_type", "why"),
    [
        ("no_such_module.Report", "ModuleNotFoundError.*No module named 'no_such_module'"),
        (f"{HERE}.NoSuchType", "AttributeError"),
        ("not a path", ""),
        ("", ""),
        ("json", "PydanticSchemaGenerationError"),  # a module
        (ModuleType, "<class 'module'>. Set `arbitrary_types_allowed=True`"),
        (Unfinished, "Pydantic.*ThatIsNowhere"),
        (Port(name="Kiel"), "PydanticSchemaGenerationError"),
        *((value, "") for value in ("Report", "{{ x }}", "a..b", 7, True, b"x", [], {"title": str}, ["title"])),
        (CrewRunOperator(task_id="before", inputs={}).output, ""),
    ],
)
def test_unusable_output_type_is_rejected(output_type: object, why: str) -> None:
    with pytest.raises(InvalidOutputType, match=f"(?s)output_type.*{why}") as caught:
        adapter_of(output_type)

    assert str(caught.value).replace("\n", "").isprintable()
    assert len(str(caught.value)) < 500
    assert "errors.pydantic.dev" not in str(caught.value)
