"""Crew outputs where a DAG asks for a type: they fit, or are kept as they are."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, Json, field_validator

from airflow_provider_crew.client.errors import Cost, InvalidOutput, storable_text
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.task.result import fitted
from tests.fuzz.bad_values import BIG, DEEP, SECRET, any_json, any_text, as_bytes
from tests.fuzz.cases import assert_presentable, assert_storable, cases, outcome


class Tree(BaseModel):
    title: str
    below: list[Tree] = []


class Exact(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    title: str
    count: int = Field(ge=0)
    share: float


class Raising(BaseModel):
    title: Any

    @field_validator("title")
    @classmethod
    def refused(cls, title: Any) -> Any:
        raise KeyError(title)


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


TYPES: dict[str, object] = {
    "trees": list[Tree],
    "anything": Any,
    "exact": Exact,
    "raising": Raising,
    "pets": list[Annotated[Cat | Dog, Field(discriminator="kind")]],
    "shares": dict[float, float],
    "decimal": list[Decimal],
    "times": datetime | timedelta,
    "json in json": list[Json[Any]],
}
types = st.sampled_from(sorted(TYPES))
NAMES = st.sampled_from(["title", "below", "count", "share", "kind", "__id__", "__classname__"]) | any_text
documents = st.recursive(
    any_json | st.sampled_from([SECRET, BIG, DEEP, "dog", 0, 2**64, -(2**63) - 1]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
AROUND = [
    "@",
    "@",
    "```json\n@\n```",
    "Here it is: @. Enjoy.",
    "```json\n@",
    "[1] says {x}: @, @",
    "@@",
    '{"title": @',
]
MANY = 20_000
HOSTILE = (
    '{"title": NaN, "count": -Infinity, "share": 1e999}',
    '{"title": "\\ud800\\u0000", "\\ud800": 1, "\\u0000": 2}',
    "[" + "9" * 5000 + "]",
    '{"count": ' + "9" * 4300 + "}",
    "[" * 65 + "]" * 65,
    "[" * MANY,
    "[" + "{}," * MANY + "{}]",
    "{" + ",".join(f'"{number}": {{}}' for number in range(MANY)) + "}",
    '{"title": "' + "\\" * 10 * MANY,
    "```json\n" * MANY,
)
outputs = (
    st.builds(
        lambda document, around: around.replace("@", as_bytes(document).decode("utf-8", "surrogatepass")),
        documents,
        st.sampled_from(AROUND),
    )
    | st.sampled_from(HOSTILE)
    | any_text
)


@cases(st.tuples(types, outputs), known=[(name, text) for name in ("anything", "trees") for text in HOSTILE])
def test_output_fits_or_is_kept_as_it_is(case: Any) -> None:
    name, text = case
    execution: Any = read_execution({"state": "SUCCESS", "result": text}, "4711")
    result = outcome(partial(fitted, TYPES[name], "4711", execution.output, execution.output_json))

    assert execution.output == storable_text(text)
    assert_storable(execution.result())
    if isinstance(result, InvalidOutput):
        assert (result.kickoff_id, result.cost) == ("4711", Cost.ENDED)
        assert len(result.misfits) <= 10
    else:
        assert_storable(result)


@cases(
    st.tuples(
        types,
        st.recursive(
            st.sampled_from([SECRET, 7, "dog", None]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["title", "below", "kind", "count"]), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    ),
    known=[
        (name, document)
        for name in TYPES
        for document in (SECRET, [SECRET], {"title": SECRET}, [{"kind": SECRET}], {"count": [SECRET]})
    ],
)
def test_misfit_error_never_shows_a_value(case: Any) -> None:
    name, document = case
    result = outcome(partial(fitted, TYPES[name], "4711", json.dumps(document), None))

    if isinstance(result, InvalidOutput):
        assert_presentable(result, SECRET)
