"""Responses that no crew should send, odd in every way, and what the client makes of them."""

from __future__ import annotations

import json
import os
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import Request, Response
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError, error_record
from airflow_provider_crew.client.models import Completed, CrewInputs, Failed, Paused, Running
from airflow_provider_crew.client.payload import KickoffRequest, checked_kickoff_id
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.client.watch import Watch, WatchRules, WatchState
from airflow_provider_crew.triggers.events import read_event, told_completed, told_error

TOKEN = "org-Token.0123456789"
# Of webhooks; and a thing to keep from those to whom it is one.
SECRET = "hook-Secret/0123+456789"
ODD_TEXTS = [
    *("", " ", "\x00", "\ud800", "\udfff\ud800", "..", "../../kickoff", "%2F..%2f", "%zz", "a?b#c", "\\"),
    *("a\r\nX-Injected: 1", "\u202e\ufeff", "日本", "null", "NaN", "1e999", '{"a": [1, {"b": "\\ud800"}]}'),
    *("9" * 5000, "[" * 5000, "{" * 50 + '"' * 50, "x" * 3000),
]
any_text = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(ODD_TEXTS)
any_number = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 2**63, 2**64, -(10**30), 10**400, 1e308, -0.0, float("nan"), float("inf")])
)
any_json = st.recursive(
    st.none() | st.booleans() | any_number | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)


def inner_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        yield from value if isinstance(value, dict) else ()
        for inner in value.values() if isinstance(value, dict) else value:
            yield from inner_keys(inner)


# A table of the unit tests has their meaning.
_TABLE = Path(__file__).parents[1] / "unit/bodies.txt"
BODIES = [json.loads(line) for line in _TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
INPUTS = [body for body in BODIES if "inputs" in body]
STATUSES = [body for body in BODIES if "inputs" not in body]
WORDS = [body[key] for body in STATUSES for key in ("state", "status") if isinstance(body.get(key), str)]
KICKOFFS: list[dict[str, Any]] = [{"kickoff_id": "6f1d9c1e-3f0c-4f6e-9f43-2a1f6f0f9a11"}, {"kickoff_id": 4711}]
ERRORS: list[dict[str, Any]] = [
    {"error": "Invalid", "message": "Inputs", "details": {"missing_inputs": ["topic"]}},
    {"title": "Bad gateway", "detail": [{"loc": ["body", "inputs", 0], "msg": "Field required", "input": TOKEN}]},
]
KEYS = sorted({key for document in (*BODIES, *KICKOFFS, *ERRORS) for key in document})
INNER_KEYS = sorted({"__classname__", *inner_keys([*BODIES, *ERRORS])} - {*KEYS})
near_words = st.sampled_from([*WORDS, TOKEN, SECRET, f"401 for Bearer {TOKEN} of {SECRET}"]) | any_json
near_values = (
    near_words
    | st.dictionaries(st.sampled_from(INNER_KEYS), any_json, max_size=3)
    | st.lists(st.dictionaries(st.sampled_from(INNER_KEYS), any_json, max_size=3), max_size=3)
)


def changed(documents: list[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Take a good document, leave keys out, and put others in."""

    def change(document: dict[str, Any], gone: set[str], put: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in document.items() if key not in gone} | put

    return st.builds(
        change,
        st.sampled_from(documents),
        st.sets(st.sampled_from(KEYS), max_size=2),
        st.dictionaries(st.sampled_from(KEYS), near_values, max_size=3),
    )


def as_bytes(document: Any, encoding: str = "utf-8") -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(encoding, "surrogatepass")


def _spoilt(raw: bytes, place: int, put: bytes) -> bytes:
    at = place % (len(raw) + 1)
    return raw[:at] + put + raw[at + len(put) + place % 3 :]


_cuts = st.binary(max_size=3) | st.sampled_from([b'"', b"\\u", b"}"])
_TOO_DEEP = [
    *(b"[" * 50_000, b'{"status": "completed", "result": %b}' % (b"9" * 5000)),
    *(b'{"status": "completed", "result": %b%b}' % (b"[" * levels, b"]" * levels) for levels in (600, 3000)),
]
_ENCODINGS = ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"]


def bodies(documents: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    """Return bytes in the place of such a document: nearly it, or nothing like it."""
    near = st.builds(as_bytes, changed(documents) | any_json, st.sampled_from(_ENCODINGS))
    spoilt = st.builds(_spoilt, st.sampled_from(documents).map(as_bytes) | near, st.integers(0, 400), _cuts)
    return st.one_of(near, near, spoilt, spoilt, st.binary(max_size=80) | st.sampled_from(_TOO_DEEP))


statuses = st.sampled_from([200, 200, 200, 201, 204, 302, 401, 403, 404, 408, 422, 429, 500, 503]) | st.integers(
    100, 999
)
# What a header may hold, once whatever ends a header is taken out.
any_header = any_text.map(lambda text: "".join(letter for letter in text if letter not in "\r\n\x00")[:2000])
LATE = "Wed, 21 Oct 99999 07:28:00 GMT"
_HEADERS = {
    "Content-Type": ["application/json", "text/html; charset=utf-16", "x; charset=\u00fc", TOKEN, SECRET],
    "Retry-After": ["5", "1e3", "²", "9" * 400, LATE, ", +9999999999", "Mon Oct 1:1:1:1"],
    "Location": ["/login", "https://[broken", f"https://{TOKEN}@x/{TOKEN}?{SECRET}", f"/{SECRET}", "//x:99999/"],
}
headers = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(usual) | any_header for name, usual in _HEADERS.items()}
)


# Cases of each kind. Without the variable they are always the same.
EXAMPLES = int(os.environ.get("CREW_FUZZ_CASES", "25"))
pytestmark = pytest.mark.timeout(max(300, EXAMPLES))
GENERATED = hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize="CREW_FUZZ_CASES" not in os.environ,
    database=None,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
_MOST_COMPUTING = 5.0
_LONGEST_TEXT = 200_000


def cases(strategy: st.SearchStrategy[Any], *, known: Iterable[Any] = ()) -> Callable[..., Any]:
    """Run a test for each known case and for generated ones."""

    def declare(test: Callable[..., None]) -> Callable[..., None]:
        # Deferred, because Hypothesis would warn of the length of some strategies.
        run: Any = hypothesis.given(case=st.deferred(lambda: strategy))(test)
        for case in known:
            run = hypothesis.example(case=case)(run)
        return GENERATED(run)

    return declare


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the error of this package that it raises, and check its time."""
    computed = time.process_time()
    try:
        return call()
    except CrewError as error:
        assert_presentable(error)
        return error
    finally:
        assert time.process_time() - computed < _MOST_COMPUTING


def assert_presentable(error: BaseException, *secrets: str) -> None:
    """Check that an error shows no secret and can be stored."""
    for secret in {TOKEN, *secrets}:
        for text in _texts_of(error):
            assert secret not in text
            assert quote(secret, safe="") not in text
    text = str(error)
    assert text
    odd = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not odd - {"\n"}
    assert len(text) < _LONGEST_TEXT
    if isinstance(error, CrewError):
        stored = json.dumps(error_record(error), ensure_ascii=False)
        assert stored.encode()
        assert "\\u0000" not in stored.replace("\\\\", "")


def _texts_of(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    below = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if below is not None:
        yield from _texts_of(below)


def assert_storable(value: Any) -> None:
    """Check that Airflow's stores would accept a result."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    assert text.encode()
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json.loads(text) == value
    assert msgspec.msgpack.encode(value)  # to the supervisor; it has no integers of more than 64 bits


NOW = 1_750_000_000.0
SETTINGS = ServiceSettings(address="https://crew.example", token=TOKEN)
REJECTIONS = (errors.RateLimited, errors.NotAuthenticated, errors.NotAllowed, errors.Rejected)
EXECUTIONS = Running | Paused | Completed | Failed
WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example"}
REQUEST = KickoffRequest.of({"topic": "ferries"}, webhooks=WEBHOOKS, webhook_secret=SECRET)
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
    if is_rejection and isinstance(result, errors.UncertainKickoff):
        assert b"kickoff_id" in case[2] or status in {302, 303, 408, 409, 499}
        return
    assert isinstance(result, REJECTIONS if is_rejection else (str, errors.UncertainKickoff))
    assert isinstance(result, errors.RateLimited) is (status == 429)
    if isinstance(result, str):
        assert 200 <= status < 300
        assert checked_kickoff_id(result).isascii()


@cases(answers_with(INPUTS))
def test_inputs_are_names_or_an_error(case: Any) -> None:
    assert isinstance(outcome(Scripted(case).inputs), CrewInputs | errors.CallError)


@cases(
    st.lists(answers_with(STATUSES), min_size=1, max_size=2),
    known=[[(200, {}, as_bytes(body))] for body in STATUSES],
)
def test_any_status_answer_is_an_execution_or_an_error(case: Any) -> None:
    result = outcome(lambda: Scripted(*case).status("4711"))

    answered = [status for status, *_ in case if 200 <= status < 300]
    assert isinstance(result, EXECUTIONS | errors.CallError)
    assert not isinstance(result, EXECUTIONS) or answered
    if isinstance(result, errors.ExecutionNotFound):
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
            step = watch.on_error(result) if isinstance(result, errors.CallError) else watch.on_status(result)
            for _, line in watch.lines:
                assert line.encode()
                assert "\x00" not in line
            assert_storable(watch.memory.carried())
            memory = WatchState.recalled(sent(watch.memory.carried()))
            assert memory
            assert memory.carried() == watch.memory.carried()
            watch = Watch("4711", rules, clock=lambda: NOW + 1, random=lambda: 0.5, memory=memory)
            assert 0 <= step.poll_again_in <= 330
        assert step
        assert watch.memory.seen is isinstance(result, EXECUTIONS)
        assert isinstance(result, Completed) is bool(step.completed)
        if isinstance(result, errors.ExecutionNotFound) and (rules.exists or rules.human_input):
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
