"""Answers of the service: read without a network for the most part, and over sockets by both clients."""

from __future__ import annotations

import json
from functools import partial
from itertools import product
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.client.api import (
    Answer,
    CrewApi,
    KickoffRequest,
    checked_kickoff_id,
    path_segment,
)
from airflow_provider_crew.client.errors import (
    CallError,
    ExecutionNotFound,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Refused,
    UncertainKickoff,
    UnreadableAnswer,
)
from airflow_provider_crew.client.models import Completed, CrewInputs, Failed, Paused, Running
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.client.text import forms_of
from airflow_provider_crew.client.watch import Watch, WatchMemory, WatchRules
from airflow_provider_crew.triggers.events import read_event, told_completed, told_error
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import outcome, presentable, storable
from tests.fuzz.bad_values import (
    INPUTS,
    KICKOFFS,
    SECRET,
    STATUSES,
    TOKEN,
    WORDS,
    any_json,
    any_text,
    as_bytes,
    bodies,
    changed,
    headers,
    near_values,
    statuses,
)

NOW = 1_750_000_000.0
SETTINGS = ServiceSettings(address="https://crew.example", token=TOKEN)
NOT_TAKEN = (RateLimited, NotAuthenticated, NotAllowed, Refused)
REPEATING = [
    json.dumps({"error": "Invalid", "message": f"{SECRET} is no secret, and {TOKEN} no token"}).encode(),
    json.dumps({"detail": [{"loc": ["body", SECRET], "msg": SECRET}]}).encode(),
    json.dumps({"kickoff_id": None, "webhooks": {"authentication": {"token": SECRET}}}).encode(),
    SECRET.encode(),
]
EXECUTIONS = Running | Paused | Completed | Failed
_MEANINGS: dict[str, type] = {
    **dict.fromkeys(("completed", "success"), Completed),
    **dict.fromkeys(("error", "failed", "failure", "revoked"), Failed),
    **dict.fromkeys(("not found", "not_found"), ExecutionNotFound),
    "paused": Paused,
}
WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example"}
REQUEST = KickoffRequest.of({"topic": "ferries"}, webhooks=WEBHOOKS, webhook_secret=SECRET)


def received(status: int, told: dict[str, str], body: bytes) -> Answer:
    return Answer(status, told, body, forms_of(TOKEN, SECRET))


def played(conversation: Any, *answers: Answer) -> Any:
    """Hand a conversation one answer after the other, the last one again and again."""

    def play() -> Any:
        waiting = list(answers)
        conversation.send(None)
        while True:
            try:
                conversation.send(waiting.pop(0) if len(waiting) > 1 else waiting[0])
            except StopIteration as end:
                return end.value

    return outcome(play)


def answers_with(documents: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    return st.tuples(statuses, headers, bodies(documents))


def inputs_are_read(_: World, case: Any) -> None:
    came = played(CrewApi(SETTINGS).inputs(), received(*case))

    assert isinstance(came, CrewInputs | CallError)
    if isinstance(came, CrewInputs):
        assert 200 <= case[0] < 300
        storable(came.model_dump(mode="json"))


def a_kickoff_is_not_lost(_: World, case: Any) -> None:
    status = case[0]
    came = played(CrewApi(SETTINGS).kickoff(REQUEST), received(*case))

    if isinstance(came, Exception):
        presentable(came, SECRET)
    said_no = 300 <= status < 500
    if said_no and isinstance(came, UncertainKickoff):
        assert came.kickoff_id or status in {303, 408, 409, 499}
        return
    assert isinstance(came, NOT_TAKEN if said_no else (str, UncertainKickoff))
    assert isinstance(came, RateLimited) is (status == 429)
    if isinstance(came, str):
        assert 200 <= status < 300
        assert path_segment(checked_kickoff_id(came)).isascii()


def _meaning(document: dict[str, Any]) -> type | None:
    """Tell what a document says by the one word that counts: the state, and the status where there is none."""
    said = [document.get("state"), document.get("status")]
    words = [word.strip().lower() for word in said if isinstance(word, str) and word.strip()]
    return _MEANINGS.get(words[0], Running) if words else None


def _is_live(document: dict[str, Any]) -> bool:
    state = document.get("state")
    return isinstance(state, str) and bool(state.strip())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _agrees(came: Any, document: dict[str, Any]) -> None:
    """Refuse what the document does not say, and what it says and is not read."""
    meaning = _meaning(document)
    if isinstance(came, UnreadableAnswer):
        # Without a word for a state, or, in the documented dialect alone, without a result or an error's text.
        assert meaning is None or (meaning in (Completed, Failed) and not _is_live(document))
        proofs = ("error", "error_message") if meaning is Failed else ("result",)
        assert not (meaning and any(_is_text(document.get(proof)) for proof in proofs))
    else:
        assert type(came) is meaning


def a_look_is_understood(_: World, case: Any) -> None:
    document, told = case
    came = played(CrewApi(SETTINGS).status("4711"), received(200, told, as_bytes(document)))

    _agrees(came, json.loads(as_bytes(document), parse_int=lambda digits: digits))
    _watched(came)


def any_look_is_survived(_: World, case: Any) -> None:
    answers = [received(*each) for each in case]
    came = played(CrewApi(SETTINGS).status("4711"), *answers)

    assert isinstance(came, EXECUTIONS | CallError)
    assert not isinstance(came, EXECUTIONS) or any(answer.is_success for answer in answers)
    if isinstance(came, ExecutionNotFound):
        assert any(answer.status == 404 or answer.is_success for answer in answers)
    _watched(came)


_RULES = [
    WatchRules(deadline=NOW + 100, exists=exists, human_input=human_input, address=address)
    for exists, human_input, address in product([False, True], [False, True], ["", "https://other.example"])
]


def _watched(came: Any) -> None:
    """Show it to watches, and carry what they make of it to another process."""
    for rules in _RULES:
        _watched_by(rules, came)


def _watched_by(rules: WatchRules, came: Any) -> None:
    watch = Watch("4711", rules, clock=lambda: NOW, random=lambda: 0.5)
    step = None
    for _ in range(2):
        step = watch.on_error(came) if isinstance(came, CallError) else watch.on_status(came)
        for line in step.lines:
            assert line.text.encode()
            assert "\x00" not in line.text
        storable(watch.memory.carried())
        carried = WatchMemory.recalled(_sent(watch.memory.carried()))
        assert carried
        assert carried.carried() == watch.memory.carried()
        watch = Watch("4711", rules, clock=lambda: NOW + 1, random=lambda: 0.5, memory=carried)
        assert 0 <= step.poll_again_in <= 330
    assert step
    assert watch.memory.seen is isinstance(came, EXECUTIONS)
    if step.completed:
        storable(step.completed.result())
        end = read_event(
            _sent({"kickoff_id": "4711", "deadline": NOW} | told_completed(step.completed, with_output=True))
        )
        assert end.result in (None, step.completed.result())
    if step.error:
        presentable(step.error)
        end = read_event(_sent({"kickoff_id": "4711"} | told_error(step.error)))
        assert type(end.error) is type(step.error)
        assert getattr(end.error, "usage", None) == getattr(step.error, "usage", None)
        presentable(end.error)
    assert isinstance(came, Completed) is bool(step.completed)
    if isinstance(came, ExecutionNotFound) and (rules.exists or rules.human_input):
        # Unknown is not gone: it is waited for, or it is said where it may be.
        assert step.error is None or getattr(step.error, "elsewhere", "") == rules.address != ""
    if isinstance(came, Running | Paused):
        assert step.error is None


def _sent(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


_EVER_SO_DECORATED = [
    "last_step",
    "current_task",
    "progress",
    "execution_time",
    "error",
    "message",
    "kickoff_id",
    "x",
    "last_executed_task",
    "usage_metrics",
    "token_usage",
    "events",
    "status",
]
decorations = st.dictionaries(
    st.sampled_from(_EVER_SO_DECORATED) | any_text.filter(lambda name: name != "state"),
    any_json | near_values,
    max_size=4,
)
completed_documents = st.builds(
    lambda dialect, output, decoration: {**decoration, **dialect(output)},
    st.sampled_from(
        [
            lambda output: {"status": "completed", "result": {"output": output, "tasks": [{"output": "x"}, None]}},
            lambda output: {"status": "COMPLETED", "result": {"final_output": output}, "state": 7},
            lambda output: {"state": "SUCCESS", "result": output, "status": None},
            lambda output: {"state": "success", "result": None, "final_output": output, "status": "ok"},
            lambda output: {"state": "SUCCESS", "result": output},
            lambda _: {"state": " success\n", "result": None, "status": "Task is Running"},
            lambda _: {"state": "Completed"},
        ]
    ),
    any_text,
    decorations,
)
failed_documents = st.builds(
    lambda dialect, reason, decoration: {**decoration, **dialect(reason)},
    st.sampled_from(
        [
            lambda reason: {"status": "error", "error": reason if reason.strip() else "boom"},
            lambda reason: {"status": " FAILED", "error": {"why": reason}, "error_message": "boom", "state": []},
            lambda reason: {"state": "FAILED", "status": reason, "result": None},
            lambda reason: {"state": "revoked", "error": reason},
            lambda _: {"state": "FAILURE"},
        ]
    ),
    any_text | st.sampled_from(WORDS),
    decorations,
)


def a_result_is_not_lost(_: World, document: dict[str, Any]) -> None:
    came = played(CrewApi(SETTINGS).status("4711"), received(200, {}, as_bytes(document)))

    assert isinstance(came, Completed)
    _watched(came)


def a_failure_is_told(_: World, document: dict[str, Any]) -> None:
    came = played(CrewApi(SETTINGS).status("4711"), received(200, {}, as_bytes(document)))

    assert isinstance(came, Failed)
    assert came.error.strip()
    _watched(came)


_START_LINES = [
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 404 Not Found"),
    *(b"HTTP/1.1 500 \xff", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 204 No Content"),
    *(b"HTTP/1.1 99999 No", b"HTTP/9.9 200 OK", b"", b"HTTP/1.1 -1 No", b"HTTP/1.1 101 Switching", b"ICY 200 OK"),
    *(b"HTTP/1.1 429 Slow down", b"HTTP/1.1 302 Found", b"HTTP/1.1 401 Who?", b"HTTP/1.1 103 Early Hints"),
]
_FRAMINGS = [
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


def _on_the_wire(start: bytes, told: dict[str, str], frame: Any, body: bytes) -> bytes:
    lines = [f"{name}: {value}".encode("utf-8", "surrogatepass") for name, value in told.items()]
    return b"\r\n".join([start, *lines, b""]) + frame(body)


wire_bytes = (
    st.builds(
        _on_the_wire,
        st.sampled_from(_START_LINES),
        headers,
        st.sampled_from(_FRAMINGS),
        bodies(INPUTS) | bodies(KICKOFFS) | bodies(STATUSES),
    )
    | st.builds(_on_the_wire, st.sampled_from(_START_LINES[:3]), headers, st.sampled_from(_FRAMINGS), st.binary())
    | st.binary(max_size=200)
)


def bytes_are_survived(world: World, raw: bytes) -> None:
    world.service.answer = raw
    for crew in world.crews:
        assert isinstance(outcome(partial(crew.inputs)), CrewInputs | CallError)
        looked = outcome(partial(crew.status, "4711"))
        assert isinstance(looked, EXECUTIONS | CallError)

        world.service.asked.clear()
        came = outcome(partial(crew.kickoff, REQUEST))
        if isinstance(came, Exception):
            presentable(came, SECRET)
        # One that has reached the service is not sent again, and not taken for one that has not.
        assert isinstance(came, (str, UncertainKickoff, *NOT_TAKEN))
        assert world.service.kickoffs == 1


_BLANK: tuple[Any, ...] = ("", " ", "\n\t", None, [], 0, {"": " "})

KINDS = (
    Kind("answer to inputs", answers_with(INPUTS), inputs_are_read, weight=5),
    Kind(
        "answer to a kickoff",
        answers_with(KICKOFFS),
        a_kickoff_is_not_lost,
        weight=8,
        known=tuple((status, {}, body) for status in (200, 302, 422, 500) for body in REPEATING),
    ),
    Kind(
        "look, nearly valid",
        st.tuples(changed(STATUSES), headers),
        a_look_is_understood,
        weight=8,
        known=tuple(
            ({**others, key: word, "result": "x"}, {})
            for key in ("status", "state")
            for others in ({}, {"status": "failed"}, {"state": "RUNNING"})
            for word in [*WORDS, "", None]
        )
        + tuple(
            ({**document, "usage_metrics": {"total_tokens": 312, "cost": 0.5, "x": None}}, {})
            for document in STATUSES
        ),
    ),
    Kind(
        "look, any bytes",
        st.lists(answers_with(STATUSES), min_size=1, max_size=2),
        any_look_is_survived,
        weight=8,
    ),
    Kind("completed, decorated", completed_documents, a_result_is_not_lost, weight=6),
    Kind(
        "failed, decorated",
        failed_documents,
        a_failure_is_told,
        weight=6,
        known=tuple(
            dialect | {"error": blank, "result": blank}
            for dialect in ({"state": "failed"}, {"state": "FAILED", "status": " "}, {"state": "Revoked"})
            for blank in _BLANK
        ),
    ),
    Kind(
        "bytes on the wire, both clients",
        wire_bytes,
        bytes_are_survived,
        weight=8,
        known=tuple(
            b"HTTP/1.1 %d Told\r\nLocation: /%b\r\n%b" % (status, SECRET.encode(), _FRAMINGS[0](body))
            for status in (200, 302, 422, 500)
            for body in REPEATING
        ),
    ),
)
