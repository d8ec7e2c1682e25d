"""What the tests read in the log of an Airflow 2."""

from __future__ import annotations

from dev.airflow2 import Airflow2Api

PREFIX = "[2026-01-02, 03:04:05 UTC] {taskinstance.py:3313}"
LOG = f"""\
{PREFIX} WARNING - Again in 2 s
Traceback (most recent call last):
  File "client.py", line 7, in get
ConnectionError: refused
{PREFIX} ERROR - Task failed with exception
Traceback (most recent call last):
  File "operator.py", line 9, in execute
    run(task)
airflow_provider_crew.durable.outcome.CrewTaskFailed: The kickoff is uncertain.
Cost: Not known.
Next: Look for it.
{PREFIX} INFO - Marking task as FAILED.
"""


def read(log: str, monkeypatch) -> list[dict[str, object]]:
    api = Airflow2Api("http://127.0.0.1:1")
    monkeypatch.setattr(api, "get", lambda *_, **__: {"content": repr([("host", log)])})
    return api.log_events("dag", "run", "task")


def test_failure_has_all_lines_of_its_message(monkeypatch):
    *_, failure = read(LOG, monkeypatch)

    assert failure["error_detail"] == [
        {
            "exc_type": "CrewTaskFailed",
            "exc_value": "The kickoff is uncertain.\nCost: Not known.\nNext: Look for it.",
        }
    ]


def test_log_without_a_traceback_has_no_failure(monkeypatch):
    events = read(f"{PREFIX} INFO - Note: all is well", monkeypatch)

    assert [event["event"] for event in events] == ["Note: all is well"]
