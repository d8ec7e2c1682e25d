"""Sending a kickoff: in which order, what is left after a failure, and what the request has."""

from __future__ import annotations

import base64
import json
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.task.send import request_of, send, webhook_secret
from airflow_provider_crew.task.stop import Pulse, Stop
from airflow_provider_crew.task.task import Options, Task

TI = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=2, start_date=None)
ORIGIN = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 2}
URL = "https://receiver.example"
BEFORE, AFTER = ["save", "sending", "kickoff"], "delete"
NEVER_SENT = errors.Unreachable("no connection", sent=False)
RATE_LIMITED = errors.RateLimited("429")


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

    def sending(self) -> None:
        self.steps.append("sending")

    def delete_intent(self) -> None:
        self.steps.append("delete")

    def kickoff(self, request: Any) -> str:
        assert request == "the request"
        self.steps.append("kickoff")
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return str(response)

    def send(self) -> str:
        own = Task(Options(crew_conn_id="crew"), {"ti": TI}, None, is_told_to_end=lambda: self.is_told)
        client: Any = self
        request: Any = "the request"
        return send(client, request, self, Stop(own, Pulse(lambda: 0.0)), self.interrupted)


def test_intent_is_stored_before_the_kickoff_is_sent():
    sending = Sending("k")

    assert sending.send() == "k"
    assert sending.steps == BEFORE


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (errors.UncertainKickoff("502"), True),
        (errors.Rejected("400"), False),
        (errors.NotAuthenticated("401"), False),
        (errors.ServiceError("503"), False),
    ],
)
def test_intent_is_kept_only_if_the_kickoff_is_uncertain(error, is_kept):
    sending = Sending(error)

    with pytest.raises(type(error)):
        sending.send()

    assert sending.steps == [*BEFORE, *([] if is_kept else [AFTER])]


@pytest.mark.parametrize("error", [NEVER_SENT, RATE_LIMITED])
def test_kickoff_that_started_nothing_is_recorded_and_sent_again(error, timing):
    timing(longest_back_off=0.0)
    sending = Sending(error, "k")

    assert sending.send() == "k"
    assert sending.steps == [*BEFORE, AFTER, *BEFORE]


def test_pause_before_another_kickoff_ends_with_the_task(timing):
    timing(longest_back_off=1.0)
    sending = Sending(errors.RateLimited("429", retry_after=3600.0), "k")
    sending.interrupted = Interrupted()

    with pytest.raises(CrewTaskError):
        sending.send()

    assert sending.steps == [*BEFORE, AFTER, "save", AFTER]


class Interrupted(Event):
    """Signal that arrives during the pause."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        self.set()
        return True


@pytest.mark.parametrize("way", ["told", "interrupted"])
def test_nothing_is_sent_if_the_task_ends_while_the_intent_is_stored(way):
    sending = Sending("k")
    sending.is_told = way == "told"
    if way == "interrupted":
        sending.interrupted.set()

    with pytest.raises(CrewTaskError, match="the kickoff"):
        sending.send()

    assert sending.steps == ["save", AFTER]


def test_nothing_is_sent_if_the_intent_is_not_stored():
    sending = Sending("k")
    sending.fails_to_save = True

    with pytest.raises(ConnectionError):
        sending.send()

    assert sending.steps == ["save"]


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
    body = sent(request_of(task(kickoff=given), {"topic": "ferries"}, None, **about))

    assert body["inputs"] == {"topic": "ferries"}
    assert body.get("meta") == meta
    assert given == options, "the same for the next row"


def test_request_has_the_options_and_the_secret(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_WEBHOOK", "generic://crew:secret@")
    with_secret = task(webhook_conn_id="webhook", kickoff={"human_input_webhook_url": URL})
    secret = webhook_secret(with_secret)
    request = request_of(with_secret, {}, secret)

    assert (secret.login, secret.password) == ("crew", "secret")
    assert set(secret.secrets) <= set(request.secrets)
    assert sent(request)["humanInputWebhook"]["url"] == URL
    proofs = ("secret", base64.b64encode(b"crew:secret").decode())
    assert any(proof in request.body.decode() for proof in proofs)
    assert webhook_secret(task()) is None


@pytest.mark.parametrize(
    "meta", [{"kickoff_id": "57a13a6e"}, {"executionId": "57a13a6e"}, {"events": [{"execution_id": "57a13a6e"}]}]
)
def test_meta_that_names_an_id_asks_for_no_call(meta: dict[str, Any]) -> None:
    address = f"{URL}/address", "hash"
    assert request_of(task(kickoff={"meta": {"topic": "tides"}}), {}, None, address).call == "hash"
    request = request_of(task(kickoff={"meta": meta}), {}, None, address)
    assert (request.call, b"/address" in request.body) == ("", False)
