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


class TestKickoff:
    def test_flow_needs_nothing_and_drops_unlisted_inputs(self, connect):
        client = connect(kind="flow", output="{topic} for {audience}.")
        kickoff_id = client.kickoff({"topic": "tides", "other": 1})
        client.service.finish(kickoff_id)

        assert client.service.kickoffs[0].inputs == {"topic": "tides", "audience": ""}
        assert client.status(kickoff_id)["result"] == "tides for ."

    def test_flow_starts_from_the_state_of_an_earlier_run(self, connect):
        client = connect(kind="flow")
        earlier = client.kickoff({"topic": "tides", "audience": "sailors", "id": "mine"})

        later = client.kickoff({"audience": "children"}, restoreFromStateId=earlier)

        taken = client.service.kickoffs[-1]
        assert taken.inputs == {"topic": "tides", "audience": "children"}
        assert taken.restored_from == earlier != later


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

    @pytest.mark.parametrize(
        ("output", "given", "expected"),
        [
            ('{"about": "{topic}"}', None, {"about": "tides"}),
            ('["{topic}"]', None, None),
            ('{"about": "{topic}"}', {"score": [1, None]}, {"score": [1, None]}),
        ],
    )
    def test_json_is_that_of_an_object_or_of_the_scenario(self, connect, output, given, expected):
        client = connect(output=output, result_json=given)
        kickoff_id = client.kickoff()
        client.service.finish(kickoff_id)

        assert client.status(kickoff_id)["result_json"] == expected


class TestHumanInput:
    """One execution of two tasks, the first of which waits for a person."""

    @pytest.fixture
    def begin(self, serve, clock):
        def start(human_input, *, last=False, **keys):
            tasks = (
                ScenarioTask(name="draft", seconds=5, output="a draft", human_input=human_input),
                ScenarioTask(name="polish", seconds=5, output="the end", human_input=last),
            )
            client = serve(Scenario(**{"inputs": (), "tasks": tasks, "dialect": "deployed"} | keys))
            kickoff_id = client.kickoff({})

            def after(seconds):
                clock.now = 1_000.0 + seconds
                return client.status(kickoff_id)

            return client.service, kickoff_id, after

        return start

    def test_crew_that_waits_reads_like_an_unknown_one(self, begin, clock):
        service, kickoff_id, after = begin(human_input=True)

        assert after(4.9)["state"] == "STARTED"
        assert after(5) == after(1_000_000) == UNKNOWN
        assert service.execution(kickoff_id).standing(clock.now).waiting

    def test_flow_that_waits_is_paused(self, begin):
        *_, after = begin(human_input=True, kind="flow")

        body = after(60)

        assert (body["state"], body["status"], body["usage_metrics"]) == ("PAUSED", "Task is Paused", None)
        assert (body["progress"]["completed"], body["progress"]["current"]) == (0, "draft")
        assert body["progress"]["updated_at"] == "1970-01-01T00:16:45Z"
        assert body["progress"]["duration_seconds"] == 60.0

    def test_wait_ends_by_itself_after_its_seconds(self, begin):
        *_, after = begin(human_input=10)

        states = [after(seconds)["state"] for seconds in (14.9, 15, 19.9, 20)]
        assert states == ["NOT FOUND", "RUNNING", "RUNNING", "SUCCESS"]
