"""Requests that each call sends to the service, and what it makes of the answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import product
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


RESPONSES: dict[str, Any] = {
    "running": answer(200, RUNNING),
    "NOT FOUND": answer(200, {"state": "NOT FOUND"}),
    "200 {}": answer(200, {}),
    "404": answer(404),
    "404 HTML": answer(404, b"<html>"),
    "404 JSON": answer(404, {"detail": "Not Found"}),
    "404 of the crew": answer(404, UNKNOWN_EXECUTION),
    **{f"{status}": answer(status) for status in (401, 405, 500)},
    "reset": LOST,
}


def outcome(script: Script) -> str:
    """Return what a status is, and to which paths it was requested."""
    asked = len(script.paths)
    try:
        found: str = script.status(KICKOFF_ID).status
    except errors.CallError as error:
        assert not isinstance(error, errors.ExecutionNotFound) or error.kickoff_id == KICKOFF_ID  # noqa: PT017
        found = type(error).__name__
    return f"{found} from {' '.join(script.paths[asked:]).replace(KICKOFF_ID, 'ID')}"


def table(_: list[str]) -> Iterator[str]:
    """Yield the first two responses to requests of a status, what comes of them, and the paths of later ones."""
    for first, second in product(RESPONSES, RESPONSES):
        script = Script(RESPONSES[first], RESPONSES[second])
        if second == "running" or "404" in first:
            found = outcome(script)
            script.outcomes = [answer(404), answer(404)]
            later = outcome(script).partition(" from ")[2]
            yield f"{first:<15} | {second if '404' in first else '':<15} | {found}; then {later}"


def test_path_of_a_status_is_found_as_in_the_table(printed: Any) -> None:
    printed("status_paths.txt", table)


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
