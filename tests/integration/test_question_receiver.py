"""Deliveries of human input webhooks: the status of each, and what it changes, also in Airflow's database."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
import requests
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from airflow_provider_crew.answers.question import ASKED, QUESTION, Call, Undeliverable, empty_box
from airflow_provider_crew.answers.receiver import deliver, token_for
from airflow_provider_crew.settle.address import new_address
from tests.integration.question_receiver import SECRET, TOKEN, receiving
from tests.supported import AIRFLOW

TASK = {"dag_id": "research", "run_id": "manual__1", "task_id": "crew", "map_index": -1}
META = {"airflow": TASK | {"try_number": 2}}
CALL = {"kickoff_id": "k", "execution_id": "e", "task_id": "0d5e6f9a-7a53", "task_output": "A draft", "meta": META}


def other(**changes):
    return CALL | {"meta": {"airflow": META["airflow"] | changes}}


def without(name):
    return {key: value for key, value in CALL.items() if key != name}


@pytest.fixture(scope="module")
def receiver():
    with receiving(TASK, {}) as running:
        yield running


@pytest.fixture
def questions(receiver):
    receiver.reset({QUESTION: empty_box(2, "crew_default")})
    return receiver


def test_deliveries_have_the_effects_in_the_table(questions, evaluated):
    """Each delivery has its status, and the question that the task gets, or what the sender is told."""

    def delivered(body: Any, **headers: str | None) -> tuple[int, Any]:
        questions.reset({QUESTION: empty_box(2, "crew_default")})
        first, again = (questions.deliver(body, **headers) for _ in range(2))
        assert (again.status_code, questions.loads) == (first.status_code, 1)
        assert first.headers.get("WWW-Authenticate") == ("Bearer" if first.status_code == 401 else None)
        if first.status_code == 204:
            assert (first.content, questions.changes) == (b"", 1)
            return 204, questions.xcoms[QUESTION]["question"]
        assert (questions.changes, [*first.json()]) == (0, ["detail"])
        assert not any(text in first.text for text in (SECRET, "A draft", "payroll", "resume", "research"))
        return first.status_code, first.json()["detail"]

    evaluated("deliveries.txt", **globals() | {"deliver": delivered})


def test_other_methods_and_paths_are_rejected():
    with receiving(TASK, {QUESTION: empty_box(2, "crew_default")}) as questions:
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
        (413, b"{" + b" " * 2**22 + b"}"),
        (413, b"[%s]" % b",".join([b"{}"] * 50_001)),  # Python's parser would stop the server
        *((422, body) for body in (b"", b"kickoff_id=1", b"\xff\xfe{}", b"[" * 60_000)),
    ],
    ids=["large", "many", "empty", "form", "no UTF-8", "nested"],
)
def test_body_that_is_not_json_is_rejected(address, status, body):
    answer = requests.post(address, data=body, headers=HEADERS, timeout=30)

    assert (answer.status_code, list(answer.json())) == (status, ["detail"])
    assert (answer.headers.get("Connection") == "close") is (status == 413)


def test_body_without_a_length_is_limited(address):
    def chunks():
        for _ in range(100):
            yield b" " * 65536

    with suppress(requests.ConnectionError):  # the server may close the connection before all is sent
        assert requests.post(address, data=chunks(), headers=HEADERS, timeout=30).status_code == 413


def test_slow_body_is_given_up(address, timing):
    timing(webhook_body=0.2)
    parts = urlsplit(address)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as plain:
        plain.sendall(head.encode())
        assert b"HTTP/1.1 408" in plain.recv(4096)


def test_unreadable_secret_rejects_all(questions):
    questions.secret = None

    assert questions.deliver(CALL).status_code == 401
    assert questions.deliver(CALL, Authorization="Bearer None").status_code == 401
    assert questions.changes == 0


def test_failed_look_up_rejects_no_known_secret(questions, timing):
    timing(secret_age=0.0)
    assert questions.deliver(CALL).status_code == 204
    questions.secret = None

    assert questions.deliver(CALL | {"task_id": "2"}).status_code == 204
    assert questions.deliver(CALL, Authorization="Bearer x").status_code == 401
    questions.secret = "another-secret"
    assert questions.deliver(CALL).status_code == 401
    assert (questions.loads, questions.changes) == (4, 2)


pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Answers need Airflow 3.3.")

MAPPED = {"dag_id": "research", "run_id": "manual__1", "task_id": "crew", "map_index": 1}
DIFFERENCES: list[dict[str, Any]] = [
    {"dag_id": "payroll"},
    {"run_id": "manual__2"},
    {"task_id": "other"},
    {"map_index": 0},
]


def box_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return the XCom for the questions of a task's crew, which differs from that of any other task."""
    return empty_box(2, f"crew_{task['map_index']}") | {"known": [str(value) for value in task.values()]}


def call_of(task: dict[str, Any], question: str = "q2") -> Call:
    """Return the delivery of a question to a task."""
    meta = {"airflow": task | {"try_number": 2}}
    return Call.of({"task_id": question, "task_output": "A draft", "meta": meta})


class Database:
    """Airflow's tables, with tasks that wait, and their requests."""

    def __init__(self, url: str = "sqlite://") -> None:
        from airflow.models import import_all_models
        from airflow.models.base import Base

        import_all_models()
        self.engine = create_engine(url)
        Base.metadata.create_all(self.engine)
        self.session = scoped_session(sessionmaker(self.engine, expire_on_commit=False))
        self.tasks = 0

    def add(
        self, task: dict[str, Any], state: str | None, *, xcoms: tuple[str, ...] = (QUESTION,), shows: str = ""
    ) -> None:
        from airflow.models.dagrun import DagRun
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.xcom import XComModel

        self.tasks += 1
        run = {name: task[name] for name in ("dag_id", "run_id")}
        ti = UUID(int=self.tasks)
        with Session(self.engine) as session, session.begin():
            run_id = session.scalar(select(DagRun.id).filter_by(**run))
            if run_id is None:
                run_id, now = self.tasks, datetime.now(UTC)
                session.execute(insert(DagRun).values(id=run_id, run_type="manual", run_after=now, **run))
            session.execute(insert(TaskInstance).values(id=ti, pool="default_pool", state=state, **task))
            params = {ASKED: {"value": shows}} if shows else {}
            request = {"options": ["Approve"], "subject": "Draft", "params": params}
            session.execute(insert(HITLDetail).values(ti_id=ti, **request))
            for key in xcoms:
                value = box_of(task) if key == QUESTION else key
                session.execute(insert(XComModel).values(dag_run_id=run_id, key=key, value=value, **task))

    def found(self) -> dict[str, Any]:
        """Return the XComs by task, map index and key, and the requests."""
        from airflow.models.hitl import HITLDetail
        from airflow.models.xcom import XComModel

        with Session(self.engine) as session:
            xcoms = {
                (each.dag_id, each.run_id, each.task_id, each.map_index, each.key): each.value
                for each in session.scalars(select(XComModel))
            }
            return {"xcoms": xcoms, "requests": set(session.scalars(select(HITLDetail.ti_id)))}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database()
    monkeypatch.setattr("airflow.settings.Session", made.session)
    yield made
    made.session.remove()
    made.engine.dispose()


@pytest.mark.parametrize("state", ["running", "deferred", "awaiting_input", "restarting", "queued", "scheduled"])
def test_question_changes_the_task_that_waits_and_no_other(database, state):
    for other in DIFFERENCES:
        database.add(MAPPED | other, "running")
    database.add(MAPPED, state, xcoms=("other", QUESTION, "more"))
    before = database.found()

    deliver(call_of(MAPPED))

    box = box_of(MAPPED) | {"question": {"task_id": "q2", "draft": "A draft"}}
    box["known"].append("q2")
    assert database.found() == {
        "xcoms": before["xcoms"] | {(*MAPPED.values(), QUESTION): box},
        "requests": {UUID(int=number) for number in range(1, 1 + len(DIFFERENCES))},
    }


def test_token_of_the_task_is_masked_in_its_draft(database, monkeypatch):
    database.add(MAPPED, "running")
    monkeypatch.setenv(f"AIRFLOW_CONN_CREW_{MAPPED['map_index']}", f"crew://:{TOKEN}@crew.example")

    assert (token_for(MAPPED), token_for(MAPPED | {"map_index": 99})) == (TOKEN, "")


@pytest.mark.parametrize(("shows", "stays"), [("q1", False), ("", False), ("q2", True)])
def test_question_replaces_no_request_that_shows_it(database, shows, stays):
    database.add(MAPPED, "deferred", shows=shows)  # after a retry, whose XCom lacks the question

    deliver(call_of(MAPPED))
    deliver(call_of(MAPPED))

    assert database.found()["requests"] == ({UUID(int=1)} if stays else set())


@pytest.mark.parametrize(
    ("state", "xcoms"),
    [
        *((state, (QUESTION,)) for state in ("success", "failed", "up_for_retry", "skipped", None)),
        ("running", ()),
        ("running", (QUESTION,)),
    ],
)
def test_task_that_has_ended_or_wants_no_question_stays_as_it_is(database, state, xcoms):
    database.add(MAPPED, state, xcoms=xcoms)
    before = database.found()

    if (state, xcoms) == ("running", (QUESTION,)):
        deliver(call_of(MAPPED, box_of(MAPPED)["known"][0]))  # again
    else:
        with pytest.raises(Undeliverable):
            deliver(call_of(MAPPED))

    assert database.found() == before
