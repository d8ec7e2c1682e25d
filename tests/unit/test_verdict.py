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

    def find(history: History, *executions: Any, cleared: Any = (), stopped: Any = ()) -> list[str]:
        for one in executions:
            one.meta["airflow"]["task_id"] = history.task_id
        monkeypatch.setattr(verdict, "RETURNED_BY", {history.task_id: history.task_id})
        monkeypatch.setattr(verdict, "kickoff_record", lambda *_: history.record)
        monkeypatch.setattr(
            verdict, "failure_in", lambda events: history.failures[events[0]["number"] - 1] if events else None
        )
        stops = [SimpleNamespace(path=f"/stop/{kickoff_id}") for kickoff_id in stopped]
        crew: Any = SimpleNamespace(kickoffs=executions, requests=SimpleNamespace(on=lambda _: stops))
        chaos: Any = SimpleNamespace(crew=crew, runs=[history], cleared=cleared)
        found, _ = verdict.judge(chaos)
        return found

    return find


def record(kickoff_id: str | None = None, *, reported: bool = False) -> dict[str, Any]:
    return {"kickoff_id": kickoff_id, "reported": reported, "delivered": False, "end": None}


def test_judge_finds_the_faults_of_histories(faults, evaluated):
    def judged(task_id: str, *logs: str, failed: bool = False, **given: Any) -> list[str]:
        known = {"returned": "second" if len(logs) > 1 else None} | given
        failures = [known.pop("failure", None), *[None] * (len(logs) - 1)]
        executions = [execution(*FIRST, failed=failed), execution(*SECOND)][: len(logs)]
        end = {name: known.pop(name, None) for name in ("record", "returned")}
        return faults(History(task_id, [[log] for log in logs], failures, **end), *executions, **known)

    evaluated("judge.txt", judged=judged, **globals())
