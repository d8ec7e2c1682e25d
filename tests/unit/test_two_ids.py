"""Status of an execution that continues under another ID: which of two responses counts, as in ``two_ids.txt``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from airflow_provider_crew.client.errors import CrewError, ExecutionNotFound, ServiceError
from airflow_provider_crew.client.models import read_execution
from airflow_provider_crew.client.options import REQUEST_TIMEOUT
from airflow_provider_crew.client.watch import Watch, WatchRules

ERRORS = {"NOT FOUND": ExecutionNotFound("unknown"), "500": ServiceError("500")}
STATES = ["RUNNING", "PAUSED", "SUCCESS", "FAILED", *ERRORS]


def response(state: str, kickoff_id: str) -> Any:
    return ERRORS.get(state) or read_execution({"state": state, "result": "The end", "status": "why"}, kickoff_id)


def watch(**rules: Any) -> Watch:
    return Watch("first", WatchRules(deadline=1e9, **rules), clock=lambda: 0.0, random=lambda: 0.5)


def counting(first: str, second: str) -> str:
    try:
        found = watch(continued_as="second").whichever([response(first, "first"), response(second, "second")])
    except CrewError as error:
        assert not error.kickoff_id or " " in error.event  # noqa: PT017 - an outcome among others
        return f"{type(error).__name__} {error.kickoff_id}".strip()
    return f"{found.status} {found.kickoff_id}"


def table(_: list[str]) -> Iterator[str]:
    yield from (
        f"{first:<9} | {second:<9} | {counting(first, second)}" for first, second in product(STATES, STATES)
    )


def test_one_of_two_ids_counts(printed: Any) -> None:
    printed("two_ids.txt", table)


def test_one_id_is_returned_as_it_is() -> None:
    (only,) = found = [response("SUCCESS", "first")]

    assert watch(continued_as="second").whichever(found) is only
    assert (watch().ids, watch().request_timeout) == (["first"], REQUEST_TIMEOUT)
