"""Sending a kickoff: in which order, what is left after a failure, and what the request has."""

from __future__ import annotations

import json
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.task.send import request_of, send
from airflow_provider_crew.task.stop import Pulse, Stop
from airflow_provider_crew.task.task import Options, Task

TI = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=2, start_date=None)
ORIGIN = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 2}
URL = "https://receiver.example"
BEFORE, AFTER = ["save", "kickoff"], "delete"


def task(**options: Any) -> Task:
    return Task(Options(crew_conn_id="crew", **options), {"ti": TI}, None)


class Sending:
    """A kickoff to a crew with these responses, and what happens to its record."""

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.steps: list[str] = []
        self.interrupted = Event()
        self.is_told = False
        self.fails_to_save = False

    def save_intent(self) -> None:
        self.steps.append("save")
        if self.fails_to_save:
            raise ConnectionError

    def delete_intent(self) -> None:
        self.steps.append("delete")

    def kickoff(self) -> str:
        self.steps.append("kickoff")
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return str(response)

    def send(self) -> str:
        own = Task(Options(crew_conn_id="crew"), {"ti": TI}, None, is_told_to_end=lambda: self.is_told)
        slot: Any = {"save_intent": self.save_intent, "delete_intent": self.delete_intent}
        return send(self.kickoff, Stop(own, Pulse(lambda: 0.0)), self.interrupted, **slot)


class Interrupted(Event):
    """Signal that arrives during the pause."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        self.set()
        return True


SIGNAL = Event()
SIGNAL.set()


@pytest.mark.parametrize(
    ("response", "given", "error", "steps"),
    [
        # While the intent is stored, and in the pause before another kickoff.
        ("k", {"is_told": True}, CrewTaskError, ["save", AFTER]),
        ("k", {"interrupted": SIGNAL}, CrewTaskError, ["save", AFTER]),
        ("k", {"fails_to_save": True}, ConnectionError, ["save"]),
        (
            errors.RateLimited("429", retry_after=3600.0),
            {"interrupted": Interrupted()},
            CrewTaskError,
            [*BEFORE, AFTER, "save", AFTER],
        ),
    ],
)
def test_nothing_is_sent_if_the_task_ends_or_the_intent_is_not_stored(response, given, error, steps, timing):
    timing(longest_back_off=1.0)
    sending = Sending(response, "k")
    vars(sending).update(given)

    with pytest.raises(error, match="the kickoff" if error is CrewTaskError else None):
        sending.send()

    assert sending.steps == steps


def sent(request: KickoffRequest) -> Any:
    return json.loads(request.body)


@pytest.mark.parametrize(
    ("options", "about", "meta"),
    [
        ({}, {}, {"airflow": ORIGIN}),
        ({"meta": None}, {"row": "7"}, {"airflow": ORIGIN | {"row": "7"}}),
        ({"meta": {"team": "research"}}, {"row": "7"}, {"team": "research"}),
        ({"meta": {}}, {}, None),
    ],
)
def test_meta_names_the_task_unless_the_author_sets_another(options, about, meta):
    given = dict(options)
    body = sent(request_of(task(kickoff=given), {"topic": "ferries"}, None, "crew_kickoff", **about))

    assert body["inputs"] == {"topic": "ferries"}
    assert body.get("meta") == meta
    if not given.get("meta") and meta:
        assert task().meta in json.dumps(body)  # the part that users search for
    assert given == options, "the same for the next row"


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({}, {"webhooks", "crewWebhookUrl"}),
        ({"webhooks": {"url": URL, "events": ["task_completed"]}}, {"crewWebhookUrl"}),
        ({"webhooks": {"url": URL, "events": ["task_completed"]}, "crew_webhook_url": URL}, set()),
        ({"meta": {"topic": "tides"}, "crew_webhook_url": URL}, {"webhooks"}),
        # The crew would repeat these IDs in its call.
        *(({"meta": {name: "57a13a6e"}}, set()) for name in ("kickoff_id", "executionId")),
        ({"meta": {"events": [{"execution_id": "57a13a6e"}]}}, set()),
    ],
)
def test_kickoff_asks_for_a_call_with_the_webhooks_that_are_left(options, asks, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_WEBHOOK", "generic://:secret-123@")
    settings = {"EVENTS_URL": "https://airflow.example", "WEBHOOK_CONN_ID": "webhook", "SETTLE_KICKOFFS": "True"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AIRFLOW__CREW__{name}", value)
    own = Task(Options(crew_conn_id="crew", kickoff=options), {"ti": TI, "task_state_store": {}}, None)
    request = request_of(own, {}, None, "crew_kickoff")

    assert {name for name, value in sent(request).items() if "//airflow.example/" in str(value)} == asks
    assert bool(request.call) == bool(request.secrets) == bool(asks)
    assert not request.call or request.call not in request.body.decode()
    assert all(secret in request.body.decode() for secret in request.secrets)
