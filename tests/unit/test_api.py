"""Requests that each call sends to the service, and what it makes of the answers."""

from __future__ import annotations

import base64
import errno
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from airflow_provider_crew.client.api import MAX_RESPONSE_BYTES, CrewApi, Response, unreachable
from airflow_provider_crew.client.errors import (
    CallError,
    Cost,
    CrewError,
    ExecutionNotFound,
    InvalidKickoffId,
    NotAuthenticated,
    Rejected,
    ResponseTooLarge,
    ServiceError,
    Unreachable,
    UnreadableResponse,
)
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.settings import WebhookSecret
from tests.unit.crew_builders import (
    KICKOFF_ID,
    TOKEN,
    Script,
    answer,
    live_answer,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable


REQUEST = KickoffRequest.of({"topic": "AI"})
RUNNING = {"status": "running"}
UNKNOWN_EXECUTION = {"error": "Not found", "message": f"No execution {KICKOFF_ID}."}
STATUS_FIRST, ID_FIRST = f"/status/{KICKOFF_ID}", f"/{KICKOFF_ID}/status"
LOST = Unreachable("The connection was reset.", sent=True)

CONVERSATIONS = {
    "inputs": lambda crew: crew.inputs(),
    "kickoff": lambda crew: crew.kickoff(REQUEST),
    "status": lambda crew: crew.status(KICKOFF_ID),
}
each_conversation = pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)


@pytest.fixture
def api() -> CrewApi:
    return CrewApi(settings())


def failure_of(conversation: Any, *outcomes: Any) -> Any:
    with pytest.raises(CrewError) as caught:
        conversation(Script(*outcomes))
    return caught.value


def test_kickoff_is_sent_once_and_returns_the_id() -> None:
    script = Script(answer(200, {"kickoff_id": KICKOFF_ID}))

    assert script.kickoff(REQUEST) == KICKOFF_ID

    (request,) = script.requests
    assert (str(request), request.starts_work) == ("POST https://crew.example/kickoff", True)
    assert json.loads(request.body or b"") == {"inputs": {"topic": "AI"}}


@pytest.mark.parametrize(("name", "path"), [("inputs", "/inputs"), ("status", STATUS_FIRST)])
def test_read_is_a_get_that_starts_nothing(name: str, path: str) -> None:
    script = Script(LOST)
    with pytest.raises(CrewError):
        CONVERSATIONS[name](script)

    (request,) = script.requests
    assert (str(request), request.starts_work) == (f"GET https://crew.example{path}", False)


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


def test_missing_inputs_are_named() -> None:
    failure = failure_of(CONVERSATIONS["kickoff"], answer(422, {"detail": "Missing inputs: audience, topic"}))

    assert (failure.http_status, failure.missing_inputs) == (422, ("audience", "topic"))
    assert "audience, topic" in str(failure)


def test_impossible_id_is_not_requested() -> None:
    with pytest.raises(InvalidKickoffId):
        Script().status("inputs\n")


def test_id_stays_one_path_segment() -> None:
    script = Script(answer(200, RUNNING))
    script.status("../inputs?b#ü")

    assert script.paths == ["/status/%2E%2E%2Finputs%3Fb%23%C3%BC"]


@pytest.mark.parametrize(
    ("first", "second", "remembered"),
    [
        pytest.param(answer(200, RUNNING), None, STATUS_FIRST, id="the documented one"),
        pytest.param(answer(404, b"<html>"), answer(200, RUNNING), ID_FIRST, id="the variant, HTML"),
        pytest.param(answer(404, {"detail": "Not Found"}), answer(200, RUNNING), ID_FIRST, id="the variant, JSON"),
        pytest.param(answer(404), answer(200, RUNNING), ID_FIRST, id="the variant, empty"),
        pytest.param(
            answer(404, UNKNOWN_EXECUTION), answer(200, RUNNING), ID_FIRST, id="the variant, with an error body"
        ),
    ],
)
def test_status_path_is_found_and_remembered(first: Any, second: Any, remembered: str) -> None:
    script = Script(*filter(None, (first, second)), answer(404))
    script.status(KICKOFF_ID)

    assert script.paths == [STATUS_FIRST, ID_FIRST][: len(script.paths)]
    assert script.paths[-1] == remembered
    with pytest.raises(UnreadableResponse, match="404"):
        script.status(KICKOFF_ID)
    assert script.paths[-2:] == [remembered, remembered]


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        pytest.param(
            [answer(404, UNKNOWN_EXECUTION), answer(404)],
            ExecutionNotFound,
            id="the service knows no such execution",
        ),
        pytest.param(
            [answer(404, UNKNOWN_EXECUTION), answer(404, UNKNOWN_EXECUTION)],
            ExecutionNotFound,
            id="the service knows neither it nor the variant",
        ),
        pytest.param([answer(200, {"state": "NOT FOUND"})], ExecutionNotFound, id="it says so in the state"),
        pytest.param([answer(404), answer(404)], UnreadableResponse, id="neither path, perhaps a gateway"),
        pytest.param(
            [answer(404), answer(404, UNKNOWN_EXECUTION)], ExecutionNotFound, id="the variant knows none"
        ),
        pytest.param([answer(404), answer(502)], ServiceError, id="the variant fails"),
        pytest.param([answer(404), LOST], Unreachable, id="the variant is lost"),
        pytest.param([answer(405)], Rejected, id="405"),
        pytest.param([answer(401)], NotAuthenticated, id="401"),
        pytest.param([answer(500)], ServiceError, id="500"),
        pytest.param([answer(200, {})], UnreadableResponse, id="no status"),
    ],
)
def test_status_variant_is_tried_only_after_a_404(outcomes: list[Any], kind: type[CallError]) -> None:
    script = Script(*outcomes, answer(404), answer(200, RUNNING))
    with pytest.raises(kind):
        script.status(KICKOFF_ID)
    assert script.paths == [STATUS_FIRST, ID_FIRST][: len(outcomes)]

    script.status(KICKOFF_ID)
    assert script.paths[len(outcomes) :] == [STATUS_FIRST, ID_FIRST], "a failure taught something about the path"


@pytest.mark.parametrize(
    ("outcomes", "status", "words"),
    [
        ([answer(404, UNKNOWN_EXECUTION), answer(404)], 404, f"No execution {KICKOFF_ID}"),
        ([answer(200, live_answer("NOT FOUND", "Invalid kickoff id"))], 200, "Invalid kickoff id"),
    ],
    ids=["documented", "deployed"],
)
def test_unknown_execution_is_named(outcomes: list[Any], status: int, words: str) -> None:
    failure = failure_of(CONVERSATIONS["status"], *outcomes)

    assert type(failure) is ExecutionNotFound
    assert (failure.kickoff_id, failure.http_status) == (KICKOFF_ID, status)
    for part in (KICKOFF_ID, STATUS_FIRST, words):
        assert part in str(failure)


@each_conversation
@pytest.mark.parametrize(
    ("location", "told"),
    [
        (
            "https://new.example/crew?session=secret",
            "https://new.example/crew",
        ),
        ("", "302"),
    ],
)
def test_redirect_is_named_and_not_followed(conversation: Callable[[Any], Any], location: str, told: str) -> None:
    failure = failure_of(conversation, answer(302, headers={"Location": location}))

    assert type(failure) is Rejected
    assert told in str(failure)
    assert "secret" not in str(failure)


def test_unreadable_answer_is_described() -> None:
    failure = failure_of(CONVERSATIONS["inputs"], answer(200, b"<html>\n<h1>Hello", {"Content-Type": "text/html"}))

    assert failure.http_status == 200
    for words in ("GET https://crew.example/inputs", "200", "text/html", "<html> <h1>Hello"):
        assert words in str(failure)


@pytest.mark.parametrize("key", ["message", "detail", "title"])
@pytest.mark.parametrize("status", [{}, {"status": "error"}, {"status": "error", "error": None}], ids=str)
def test_unreadable_answer_has_the_services_own_words(key: str, status: Any) -> None:
    # Behind more than an excerpt shows.
    body = {"trace": "x" * 2_000, **status, key: f"No database for {TOKEN}"}

    for name in ("inputs", "status"):
        failure = failure_of(CONVERSATIONS[name], answer(200, body))

        assert isinstance(failure, UnreadableResponse)
        assert "No database for ***" in failure.error
        assert "No database for ***" in str(failure)


@pytest.mark.parametrize("credentials", ["me:hunter2-0123", "m:x", "me:p%2fword-0123"])
@pytest.mark.parametrize("by_environment", [False, True])
def test_request_knows_its_proxy_credentials(
    monkeypatch: pytest.MonkeyPatch, credentials: str, by_environment: Any
) -> None:
    proxy = f"http://{credentials}@proxy.example:3128"
    monkeypatch.setenv("HTTPS_PROXY", proxy if by_environment else "http://other.example:1")
    api = CrewApi(settings(proxy=None if by_environment else proxy))
    name, _, password = map(unquote, credentials.partition(":"))

    request = api.inputs()
    page = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}; {password or name}"
    shown = Response(request, 407, {}, page.encode()).excerpt()

    assert shown.startswith("***")
    assert len(password or name) < 8 or (password or name) not in shown
    assert credentials not in repr(request)


def test_field_of_a_wrong_type_does_not_name_pydantic() -> None:
    failure = failure_of(CONVERSATIONS["inputs"], answer(200, {"inputs": [{"name": 7}]}))

    assert type(failure) is UnreadableResponse
    assert "pydantic" not in str(failure)


@pytest.mark.parametrize("sent", [True, False])
def test_exchange_without_an_answer_is_described(api: CrewApi, sent: Any) -> None:
    failure = RuntimeError()
    failure.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    error = unreachable(api.inputs(), api.settings, failure, sent=sent)

    assert error.sent is sent
    assert "GET https://crew.example/inputs" in str(error)
    assert error.cost is Cost.NONE


def test_too_large_answer_is_described(api: CrewApi) -> None:
    with pytest.raises(ResponseTooLarge, match="64 MiB") as caught:
        Response.received(api.inputs(), 200, {}, bytes(MAX_RESPONSE_BYTES + 1), MAX_RESPONSE_BYTES)

    assert caught.value.http_status == 200


def test_crew_error_does_not_repeat_the_token() -> None:
    body = {"status": "error", "error": f"401 for Bearer {TOKEN}"}

    assert Script(answer(200, body)).status(KICKOFF_ID).error == "401 for Bearer ***"


@pytest.mark.parametrize("proxy", ["http://corporate@proxy:3128", "http://me:governance@proxy:3128"])
def test_result_is_not_masked_for_a_proxy(proxy: str) -> None:
    body = {"status": "completed", "result": {"output": "Report on corporate governance"}}

    assert Script(answer(200, body), proxy=proxy).status(KICKOFF_ID).output == "Report on corporate governance"
