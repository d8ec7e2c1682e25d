"""Calls that are repeated, as in ``repeating.txt``: how often a call is made, and after which pause at least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client import api, errors
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.errors import CrewError, ServiceError


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


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Repeated:
    return Repeated(monkeypatch)


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


def table(repeated: Repeated) -> Iterator[str]:
    yield f"{'error':<24} | {'read':<13} | {'kickoff':<13} | {'of a waking crew':<16} | {'':<15} | kickoff"
    for name, error in ERRORS.items():
        plain = f"{repeated.times(error):<13} | {repeated.times(error, kickoff=True):<13}"
        waking = f"{repeated.times(error, within=300.0):<16} | {repeated.times(error, within=60.0):<15}"
        yield f"{name:<24} | {plain} | {waking} | {repeated.times(error, kickoff=True, within=300.0)}"


def test_calls_are_repeated_as_in_the_table(repeated: Repeated, printed: Any) -> None:
    printed("repeating.txt", lambda _: table(repeated))


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
