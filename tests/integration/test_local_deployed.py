"""The deployed dialect of the local server, as a plain HTTP client sees it."""

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask

TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", seconds=2, output="about {topic}"),
    ScenarioTask(name="second", agent="B", seconds=3, output="for {audience}"),
)
FAILING = (TASKS[0], ScenarioTask(name="second", seconds=3, error="ValueError: out of credit"))
FIELDS = (
    "result result_json usage_metrics progress last_event events events_count events_by_type triggered_by "
    "execution_origin last_step last_executed_task flow_id source"
)
UNKNOWN = {"state": "NOT FOUND", "status": "Task not found or Invalid kickoff id"} | dict.fromkeys(FIELDS.split())
PROGRESS = {"started_at": "1970-01-01T00:16:40Z", "updated_at": "1970-01-01T00:16:42Z", "duration_seconds": 2.5}


@pytest.fixture
def connect(serve):
    return lambda **keys: serve(Scenario(**{"dialect": "deployed", "tasks": TASKS} | keys))


class TestStatus:
    def test_running_crew(self, connect, clock):
        client = connect()
        meta = {"airflow": {"try": 1}}
        kickoff_id = client.kickoff(meta=meta)
        clock.now += 2.5

        progress = {"unit": "task", "completed": 1, "total": 2, "remaining": 1} | PROGRESS
        task = {"name": "first", "description": "look at tides", "output": "about tides"}
        assert client.status(kickoff_id) == UNKNOWN | {
            "state": "RUNNING",
            "status": "Task is Running",
            "progress": progress | {"current": "second", "current_agent": "B"},
            "last_executed_task": task | {"kickoff_id": kickoff_id, "meta": meta},
        }

    def test_running_flow_does_not_know_its_number_of_steps(self, connect, clock):
        client = connect(kind="flow")
        kickoff_id = client.kickoff({})
        clock.now += 2.5

        progress = {"unit": "step", "completed": 1, "total": None, "remaining": None} | PROGRESS
        assert client.status(kickoff_id) == UNKNOWN | {
            "state": "RUNNING",
            "status": "Task is Running",
            "progress": progress | {"current": "second", "current_agent": None},
        }

    def test_completed_crew(self, connect, clock):
        client = connect(usage={"total_tokens": 7})
        kickoff_id = client.kickoff()
        clock.now += 100

        body = client.status(kickoff_id)

        assert body == UNKNOWN | {
            "state": "SUCCESS",
            "status": None,
            "result": "for sailors",
            "usage_metrics": {"total_tokens": 7},
            "progress": body["progress"],
            "last_executed_task": body["last_executed_task"],
        }
        assert body["last_executed_task"]["name"] == "second"
        ended = {"completed": 2, "remaining": 0, "updated_at": "1970-01-01T00:16:45Z", "duration_seconds": 5.0}
        assert body["progress"].items() >= ended.items()

    def test_failed_crew_has_its_reason_as_status(self, connect, clock):
        client = connect(tasks=FAILING, usage={"total_tokens": 7})
        kickoff_id = client.kickoff()
        clock.now += 5

        body = client.status(kickoff_id)

        assert body == UNKNOWN | {
            "state": "FAILED",
            "status": "ValueError: out of credit",
            "usage_metrics": {"total_tokens": 7},
            "last_executed_task": body["last_executed_task"],
        }
        assert body["last_executed_task"]["name"] == "first"
