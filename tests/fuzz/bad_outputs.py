"""What crews put out where a DAG asks for a type: it is made that, or kept as it is, and never paid for twice."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal
from uuid import UUID

from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, Json, field_validator
from typing_extensions import TypedDict

from airflow_provider_crew.client.errors import Cost, InvalidOutput, storable_text
from airflow_provider_crew.durable.result import fitted
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import outcome, presentable, storable
from tests.fuzz.bad_tasks import Store, TaskInstance, context, ended
from tests.fuzz.bad_values import BIG, DEEP, SECRET, any_json, any_text, as_bytes


class Tree(BaseModel):
    title: str
    below: list[Tree] = []


class Exact(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    title: str
    count: int = Field(ge=0)
    share: float


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    title: str = ""


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


class Summary(TypedDict):
    title: str


TYPES: dict[str, object] = {
    "tree": Tree,
    "trees": list[Tree],
    "exact": Exact,
    "open": Open,
    "raising": Raising,
    "pets": list[Annotated[Cat | Dog, Field(discriminator="kind")]],
    "summary": Summary,
    "numbers": dict[str, int],
    "shares": dict[float, float],
    "anything": Any,
    "nothing": None,
    "set": set[int],
    "bytes": bytes,
    "decimal": list[Decimal],
    "times": datetime | timedelta,
    "odd texts": UUID | IPv4Address | AnyUrl,
    "json in json": list[Json[Any]],
}
_LEAVES = any_json | st.sampled_from([SECRET, BIG, DEEP, "dog", 0, 2**64, -(2**63) - 1])
_NAMES = st.sampled_from(["title", "below", "count", "share", "kind", "__id__", "__classname__"]) | any_text
_documents = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=8
)


def _written(document: Any, around: str) -> str:
    return around.replace("@", as_bytes(document).decode("utf-8", "surrogatepass"))


_AROUND = [
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
    "NaN",
    '{"title": NaN, "count": -Infinity, "share": 1e999}',
    '{"title": "a", "title": "b", "title": {"title": 7}}',
    '{"title": "\\ud800\\u0000", "\\ud800": 1, "\\u0000": 2}',
    '{"title": "\\udc00\\ud800"}',
    "9" * 5000,
    "[" + "9" * 5000 + "]",
    '{"count": ' + "9" * 4300 + "}",
    "[" * 65 + "]" * 65,
    "[" * MANY,
    "[" * MANY + "]" * MANY,
    '{"below":[' * 63 + "]}" * 63,
    '{"title":"x","below":[' * 30 + "]}" * 30,
    "[" + "{}," * MANY + "{}]",
    "{" + ",".join(f'"{number}": {{}}' for number in range(MANY)) + "}",
    '["' + "x" * 10 * MANY + '"]',
    '{"title": "' + "\\" * 10 * MANY,
    "```json\n" * MANY,
)
outputs = st.builds(_written, _documents, st.sampled_from(_AROUND)) | st.sampled_from(HOSTILE) | any_text


def an_output_fits_or_is_said_not_to(_: World, case: Any) -> None:
    name, text = case
    came = outcome(partial(fitted, TYPES[name], "4711", text, None))

    if isinstance(came, InvalidOutput):
        assert (came.kickoff_id, came.cost) == ("4711", Cost.ENDED)
        assert len(came.misfits) <= 10
    else:
        storable(came)


def no_value_is_told(_: World, case: Any) -> None:
    name, document = case
    came = outcome(partial(fitted, TYPES[name], "4711", json.dumps(document), None))

    if isinstance(came, InvalidOutput):
        presentable(came, SECRET)


def _answering(text: str) -> bytes:
    body = json.dumps({"kickoff_id": "4711", "state": "SUCCESS", "result": text}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def no_output_is_lost_or_paid_twice(world: World, case: Any) -> None:
    name, text, choice = case
    world.service.answer = _answering(text)
    world.service.asked.clear()
    operator = CrewRunOperator(
        task_id="crew", inputs={}, validate_inputs=False, output_type=TYPES[name], on_invalid_output=choice
    )
    ti, store = TaskInstance(), Store()
    came = ended(lambda: operator.execute(context(store, ti)))
    assert world.service.kickoffs == 1
    _is_kept(came, text, ti)

    world.service.asked.clear()
    retried = ended(lambda: operator.execute(context(store, TaskInstance())))
    pays_again = choice == "retry" and isinstance(came, InvalidOutput) and bool(came.misfits)
    assert world.service.kickoffs == pays_again
    assert type(retried) is type(came)


def a_sensor_loses_no_output(world: World, case: Any) -> None:
    name, text, mode = case
    world.service.answer = _answering(text)
    world.service.asked.clear()
    sensor = CrewExecutionSensor(task_id="crew", kickoff_id="4711", output_type=TYPES[name], mode=mode)
    ti = TaskInstance()
    _is_kept(ended(lambda: sensor.execute(context(Store(), ti))), text, ti)

    assert world.service.kickoffs == 0


def _is_kept(came: Any, text: str, ti: TaskInstance) -> None:
    """Refuse an end that has not what was paid for: in what is returned, or in an XCom of its own."""
    result = came if isinstance(came, dict) else ti.xcoms["crew_result"]
    storable(result)
    assert result["output"] == storable_text(text)


_types = st.sampled_from(sorted(TYPES))
KINDS = (
    Kind(
        "output of a type",
        st.tuples(_types, outputs),
        an_output_fits_or_is_said_not_to,
        weight=6,
        known=tuple((name, text) for name in ("anything", "trees", "open") for text in HOSTILE),
    ),
    Kind(
        "secrets in an output",
        st.tuples(
            _types,
            st.recursive(
                st.just(SECRET) | st.sampled_from([7, "dog", None]),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["title", "below", "kind", "count"]), inner, max_size=3)
                ),
                max_leaves=5,
            ),
        ),
        no_value_is_told,
        known=tuple(
            (name, document)
            for name in TYPES
            for document in (SECRET, [SECRET], {"title": SECRET}, [{"kind": SECRET}], {"count": [SECRET]})
        ),
    ),
    Kind(
        "output of a task",
        st.tuples(_types, outputs, st.sampled_from(["fail", "retry"])),
        no_output_is_lost_or_paid_twice,
        known=tuple(("trees", text, "fail") for text in HOSTILE),
    ),
    Kind(
        "output that a sensor reads",
        st.tuples(_types, outputs, st.sampled_from(["poke", "reschedule"])),
        a_sensor_loses_no_output,
    ),
)
