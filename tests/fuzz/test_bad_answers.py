"""Answers of the service: read without a network for the most part, and over sockets by both clients."""

from __future__ import annotations

import json
from functools import partial
from itertools import product
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.client.api import Request, Response
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import (
    CallError,
    ExecutionNotFound,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Rejected,
    UncertainKickoff,
)
from airflow_provider_crew.client.models import Completed, CrewInputs, Failed, Paused, Running
from airflow_provider_crew.client.payload import KickoffRequest, checked_kickoff_id, path_segment
from airflow_provider_crew.client.settings import ServiceSettings, WebhookSecret
from airflow_provider_crew.client.watch import Watch, WatchRules, WatchState
from airflow_provider_crew.triggers.events import read_event, told_completed, told_error
from tests.fuzz.bad_values import (
    INPUTS,
    KICKOFFS,
    SECRET,
    STATUSES,
    TOKEN,
    WORDS,
    as_bytes,
    bodies,
    headers,
    statuses,
)
from tests.fuzz.cases import assert_presentable, assert_storable, cases, outcome
from tests.fuzz.world import World

NOW = 1_750_000_000.0
SETTINGS = ServiceSettings(address="https://crew.example", token=TOKEN)
REJECTIONS = (RateLimited, NotAuthenticated, NotAllowed, Rejected)
EXECUTIONS = Running | Paused | Completed | Failed
WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example"}
REQUEST = KickoffRequest.of({"topic": "ferries"}, webhooks=WEBHOOKS, webhook_secret=WebhookSecret(password=SECRET))
REPEATING = [
    json.dumps({"error": "Invalid", "message": f"{SECRET} is no secret, and {TOKEN} no token"}).encode(),
    json.dumps({"detail": [{"loc": ["body", SECRET], "msg": SECRET}]}).encode(),
    json.dumps({"kickoff_id": None, "webhooks": {"authentication": {"token": SECRET}}}).encode(),
    SECRET.encode(),
]


class Scripted(CrewClient):
    """Client that is handed one response after the other, the last one repeatedly."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        super().__init__(SETTINGS)
        self._waiting = list(answers)

    def _send(self, request: Request) -> Response:
        return Response(request, *(self._waiting.pop(0) if len(self._waiting) > 1 else self._waiting[0]))


def answers_with(documents: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return st.tuples(statuses, headers, bodies(documents))


@cases(answers_with(KICKOFFS), known=[(status, {}, body) for status in (200, 302, 422, 500) for body in REPEATING])
def test_kickoff_is_rejected_uncertain_or_has_an_id(case: Any) -> None:
    status = case[0]
    result = outcome(lambda: Scripted(case).kickoff(REQUEST))

    if isinstance(result, Exception):
        assert_presentable(result, SECRET)
    is_rejection = 300 <= status < 500
    if is_rejection and isinstance(result, UncertainKickoff):
        assert result.kickoff_id or status in {303, 408, 409, 499}
        return
    assert isinstance(result, REJECTIONS if is_rejection else (str, UncertainKickoff))
    assert isinstance(result, RateLimited) is (status == 429)
    if isinstance(result, str):
        assert 200 <= status < 300
        assert path_segment(checked_kickoff_id(result)).isascii()


@cases(
    st.lists(answers_with(STATUSES), min_size=1, max_size=2),
    known=[
        [(200, {}, as_bytes({**others, key: word, "result": "x"}))]
        for key in ("status", "state")
        for others in ({}, {"status": "failed"}, {"state": "RUNNING"})
        for word in [*WORDS, "", None]
    ],
)
def test_any_status_answer_is_an_execution_or_an_error(case: Any) -> None:
    result = outcome(lambda: Scripted(*case).status("4711"))

    answered = [status for status, *_ in case if 200 <= status < 300]
    assert isinstance(result, EXECUTIONS | CallError)
    assert not isinstance(result, EXECUTIONS) or answered
    if isinstance(result, ExecutionNotFound):
        assert answered or any(status == 404 for status, *_ in case)
    assert_watches_agree(result)


RULES = [
    WatchRules(deadline=NOW + 100, exists=exists, human_input=human_input, address=address)
    for exists, human_input, address in product([False, True], [False, True], ["", "https://other.example"])
]


def assert_watches_agree(result: Any) -> None:
    """Show a poll to watches, and carry their steps to another process."""
    for rules in RULES:
        watch, step = Watch("4711", rules, clock=lambda: NOW, random=lambda: 0.5), None
        for _ in range(2):
            step = watch.on_error(result) if isinstance(result, CallError) else watch.on_status(result)
            for line in step.lines:
                assert line.text.encode()
                assert "\x00" not in line.text
            assert_storable(watch.memory.carried())
            memory = WatchState.recalled(sent(watch.memory.carried()))
            assert memory
            assert memory.carried() == watch.memory.carried()
            watch = Watch("4711", rules, clock=lambda: NOW + 1, random=lambda: 0.5, memory=memory)
            assert 0 <= step.poll_again_in <= 330
        assert step
        assert watch.memory.seen is isinstance(result, EXECUTIONS)
        assert isinstance(result, Completed) is bool(step.completed)
        if isinstance(result, ExecutionNotFound) and (rules.exists or rules.human_input):
            # Unknown does not mean ended: the watch waits, or names the address where the execution may be.
            assert step.error is None or getattr(step.error, "elsewhere", "") == rules.address != ""
        if isinstance(result, Running | Paused):
            assert step.error is None
        assert_event_keeps(step)


def assert_event_keeps(step: Any) -> None:
    if step.completed:
        assert_storable(step.completed.result())
        end = read_event(sent({"kickoff_id": "4711", "deadline": NOW} | told_completed(step.completed)))
        assert end.result in (None, step.completed.result())
    if step.error:
        assert_presentable(step.error)
        end = read_event(sent({"kickoff_id": "4711"} | told_error(step.error)))
        assert type(end.error) is type(step.error)
        assert getattr(end.error, "usage", None) == getattr(step.error, "usage", None)
        assert end.error
        assert_presentable(end.error)


def sent(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


START_LINES = [
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 404 Not Found"),
    *(b"HTTP/1.1 500 \xff", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 204 No Content"),
    *(b"HTTP/1.1 99999 No", b"HTTP/9.9 200 OK", b"", b"HTTP/1.1 -1 No", b"HTTP/1.1 101 Switching", b"ICY 200 OK"),
    *(b"HTTP/1.1 429 Slow down", b"HTTP/1.1 302 Found", b"HTTP/1.1 401 Who?", b"HTTP/1.1 103 Early Hints"),
]
FRAMINGS = [
    lambda body: b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
    lambda body: b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
    lambda body: b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
    lambda body: b"Transfer-Encoding: chunked\r\n\r\nzz\r\n%b" % body,
    lambda body: b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n%b" % body,
    lambda body: b"Content-Length: %d\r\n\r\n%b" % (len(body) + 7, body),
    lambda body: b"Content-Length: -1\r\nContent-Length: 3\r\n\r\n%b" % body,
    lambda body: b"Content-Length: 99999999999999999999\r\n\r\n%b" % body,
    lambda body: b"\r\n%b" % body,
    lambda body: body,
]


def on_the_wire(start: bytes, told: dict[str, str], frame: Any, body: bytes) -> bytes:
    lines = [f"{name}: {value}".encode("utf-8", "surrogatepass") for name, value in told.items()]
    return b"\r\n".join([start, *lines, b""]) + frame(body)


@cases(
    st.builds(
        on_the_wire,
        st.sampled_from(START_LINES),
        headers,
        st.sampled_from(FRAMINGS),
        bodies(INPUTS) | bodies(KICKOFFS) | bodies(STATUSES) | st.binary(),
    )
    | st.binary(max_size=200),
    known=[
        b"HTTP/1.1 %d Told\r\nLocation: /%b\r\n%b" % (status, SECRET.encode(), FRAMINGS[0](body))
        for status in (200, 302, 422, 500)
        for body in REPEATING
    ],
)
def test_any_bytes_on_the_wire_cause_one_kickoff(world: World, raw: bytes) -> None:
    world.prepare(raw)
    for crew in world.crews:
        assert isinstance(outcome(partial(crew.inputs)), CrewInputs | CallError)
        assert isinstance(outcome(partial(crew.status, "4711")), EXECUTIONS | CallError)

        world.service.requests.clear()
        result = outcome(partial(crew.kickoff, REQUEST))
        if isinstance(result, Exception):
            assert_presentable(result, SECRET)
        assert isinstance(result, (str, UncertainKickoff, *REJECTIONS))
        assert world.kickoffs == 1
