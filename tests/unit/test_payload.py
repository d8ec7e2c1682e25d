from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_crew.service.errors import InvalidInputs
from airflow_provider_crew.service.models import read_inputs
from airflow_provider_crew.service.payload import compare_inputs, json_bytes, kickoff_payload

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def nested(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = [value]
    return value


def test_sends_what_was_given_under_the_names_of_the_service() -> None:
    payload = kickoff_payload(
        {"topic": "AI"},
        meta={"run": "r1"},
        task_webhook_url="https://hooks.example/task",
        step_webhook_url="https://hooks.example/step",
        crew_webhook_url="https://hooks.example/crew",
    )

    assert json.loads(json_bytes(payload)) == {
        "inputs": {"topic": "AI"},
        "meta": {"run": "r1"},
        "taskWebhookUrl": "https://hooks.example/task",
        "stepWebhookUrl": "https://hooks.example/step",
        "crewWebhookUrl": "https://hooks.example/crew",
    }


@pytest.mark.parametrize("nothing", [{}, None])
def test_sends_nothing_for_what_was_not_given(nothing: Any) -> None:
    assert kickoff_payload({}, meta=nothing, crew_webhook_url=None, step_webhook_url="") == {"inputs": {}}


@pytest.mark.parametrize("inputs", [None, "topic=AI", ["topic"], 7])
def test_inputs_are_names_and_values(inputs: Any) -> None:
    with pytest.raises(InvalidInputs, match=r"^inputs is of type \w+, and must be an object") as caught:
        kickoff_payload(inputs)

    assert caught.value.path == "inputs"


def test_an_option_that_does_not_exist_is_refused() -> None:
    options: dict[str, Any] = {"webhook": "https://hooks.example", "inputz": {}}

    with pytest.raises(TypeError, match="inputz, webhook"):
        kickoff_payload({}, **options)


@settings(deadline=None)
@given(inputs=st.dictionaries(st.text(), plain_json, max_size=4))
def test_json_arrives_as_it_was_given(inputs: dict[str, Any]) -> None:
    assert json.loads(json_bytes({"inputs": inputs})) == {"inputs": inputs}


def test_what_is_like_json_is_sent_as_json() -> None:
    inputs = {"pair": (1, "ü"), "object": MappingProxyType({"half": "\ud800"}), "deep": nested(63)}

    assert json.loads(json_bytes({"inputs": inputs})) == {
        "inputs": {"pair": [1, "ü"], "object": {"half": "\ud800"}, "deep": nested(63)}
    }


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        pytest.param({"day": datetime(2026, 1, 1, tzinfo=UTC)}, "inputs.day", id="date"),
        pytest.param({"price": Decimal("1.5")}, "inputs.price", id="decimal"),
        pytest.param({"a": [1, {"b": {2}}]}, "inputs.a[1].b", id="set"),
        pytest.param({"raw": b"bytes"}, "inputs.raw", id="bytes"),
        pytest.param({"n": [0.0, float("nan")]}, "inputs.n[1]", id="NaN"),
        pytest.param({"n": float("-inf")}, "inputs.n", id="infinity"),
        pytest.param({"n": {1: "one"}}, "inputs.n", id="key that is no text"),
        pytest.param({7: "seven"}, "inputs", id="name that is no text"),
        pytest.param({"n": -(10**5000)}, "inputs.n", id="integer too long"),
        pytest.param({"deep": nested(65)}, "inputs.deep" + "[0]" * 64, id="too deep"),
    ],
)
def test_names_what_is_no_json(inputs: dict[Any, Any], path: str) -> None:
    with pytest.raises(InvalidInputs) as caught:
        json_bytes({"inputs": inputs})

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} ")
    assert "Nothing was sent." in str(caught.value)


def test_what_holds_itself_comes_to_an_end() -> None:
    inputs: dict[str, Any] = {}
    inputs["itself"] = inputs

    with pytest.raises(InvalidInputs, match="nested more than 64 levels"):
        json_bytes({"inputs": inputs})


def test_meta_is_checked_like_the_inputs() -> None:
    with pytest.raises(InvalidInputs, match=r"^meta\.when is of type datetime"):
        json_bytes(kickoff_payload({}, meta={"when": datetime.now(UTC)}))


KNOWN = read_inputs({"inputs": ["topic", "audience", {"name": "tone", "required": False}]})


def test_inputs_that_the_crew_lists_raise_no_doubt() -> None:
    assert compare_inputs({"audience": "sailors", "topic": None}, KNOWN) == []
    assert compare_inputs({"audience": "sailors", "topic": "harbours", "tone": "dry"}, KNOWN) == []
    assert compare_inputs({}, read_inputs({"inputs": []})) == []


def test_an_input_that_the_crew_does_not_list_is_a_doubt_with_the_nearest_name() -> None:
    given = {"topic": 1, "audience": 2, "tonne": 3, "zebra": 4}

    assert compare_inputs(given, KNOWN) == [
        "The crew does not list the input 'tonne'. Is 'tonne' meant to be 'tone'? It is sent all the same.",
        "The crew does not list the input 'zebra'. It is sent all the same.",
    ]


@pytest.mark.parametrize(
    ("given", "missing", "said"),
    [
        ({}, ("topic", "audience"), "topic, audience. Given: none. Nothing was started."),
        ({"topic": 1}, ("audience",), "audience. Given: topic. Nothing was started."),
        (
            {"topics": 1, "audience": 2},
            ("topic",),
            "topic. Given: topics, audience. Is 'topics' meant to be 'topic'? Nothing was started.",
        ),
        ({"tone": 1, "topic": 2}, ("audience",), "audience. Given: tone, topic. Nothing was started."),
    ],
    ids=str,
)
def test_missing_inputs_are_named_with_what_may_have_been_meant(
    given: dict[str, int], missing: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InvalidInputs) as caught:
        compare_inputs(given, KNOWN)

    assert caught.value.missing == missing
    assert str(caught.value) == f"The crew needs inputs that are not given: {said}"


def test_what_is_optional_is_not_missed() -> None:
    assert compare_inputs({"topic": 1, "audience": 2}, KNOWN) == []


def shared(levels: int) -> Any:
    """Few objects, and 2 ** levels values when they are written out."""
    value: Any = [1]
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "much", [range(10**12), shared(50), [[0] * 1000] * 1000], ids=["lazy", "shared", "repeated"]
)
def test_more_values_than_fit_into_memory_are_refused(much: Any) -> None:
    with pytest.raises(InvalidInputs, match="beyond the 200,000 values that a kickoff may hold"):
        json_bytes({"inputs": {"much": much}})


@pytest.mark.parametrize(
    "key", [10**5000, (), None, b"topic"], ids=["too long to be written", "()", "None", "bytes"]
)
def test_a_key_that_is_no_text_is_named_by_its_type(key: Any) -> None:
    with pytest.raises(
        InvalidInputs, match=rf"inputs has a key of type {type(key).__name__}, which is not a text"
    ):
        json_bytes({"inputs": {key: 1}})


def test_a_path_can_be_shown_whatever_is_in_it() -> None:
    with pytest.raises(InvalidInputs) as caught:
        json_bytes({"inputs": {"a\x00\ud800\n": {"x" * 5000: object()}}})

    assert str(caught.value).startswith("inputs.a\ufffd\ufffd .xxx")
    assert len(str(caught.value)) < 500


class Array:
    """As those of numpy: they have no truth."""

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array with more than one element is ambiguous.")


@pytest.mark.parametrize(
    ("option", "fault"),
    [("meta", "meta is of type Array, and must be an object"), ("crew_webhook_url", "must be an address")],
)
@pytest.mark.parametrize("value", [Array(), ["https://hooks.example"]], ids=["array", "list"])
def test_options_of_another_type_are_refused(option: str, fault: str, value: Any) -> None:
    options: dict[str, Any] = {option: value}

    with pytest.raises(InvalidInputs, match=fault.replace("Array", type(value).__name__)):
        kickoff_payload({}, **options)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("given", "listed"),
    [
        pytest.param([f"{number:07}_input" for number in range(0, 9999, 2)], 9999, id="many"),
        pytest.param(["ab" * 20_000], 200, id="long"),
    ],
)
def test_names_are_compared_in_no_time(given: list[str], listed: int) -> None:
    known = read_inputs({"inputs": [*(f"{number:07}-input" for number in range(listed)), "ba" * 20_000]})

    with pytest.raises(InvalidInputs) as caught:
        compare_inputs(dict.fromkeys(given, 1), known)

    assert f"and {listed - 19} more" in str(caught.value)
    assert len(str(caught.value)) < 10_000
