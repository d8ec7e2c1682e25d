"""Structured output: a fitting output is dumped as JSON, and an error names misfits but no values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
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
        pytest.param(Report, {"title": "F"}, {"title": "F", "ports": [], "day": None}, id="defaults"),
        pytest.param(
            f"{HERE}.Report",
            {"title": "F", "ports": [{"name": "Kiel"}], "day": "2026-11-23", "more": 1},
            {"title": "F", "ports": [{"name": "Kiel", "berths": 1}], "day": "2026-11-23"},
            id="import path",
        ),
        pytest.param(
            f"{HERE}:Report", {"title": "F"}, {"title": "F", "ports": [], "day": None}, id="with a colon"
        ),
        pytest.param(list[Port], [{"name": "Kiel"}], [{"name": "Kiel", "berths": 1}], id="list"),
        pytest.param(Summary, {"title": "F"}, {"title": "F"}, id="TypedDict"),
        pytest.param(Trip, {"hours": "1.5"}, {"hours": 1.5, "mood": "good"}, id="dataclass"),
        pytest.param(Report | None, "null", None, id="union"),
        pytest.param(Annotated[int, Field(gt=0)], "7", 7, id="annotated"),
        pytest.param(Literal["yes", "no"], '"yes"', "yes", id="literal"),
        pytest.param("builtins.int", "7", 7, id="builtin"),
        pytest.param(dict[str, Decimal], {"a": 1.5}, {"a": "1.5"}, id="decimal"),
        pytest.param(datetime, '"2026-11-23T04:00:00Z"', "2026-11-23T04:00:00Z", id="time"),
        pytest.param(set[int], "[1]", [1], id="set"),
        pytest.param(
            Strict, {"day": "2026-11-23", "ports": ["a"]}, {"day": "2026-11-23", "ports": ["a"]}, id="strict"
        ),
        pytest.param(
            Report, 'Here: {"title": "F"}.', {"title": "F", "ports": [], "day": None}, id="in a sentence"
        ),
        pytest.param(dict[str, int], {"n": 2**80}, {"n": str(2**80)}, id="wider than any store"),
        pytest.param(dict[str, float], '{"n": "inf"}', {"n": None}, id="infinity"),
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
        pytest.param(
            "no_such_module.Report", "ModuleNotFoundError.*No module named 'no_such_module'", id="module"
        ),
        pytest.param(f"{HERE}.NoSuchType", "AttributeError", id="name"),
        pytest.param("not a path", "", id="no path"),
        pytest.param("", "", id="nothing"),
        pytest.param("json", "PydanticSchemaGenerationError", id="a module"),
        pytest.param(ModuleType, "<class 'module'>. Set `arbitrary_types_allowed=True`", id="any class"),
        pytest.param(Unfinished, "Pydantic.*ThatIsNowhere", id="an unfinished model"),
        pytest.param(Port(name="Kiel"), "PydanticSchemaGenerationError", id="an instance"),
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
