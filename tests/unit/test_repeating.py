"""Calls that are repeated: which, after which pause, and until when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client import api
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import (
    CallError,
    CrewError,
    NotAuthenticated,
    RateLimited,
    Rejected,
    ResponseTooLarge,
    ServiceError,
    UncertainKickoff,
    Unreachable,
    UnreadableResponse,
)


class Repeated:
    """A call that is repeated by the policy, on a clock that goes on only while it sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: sum(self.slept)))

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


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Repeated:
    return Repeated(monkeypatch)


@pytest.mark.parametrize(
    ("error", "read", "kickoff"),
    [
        (RateLimited("429"), True, True),
        (Unreachable("no connection", sent=False), True, True),
        (Unreachable("reset", sent=True), True, False),
        (ServiceError("503"), True, False),
        (UnreadableResponse("HTML"), True, False),
        (Unreachable("certificate", sent=False, trusted=False, timed_out=True), False, False),
        (ResponseTooLarge("too large"), False, False),
        (NotAuthenticated("401"), False, False),
        (Rejected("400"), False, False),
        (UncertainKickoff("502"), False, False),
        (CallError("other"), False, False),
        (KeyError("a defect"), False, False),
    ],
    ids=repr,
)
def test_repeated_errors(repeated: Repeated, error: Exception, read: Any, kickoff: Any) -> None:
    for is_kickoff, is_repeated in ((False, read), (True, kickoff)):
        assert repeated.attempt(error, kickoff=is_kickoff) is error
        assert len(repeated.slept) == (2 if is_repeated else 0)


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [(None, 0.0, 1.0), (7.0, 7.0, 8.0), (3600.0, 30.0, 31.0), (float("inf"), 30.0, 31.0)],
)
def test_pause_honors_retry_after(repeated: Repeated, retry_after: Any, least: float, most: float) -> None:
    repeated.attempt(RateLimited("429", retry_after=retry_after), kickoff=True)

    assert all(least <= pause <= most for pause in repeated.slept)


WAKING = [
    *(ServiceError("5xx", http_status=status) for status in (502, 503, 504)),
    Unreachable("no answer in time", sent=True, timed_out=True),
    Unreachable("no connection in time", sent=False, timed_out=True),
]
AWAKE = [
    *(ServiceError("5xx", http_status=status) for status in (500, 501, 505, 599)),
    *(Unreachable("refused", sent=False), Unreachable("reset", sent=True)),
    *(RateLimited("429", http_status=429), UnreadableResponse("HTML", http_status=200)),
]


@pytest.mark.parametrize("error", WAKING, ids=repr)
def test_waking_crew_is_retried_for_its_time(repeated: Repeated, error: CrewError) -> None:
    for within in (300.0, 60.0):
        assert repeated.attempt(error, within=within) is error
        assert within <= sum(repeated.slept) < within + repeated.slept[-1] + 1e-6
        assert all(5 <= pause <= 10 for pause in repeated.slept)
    if getattr(error, "sent", True):
        assert repeated.attempt(error, kickoff=True, within=300.0) is error
        assert repeated.slept == [], "a kickoff that may have started is not repeated"


@pytest.mark.parametrize(
    ("error", "within"), [*((error, 300.0) for error in AWAKE), *((error, 0.0) for error in WAKING)]
)
def test_any_other_crew_is_called_three_times(repeated: Repeated, error: CrewError, within: float) -> None:
    assert repeated.attempt(error, within=within) is error

    assert len(repeated.slept) == 2
    assert all(pause < 5 for pause in repeated.slept)


def test_gateway_is_not_called_before_retry_after(repeated: Repeated) -> None:
    repeated.attempt(ServiceError("503", http_status=503, retry_after=20.0), within=300.0)

    assert all(20 <= pause <= 30 for pause in repeated.slept)
    assert sum(repeated.slept) >= 300


def test_other_error_does_not_end_the_wake_up_time(repeated: Repeated) -> None:
    asleep, broken = ServiceError("503", http_status=503), ServiceError("500", http_status=500)
    outcomes = (asleep, asleep, asleep, broken, broken, broken, broken, asleep, "awake")

    assert repeated.attempt(*outcomes, within=300.0) == "awake"
    assert len(repeated.slept) == 8


def test_each_repeated_call_is_logged_once(repeated: Repeated, caplog: pytest.LogCaptureFixture) -> None:
    errors = ServiceError("Bad gateway.", http_status=502), ServiceError("Broken.", http_status=500)
    repeated.attempt(*errors, "x", within=300.0)

    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "Bad gateway" in caplog.messages[0]
    assert "Broken" in caplog.messages[-1]
