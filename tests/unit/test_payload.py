"""What a kickoff sends is the JSON that was given, and what cannot be sent is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_crew.service.errors import Cost, InvalidInputs
from airflow_provider_crew.service.models import CrewInputs, read_inputs
from airflow_provider_crew.service.payload import KickoffRequest, compare_inputs

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


WEBHOOKS = {
    "events": ["task_completed"],
    "url": "https://hooks.example/events",
    "realtime": False,
}


def sent(inputs: Any, **options: Any) -> Any:
    """Return what goes over the wire."""
    return json.loads(KickoffRequest.of(inputs, **options).body)


def test_a_misspelt_option_is_never_sent() -> None:
    with pytest.raises(TypeError, match="takes no mata"):
        sent({"topic": "ferries"}, mata={"team": "news"})


def nested(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = [value]
    return value


def test_sends_what_was_given_under_the_names_of_the_service() -> None:
    payload = sent(
        {"topic": "AI"},
        meta={"run": "r1"},
        task_webhook_url="https://hooks.example/task",
        step_webhook_url="https://hooks.example/step",
        crew_webhook_url="https://hooks.example/crew",
        human_input_webhook_url="https://hooks.example/person",
        webhooks=WEBHOOKS,
        restore_from_state_id="6f1d9c1e",
    )

    assert payload == {
        "inputs": {"topic": "AI"},
        "meta": {"run": "r1"},
        "taskWebhookUrl": "https://hooks.example/task",
        "stepWebhookUrl": "https://hooks.example/step",
        "crewWebhookUrl": "https://hooks.example/crew",
        "humanInputWebhookUrl": "https://hooks.example/person",
        "webhooks": WEBHOOKS,
        "restoreFromStateId": "6f1d9c1e",
    }


@pytest.mark.parametrize("nothing", [{}, None])
def test_sends_nothing_for_what_was_not_given(nothing: Any) -> None:
    assert sent({}, meta=nothing, crew_webhook_url=None, step_webhook_url="") == {"inputs": {}}
    assert sent({}, webhooks=None, human_input_webhook_url=None, restore_from_state_id="") == {"inputs": {}}


@pytest.mark.parametrize("inputs", [None, "topic=AI", ["topic"], 7])
def test_inputs_are_names_and_values(inputs: Any) -> None:
    with pytest.raises(InvalidInputs, match=r"^inputs is of type \w+, and must be an object"):
        KickoffRequest.of(inputs)


@settings(deadline=None)
@given(inputs=st.dictionaries(st.text(), plain_json, max_size=4))
def test_json_arrives_as_it_was_given(inputs: dict[str, Any]) -> None:
    assert sent(inputs) == {"inputs": inputs}


def test_what_is_like_json_is_sent_as_json() -> None:
    inputs = {"pair": (1, "ü"), "object": MappingProxyType({"half": "\ud800"}), "deep": nested(63)}

    assert sent(inputs) == {"inputs": {"pair": [1, "ü"], "object": {"half": "\ud800"}, "deep": nested(63)}}


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
    ],
)
def test_names_what_is_no_json(inputs: dict[Any, Any], path: str) -> None:
    with pytest.raises(InvalidInputs) as caught:
        KickoffRequest.of(inputs)

    assert str(caught.value).startswith(f"{path}, of type ")
    assert "is no JSON." in caught.value.what
    assert caught.value.cost is Cost.NONE


def test_meta_is_checked_like_the_inputs() -> None:
    with pytest.raises(InvalidInputs, match=r"^meta\.when, of type datetime, is no JSON"):
        KickoffRequest.of({}, meta={"when": datetime.now(UTC)})


@pytest.mark.parametrize(
    "changes", [{"url": None}, {"url": ""}, {"events": None}, {"events": "task_completed"}], ids=repr
)
def test_webhooks_say_which_events_go_where(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputs, match=r"^webhooks must have a url, and a list of events\."):
        KickoffRequest.of({}, webhooks=WEBHOOKS | changes)


def test_a_secret_is_sent_with_the_webhooks_and_known_to_be_one() -> None:
    request = KickoffRequest.of({"topic": "AI"}, webhooks=WEBHOOKS, webhook_secret="webhook-secret")

    assert json.loads(request.body)["webhooks"] == {
        **WEBHOOKS,
        "authentication": {"strategy": "bearer", "token": "webhook-secret"},
    }
    assert request.secrets == ("webhook-secret",)
    assert "webhook-secret" not in repr(request)
    assert "authentication" not in WEBHOOKS
    assert KickoffRequest.of({}).secrets == ()


def test_a_secret_among_the_webhooks_is_refused() -> None:
    webhooks = {**WEBHOOKS, "authentication": {"strategy": "bearer", "token": "webhook-secret"}}

    with pytest.raises(InvalidInputs, match="(?s)password of a connection.*webhook_conn_id") as caught:
        KickoffRequest.of({}, webhooks=webhooks)

    assert "webhook-secret" not in str(caught.value)


def test_a_secret_without_webhooks_is_refused() -> None:
    with pytest.raises(
        InvalidInputs, match=r"(?s)^webhook_conn_id holds the secret .* there are none\."
    ) as caught:
        KickoffRequest.of({}, webhook_secret="webhook-secret")

    assert "webhook-secret" not in str(caught.value)


def test_the_inputs_are_fetched_once_and_are_plain() -> None:
    class Once(Sequence[Any]):
        fetched = 0

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: Any) -> Any:
            if index:
                raise IndexError
            self.fetched += 1
            return 7

    lazy = Once()

    assert KickoffRequest.of({"topics": lazy}).inputs == {"topics": [7]}
    assert lazy.fetched == 1


def test_an_id_that_rendering_has_made_a_number_is_a_text_again() -> None:
    assert sent({}, restore_from_state_id=4711)["restoreFromStateId"] == "4711"


KNOWN = read_inputs(
    {
        "inputs": [
            {"name": "topic", "required": True},
            {"name": "audience", "required": True},
            {"name": "tone", "required": False},
        ]
    }
)
BARE = read_inputs({"inputs": ["topic", "audience", "id"]})
DESCRIBED = read_inputs({"inputs": {"topic": "What about", "audience": {"description": "For whom"}, "id": None}})
each_form = pytest.mark.parametrize("known", [BARE, DESCRIBED], ids=["bare names", "descriptions"])

NOT_GIVEN = (
    "The crew lists inputs that are not given: {}. A crew refuses the kickoff then, and nothing starts; a flow "
    "runs on its defaults."
)
DEPRECATED = (
    "The input 'id' is the deprecated way to restore a flow's state, and mixes up two runs: use "
    "restore_from_state_id."
)


def refusal(given: dict[str, Any], known: CrewInputs, *, strict: bool = False) -> InvalidInputs:
    with pytest.raises(InvalidInputs) as caught:
        compare_inputs(given, known, strict=strict)
    return caught.value


@pytest.mark.parametrize("strict", [False, True])
def test_inputs_that_the_crew_lists_raise_no_doubt(strict: Any) -> None:
    whole = {"audience": "sailors", "topic": None}

    assert compare_inputs(whole, KNOWN, strict=strict) == []
    assert compare_inputs({**whole, "tone": "dry"}, KNOWN, strict=strict) == []
    assert compare_inputs(whole, BARE, strict=strict) == []
    assert compare_inputs({}, read_inputs({"inputs": []}), strict=strict) == []


def test_an_input_that_the_crew_does_not_list_is_a_doubt_with_the_nearest_name() -> None:
    given = {"topic": 1, "audience": 2, "tonne": 3, "zebra": 4}

    assert compare_inputs(given, KNOWN) == [
        "The crew does not list the input 'tonne'. Is 'tonne' meant to be 'tone'? It is sent all the same.",
        "The crew does not list the input 'zebra'. It is sent all the same.",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "topic, audience. Given: none."),
        ({"topic": 1}, "audience. Given: topic."),
        (
            {"topics": 1, "audience": 2},
            (
                "topic. Given: topics, audience. The crew does not list the input 'topics'. Is 'topics' meant to "
                "be 'topic'?"
            ),
        ),
        ({"tone": 1, "topic": 2}, "audience. Given: tone, topic."),
    ],
    ids=str,
)
def test_missing_inputs_are_named_with_what_may_have_been_meant(given: dict[str, int], said: str) -> None:
    failure = refusal(given, KNOWN)

    assert failure.reason == f"The crew needs inputs that are not given: {said}"


@each_form
@pytest.mark.parametrize(
    ("given", "names"),
    [({}, "topic, audience"), ({"topic": 1}, "audience"), ({"zebra": 1, "audience": 2}, "topic")],
    ids=str,
)
def test_what_may_be_optional_is_one_doubt(known: CrewInputs, given: dict[str, int], names: str) -> None:
    assert compare_inputs(given, known)[-1] == NOT_GIVEN.format(names)
    assert len(compare_inputs(given, known)) == 1 + ("zebra" in given)


@each_form
def test_what_may_be_optional_and_looks_mistyped_is_refused(known: CrewInputs) -> None:
    failure = refusal({"topics": 1, "zebra": 2}, known)

    assert failure.reason == (
        "The crew lists inputs that are not given: topic, audience. Given: topics, zebra. The crew does not list "
        "the input 'topics'. Is 'topics' meant to be 'topic'? The crew does not list the input 'zebra'."
    )


def test_a_name_that_resembles_one_that_is_given_is_not_mistyped() -> None:
    assert compare_inputs({"topic": 1, "topics": 2, "audience": 3}, BARE) == [
        "The crew does not list the input 'topics'. Is 'topics' meant to be 'topic'? It is sent all the same."
    ]


@pytest.mark.parametrize(
    ("given", "known", "said"),
    [
        pytest.param(
            {"topic": 1},
            BARE,
            "The crew lists inputs that are not given: audience. Given: topic.",
            id="missing",
        ),
        pytest.param(
            {"topic": 1, "audience": 2, "tonne": 3, "zebra": 4},
            KNOWN,
            "The crew does not list the input 'tonne'. Is 'tonne' meant to be 'tone'? The crew does not list the "
            "input 'zebra'.",
            id="not listed",
        ),
        pytest.param(
            {"topics": 1, "zebra": 2},
            KNOWN,
            "The crew needs inputs that are not given: topic, audience. Given: topics, zebra. The crew does not "
            "list the input 'topics'. Is 'topics' meant to be 'topic'? The crew does not list the input 'zebra'.",
            id="both",
        ),
    ],
)
def test_to_be_strict_is_to_refuse_every_doubt(given: dict[str, int], known: CrewInputs, said: str) -> None:
    assert refusal(given, known, strict=True).reason == said


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "known",
    [
        BARE,
        read_inputs({"inputs": ["topic", "audience"]}),
        read_inputs({"inputs": [{"name": "id", "required": True}]}),
    ],
    ids=["listed", "not listed", "required"],
)
def test_the_id_of_a_state_is_never_asked_for(known: CrewInputs, strict: Any) -> None:
    whole = {name: 1 for name in known.names if name != "id"}

    assert compare_inputs(whole, known, strict=strict) == []
    assert compare_inputs({**whole, "id": "6f1d9c1e"}, known, strict=strict) == [DEPRECATED]


def test_the_id_of_a_state_is_not_what_a_name_is_meant_to_be() -> None:
    known = read_inputs({"inputs": ["id"]})

    assert compare_inputs({"ids": 1}, known) == [
        "The crew does not list the input 'ids'. It is sent all the same."
    ]
    assert "meant" not in str(refusal({"ids": 1}, known, strict=True))
    assert compare_inputs({"id": 1}, read_inputs({"inputs": ["ids"]})) == [NOT_GIVEN.format("ids"), DEPRECATED]


def test_a_path_can_be_shown_whatever_is_in_it() -> None:
    with pytest.raises(InvalidInputs) as caught:
        KickoffRequest.of({"a\x00\ud800\n": {"x" * 5000: object()}})

    assert str(caught.value).startswith("inputs.a\ufffd\ufffd .xxx")
    assert len(caught.value.reason) < 500


@pytest.mark.parametrize("option", ["meta", "webhooks"])
def test_options_of_another_type_are_refused(option: str) -> None:
    options: dict[str, Any] = {option: ["https://hooks.example"]}

    with pytest.raises(
        InvalidInputs, match=f"{option} is of type list, and must be an object of names and values"
    ):
        KickoffRequest.of({}, **options)


def test_many_names_fit_into_a_message() -> None:
    needed = read_inputs({"inputs": [{"name": f"{number}-input", "required": True} for number in range(500)]})

    assert len(refusal({}, needed).reason) < 500
