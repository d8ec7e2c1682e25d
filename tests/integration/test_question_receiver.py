"""Hostile and odd deliveries of human input webhooks: each has its status, and no effect."""

from __future__ import annotations

import base64
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from airflow_provider_crew.answers.question import QUESTION, empty_box
from airflow_provider_crew.client.calls import new_address
from airflow_provider_crew.client.settings import WebhookSecret
from tests.airflow_runs import eventually
from tests.integration.question_receiver import SECRET, receiving

TASK = {"dag_id": "research", "run_id": "manual__1", "task_id": "crew", "map_index": -1}
META = {"airflow": TASK | {"try_number": 2}}
CALL = {"kickoff_id": "k", "execution_id": "e", "task_id": "0d5e6f9a-7a53", "task_output": "A draft", "meta": META}


def other(**changes):
    return CALL | {"meta": {"airflow": META["airflow"] | changes}}


def basic(user):
    return f"Basic {base64.b64encode(f'{user}:{SECRET}'.encode()).decode()}"


def without(name):
    return {key: value for key, value in CALL.items() if key != name}


@pytest.fixture(scope="module")
def receiver():
    with receiving(TASK, {}) as running:
        yield running


@pytest.fixture
def questions(receiver):
    receiver.reset({QUESTION: empty_box(2)})
    return receiver


IN_META = {**META, "task_id": CALL["task_id"], "task_output": "A draft"}


@pytest.mark.parametrize(
    ("body", "draft"),
    [
        (CALL, "A draft"),
        *(({"type": "human_input", nest: CALL}, "A draft") for nest in ("data", "body", "payload")),
        ({"meta": IN_META}, "A draft"),
        ({**CALL, "execution_id": "other", "kickoff_id": None}, "A draft"),
        (CALL | {"task_output": f"I was told {SECRET}"}, "I was told ***"),
        (CALL | {"task_output": {"title": "Ferries"}}, '{"title": "Ferries"}'),
    ],
)
def test_question_is_left_for_its_task(questions, body, draft):
    response = questions.deliver(body)

    assert (response.status_code, response.content) == (204, b"")
    assert questions.xcoms[QUESTION]["question"] == {"task_id": CALL["task_id"], "draft": draft}


FORGED: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "no secret": (401, CALL, {"Authorization": None}),
    "empty secret": (401, CALL, {"Authorization": "Bearer "}),
    "wrong secret": (401, CALL, {"Authorization": "Bearer webhook-secret-4712"}),
    "beginning of the secret": (401, CALL, {"Authorization": "Bearer webhook-secret"}),
    "longer secret": (401, CALL, {"Authorization": f"Bearer {SECRET}x"}),
    "secret without a scheme": (401, CALL, {"Authorization": SECRET}),
    "secret as a user's password": (401, CALL, {"Authorization": basic("x")}),
    "secret that is not ASCII": (401, CALL, {"Authorization": "Bearer \xe9\xe8"}),
    "wrong secret and a large body": (401, b"x" * 1_000_000, {"Authorization": "Bearer x"}),
    "largest body": (422, b"{}" + b" " * 65534, {}),
    "list": (422, [CALL], {}),
    "number": (422, 5, {}),
    "no question": (422, without("task_id"), {}),
    "question that is a number": (422, CALL | {"task_id": 7}, {}),
    "question with a path": (422, CALL | {"task_id": "../../resume"}, {}),
    "question with a line break": (422, CALL | {"task_id": "a\nb"}, {}),
    "long question": (422, CALL | {"task_id": "a" * 201}, {}),
    "no meta": (422, without("meta"), {}),
    "meta that is a text": (422, CALL | {"meta": json.dumps(META)}, {}),
    "meta without a task": (422, CALL | {"meta": {"airflow": {}}}, {}),
    "map index that is a text": (422, other(map_index="-1"), {}),
    "other DAG": (422, other(dag_id="payroll"), {}),
    "other run": (422, other(run_id="manual__2"), {}),
    "other task": (422, other(task_id="other"), {}),
    "other row": (422, other(map_index=0), {}),
    "execution of another attempt": (422, other(try_number=1), {}),
    "pattern instead of a DAG": (422, other(dag_id="%"), {}),
    "DAG with a NUL": (422, other(dag_id="research\0"), {}),
    "DAG with half a character": (422, other(dag_id="research\ud83d"), {}),
    "row beyond any database": (422, other(map_index=2**70), {}),
}


@pytest.mark.parametrize("name", FORGED)
def test_hostile_delivery_has_no_effect(questions, name):
    status, body, headers = FORGED[name]

    answer = questions.deliver(body, **headers)

    assert answer.status_code == status
    assert questions.changes == 0
    assert list(answer.json()) == ["detail"]
    assert " " in answer.json()["detail"]
    assert answer.headers.get("WWW-Authenticate") == ("Bearer" if status == 401 else None)
    assert SECRET not in answer.text
    assert not any(text in answer.text for text in ("A draft", "payroll", "resume", "research"))


def test_other_methods_and_paths_are_rejected():
    with receiving(TASK, {QUESTION: empty_box(2)}) as questions:
        for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
            assert requests.request(method, questions.url, json=CALL, timeout=30).status_code == 405
        for path in ("/", "/events/", "/docs", "/openapi.json", "/redoc", "/event"):
            address = questions.url.removesuffix("/events") + path
            assert requests.post(address, json=CALL, timeout=30, allow_redirects=False).status_code == 404

        assert questions.changes == 0


HEADERS = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture(params=["question", "call"])
def address(questions, request):
    """Yield the address of questions, or of a crew's call, that a request must not reach."""
    url, call = questions.url, ""
    if request.param == "call":
        url, call = new_address(questions.url, SECRET, TASK, "crew_kickoff")
    entries = {"crew_kickoff": json.dumps({"call": call})}
    questions.entries_of = lambda _: entries
    yield url
    assert (questions.changes, len(entries)) == (0, 1)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (413, b"{" + b" " * 65536 + b"}"),
        *((422, body) for body in (b"", b"kickoff_id=1", b"\xff\xfe{}", b"[" * 60_000)),
    ],
    ids=["large", "empty", "form", "no UTF-8", "nested"],
)
def test_body_that_is_not_json_is_rejected(address, status, body):
    answer = requests.post(address, data=body, headers=HEADERS, timeout=30)

    assert (answer.status_code, list(answer.json())) == (status, ["detail"])
    assert (answer.headers.get("Connection") == "close") is (status == 413)


def test_body_without_a_length_is_limited(address):
    def chunks():
        for _ in range(100):
            yield b" " * 8192

    with suppress(requests.ConnectionError):  # the server may close the connection before all is sent
        assert requests.post(address, data=chunks(), headers=HEADERS, timeout=30).status_code == 413


def test_slow_body_is_given_up(address, timing):
    timing(webhook_body=0.2)
    parts = urlsplit(address)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as plain:
        plain.sendall(head.encode())
        assert b"HTTP/1.1 408" in plain.recv(4096)


def test_known_question_does_not_return(questions):
    again = CALL | {"task_id": "second", "task_output": "Another draft"}

    assert [questions.deliver(body).status_code for body in (CALL, CALL, again, CALL)] == [204] * 4
    assert questions.xcoms[QUESTION]["question"]["task_id"] == "second"
    assert questions.changes == 2


def test_task_that_expects_no_question_gets_none(questions):
    questions.xcoms.clear()

    assert questions.deliver(CALL).status_code == 422
    assert questions.xcoms == {}


def test_draft_that_is_long_is_cut(questions):
    questions.deliver(CALL | {"task_output": "1" + "ä" * 10_000})

    stored = json.dumps(questions.xcoms[QUESTION])
    assert len(stored) < 60_000
    assert "dashboard" in stored


@pytest.mark.parametrize(
    ("login", "header", "status"),
    [
        ("", f"bearer  {SECRET}", 204),
        ("crew", f"Bearer {SECRET}", 401),
        ("crew", basic("crew"), 204),
    ],
)
def test_login_makes_the_secret_basic(questions, login, header, status):
    questions.secret = WebhookSecret(password=SECRET, login=login)

    assert [questions.deliver(CALL, Authorization=header).status_code for _ in range(3)] == [status] * 3
    assert questions.loads == 1


def test_unreadable_secret_rejects_all(questions):
    questions.secret = None

    assert questions.deliver(CALL).status_code == 401
    assert questions.deliver(CALL, Authorization="Bearer None").status_code == 401
    assert questions.changes == 0


def test_deliveries_wait_for_the_first_secret(questions, monkeypatch):
    load = questions.load

    def slow(conn_id: str) -> Any:
        eventually(lambda: questions.deliveries == 2, pause=0.01)
        return load(conn_id)

    monkeypatch.setattr(questions, "load", slow)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: questions.deliver(CALL).status_code, range(2)))

    assert answers == [204, 204]
    assert (questions.loads, questions.changes) == (1, 1)
