"""A kickoff sends the given JSON, and an error names anything that cannot be sent."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import Cost, InvalidInputs
from airflow_provider_crew.client.models import CrewInputs, read_inputs
from airflow_provider_crew.client.options import SENT_AS, KickoffOptions
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.settings import WebhookSecret
from tests.option_values import FIELDS, OPTIONS

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example/events", "realtime": False}
PERSON = "https://hooks.example/person"
SECRET = WebhookSecret(password="webhook-secret")
WITH_LOGIN = WebhookSecret(password="webhook-secret", login="crew")
BEARER = {"strategy": "bearer", "token": "webhook-secret"}
BASIC = {"strategy": "basic", "username": "crew", "password": "webhook-secret"}


def sent(inputs: Any, **options: Any) -> Any:
    """Return what goes over the wire."""
    return json.loads(KickoffRequest.of(inputs, **options).body)


def test_options_are_sent_in_camel_case() -> None:
    assert {"taskWebhookUrl", "restoreFromStateId"} <= FIELDS.keys()
    assert sent({"topic": "AI"}, **OPTIONS) == {"inputs": {"topic": "AI"}} | FIELDS


@pytest.mark.parametrize("meta", [{}, None])
def test_options_that_are_none_are_not_sent(meta: Any) -> None:
    assert sent({}, **dict.fromkeys(KickoffOptions.__annotations__) | {"meta": meta}) == {"inputs": {}}


@pytest.mark.parametrize("name", sorted(SENT_AS.keys() - {"meta"}))
def test_empty_option_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInputs, match=name):
        sent({}, **{name: SENT_AS[name].kind() if SENT_AS[name].kind is str else {}})


@pytest.mark.parametrize("name", SENT_AS)
def test_option_of_another_type_is_rejected(name: str) -> None:
    value: Any = ["a list"] if SENT_AS[name].kind is str else "{'rendered': 'by a template'}"

    with pytest.raises(InvalidInputs, match=name):
        sent({}, **{name: value})


@pytest.mark.parametrize("inputs", [None, "topic=AI", ["topic"], 7])
def test_inputs_that_are_no_object_are_rejected(inputs: Any) -> None:
    with pytest.raises(InvalidInputs, match="inputs"):
        KickoffRequest.of(inputs)


@settings(deadline=None)
@given(inputs=st.dictionaries(st.text(), plain_json, max_size=4))
def test_json_arrives_as_it_was_given(inputs: dict[str, Any]) -> None:
    assert sent(inputs) == {"inputs": inputs}


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        ({"day": datetime(2026, 1, 1, tzinfo=UTC)}, "inputs.day"),
        ({"a": [1, {"b": {2}}]}, "inputs.a[1].b"),
        ({"n": [0.0, float("nan")]}, "inputs.n[1]"),
        ({"a": ["b", b"raw"]}, "inputs.a[1]"),
        ({"a": {"b": Decimal(7)}}, "inputs.a.b"),
        ({"a": (number for number in range(3))}, "inputs.a"),
        ({"a": [object()]}, "inputs.a[0]"),
        ({"a": {None: 1, 7: 2, b"k": 3}}, "inputs.a"),
        ({7: "seven"}, "inputs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_value_that_is_not_json_is_named_by_its_path(inputs: dict[Any, Any], path: str) -> None:
    with pytest.raises(InvalidInputs) as caught:
        KickoffRequest.of(inputs)

    assert re.search(rf"{re.escape(path)}(?![\w\[]|\.\w)", str(caught.value))
    assert caught.value.cost is Cost.NONE


@pytest.mark.parametrize("value", [object(), ..., b"x", {None: 1}, [{"a": object()}]], ids=type)
def test_webhooks_need_a_url_and_events(value: Any) -> None:
    for webhooks in (value, {}, WEBHOOKS | {"url": ""}, WEBHOOKS | {"url": value}, WEBHOOKS | {"events": value}):
        with pytest.raises(InvalidInputs, match="webhooks") as caught:
            KickoffRequest.of({}, webhooks=webhooks, webhook_secret=SECRET)
        assert "webhook-secret" not in str(caught.value)


@pytest.mark.parametrize("webhooks", [WEBHOOKS, None])
@pytest.mark.parametrize("person", [PERSON, None])
@pytest.mark.parametrize(("secret", "authentication"), [(SECRET, BEARER), (WITH_LOGIN, BASIC)])
def test_webhook_secret_is_sent_and_masked(
    webhooks: Any, person: Any, secret: WebhookSecret, authentication: Any
) -> None:
    if not (webhooks or person):
        return
    options: Any = {"human_input_webhook_url": person, "webhooks": webhooks}
    request = KickoffRequest.of({}, webhook_secret=secret, **options)

    events = {"webhooks": {**WEBHOOKS, "authentication": BEARER}} if webhooks else {}
    asked = {"humanInputWebhook": {"url": PERSON, "authentication": authentication}} if person else {}
    assert json.loads(request.body) == {"inputs": {}, **asked, **events}
    assert request.secrets == secret.secrets
    assert "webhook-secret" not in repr((request, secret))
    assert "authentication" not in WEBHOOKS


@pytest.mark.parametrize(
    "options",
    [
        {"webhooks": {**WEBHOOKS, "authentication": BEARER}},
        {"webhook_secret": SECRET},
        {"webhook_secret": SECRET, "crew_webhook_url": "https://hooks.example/crew"},
    ],
    ids=["secret in the webhooks", "no receiver", "crew webhook alone"],
)
def test_webhook_secret_needs_a_receiver_and_a_connection(options: Any) -> None:
    with pytest.raises(InvalidInputs, match="webhook_conn_id") as caught:
        KickoffRequest.of({}, **options)

    assert "webhook-secret" not in str(caught.value)


OBJECTS = [{"name": "topic", "required": True}, {"name": "audience", "required": True}]
KNOWN = read_inputs({"inputs": [*OBJECTS, {"name": "tone", "required": False}]})
OPTIONAL = read_inputs({"inputs": ["topic", "audience", "id"], "required_inputs": []})
BARE = read_inputs({"inputs": ["topic", "audience", "id"]})
DESCRIBED = read_inputs({"inputs": {"topic": "What about", "audience": {"description": "For whom"}, "id": None}})
REQUIRED = read_inputs(
    {"inputs": ["id", "topic", "audience", "tone"], "required_inputs": ["id", "topic", "audience"]}
)
each_form = pytest.mark.parametrize("known", [BARE, DESCRIBED], ids=["bare names", "descriptions"])

NAMES = {"topic", "topics", "audience", "tone", "tonne", "zebra", "id", "ids", "restore_from_state_id"}
STATE_ID = {"id", "restore_from_state_id"}


def named(text: object) -> set[str]:
    """Return the inputs and options that a message names."""
    return NAMES & {*re.findall(r"\w+", str(text))}


def doubts(given: dict[str, Any], known: CrewInputs) -> list[set[str]]:
    return [named(doubt) for doubt in compare_inputs(given, known)]


def refusal(given: dict[str, Any], known: CrewInputs) -> InvalidInputs:
    with pytest.raises(InvalidInputs) as caught:
        compare_inputs(given, known)
    return caught.value


def test_listed_inputs_raise_no_doubt() -> None:
    whole = {"audience": "sailors", "topic": None}

    assert compare_inputs(whole, KNOWN) == []
    assert compare_inputs({**whole, "tone": "dry"}, KNOWN) == []
    assert compare_inputs(whole, BARE) == []
    assert compare_inputs(whole, REQUIRED) == []
    assert compare_inputs({}, OPTIONAL) == []
    assert compare_inputs({}, read_inputs({"inputs": []})) == []


def test_unlisted_input_is_a_doubt_with_the_nearest_name() -> None:
    given = {"topic": 1, "audience": 2, "tone": 3, "tonne": 4, "zebra": 5}

    assert doubts(given, KNOWN) == [{"tonne", "tone"}, {"zebra"}]
    assert doubts({"zebra": 1}, OPTIONAL) == [{"zebra"}]


@pytest.mark.parametrize("known", [KNOWN, REQUIRED], ids=["objects", "required_inputs"])
@pytest.mark.parametrize(
    ("given", "missing"),
    [({"topic": 1}, ("audience",)), ({"zebra": 1}, ("topic", "audience"))],
    ids=["one", "all"],
)
def test_missing_required_inputs_are_named(
    known: CrewInputs, given: dict[str, int], missing: tuple[str, ...]
) -> None:
    failure = refusal(given, known)

    assert named(failure) == {*missing, *given}
    assert failure.missing_inputs == missing
    assert failure.cost is Cost.NONE


@pytest.mark.parametrize(
    ("given", "known", "meant"),
    [
        ({"topics": 1, "audience": 2}, KNOWN, "topic"),
        ({"topics": 1, "audience": 2}, REQUIRED, "topic"),
        ({"topic": 1, "audience": 2, "tonne": 3}, KNOWN, "tone"),
        ({"topic": 1, "audience": 2, "tonne": 3}, REQUIRED, "tone"),
        ({"topics": 1}, OPTIONAL, "topic"),
    ],
)
def test_misspelled_input_is_rejected_even_if_optional(
    given: dict[str, int], known: CrewInputs, meant: str
) -> None:
    failure = refusal(given, known)

    assert named(failure) >= {meant, *given.keys() & {"topics", "tonne"}}
    assert failure.missing_inputs == ()  # adding a name would not correct the misspelled one
    assert failure.cost is Cost.NONE


@each_form
@pytest.mark.parametrize(
    ("given", "names"),
    [({"topic": 1}, {"audience"}), ({"zebra": 1, "audience": 2}, {"topic"})],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_missing_inputs_that_may_be_optional_are_one_doubt(
    known: CrewInputs, given: dict[str, int], names: set[str]
) -> None:
    assert doubts(given, known)[-1] == names
    assert len(doubts(given, known)) == 1 + ("zebra" in given)


@each_form
def test_missing_input_that_looks_mistyped_is_rejected(known: CrewInputs) -> None:
    assert named(refusal({"topics": 1, "zebra": 2}, known)) >= {"topic", "topics", "audience"}


@pytest.mark.parametrize("inputs", [["topic", "audience", "id"], ["topic"], [{"name": "id", "required": True}]])
def test_state_id_is_never_missing(inputs: Any) -> None:
    known = read_inputs({"inputs": inputs})
    whole = {name: 1 for name in known.names if name != "id"}

    assert compare_inputs(whole, known) == []
    (deprecated,) = compare_inputs({**whole, "id": "6f1d9c1e"}, known)
    assert named(deprecated) == STATE_ID


def test_path_of_any_characters_is_printable() -> None:
    with pytest.raises(InvalidInputs) as caught:
        KickoffRequest.of({"a\x00\ud800\n": {"x" * 5000: object()}})

    assert "inputs.a\ufffd\ufffd .xxx" in str(caught.value)
    assert len(str(caught.value)) < 800


ADDRESS = ("https://airflow.example/crew/events/named.signature", "hash")
FIRST = {"events": ["crew_kickoff_started", "flow_started"], "url": ADDRESS[0], "realtime": False}
OWN = {"events": ["task_completed"], "url": "https://hooks.example"}


@pytest.mark.parametrize(
    ("options", "webhooks", "crew_webhook", "call"),
    [
        ({}, FIRST, ADDRESS[0], "hash"),
        ({"webhooks": OWN}, OWN, ADDRESS[0], "hash"),
        ({"crew_webhook_url": "https://hooks.example"}, FIRST, "https://hooks.example", "hash"),
        ({"webhooks": OWN, "crew_webhook_url": "https://hooks.example"}, OWN, "https://hooks.example", ""),
    ],
)
def test_address_takes_only_webhooks_that_are_left_out(options, webhooks, crew_webhook, call):
    request = KickoffRequest.of({}, address=ADDRESS, **options)
    sent = json.loads(request.body)

    assert (sent["webhooks"], sent["crewWebhookUrl"], request.call) == (webhooks, crew_webhook, call)
    assert ("named.signature" in request.secrets) == bool(call)


def test_kickoff_without_an_address_asks_for_no_call():
    request = KickoffRequest.of({"topic": "x"}, meta={"a": 1})

    assert (request.body, request.call) == (b'{"meta": {"a": 1}, "inputs": {"topic": "x"}}', "")
