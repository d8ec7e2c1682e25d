"""Requests that each call sends to the service, and what it makes of the answers."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote

import pytest

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import CrewApi, Response
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.settings import WebhookSecret
from tests.unit.crew_builders import KICKOFF_ID, TOKEN, Script, answer, settings

REQUEST = KickoffRequest.of({"topic": "AI"})
RUNNING = {"status": "running"}
UNKNOWN_EXECUTION = {"error": "Not found", "message": f"No execution {KICKOFF_ID}."}
STATUS_FIRST, ID_FIRST = f"/status/{KICKOFF_ID}", f"/{KICKOFF_ID}/status"
LOST = errors.Unreachable("The connection was reset.", sent=True)

CONVERSATIONS = {
    "inputs": lambda crew: crew.inputs(),
    "kickoff": lambda crew: crew.kickoff(REQUEST),
    "status": lambda crew: crew.status(KICKOFF_ID),
}


@pytest.fixture
def api() -> CrewApi:
    return CrewApi(settings())


def failure_of(conversation: Any, *outcomes: Any) -> Any:
    with pytest.raises(errors.CrewError) as caught:
        conversation(Script(*outcomes))
    return caught.value


def test_kickoff_request_knows_its_secrets(api: CrewApi) -> None:
    secret = WebhookSecret(password="webhook-secret")
    told = KickoffRequest.of({}, webhooks={"url": "x", "events": []}, webhook_secret=secret)

    request = api.kickoff(told)

    assert {TOKEN, "webhook-secret"} <= {*request.masks.results} & {*request.masks.errors}
    assert "webhook-secret" not in repr(request)
    assert "webhook-secret" not in api.kickoff(REQUEST).masks.results


@pytest.mark.parametrize("status", [429, 503])
def test_pause_that_a_crew_asks_for_is_in_the_error(status: int) -> None:
    for name in ("inputs", "status"):
        assert failure_of(CONVERSATIONS[name], answer(status, headers={"Retry-After": "7"})).retry_after == 7.0


@pytest.mark.parametrize(
    ("first", "second", "remembered"),
    [
        (answer(200, RUNNING), None, STATUS_FIRST),
        (answer(404, b"<html>"), answer(200, RUNNING), ID_FIRST),
        (answer(404, {"detail": "Not Found"}), answer(200, RUNNING), ID_FIRST),
        (answer(404), answer(200, RUNNING), ID_FIRST),
        (answer(404, UNKNOWN_EXECUTION), answer(200, RUNNING), ID_FIRST),
    ],
    ids=["documented", "HTML", "JSON", "empty", "error body"],
)
def test_status_path_is_found_and_remembered(first: Any, second: Any, remembered: str) -> None:
    script = Script(*filter(None, (first, second)), answer(404))
    script.status(KICKOFF_ID)

    assert script.paths == [STATUS_FIRST, ID_FIRST][: len(script.paths)]
    assert script.paths[-1] == remembered
    with pytest.raises(errors.UnreadableResponse, match="404"):
        script.status(KICKOFF_ID)
    assert script.paths[-2:] == [remembered, remembered]


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        ([answer(404, UNKNOWN_EXECUTION), answer(404)], errors.ExecutionNotFound),
        ([answer(404, UNKNOWN_EXECUTION), answer(404, UNKNOWN_EXECUTION)], errors.ExecutionNotFound),
        ([answer(404), answer(404, UNKNOWN_EXECUTION)], errors.ExecutionNotFound),
        ([answer(200, {"state": "NOT FOUND"})], errors.ExecutionNotFound),
        ([answer(404), answer(404)], errors.UnreadableResponse),  # perhaps a gateway
        ([answer(404), answer(502)], errors.ServiceError),
        ([answer(404), LOST], errors.Unreachable),
        ([answer(405)], errors.Rejected),
        ([answer(401)], errors.NotAuthenticated),
        ([answer(500)], errors.ServiceError),
        ([answer(200, {})], errors.UnreadableResponse),
    ],
)
def test_status_variant_is_tried_only_after_a_404(outcomes: list[Any], kind: type[errors.CallError]) -> None:
    script = Script(*outcomes, answer(404), answer(200, RUNNING))
    with pytest.raises(kind) as caught:
        script.status(KICKOFF_ID)
    assert kind is not errors.ExecutionNotFound or caught.value.kickoff_id == KICKOFF_ID
    assert script.paths == [STATUS_FIRST, ID_FIRST][: len(outcomes)]

    script.status(KICKOFF_ID)
    assert script.paths[len(outcomes) :] == [STATUS_FIRST, ID_FIRST], "a failure taught something about the path"


@pytest.mark.parametrize("key", ["message", "detail", "title"])
def test_unreadable_answer_has_the_services_own_words(key: str) -> None:
    # Behind more than an excerpt shows.
    body = {"trace": "x" * 2_000, "status": "error", key: f"No database for {TOKEN}"}

    for name in ("inputs", "status"):
        failure = failure_of(CONVERSATIONS[name], answer(200, body))

        assert isinstance(failure, errors.UnreadableResponse)
        assert "No database for ***" in failure.error


@pytest.mark.parametrize("credentials", ["me:hunter2-0123", "m:x", "me:p%2fword-0123"])
@pytest.mark.parametrize("by_environment", [False, True])
def test_request_knows_its_proxy_credentials(
    monkeypatch: pytest.MonkeyPatch, credentials: str, by_environment: Any
) -> None:
    proxy = f"http://{credentials}@proxy.example:3128"
    monkeypatch.setenv("HTTPS_PROXY", proxy if by_environment else "http://other.example:1")
    request = CrewApi(settings(proxy=None if by_environment else proxy)).inputs()

    basic = base64.b64encode(unquote(credentials).encode()).decode()
    assert Response(request, 407, {}, f"Basic {basic}".encode()).excerpt() == "***"
    assert credentials not in repr(request)


@pytest.mark.parametrize("proxy", ["http://corporate@proxy:3128", "http://me:governance@proxy:3128"])
def test_result_is_not_masked_for_a_proxy(proxy: str) -> None:
    body = {"status": "completed", "result": {"output": "Report on corporate governance"}}

    assert Script(answer(200, body), proxy=proxy).status(KICKOFF_ID).output == "Report on corporate governance"
