"""Daily limit of kickoffs: what is counted, and what is rejected."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import comms

from airflow_provider_crew.client.errors import Cost, DailyLimitReached
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task import checks
from tests.integration.operators import kickoff as kickoff_of
from tests.integration.tasks import CONNECTION, Task, TaskInstance

pytest_plugins = ["tests.integration.task_fixtures"]

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"


@pytest.fixture
def allow(live_crew, ledger, monkeypatch):  # noqa: ARG001 - without it, nothing counts here
    def allow_kickoffs(limit: int, connection: str = CONNECTION) -> None:
        monkeypatch.setenv(connection, f"{live_crew.connection_uri}?max_kickoffs_per_day={limit}")

    return allow_kickoffs


def kickoff(*, store: Any = None, **options: Any) -> Task:
    return Task(lambda: kickoff_of(**options), store=store, retries=0 if store is None else 1, run_id="morning")


def test_limit_applies_per_connection_and_day(ledger, allow, monkeypatch):
    allow(1)
    allow(1, "AIRFLOW_CONN_TEAM/A%1")
    kickoff().run()
    kickoff(crew_conn_id="team/a%1").run()
    monkeypatch.setattr(checks, "datetime", SimpleNamespace(now=lambda zone: datetime(2031, 5, 7, tzinfo=zone)))
    kickoff().run()

    assert [*ledger.runs] == [
        f"crew_default.{TODAY}.1",
        f"team~2Fa~251.{TODAY}.1",  # only what Airflow takes in the name of a run
        "crew_default.2031-05-07.1",
    ]


def test_block_of_kickoffs_is_counted_with_one_run(live_crew, ledger, allow):
    allow(10)
    hook, ti = CrewHook(), TaskInstance()
    assert [checks.count_kickoffs(hook, ti, {}, hook.log, 4) for _ in range(3)] == [4, 4, 2]
    assert [run["total"] for run in ledger.runs.values()] == [4, 8, 10]
    with pytest.raises(CrewTaskFailed) as caught:
        kickoff().run()
    assert isinstance(caught.value.failure, DailyLimitReached)
    assert caught.value.cost is Cost.NONE
    assert not live_crew.kickoffs


def test_start_run_reports_a_duplicate(monkeypatch):
    taken = comms.ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
    asked: list[Any] = []

    def send(message: Any) -> Any:
        asked.append(message)
        return comms.OKResponse(ok=True) if len(asked) == 1 else taken

    supervisor = SimpleNamespace(send=send)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", supervisor, raising=False)

    assert [checks.start_run("crew_budget", "a.1", {"task_id": "crew"}) for _ in range(2)] == [True, False]
    assert (asked[0].dag_id, asked[0].run_id, asked[0].conf) == ("crew_budget", "a.1", {"task_id": "crew"})
    assert not asked[0].reset_dag_run
