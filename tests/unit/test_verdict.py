"""The judge of the random harm finds an execution that was started twice, and one that is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost
from dev.rest import ApiError
from tests.faults import verdict
from tests.faults.facts import Failure

STILL_RUNNING = Failure("CrewTaskFailed", Cost.RUNNING, 100.0)
UNCERTAIN = Failure("CrewTaskFailed", Cost.UNKNOWN, 100.0)
TOO_LATE = Failure("CrewTaskFailed", Cost.UNKNOWN, 300.0)
RETRIED = Failure("UncertainKickoff", Cost.UNKNOWN, 100.0)


class History:
    """A run of one task whose attempts, executions, kickoff record and result a test makes up."""

    run_id = "run"

    def __init__(self, task_id: str, logs: Any, failures: Any = None, **end: Any) -> None:
        self.task_id, self.logs = task_id, logs
        self.record, self.returned = end.get("record"), end.get("returned")
        self.failures = failures or [None] * len(logs)

    def task(self, _: str) -> dict[str, Any]:
        return {"state": "success" if self.returned else "failed", "try_number": len(self.logs)}

    def events(self, task_id: str, number: int) -> list[dict[str, Any]]:
        lines = self.logs[number - 1] if task_id == self.task_id else []
        written = f"1970-01-01T00:0{number}:00+00:00"
        return [{"event": line, "timestamp": written, "number": number} for line in lines]

    def xcom(self, task_id: str) -> dict[str, Any]:
        if not self.returned:
            raise ApiError("404")
        return {"kickoff_id": self.returned, "output": f"Briefing: run {task_id}"}


def execution(kickoff_id: str, attempt: int, started_at: float, *, failed: bool = False) -> Any:
    standing = SimpleNamespace(over=failed, error="no result" if failed else None)
    meta = {"airflow": {"run_id": "run", "task_id": "", "try_number": attempt}}
    return SimpleNamespace(kickoff_id=kickoff_id, started_at=started_at, meta=meta, standing=lambda _: standing)


FIRST, SECOND = ("first", 1, 60.0), ("second", 2, 150.0)


@pytest.fixture
def faults(monkeypatch):
    """Return the faults that the judge finds in one history."""

    def find(
        history: History, *executions: Any, cleared: Any = (), marked: Any = (), stopped: Any = ()
    ) -> list[str]:
        for one in executions:
            one.meta["airflow"]["task_id"] = history.task_id
        monkeypatch.setattr(verdict, "RETURNED_BY", {history.task_id: history.task_id})
        monkeypatch.setattr(verdict, "kickoff_record", lambda *_: history.record)
        monkeypatch.setattr(
            verdict, "failure_in", lambda events: history.failures[events[0]["number"] - 1] if events else None
        )
        stops = [SimpleNamespace(path=f"/stop/{kickoff_id}", received_at=200.0) for kickoff_id in stopped]
        crew: Any = SimpleNamespace(kickoffs=executions, requests=SimpleNamespace(on=lambda _: stops))
        chaos: Any = SimpleNamespace(crew=crew, runs=[history], cleared=cleared, marked=dict(marked))
        return verdict.judge(chaos).faults

    return find


@pytest.mark.parametrize(
    ("task_id", "logs", "failure", "is_fault"),
    [
        # Killed before the answer, and started again by the retry.
        ("run_sync", [["sent"], ["got second"]], None, True),
        # Started again although the first one was known and running.
        ("run_sync", [["got first"], ["got second"]], STILL_RUNNING, True),
        # Reported as uncertain, but retried by Airflow instead of cleared by a person.
        ("run_sync", [["sent"], ["got second"]], RETRIED, True),
        # Reported too late for a person to choose.
        ("run_sync", [["sent"], ["got second"]], TOO_LATE, True),
        # The author's choice is about kickoffs without an ID only.
        ("run_anyway", [["got first"], ["got second"]], None, True),
        ("run_sync", [["sent"], ["got second"]], UNCERTAIN, False),
        ("run_anyway", [["sent"], ["got second"]], None, False),
        # The answer to the first kickoff came too late.
        ("run_anyway", [["sent"], ["got second"], ["got first"]], None, False),
    ],
)
def test_second_start_is_a_fault_unless_it_was_chosen(faults, task_id, logs, failure, is_fault):
    failures = [failure, *[None] * (len(logs) - 1)]
    found = faults(History(task_id, logs, failures, returned="second"), execution(*FIRST), execution(*SECOND))

    assert any("started twice" in fault for fault in found) is is_fault
    assert is_fault or found == []


def test_answer_that_reached_only_a_cleared_process_leaves_the_choice(faults):
    history = History("run_anyway", [["got first"], ["got second"]], returned="second")

    assert faults(history, execution(*FIRST), execution(*SECOND), cleared=[("run", "run_anyway", 61.0)]) == []


def test_second_start_after_a_failed_crew_is_no_fault(faults):
    history = History("run_sync", [["got first"], ["got second"]], returned="second")

    assert faults(history, execution(*FIRST, failed=True), execution(*SECOND)) == []


def record(kickoff_id: str | None = None, *, reported: bool = False) -> dict[str, Any]:
    return {"kickoff_id": kickoff_id, "reported": reported, "delivered": False, "end": None}


@pytest.mark.parametrize(
    ("log", "options", "is_lost"),
    [
        ("sent", {}, True),
        ("sent", {"record": record("another")}, True),
        ("sent", {"failures": [Failure("LostContact", Cost.RUNNING)]}, True),
        ("got first", {}, False),
        ("sent", {"record": record("first")}, False),
        ("sent", {"record": record()}, False),
        ("sent", {"record": record(reported=True), "failures": [UNCERTAIN]}, False),
        ("got first", {"returned": "first"}, False),
    ],
)
def test_execution_that_a_user_cannot_know_of_is_a_fault(faults, log, options, is_lost):
    found = faults(History("run_sync", [[log]], **options), execution(*FIRST))

    assert ["first is named nowhere" in fault for fault in found] == [True] * is_lost


def test_uncertain_record_covers_the_last_execution_only(faults):
    history = History("run_sync", [["sent"], ["sent"]], record=record())

    found = faults(history, execution(*FIRST, failed=True), execution(*SECOND))

    assert [fault for fault in found if "named nowhere" in fault] == ["run run_sync: first is named nowhere"]


def test_result_of_another_task_is_a_fault(faults):
    (found,) = faults(History("run_sync", [["got first"]], returned="other"), execution(*FIRST))

    assert "no result of its own" in found


MARKED = (("run", "run_sync"), 199.0)


@pytest.mark.parametrize(
    ("marked", "count"),
    [([], 1), ([MARKED], 0), ([(("run", "run_sync"), 201.0)], 1), ([(("run", "run_deferred"), 199.0)], 1)],
)
def test_stop_without_a_mark_of_the_task_is_a_fault(faults, marked, count):
    history = History("run_sync", [["first"]], returned="first")

    assert len(faults(history, execution(*FIRST), marked=marked, stopped=["first", "another"])) == count
