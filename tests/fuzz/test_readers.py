"""Three readers of foreign data: a crew's responses, what another process stored, and connections."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode, urlsplit

import pytest
from airflow.providers.common.compat.sdk import Connection
from hypothesis import strategies as st

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import Request, Response
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.models import Completed, CrewInputs, Failed, Paused, Running, read_execution
from airflow_provider_crew.client.payload import KickoffRequest, checked_kickoff_id
from airflow_provider_crew.client.settings import ServiceSettings, WebhookSecret
from airflow_provider_crew.client.watch import Watch, WatchRules, WatchState
from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import as_stored, read_record
from airflow_provider_crew.triggers.events import read_event, told_completed, told_error
from tests.fuzz import bad_values as bad
from tests.fuzz.bad_values import (
    SECRET,
    TOKEN,
    any_json,
    any_text,
    assert_presentable,
    assert_storable,
    cases,
    outcome,
)

NOW = 1_750_000_000.0
SETTINGS = ServiceSettings(address="https://crew.example", token=TOKEN)
REJECTIONS = (errors.RateLimited, errors.NotAuthenticated, errors.NotAllowed, errors.Rejected)
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
    return st.tuples(bad.statuses, bad.headers, bad.bodies(documents))


@cases(
    answers_with(bad.KICKOFFS), known=[(status, {}, body) for status in (200, 302, 422, 500) for body in REPEATING]
)
def test_kickoff_is_rejected_uncertain_or_has_an_id(case: Any) -> None:
    status = case[0]
    result = outcome(lambda: Scripted(case).kickoff(REQUEST))

    if isinstance(result, Exception):
        assert_presentable(result, SECRET)
    is_rejection = 300 <= status < 500
    if is_rejection and isinstance(result, errors.UncertainKickoff):
        assert b"kickoff_id" in case[2] or status in {303, 408, 409, 499}
        return
    assert isinstance(result, REJECTIONS if is_rejection else (str, errors.UncertainKickoff))
    assert isinstance(result, errors.RateLimited) is (status == 429)
    if isinstance(result, str):
        assert 200 <= status < 300
        assert checked_kickoff_id(result).isascii()


@cases(answers_with(bad.INPUTS))
def test_inputs_are_names_or_an_error(case: Any) -> None:
    assert isinstance(outcome(Scripted(case).inputs), CrewInputs | errors.CallError)


@cases(
    st.lists(answers_with(bad.STATUSES), min_size=1, max_size=2),
    known=[[(200, {}, bad.as_bytes(body))] for body in bad.STATUSES],
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


MISSING = object()


def spoilt(good: dict[str, Any], values: Any = any_json) -> st.SearchStrategy[Any]:
    """Replace or leave out some fields, or sometimes all."""
    some = st.dictionaries(st.sampled_from([*good, "unknown"]), values | st.just(MISSING), min_size=1, max_size=3)
    return st.one_of(*[some] * 4).map(
        lambda put: {key: value for key, value in {**good, **put}.items() if value is not MISSING}
    ) | st.one_of(values, st.just(good))


RESULT: Any = read_execution({"status": "completed", "result": {"output": "Done.", "tasks": []}}, "4711")
EVENT = {"kickoff_id": "4711", "deadline": NOW, "result": json.dumps(RESULT.result())}
LOST = errors.error_record(errors.LostContact("Lost 4711.", kickoff_id="4711"))
FAILED_EVENT = {"kickoff_id": "4711", "deadline": NOW, "error": json.dumps(LOST)}
records = spoilt(LOST) | st.fixed_dictionaries(
    {
        "kind": st.sampled_from([name for name in vars(errors) if name[0] != "_"]) | any_json,
        "message": any_json,
        "facts": st.dictionaries(st.sampled_from(["kickoff_id", "lasted", "self", "message", "args"]), st.text()),
    }
)


@cases(
    spoilt(EVENT, any_json | any_json.map(json.dumps) | st.sampled_from(["{", "{}", '{"output": 1}', "nul"]))
    | spoilt(FAILED_EVENT, any_json | records.map(json.dumps)),
    known=[{**EVENT, key: odd} for key in EVENT.keys() | {"error"} for odd in (None, 7, "{", "{}", "[]", ["x"])],
)
def test_event_is_read_or_names_no_execution(event: Any) -> None:
    end = read_event(event)

    assert end is None or end.kickoff_id == event["kickoff_id"]
    if end and end.result:
        assert_storable(end.result)
    if end and end.error:
        assert_presentable(end.error)


KICKOFF = asdict(KickoffRecord(3, NOW, kickoff_id="4711"))
near = st.sampled_from(
    ["4711", "completed", "returned", "failed", "unknown", 3, 4, True, None, time.time(), "https://crew.example"]
)
# The values that pydantic reads as true.
TRUE = (True, "true", "True", 1.0, "1", "yes", "on", "t", "y")


@cases(
    spoilt(KICKOFF, any_json | near) | spoilt(KICKOFF, near),
    known=[{**KICKOFF, "kickoff_id": odd} for odd in ("a\x00\ud800", "", 7, ["x"])],
)
def test_record_is_read_or_counts_as_unreported(kept: Any) -> None:
    record, _ = read_record(kept, max_tries=3, now=NOW)

    if record.kickoff_id is not None:
        assert record.kickoff_id == kept["kickoff_id"]
    for name in ("reported", "delivered"):
        assert not getattr(record, name) or kept[name] in TRUE
    assert read_record(as_stored(record), max_tries=3, now=NOW)[0] == record


SECRET_PART = "s3cr3t"
secrets = st.sampled_from([TOKEN, "s3cr3t/To+ken=", "s3cr3t@To:ken?#", "s3cr3t%2Fto\\ken"])
LINES = bad.lines_of("connections.txt")


def given_as(name: str, *others: Any) -> st.SearchStrategy[Any]:
    """Return values of a field in the table of connections."""
    extras = [line["extra"] for line in LINES if isinstance(line.get("extra"), dict)]
    return st.sampled_from([*others, *(each[name] for each in (*LINES, *extras) if name in each)])


PART_OF_A_TOKEN = "(?i)token|s3cr3t|secret"
names = given_as(
    "host", "a..b", "x/kickoff", "xn--\ud800", "x/../y", "user@x", "İ.example", "\uff11.\uff12"
).filter(lambda name: not re.search(PART_OF_A_TOKEN, str(name)))
extra_fields = {
    "user_bearer_token": secrets | any_json,
    "proxy": st.sampled_from(["http://u:s3cr3t@p.example:3128", "socks5://p", "p:x", "//", "[", ":0"]) | any_json,
    "verify": st.sampled_from([True, "false", "no", __file__, "/", "/dev/null", "a\x00b", 2]) | any_json,
    **{
        name: given_as(name, True) | any_json
        for name in ("token_type", "request_timeout", "dashboard_url", "max_kickoffs_per_day", "allow_http")
    },
}
fields = st.fixed_dictionaries(
    {},
    optional={
        "host": names | any_text,
        "schema": st.sampled_from(["http", "https", "/status/", "..", "%2e%2e", "\ud800", "http/https"])
        | any_text,
        "login": secrets | any_text,
        "password": secrets | any_text,
        "port": given_as("port", None, 0, 65535, 65536, -1, 10**30),
        "extra": st.fixed_dictionaries({}, optional=extra_fields).map(json.dumps)
        | any_text
        | any_json.map(json.dumps),
    },
)
uris = st.builds(
    "{}{}:{}@{}{}/{}?{}".format,
    st.sampled_from(["crew://", "crew://https://", "crew:", "//", "", "CREW://", "crew://http://"]),
    st.just("") | secrets,
    secrets | secrets.map(lambda secret: quote(secret, safe="")),
    names | any_text,
    st.sampled_from(["", ":8443", ":port", ":0", ":"]),
    any_text,
    st.dictionaries(st.sampled_from([*extra_fields, "__extra__"]), any_text, max_size=3).map(
        lambda extra: urlencode(extra, errors="replace")
    ),
)
json_texts = fields.map(lambda given: json.dumps({"conn_type": "crew"} | given)) | any_json.map(json.dumps)


@pytest.fixture(scope="module", autouse=True)
def _forgetful() -> Iterator[None]:
    # Airflow keeps, and looks for, every secret that it has ever been told.
    with patch("airflow_provider_crew.hooks.connection.mask_secret"):
        yield


@cases(fields)
def test_fields_are_read_or_rejected_without_secrets(given: dict[str, Any]) -> None:
    try:
        read = read_connection(Connection(conn_id="crew", conn_type="crew", **given))
    except errors.InvalidSettings as error:
        assert_presentable(error, *secrets_in(given))
        return
    assert SECRET_PART not in repr(read)
    assert TOKEN not in repr(read)
    assert (read.settings.address + read.settings.token).isascii()
    address = urlsplit(read.settings.address)
    assert address.scheme in {"http", "https"}
    assert address.hostname
    assert (address.username, address.query, address.fragment) == (None, "", "")
    assert ServiceSettings(address=address.geturl(), token=TOKEN, allow_http=True).address == address.geturl()


@cases(uris | any_text.map(lambda text: f"crew://{text}") | json_texts)
def test_hook_reads_or_rejects_a_variable_without_secrets(text: str) -> None:
    if "\x00" in text or text.encode(errors="replace").decode() != text:
        return  # not a variable of an environment
    with patch.dict(os.environ, AIRFLOW_CONN_CREW=text):
        read = outcome(lambda: CrewHook("crew").connection)
    if isinstance(read, Exception):
        assert_presentable(read, *secrets_in(text))


def secrets_in(given: Any) -> list[str]:
    return [SECRET_PART] if SECRET_PART in repr(given) else []
