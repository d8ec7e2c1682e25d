"""Calls that are repeated: which, after which pause, and until when."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client import api
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import (
    CallError,
    NotAuthenticated,
    RateLimited,
    Rejected,
    ResponseTooLarge,
    ServiceError,
    TransientError,
    UncertainKickoff,
    Unreachable,
    UnreadableResponse,
)


def attempts(error: Exception, *, only_if_not_started: bool) -> list[float]:
    """Return for how long the policy sleeps between the attempts of a call that always fails."""
    slept: list[float] = []

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        resend(fail, only_if_not_started=only_if_not_started, sleep=slept.append)

    assert caught.value is error
    return slept


@pytest.mark.parametrize(
    ("error", "repeated"),
    [
        pytest.param(RateLimited("429"), {"read", "kickoff"}, id="429"),
        pytest.param(Unreachable("no connection", sent=False), {"read", "kickoff"}, id="never sent"),
        pytest.param(Unreachable("reset", sent=True), {"read"}, id="sent"),
        pytest.param(ServiceError("503"), {"read"}, id="5xx"),
        pytest.param(UnreadableResponse("HTML"), {"read"}, id="unreadable"),
        pytest.param(ResponseTooLarge("too large"), set(), id="too large"),
        pytest.param(NotAuthenticated("401"), set(), id="401"),
        pytest.param(Rejected("400"), set(), id="400"),
        pytest.param(UncertainKickoff("502"), set(), id="uncertain"),
        pytest.param(CallError("other"), set(), id="any other"),
        pytest.param(KeyError("a defect"), set(), id="not of the service"),
    ],
)
def test_repeated_errors(error: Exception, repeated: set[str]) -> None:
    assert len(attempts(error, only_if_not_started=False)) == (2 if "read" in repeated else 0)
    assert len(attempts(error, only_if_not_started=True)) == (2 if "kickoff" in repeated else 0)


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [
        pytest.param(None, 0.0, 1.0, id="not said"),
        pytest.param(7.0, 7.0, 8.0, id="honoured"),
        pytest.param(3600.0, 30.0, 31.0, id="capped"),
        pytest.param(float("inf"), 30.0, 31.0, id="endless"),
    ],
)
def test_pause_honors_retry_after(retry_after: float | None, least: float, most: float) -> None:
    for slept in attempts(RateLimited("429", retry_after=retry_after), only_if_not_started=True):
        assert least <= slept <= most


def test_repeated_call_is_logged_once_per_attempt(caplog: pytest.LogCaptureFixture) -> None:
    attempts(RateLimited("Too many.", retry_after=5.0), only_if_not_started=False)

    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert all("Too many" in text and re.search(r"\b[56]\.\d s\b", text) for text in caplog.messages)


class Repeated:
    """A call that is repeated by the policy, on a clock that goes on only while it sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: sum(self.slept)))

    def attempt(self, *outcomes: Exception | str, kickoff: bool = False, within: float = 300.0) -> Any:
        """Let each attempt have its outcome, the last one again and again; return what comes of it."""
        waiting = list(outcomes)

        def call() -> str:
            outcome = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        try:
            return resend(call, only_if_not_started=kickoff, wake_up_within=within, sleep=self.slept.append)
        except TransientError as error:
            return error


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Repeated:
    return Repeated(monkeypatch)


WAKING = [
    *(pytest.param(ServiceError("5xx", http_status=status), id=str(status)) for status in (502, 503, 504)),
    pytest.param(Unreachable("no answer in time", sent=True, timed_out=True), id="no answer in time"),
    pytest.param(Unreachable("no connection in time", sent=False, timed_out=True), id="no connection in time"),
]
AWAKE = [
    *(pytest.param(ServiceError("5xx", http_status=status), id=str(status)) for status in (500, 501, 505, 599)),
    pytest.param(Unreachable("refused", sent=False), id="rejected"),
    pytest.param(Unreachable("reset", sent=True), id="reset"),
    pytest.param(RateLimited("429", http_status=429), id="429"),
    pytest.param(UnreadableResponse("HTML", http_status=200), id="unreadable"),
]


@pytest.mark.parametrize("error", WAKING)
@pytest.mark.parametrize("within", [300.0, 60.0])
def test_waking_crew_is_retried_for_its_time(repeated: Repeated, error: TransientError, within: float) -> None:
    assert repeated.attempt(error, within=within) is error

    assert within <= sum(repeated.slept) < within + repeated.slept[-1] + 1e-6
    assert all(5 <= pause <= 10 for pause in repeated.slept)


@pytest.mark.parametrize("error", AWAKE)
def test_awake_crew_is_called_three_times(repeated: Repeated, error: TransientError) -> None:
    assert repeated.attempt(error) is error

    assert len(repeated.slept) == 2


@pytest.mark.parametrize("error", WAKING)
def test_crew_without_wake_up_time_is_called_three_times(repeated: Repeated, error: TransientError) -> None:
    assert repeated.attempt(error, within=0.0) is error

    assert len(repeated.slept) == 2
    assert all(pause < 5 for pause in repeated.slept)


@pytest.mark.parametrize("error", WAKING[:4])
def test_kickoff_that_may_have_started_is_not_repeated(repeated: Repeated, error: TransientError) -> None:
    for within in (0.0, 300.0):
        assert repeated.attempt(error, kickoff=True, within=within) is error

    assert repeated.slept == []


def test_rejected_certificate_is_not_retried(repeated: Repeated) -> None:
    error = Unreachable("certificate", sent=False, trusted=False, timed_out=True)

    assert repeated.attempt(error) is error
    assert repeated.slept == []


def test_gateway_is_not_called_before_retry_after(repeated: Repeated) -> None:
    repeated.attempt(ServiceError("503", http_status=503, retry_after=20.0))

    assert all(20 <= pause <= 30 for pause in repeated.slept)
    assert sum(repeated.slept) >= 300


def test_other_error_does_not_end_the_wake_up_time(repeated: Repeated) -> None:
    asleep, broken = ServiceError("503", http_status=503), ServiceError("500", http_status=500)

    assert repeated.attempt(asleep, asleep, asleep, broken, broken, broken, broken, asleep, "awake") == "awake"
    assert len(repeated.slept) == 8


def test_each_repeated_call_is_logged_once(repeated: Repeated, caplog: pytest.LogCaptureFixture) -> None:
    repeated.attempt(ServiceError("Bad gateway.", http_status=502), ServiceError("Broken.", http_status=500), "x")

    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "Bad gateway" in caplog.messages[0]
    assert "Broken" in caplog.messages[-1]
