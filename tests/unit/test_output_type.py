"""Structured output: a fitting output is dumped as JSON, and an error names misfits but no values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from types import ModuleType
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from airflow_provider_crew.client.errors import InvalidOutput, InvalidOutputType
from airflow_provider_crew.task.result import adapter_of, fitted

HERE = __name__
SECRET = "what-the-crew-has-found-out"


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


def fit(output_type: object, output: Any) -> Any:
    text = output if isinstance(output, str) else json.dumps(output)
    return fitted(output_type, "4711", text, None)


def misfit(output_type: object, output: Any) -> InvalidOutput:
    with pytest.raises(InvalidOutput, match="4711") as caught:
        fit(output_type, output)
    assert caught.value.kickoff_id == "4711"
    assert caught.value.__suppress_context__
    return caught.value


@pytest.mark.parametrize(
    ("output_type", "output", "made_of_it"),
    [
        (Port, {"name": "Kiel", "more": 1}, {"name": "Kiel", "berths": 1}),
        (f"{HERE}.Port", {"name": "Kiel", "berths": 2}, {"name": "Kiel", "berths": 2}),
        (f"{HERE}:Port", {"name": "Kiel"}, {"name": "Kiel", "berths": 1}),
        ("builtins.int", "7", 7),
        (list[Port], [{"name": "Kiel"}], [{"name": "Kiel", "berths": 1}]),
        (Summary, {"title": "F"}, {"title": "F"}),
        (Trip, {"hours": "1.5"}, {"hours": 1.5, "mood": "good"}),
        (Port | None, "null", None),
        (Strict, {"day": "2026-11-23", "ports": ["a"]}, {"day": "2026-11-23", "ports": ["a"]}),
        (Port, 'Here: {"name": "Kiel"}.', {"name": "Kiel", "berths": 1}),
        (dict[str, Decimal], {"a": 1.5}, {"a": "1.5"}),
        (dict[str, int], {"wider than any store": 2**80}, {"wider than any store": str(2**80)}),
        (dict[str, float], '{"n": "inf"}', {"n": None}),
    ],
)
def test_fitting_output_is_dumped_as_json(output_type: object, output: Any, made_of_it: Any) -> None:
    made = fit(output_type, output)

    assert made == made_of_it
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_output_json_comes_before_the_text() -> None:
    assert fitted(Summary, "4711", '{"title": "in the text"}', {"title": "given"}) == {"title": "given"}


@pytest.mark.parametrize(
    ("output_type", "output", "misfits"),
    [
        (Report, {}, ("title: Field required",)),
        (
            Report,
            {"title": SECRET, "ports": [{"name": "Kiel"}, {"name": 7, "berths": -1}]},
            (
                "ports[1].name: Input should be a valid string",
                "ports[1].berths: Input should be greater than or equal to 0",
            ),
        ),
        (list[Port], {"name": SECRET}, ("Input should be a valid array",)),
        (Strict, {"day": "2026-11-23", "extra": SECRET}, ("extra: Extra inputs are not permitted",)),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": SECRET}, ("'cat', 'dog'",)),
        (Choosy, {"title": "refused"}, ("title: Value error, no such title. Choose another",)),
        (Report, f"It is {SECRET}.", ("JSON",)),
        (Report, '{"title": ', ("11",)),
    ],
)
def test_each_misfit_is_named_without_its_value(
    output_type: object, output: Any, misfits: tuple[str, ...]
) -> None:
    error = misfit(output_type, output)

    for misfit_of_it, part in zip(error.misfits, misfits, strict=True):
        assert part in misfit_of_it
        assert misfit_of_it in str(error)
    assert SECRET not in str(error) + str(error.misfits)


def test_misfits_are_limited_and_printable() -> None:
    output = {f"{'name' * 100}\n\x1b[31m {number}": None for number in range(50)}

    error = misfit(dict[str, int], output)

    assert len(error.misfits) == 10
    assert "40" in str(error)
    assert len(str(error)) < 4000
    assert str(error).replace("\n", "").isprintable()


def test_too_many_misfits_are_counted() -> None:
    error = misfit(list[int], '["x"' + ', "x"' * 100_000 + "]")

    assert len(error.misfits) == 1
    assert "100,001" in str(error)


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
    ],
)
def test_unusable_output_type_is_rejected(output_type: object, why: str) -> None:
    with pytest.raises(InvalidOutputType, match=f"(?s)output_type.*{why}") as caught:
        adapter_of(output_type)

    assert str(caught.value).replace("\n", "").isprintable()
    assert len(str(caught.value)) < 500
    assert "errors.pydantic.dev" not in str(caught.value)


@pytest.mark.parametrize(
    ("output_type", "told"),
    [(Choosy, "KeyError"), (Shy, "PydanticSerializationError"), ("no_such_module.Report", "ModuleNotFoundError")],
)
def test_output_type_that_raises_has_no_misfits(output_type: object, told: str) -> None:
    error = misfit(output_type, {"title": SECRET})

    assert error.misfits == ()
    assert told in str(error)
    assert SECRET not in str(error)
