"""What each conversation asks of the service, and what it makes of the answers."""

from __future__ import annotations

import base64
import errno
import json
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.api import MAX_ANSWER_BYTES, CrewApi, received
from airflow_provider_crew.service.errors import (
    AnswerTooLarge,
    CallError,
    Cost,
    CrewError,
    ExecutionNotFound,
    InvalidKickoffId,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Refused,
    ServiceError,
    TransientError,
    UncertainKickoff,
    Unreachable,
    UnreadableAnswer,
)
from airflow_provider_crew.service.models import Completed, CrewInputs, Failed, Paused, Running
from airflow_provider_crew.service.payload import KickoffRequest
from tests.unit.crew_builders import (
    KICKOFF_ID,
    TOKEN,
    Script,
    answer,
    any_json,
    live_answer,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_crew.service.api import Request

REQUEST = KickoffRequest.of({"topic": "AI"})
RUNNING = {"status": "running"}
UNKNOWN_EXECUTION = {"error": "Not found", "message": f"No execution {KICKOFF_ID}."}
STATUS_FIRST, ID_FIRST = f"/status/{KICKOFF_ID}", f"/{KICKOFF_ID}/status"
LOST = Unreachable("The connection was reset.", sent=True)
NEVER_SENT = Unreachable("Nobody listens.", sent=False)
TOO_LARGE = AnswerTooLarge("It is too large.", http_status=200)

UNCERTAIN = {303, 408, 409, 499}

CONVERSATIONS = {
    "inputs": lambda api: api.inputs(),
    "kickoff": lambda api: api.kickoff(REQUEST),
    "status": lambda api: api.status(KICKOFF_ID),
}
each_conversation = pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)


@pytest.fixture
def api() -> CrewApi:
    return CrewApi(settings())


def first_request(call: Any) -> Request:
    request: Request = call.send(None)
    call.close()
    return request


def failure_of(conversation: Any, *outcomes: Any) -> Any:
    with pytest.raises(CrewError) as caught:
        Script(*outcomes).play(conversation)
    return caught.value


def test_asks_for_the_inputs(api: CrewApi) -> None:
    script = Script(answer(200, {"inputs": ["budget", "age"]}))

    assert script.play(api.inputs()).names == ("budget", "age")
    assert [str(request) for request in script.requests] == ["GET https://crew.example/inputs"]


def test_a_kickoff_sends_its_payload_once_and_returns_the_id(api: CrewApi) -> None:
    script = Script(answer(200, {"kickoff_id": KICKOFF_ID}))

    assert script.play(api.kickoff(REQUEST)) == KICKOFF_ID

    (request,) = script.requests
    assert str(request) == "POST https://crew.example/kickoff"
    assert json.loads(request.body or b"") == {"inputs": {"topic": "AI"}}


def test_a_kickoff_tells_which_secrets_it_sends(api: CrewApi) -> None:
    told = KickoffRequest.of({}, webhooks={"url": "x", "events": []}, webhook_secret="webhook-secret")

    request = first_request(api.kickoff(told))

    assert {TOKEN.encode(), b"webhook-secret"} <= {*request.secrets}
    assert "webhook-secret" not in repr(request)
    assert b"webhook-secret" not in first_request(api.kickoff(REQUEST)).secrets


def test_only_a_kickoff_starts_work(api: CrewApi) -> None:
    assert first_request(api.kickoff(REQUEST)).starts_work
    assert not first_request(api.inputs()).starts_work


@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize(
    ("sent", "kickoff_id"),
    [
        pytest.param("abcd1234-5678-90ef-ghij-klmnopqrstuv", "abcd1234-5678-90ef-ghij-klmnopqrstuv", id="no UUID"),
        pytest.param(4711, "4711", id="number"),
        pytest.param(10**30, str(10**30), id="wide number"),
        pytest.param("übung", "übung", id="unicode"),
        pytest.param("crew/7", "crew/7", id="slash"),
        pytest.param("a b", "a b", id="white space"),
    ],
)
def test_an_odd_id_is_a_success(api: CrewApi, status: int, sent: Any, kickoff_id: str) -> None:
    assert Script(answer(status, {"kickoff_id": sent})).play(api.kickoff(REQUEST)) == kickoff_id


@pytest.mark.parametrize(
    "outcome", [NEVER_SENT, answer(429, headers={"Retry-After": "7"})], ids=["never sent", "429"]
)
def test_a_kickoff_that_was_not_taken_may_be_sent_again(api: CrewApi, outcome: Any) -> None:
    failure = failure_of(api.kickoff(REQUEST), outcome)

    assert isinstance(failure, RateLimited if outcome is not NEVER_SENT else Unreachable)
    assert failure.retry_after == (7.0 if outcome is not NEVER_SENT else None)


@pytest.mark.parametrize("status", sorted({*range(300, 500)} - {401, 403, 429} - UNCERTAIN))
def test_every_other_3xx_and_4xx_refuses_a_kickoff(api: CrewApi, status: int) -> None:
    failure = failure_of(api.kickoff(REQUEST), answer(status))

    assert type(failure) is Refused
    assert failure.http_status == status


@each_conversation
@pytest.mark.parametrize(("status", "kind"), [(401, NotAuthenticated), (403, NotAllowed)])
def test_a_token_that_is_not_accepted(
    api: CrewApi, conversation: Callable[[CrewApi], Any], status: int, kind: type[CallError]
) -> None:
    failure = failure_of(conversation(api), answer(status, {"error": "No", "message": "Not with this token."}))

    assert type(failure) is kind
    assert failure.http_status == status
    assert "No: Not with this token." in str(failure)


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        *(
            pytest.param(answer(status), f"answers {status}.", id=str(status))
            for status in (500, 502, 503, 504, 520, 599, 999, *UNCERTAIN)
        ),
        *(pytest.param(answer(status), "it is not a final answer", id=str(status)) for status in (100, 102, 103)),
        pytest.param(LOST, str(LOST), id="lost answer"),
        pytest.param(TOO_LARGE, str(TOO_LARGE), id="too large"),
        pytest.param(answer(200, b""), "cannot be read", id="empty"),
        pytest.param(answer(204), "cannot be read", id="204"),
        pytest.param(answer(200, b"<html>"), "cannot be read", id="HTML"),
        pytest.param(answer(200, {}), "cannot be read", id="no id"),
        pytest.param(answer(200, {"kickoff_id": ""}), "cannot be read", id="empty id"),
        pytest.param(answer(200, {"kickoff_id": None}), "cannot be read", id="null"),
        pytest.param(answer(200, {"kickoff_id": {}}), "cannot be read", id="an object as id"),
        pytest.param(answer(200, [KICKOFF_ID]), "cannot be read", id="a list"),
        pytest.param(answer(200, b"[" * 100_000), "cannot be read", id="deep"),
    ],
)
def test_everything_else_leaves_a_kickoff_uncertain(api: CrewApi, outcome: Any, told: str) -> None:
    failure = failure_of(api.kickoff(REQUEST), outcome)

    assert type(failure) is UncertainKickoff
    assert "not known whether" in str(failure)
    assert told in str(failure)
    assert failure.kickoff_id == ""


@pytest.mark.parametrize("status", [302, 303, 400, 401, 403, 404, 409, 422, 429, 500, 503])
def test_an_answer_that_names_an_id_is_uncertain(api: CrewApi, status: int) -> None:
    failure = failure_of(api.kickoff(REQUEST), answer(status, {"kickoff_id": KICKOFF_ID}))

    assert type(failure) is UncertainKickoff
    assert failure.kickoff_id == KICKOFF_ID
    assert failure.cost is Cost.UNKNOWN


def test_a_refused_kickoff_says_which_inputs_are_missing(api: CrewApi) -> None:
    body = {"error": "Missing", "message": "inputs", "details": {"missing_inputs": ["topic", "tone"]}}

    failure = failure_of(api.kickoff(REQUEST), answer(422, body))

    assert failure.missing_inputs == ("topic", "tone")
    assert "topic, tone" in str(failure)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(
            {"detail": "Missing inputs: audience, topic"},
            "The service says: Missing inputs: audience, topic.",
            id="a deployed crew",
        ),
        pytest.param(
            {
                "error": "Invalid inputs",
                "message": "These inputs are required: topic, audience.",
                "details": {"missing_inputs": ["topic", "audience"]},
            },
            "The service says: Invalid inputs: These inputs are required: topic, audience.",
            id="the documented one, which names them",
        ),
        pytest.param(
            {
                "error": "Invalid inputs",
                "message": "No.",
                "details": {"missing_inputs": ["topic"]},
            },
            "The service says: Invalid inputs: No.",
            id="the documented one, which does not",
        ),
    ],
)
def test_missing_inputs_are_said_once(api: CrewApi, body: dict[str, Any], said: str) -> None:
    failure = failure_of(api.kickoff(REQUEST), answer(422, body))

    assert failure.details == f"POST https://crew.example/kickoff answers 422. {said}"
    assert failure.what == f"The crew needs inputs that are not given: {', '.join(failure.missing_inputs)}."
    assert set(failure.missing_inputs) <= {"topic", "audience"}
    assert failure.missing_inputs


def test_an_id_that_cannot_be_one_is_not_asked_for(api: CrewApi) -> None:
    with pytest.raises(InvalidKickoffId):
        first_request(api.status("inputs\n"))


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ({"status": "running", "current_task": "a"}, Running),
        (live_answer("RUNNING"), Running),
        (live_answer("PAUSED"), Paused),
        ({"state": "SUCCESS", "result": "text"}, Completed),
        ({"status": "error", "error": "boom", "execution_time": 1}, Failed),
    ],
)
def test_reads_how_an_execution_is_doing(api: CrewApi, body: dict[str, Any], shape: Any) -> None:
    execution: Any = Script(answer(200, body)).play(api.status(KICKOFF_ID))

    assert type(execution) is shape
    assert execution.kickoff_id == KICKOFF_ID


@pytest.mark.parametrize(
    ("kickoff_id", "path"),
    [
        ("crew%2F7", "/status/crew%252F7"),
        ("../inputs", "/status/%2E%2E%2Finputs"),
        ("übung", "/status/%C3%BCbung"),
        ("a?b#c&d", "/status/a%3Fb%23c%26d"),
        ("..", "/status/%2E%2E"),
    ],
)
def test_an_id_stays_one_segment_of_the_path(api: CrewApi, kickoff_id: str, path: str) -> None:
    script = Script(answer(200, RUNNING))
    script.play(api.status(kickoff_id))

    assert script.paths == [path]


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
def test_finds_the_path_that_the_crew_has_and_remembers_it(
    api: CrewApi, first: Any, second: Any, remembered: str
) -> None:
    looking = Script(*filter(None, (first, second)))
    looking.play(api.status(KICKOFF_ID))
    later = Script(answer(404))

    assert looking.paths == [STATUS_FIRST, ID_FIRST][: len(looking.paths)]
    assert looking.paths[-1] == remembered
    with pytest.raises(UnreadableAnswer, match="it is not the crew's own"):
        later.play(api.status(KICKOFF_ID))
    assert later.paths == [remembered]


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
        pytest.param([answer(404), answer(404)], UnreadableAnswer, id="neither path, perhaps a gateway"),
        pytest.param(
            [answer(404), answer(404, UNKNOWN_EXECUTION)], ExecutionNotFound, id="the variant knows none"
        ),
        pytest.param([answer(404), answer(502)], ServiceError, id="the variant fails"),
        pytest.param([answer(404), LOST], Unreachable, id="the variant is lost"),
        pytest.param([answer(405)], Refused, id="405"),
        pytest.param([answer(401)], NotAuthenticated, id="401"),
        pytest.param([answer(500)], ServiceError, id="500"),
        pytest.param([answer(200, {})], UnreadableAnswer, id="no status"),
    ],
)
def test_tries_the_variant_only_where_the_documented_path_does_not_exist(
    api: CrewApi, outcomes: list[Any], kind: type[CallError]
) -> None:
    script = Script(*outcomes)
    with pytest.raises(kind):
        script.play(api.status(KICKOFF_ID))
    assert script.paths == [STATUS_FIRST, ID_FIRST][: len(outcomes)]

    again = Script(answer(404), answer(200, RUNNING))
    again.play(api.status(KICKOFF_ID))
    assert again.paths == [STATUS_FIRST, ID_FIRST], "a failure taught something about the path"


@pytest.mark.parametrize(("choice", "path"), [("status_first", STATUS_FIRST), ("id_first", ID_FIRST)])
def test_asks_only_on_the_path_that_was_chosen(choice: str, path: str) -> None:
    script = Script(answer(404))

    with pytest.raises(UnreadableAnswer):
        script.play(CrewApi(settings(status_path=choice)).status(KICKOFF_ID))

    assert script.paths == [path]


def test_an_execution_that_is_not_known_is_named(api: CrewApi) -> None:
    failure = failure_of(api.status(KICKOFF_ID), answer(404, UNKNOWN_EXECUTION), answer(404))

    assert failure.kickoff_id == KICKOFF_ID
    assert failure.http_status == 404
    assert f"No execution {KICKOFF_ID}." in str(failure)


def test_an_execution_that_is_not_known_may_be_alive(api: CrewApi) -> None:
    body = live_answer("NOT FOUND", "Task not found or Invalid kickoff id")

    failure = failure_of(api.status(KICKOFF_ID), answer(200, body))

    assert type(failure) is ExecutionNotFound
    assert (failure.kickoff_id, failure.http_status) == (KICKOFF_ID, 200)
    assert failure.reason == (
        f"Execution {KICKOFF_ID}: the crew does not know it. GET https://crew.example{STATUS_FIRST} answers 200. "
        "The service says: Task not found or Invalid kickoff id. It may be waiting for a person's answer, or it "
        "was started by another crew or long ago, or the id is not one."
    )


@pytest.mark.parametrize("name", ["inputs", "status"])
@pytest.mark.parametrize(
    ("outcome", "kind", "retry_after"),
    [
        pytest.param(answer(429, headers={"Retry-After": "7"}), RateLimited, 7.0, id="429"),
        pytest.param(answer(503, headers={"Retry-After": "2"}), ServiceError, 2.0, id="503"),
        pytest.param(answer(500), ServiceError, None, id="500"),
        pytest.param(answer(408), ServiceError, None, id="408"),
        pytest.param(answer(425), ServiceError, None, id="425"),
        pytest.param(answer(200, b"<html>"), UnreadableAnswer, None, id="HTML"),
        pytest.param(LOST, Unreachable, None, id="lost"),
        pytest.param(NEVER_SENT, Unreachable, None, id="never sent"),
    ],
)
def test_what_a_read_may_be_repeated_after(
    api: CrewApi, name: str, outcome: Any, kind: type[TransientError], retry_after: float | None
) -> None:
    failure = failure_of(CONVERSATIONS[name](api), outcome)

    assert type(failure) is kind
    assert isinstance(failure, TransientError)
    assert failure.retry_after == retry_after


@pytest.mark.parametrize("status", [400, 404, 405, 410, 422])
def test_a_crew_without_inputs_refuses_to_list_them(api: CrewApi, status: int) -> None:
    assert type(failure_of(api.inputs(), answer(status))) is Refused


def test_a_404_where_no_execution_is_asked_for_points_at_the_host(api: CrewApi) -> None:
    assert "Check the host in the connection." in str(failure_of(api.inputs(), answer(404, b"<html>")))


@each_conversation
@pytest.mark.parametrize(
    ("location", "told"),
    [
        (
            "https://new.example/crew?session=secret",
            "It redirects to https://new.example/crew, which is not followed",
        ),
        ("", "It redirects to no place that it names"),
    ],
)
def test_a_redirect_is_told_and_not_followed(
    api: CrewApi, conversation: Callable[[CrewApi], Any], location: str, told: str
) -> None:
    failure = failure_of(conversation(api), answer(302, headers={"Location": location}))

    assert type(failure) is Refused
    assert told in str(failure)
    assert "secret" not in str(failure)


def test_an_answer_that_cannot_be_read_is_described(api: CrewApi) -> None:
    failure = failure_of(api.inputs(), answer(200, b"<html>\n<h1>Hello", {"Content-Type": "text/html"}))

    assert failure.http_status == 200
    assert "GET https://crew.example/inputs answers 200 with text/html" in failure.reason
    assert "'<html> <h1>Hello'" in failure.reason


@pytest.mark.parametrize("key", ["message", "detail", "title"])
@pytest.mark.parametrize("status", [{}, {"status": "error"}, {"status": "error", "error": None}], ids=str)
def test_unreadable_answer_is_told_in_the_words_of_the_service(api: CrewApi, key: str, status: Any) -> None:
    # Behind more than an excerpt shows.
    body = {"trace": "x" * 2_000, **status, key: f"No database for {TOKEN}"}

    for call in (api.inputs(), api.status(KICKOFF_ID)):
        failure = failure_of(call, answer(200, body))

        assert isinstance(failure, UnreadableAnswer)
        assert "No database for ***" in failure.error
        assert "No database for ***" in str(failure)


@pytest.mark.parametrize("credentials", ["me:hunter2-0123", "m:x", "me:p%2fword-0123", "only-a-user-token"])
@pytest.mark.parametrize("by_environment", [False, True])
def test_request_tells_which_proxy_credentials_it_sends(
    monkeypatch: pytest.MonkeyPatch, credentials: str, by_environment: Any
) -> None:
    proxy = f"http://{credentials}@proxy.example:3128"
    monkeypatch.setenv("HTTPS_PROXY", proxy if by_environment else "http://other.example:1")
    api = CrewApi(settings(proxy=None if by_environment else proxy))
    name, _, password = map(unquote, credentials.partition(":"))

    request = first_request(api.inputs())
    page = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}; {password or name}"
    shown = Answer(407, {}, page.encode(), request.secrets).excerpt()

    assert shown.startswith("***")
    assert len(password or name) < 8 or (password or name) not in shown
    assert credentials not in repr(request)


def test_a_field_of_the_wrong_type_is_told_without_a_trace_of_the_library(api: CrewApi) -> None:
    failure = failure_of(api.inputs(), answer(200, {"inputs": [{"name": 7}]}))

    assert "a field has a type it should not have" in str(failure)
    assert "pydantic" not in str(failure)


@pytest.mark.parametrize("sent", [True, False])
def test_an_exchange_without_an_answer_is_described(api: CrewApi, sent: Any) -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    error = api.unreachable(first_request(api.inputs()), refused, sent=sent)

    assert error.sent is sent
    assert "GET https://crew.example/inputs" in str(error)
    assert "connection refused" in str(error)
    assert ("cannot be reached at crew.example:443" in error.what) is not sent
    assert error.cost is Cost.NONE


def test_an_answer_that_is_too_large_is_described(api: CrewApi) -> None:
    error = received(first_request(api.inputs()), 200, {}, bytes(MAX_ANSWER_BYTES + 1), MAX_ANSWER_BYTES)

    assert error.http_status == 200
    assert "more than 64 MiB" in str(error)


@each_conversation
@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 422, 429, 500, 503])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            {"error": TOKEN, "message": f"Bearer {TOKEN}", "details": {"missing_inputs": [TOKEN]}}, id="JSON"
        ),
        pytest.param(f"<p>{TOKEN}</p>".encode(), id="HTML"),
        pytest.param(TOKEN.encode(), id="text"),
    ],
)
def test_no_error_repeats_the_token(
    api: CrewApi, conversation: Callable[[CrewApi], Any], status: int, body: Any
) -> None:
    headers = {"Content-Type": f"text/{TOKEN}", "Location": f"https://{TOKEN}@x.example/{TOKEN}?{TOKEN}"}
    outcome = answer(status, body, headers)

    failure = failure_of(conversation(api), outcome, outcome)

    told = "".join(traceback.format_exception(failure)) + repr(failure) + repr(vars(failure))
    assert TOKEN not in told


def test_the_error_of_a_crew_does_not_repeat_the_token(api: CrewApi) -> None:
    body = {"status": "error", "error": f"401 for Bearer {TOKEN}"}

    assert Script(answer(200, body)).play(api.status(KICKOFF_ID)).error == "401 for Bearer ***"


json_bodies = any_json.map(lambda value: json.dumps(value).encode())
likely_bodies = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        [
            "status",
            "state",
            "result",
            "kickoff_id",
            "inputs",
            "error",
            "message",
            "details",
            "tasks",
            "result_json",
        ],
        st.sampled_from(["running", "PAUSED", "SUCCESS", "FAILED", "NOT FOUND", KICKOFF_ID]) | any_json,
    ),
).map(lambda value: json.dumps(value).encode())
any_headers = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(["Content-Type", "Location", "Retry-After"], st.text(st.characters(codec="latin-1"))),
)


@hypothesis.settings(deadline=None, max_examples=150)
@hypothesis.given(
    name=st.sampled_from(sorted(CONVERSATIONS)),
    status=st.sampled_from([200, 404, 429]) | st.integers(100, 999),
    body=likely_bodies | json_bodies | st.binary(max_size=64),
    headers=any_headers,
)
def test_any_answer_is_read_or_ends_in_an_error_of_this_package(
    name: str, status: int, body: bytes, headers: dict[str, str]
) -> None:
    outcome = answer(status, body, headers)
    try:
        brought = Script(outcome, outcome).play(CONVERSATIONS[name](CrewApi(settings())))
    except CrewError as error:
        assert str(error).encode()  # noqa: PT017 - an answer that is read is right as well
    else:
        assert isinstance(
            brought, {"inputs": CrewInputs, "kickoff": str, "status": Running | Paused | Completed | Failed}[name]
        )
        assert 200 <= status < 300
