"""A kickoff sends the given JSON, and an error names anything that cannot be sent."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost, InvalidInputs
from airflow_provider_crew.client.models import read_inputs
from airflow_provider_crew.client.options import SENT_AS, KickoffOptions
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs

WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example/events", "realtime": False}
PERSON = "https://hooks.example/person"
SECRET = "webhook-secret"
BEARER = {"strategy": "bearer", "token": "webhook-secret"}


def sent(inputs: Any, **options: Any) -> Any:
    """Return what goes over the wire."""
    return json.loads(KickoffRequest.of(inputs, **options).body)


@pytest.mark.parametrize("meta", [{}, None])
def test_options_that_are_none_are_not_sent(meta: Any) -> None:
    assert sent({}, **dict.fromkeys(KickoffOptions.__annotations__) | {"meta": meta}) == {"inputs": {}}


@pytest.mark.parametrize("name", SENT_AS)
def test_option_that_is_empty_or_of_another_type_is_rejected(name: str) -> None:
    is_text = SENT_AS[name].kind is str
    odd: list[Any] = [["a list"], ""] if is_text else ["{'rendered': 'by a template'}", {}]

    for value in odd if name != "meta" else odd[:1]:
        with pytest.raises(InvalidInputs, match=name):
            sent({}, **{name: value})


@pytest.mark.parametrize("value", [object(), ..., b"x", {None: 1}, [{"a": object()}]], ids=type)
def test_webhooks_need_a_url_and_events(value: Any) -> None:
    for webhooks in (value, {}, WEBHOOKS | {"url": ""}, WEBHOOKS | {"url": value}, WEBHOOKS | {"events": value}):
        with pytest.raises(InvalidInputs, match="webhooks") as caught:
            KickoffRequest.of({}, webhooks=webhooks, webhook_secret=SECRET)
        assert "webhook-secret" not in str(caught.value)


URLS: dict[str, dict[str, Any]] = {
    "-": {},
    "webhooks": {"webhooks": WEBHOOKS},
    "human_input": {"human_input_webhook_url": PERSON},
    "crew": {"crew_webhook_url": "https://hooks.example/crew"},
    "secret in the webhooks": {"webhooks": {**WEBHOOKS, "authentication": BEARER}},
}


def fields(urls: str, secret: str) -> list[str]:
    """Return the fields of a request without inputs, or the error."""
    options = {name: value for each in urls.split(", ") for name, value in URLS[each].items()}
    own = SECRET if secret == "password" else None
    try:
        request = KickoffRequest.of({}, webhook_secret=own, **options)
    except InvalidInputs as error:
        assert "webhook-secret" not in str(error)  # noqa: PT017 - an outcome among others
        return [f"! {error.event}"]
    assert "webhook-secret" not in repr(request)
    assert request.secrets == ((own,) if own else ())
    told = sorted((name, value) for name, value in json.loads(request.body).items() if name != "inputs")
    return [re.sub(r"https://[a-z.]+/", "", json.dumps(dict(told)))]


def test_webhooks_are_sent_as_in_the_table(tabulated: Any) -> None:
    tabulated("webhooks.txt", 2, fields)
    assert "authentication" not in WEBHOOKS


OBJECTS = [{"name": "topic", "required": True}, {"name": "audience", "required": True}]
FORMS: dict[str, Any] = {
    "objects": {"inputs": [*OBJECTS, {"name": "tone", "required": False}]},
    "required": {"inputs": ["id", "topic", "audience", "tone"], "required_inputs": ["id", "topic", "audience"]},
    "optional": {"inputs": ["topic", "audience", "id"], "required_inputs": []},
    "bare": {"inputs": ["topic", "audience", "id"]},
    "described": {"inputs": {"topic": "What about", "audience": {"description": "For whom"}, "id": None}},
    "id": {"inputs": [{"name": "id", "required": True}]},
    "none": {"inputs": []},
}
NAMES = {"topic", "topics", "audience", "tone", "tonne", "zebra", "id", "restore_from_state_id"}


def names_in(text: object) -> str:
    """Return the inputs and options that a message names."""
    return " ".join(sorted(NAMES & {*re.findall(r"\w+", str(text))}))


def compared(given: str, forms: str) -> set[str]:
    """Return what comes of these inputs for a crew that lists its own in each of these forms."""
    outcomes = set()
    for form in forms.split():
        try:
            doubts = compare_inputs(dict.fromkeys(given.split()), read_inputs(FORMS[form]))
            outcomes.add("; ".join(map(names_in, doubts)))
        except InvalidInputs as error:
            assert error.cost is Cost.NONE  # noqa: PT017 - an outcome among others
            lacks = f"; lacks {' '.join(sorted(error.missing_inputs))}" if error.missing_inputs else ""
            outcomes.add(f"rejected, {names_in(error)}{lacks}")
    return outcomes
