from __future__ import annotations

import pytest
from crew_builders import KICKOFF_ID, NOW

from airflow_provider_crew.service.errors import RateLimited
from airflow_provider_crew.service.watch import Watch, WatchRules


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def new_watch(clock: Clock, *, dice: float = 0.5, timeout: float = 3600.0, **rules: float) -> Watch:
    return Watch(KICKOFF_ID, WatchRules(deadline=NOW + timeout, **rules), clock=clock, random=lambda: dice)


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("retry_after", "least"),
    [
        pytest.param(60.0, 60.0, id="honoured"),
        pytest.param(1.0, 9.0, id="shorter than the poll interval"),
        pytest.param(7200.0, 300.0, id="capped at five minutes"),
        pytest.param(float("inf"), 300.0, id="endless"),
    ],
)
def test_never_looks_before_the_time_that_the_service_named(retry_after: float, least: float, dice: float) -> None:
    step = new_watch(Clock(), dice=dice).failed(RateLimited("slow down", retry_after=retry_after))

    assert least <= step.look_again_in <= least * 1.25
