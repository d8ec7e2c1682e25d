"""Inputs, meta and webhooks of a kickoff: any object of a DAG, a template or another task."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from airflow_provider_crew.client.errors import Cost, InvalidInputs
from airflow_provider_crew.client.payload import KickoffRequest, plain
from airflow_provider_crew.client.settings import WebhookSecret
from tests.fuzz.bad_values import SECRET, any_json, any_text
from tests.fuzz.cases import assert_presentable, cases, outcome
from tests.option_values import OPTIONS


def nested(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = [value]
    return value


# Made when they are needed: Hypothesis cannot show all of them when it reports a case.
MAKERS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"bytes",
    "datetime": lambda: datetime(2026, 1, 1, tzinfo=UTC),
    "decimal": lambda: Decimal("NaN"),
    "uuid": lambda: UUID(int=7),
    "proxy of a surrogate": lambda: MappingProxyType({"a": "\ud800"}),
    "chain": lambda: ChainMap({"a": 1}, {"b": 2}),
    "generator": lambda: (number for number in range(3)),
    "object": object,
    "ellipsis": lambda: ...,
    "deep list": lambda: nested(64),
    "odd keys": lambda: {None: 1, 7: 2, b"k": 3},
    "surrogate key": lambda: {"\ud800": object()},
    "NUL key": lambda: {"\x00": float("nan")},
}


@dataclass(frozen=True)
class ToMake:
    name: str


def made(case: Any) -> Any:
    """Return a case with its objects made."""
    match case:
        case ToMake():
            return MAKERS[case.name]()
        case dict():
            return {key: made(value) for key, value in case.items()}
        case list() | tuple():
            return type(case)(made(value) for value in case)
    return case


OBJECTS = [ToMake(name) for name in MAKERS]
any_data = st.recursive(
    any_json | st.sampled_from(OBJECTS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(any_text | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=4,
)
any_inputs = st.dictionaries(any_text, any_data, max_size=3) | any_data
WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example", "realtime": False}
any_webhooks = (
    st.just(WEBHOOKS)
    | st.fixed_dictionaries(
        {},
        optional={
            "events": st.just(["task_completed"]) | any_data,
            "url": st.just("https://hooks.example") | any_data,
            "realtime": any_data,
            "authentication": any_data | st.just({"strategy": "bearer", "token": SECRET}),
            "x": any_data,
        },
    )
    | any_data
)
any_options = st.fixed_dictionaries(
    {},
    optional={name: st.just(value) | any_data for name, value in OPTIONS.items()} | {"webhooks": any_webhooks},
)


def in_each_place(value: Any) -> list[Any]:
    return [
        ({"inputs": [value]}, {"meta": {"of": value}}),
        ({}, {"webhooks": value, "restore_from_state_id": value}),
        ({}, {"webhooks": {**WEBHOOKS, "events": value}}),
        ({}, {"webhooks": {**WEBHOOKS, "url": value}}),
    ]


@cases(st.tuples(any_inputs, any_options), known=[case for value in OBJECTS for case in in_each_place(value)])
def test_inputs_are_sent_as_json_or_rejected(case: Any) -> None:
    inputs, options = made(case)
    result = outcome(lambda: KickoffRequest.of(inputs, **options))

    if isinstance(result, InvalidInputs):
        assert result.cost is Cost.NONE
    else:  # made again, because a generator is used up by now
        assert json.loads(result.body)["inputs"] == json.loads(json.dumps(plain(made(case[0]), "inputs")))


@cases(any_webhooks, known=OBJECTS)
def test_webhook_secret_is_sent_or_the_webhooks_are_rejected(case: Any) -> None:
    secret = WebhookSecret(password=SECRET)
    result = outcome(lambda: KickoffRequest.of({}, webhooks=made(case), webhook_secret=secret))

    if isinstance(result, InvalidInputs):
        assert_presentable(result, SECRET)
        return
    assert result.secrets == (SECRET,)
    assert json.loads(result.body)["webhooks"]["authentication"] == {"strategy": "bearer", "token": SECRET}
