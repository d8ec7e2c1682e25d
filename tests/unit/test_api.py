"""
Requests that each call sends to the service, what it makes of the answers, when it is repeated, and its errors.

To add a body to ``bodies.txt``, write it into the file. The line below it is its meaning, without fields that have
their default. ``errors.txt`` has the bodies of errors, with their sender, the missing inputs and the reason.
"""

from __future__ import annotations

import base64
import copy
import json
import math
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic import ValidationError

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.api import CrewApi, Response, resend
from airflow_provider_crew.client.errors import CrewError, ServiceError, error_record, recorded_error
from airflow_provider_crew.client.models import Completed, Failed, Paused, Running, read_execution, read_inputs
from airflow_provider_crew.client.payload import KickoffRequest
from tests.unit.crew_builders import KICKOFF_ID, Script, answer, settings

REQUEST = KickoffRequest.of({"topic": "AI"})
RUNNING = {"status": "running"}
UNKNOWN_EXECUTION = {"error": "Not found", "message": f"No execution {KICKOFF_ID}."}
LOST = errors.Unreachable("The connection was reset.", sent=True)


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


def outcomes(first: str, second: str) -> tuple[str, str]:
    """Return what comes of the first two responses to requests of a status, and the paths of later ones."""
    script = Script(RESPONSES[first], RESPONSES[second or "running"])
    found = outcome(script)
    script.outcomes = [answer(404), answer(404)]
    return found, outcome(script).partition(" from ")[2]


def test_path_of_a_status_is_found_as_in_the_table(tabulated: Any) -> None:
    tabulated("status_paths.txt", 2, outcomes)


@pytest.mark.parametrize("credentials", ["me:hunter2-0123", "m:12345678", "me:p%2fword-0123"])
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


def test_integer_that_python_does_not_read_costs_no_result() -> None:
    digits, count = "9" * 5_000, '"successful_requests": 1'
    usage = f'{{"total_tokens": {digits}, {count}}}'
    body = f'{{"status": "completed", "result": {{"output": {{"n": {digits}}}}}, "usage_metrics": {usage}}}'

    result = answer(200, body.encode()).execution().result()

    stored = json.loads(json.dumps(result))
    assert (stored["output"], stored["output_json"]) == (f'{{"n": "{digits}"}}', {"n": digits})
    assert stored["usage"] == {"successful_requests": 1}


class Repeated:
    """A call that is repeated by the policy, on a clock that goes on only while it sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        monkeypatch.setattr(
            "airflow_provider_crew.client.api.time", SimpleNamespace(monotonic=lambda: sum(self.slept))
        )

    def attempt(self, *outcomes: Exception | str, kickoff: bool = False, within: float = 0.0) -> Any:
        """Let each attempt have its outcome, the last one again and again; return what comes of it."""
        waiting = list(outcomes)
        self.slept.clear()

        def call() -> str:
            outcome = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        try:
            return resend(call, only_if_not_started=kickoff, wake_up_within=within, sleep=self.slept.append)
        except (CrewError, KeyError) as error:
            return error

    def times(self, error: Exception, *, within: float = 0.0, **given: Any) -> str:
        """Tell how often a call with this error is made."""
        assert self.attempt(error, within=within, **given) is error
        if not self.slept:
            return "once"
        is_longer = len(self.slept) > 2
        assert not is_longer or within <= sum(self.slept) < within + self.slept[-1] + 1e-6
        assert all(pause <= self.slept[0] + 10 for pause in self.slept)
        many = f"for {within:.0f} s" if is_longer else f"{1 + len(self.slept)} times"
        return f"{many}, {math.floor(min(self.slept))} s"


UNREACHABLE = {
    "refused": {"sent": False},
    "reset": {"sent": True},
    "no answer in time": {"sent": True, "timed_out": True},
    "no connection in time": {"sent": False, "timed_out": True},
    "certificate": {"sent": False, "tls_failed": True, "timed_out": True},
}
ERRORS: dict[str, Exception] = {
    "429": errors.RateLimited("429", http_status=429),
    **{
        f"429, Retry-After: {after}": errors.RateLimited("429", http_status=429, retry_after=after)
        for after in (7.0, 3600.0, math.inf)
    },
    **{f"{status}": ServiceError("5xx", http_status=status) for status in (500, 501, 502, 503, 504, 505, 599)},
    "503, Retry-After: 20": ServiceError("503", http_status=503, retry_after=20.0),
    **{name: errors.Unreachable(name, **facts) for name, facts in UNREACHABLE.items()},  # type: ignore[arg-type]
    "HTML": errors.UnreadableResponse("HTML", http_status=200),
    **{
        name: getattr(errors, name)(name)
        for name in ("ResponseTooLarge", "NotAuthenticated", "Rejected", "UncertainKickoff", "CallError")
    },
    "a defect": KeyError("a defect"),
}


def test_calls_are_repeated_as_in_the_table(monkeypatch: pytest.MonkeyPatch, tabulated: Any) -> None:
    repeated = Repeated(monkeypatch)

    def times(name: str) -> Iterator[str]:
        for kickoff, within in ((False, 0.0), (True, 0.0), (False, 300.0), (False, 60.0), (True, 300.0)):
            yield repeated.times(ERRORS[name], kickoff=kickoff, within=within)

    tabulated("repeating.txt", 1, times)


def test_other_error_in_the_wake_up_time_is_logged_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asleep = ServiceError("Bad gateway.", http_status=503)
    broken = ServiceError("Broken.", http_status=500)
    waits = (asleep, asleep, asleep, broken, broken, broken, broken, asleep)

    assert Repeated(monkeypatch).attempt(*waits, "awake", within=300.0) == "awake"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(waits)
    for error, message in zip(waits, caplog.messages, strict=True):
        assert str(error.event) in message


# What a task returns.
KEYS = {"kickoff_id", "output", "output_json", "tasks", "tasks_complete", "usage", "execution_time"}


def meaning(body: dict[str, Any]) -> str:
    try:
        if "inputs" in body:
            listed = read_inputs(body)
            named = {
                given: tuple(it.name for it in listed.inputs if it.required is given) for given in (True, False)
            }
            return f"names: {listed.names}, required: {named[True]}, optional: {named[False]}"
        execution = read_execution(body, KICKOFF_ID)
    except ValidationError:
        return "invalid"
    except ValueError as error:
        return f"invalid: {error}"
    if execution is None:
        return "unknown"
    fields = execution.model_dump(exclude_defaults=True, exclude={"kickoff_id", "status"})
    note = ""
    match execution:
        case Running() | Paused():
            note = "" if execution.is_known else " of an unknown state"
        case Failed():
            note = ", stopped" if execution.was_stopped else ""
        case Completed():
            note = ", with all its tasks" if execution.tasks_complete else ""
            assert execution.result().keys() == KEYS
    return f"{type(execution).__name__}{note} {json.dumps(fields, allow_nan=False)}"


def bodies(known: list[str]) -> Iterator[str]:
    for line in known:
        if not line.startswith("    "):
            yield line
        if line.startswith("{"):
            yield f"    {meaning(json.loads(line))}"


def test_bodies_mean_what_the_table_says(printed: Any) -> None:
    printed("bodies.txt", bodies)


def error(body: bytes | dict[str, Any]) -> Iterator[str]:
    """Yield the sender of an error, the missing inputs and the reason."""
    received = answer(422, body, {"Content-Type": "text/html"})
    whose = "the crew" if received.has_error_body else "another"
    missing = f", missing {received.missing_inputs}" if received.missing_inputs else ""
    yield f"{whose}{missing}:{received.reason() or ' nothing'}"


def test_errors_are_read_as_in_the_table(evaluated: Any) -> None:
    evaluated("errors.txt", error=error)


# A value for each field that an error may have.
FACTS: dict[str, Any] = {
    "http_status": 418,
    "retry_after": 2.5,
    "address": "https://crew.example",
    "lasted": 600.0,
    "error": "boom",
    "missing_inputs": ("day", "topic"),
    "misfits": ("title: Field required",),
    "execution_time": 1.5,
    "usage": {"total_tokens": 312, "cost": 0.5},
    "cause": errors.RateLimited("429", retry_after=2.5),
    "elsewhere": "https://crew.example",
    "at": "task 1",
    "next_step": "Wait.",
    "kickoff_id": "7",
}


def family(of: type[errors.CrewError]) -> Iterator[errors.CrewError]:
    """Return an error of each class, whose fields differ from their defaults."""
    known = {name: FACTS.get(name, not getattr(of, name)) for name in of.names if name != "cost"}
    yield of("told", **known)
    for child in of.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from family(child)


ONE_OF_EACH = [*family(errors.CrewError)]


def facts(error: object) -> object:
    """Return what an error tells, in a form that can be compared."""
    return (
        (type(error), str(error), {k: facts(v) for k, v in vars(error).items()})
        if isinstance(error, Exception)
        else error
    )


def carried(error: errors.CrewError) -> Any:
    """Send an error to another process, as text."""
    return recorded_error(json.loads(json.dumps(error_record(error))))


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_error_keeps_class_message_and_facts(error: errors.CrewError) -> None:
    assert facts(pickle.loads(pickle.dumps(error))) == facts(error)  # noqa: S301 - our own
    assert facts(copy.copy(error)) == facts(error)
    if not vars(error).keys() & {"misfits", "missing_inputs"}:
        assert facts(carried(error)) == facts(error)
        assert carried(error).args == error.args
