"""The deployed dialect of the local service, as a plain HTTP client sees it, and the people it waits for."""

import json

import pytest
import requests

from airflow_provider_crew.local import CrewInput, LocalCrewService, Scenario, ScenarioTask
from tests.integration.clock import Clock

INPUTS = {"topic": "tides", "audience": "sailors"}
TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", seconds=2, output="about {topic}"),
    ScenarioTask(name="second", agent="B", seconds=3, output="for {audience}"),
)
FAILING = (TASKS[0], ScenarioTask(name="second", seconds=3, error="ValueError: out of credit"))
NOTHING_KNOWN = {
    "state": "NOT FOUND",
    "status": "Task not found or Invalid kickoff id",
    "result": None,
    "result_json": None,
    "usage_metrics": None,
    "progress": None,
    "last_event": None,
    "events": None,
    "events_count": None,
    "events_by_type": None,
    "triggered_by": None,
    "execution_origin": None,
    "last_step": None,
    "last_executed_task": None,
    "flow_id": None,
    "source": None,
}


class Client:
    """Just enough to talk to a crew of this scenario by hand."""

    def __init__(self, service):
        self.service = service
        self.headers = {"Authorization": f"Bearer {service.token}"}

    def get(self, path):
        return requests.get(self.service.url + path, headers=self.headers, timeout=5)

    def post(self, data):
        return requests.post(f"{self.service.url}/kickoff", data=data, headers=self.headers, timeout=5)

    def kickoff(self, inputs=None, **more):
        answer = self.post(json.dumps({"inputs": INPUTS if inputs is None else inputs, **more}))
        assert answer.status_code == 200
        return answer.json()["kickoff_id"]

    def status(self, kickoff_id):
        answer = self.get(f"/status/{kickoff_id}")
        assert answer.status_code == 200
        return answer.json()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def connect(clock):
    running = []

    def start(**keys):
        scenario = Scenario(**{"dialect": "deployed", "tasks": TASKS} | keys)
        running.append(LocalCrewService(scenario, clock=clock).start())
        return Client(running[-1])

    yield start
    for service in running:
        service.stop()


class TestErrors:
    def test_are_a_detail(self, connect):
        client = connect()
        client.headers = {"Authorization": "Bearer wrong"}

        answer = client.get("/inputs")

        assert answer.status_code == 401
        assert set(answer.json()) == {"detail"}
        assert "www-authenticate" in answer.headers


class TestInputs:
    WANTED = (CrewInput(name="topic"), CrewInput(name="tone", required=False))

    @pytest.mark.parametrize("shape", ["names", "objects"])
    @pytest.mark.parametrize(("kind", "names"), [("crew", ["topic"]), ("flow", ["id", "topic", "tone"])])
    def test_are_bare_names(self, connect, kind, names, shape):
        client = connect(kind=kind, inputs=self.WANTED, inputs_shape=shape)

        assert client.get("/inputs").json() == {"inputs": names}

    def test_of_a_flow_name_its_id_once(self, connect):
        client = connect(kind="flow", inputs=(CrewInput(name="topic"), CrewInput(name="id")))

        assert client.get("/inputs").json() == {"inputs": ["id", "topic"]}


class TestKickoff:
    def test_of_a_crew_needs_its_inputs(self, connect):
        client = connect()

        answer = client.post(json.dumps({"inputs": {"other": 1}}))

        assert answer.status_code == 422
        assert answer.json() == {"detail": "Missing inputs: audience, topic"}
        assert client.service.kickoffs == ()

    def test_of_a_crew_takes_what_it_does_not_know_and_what_is_no_text(self, connect):
        client = connect(output="{topic} {audience}")
        kickoff_id = client.kickoff({"topic": ["a", None], "audience": True, "other": 1})
        client.service.finish(kickoff_id)

        assert client.service.kickoffs[0].inputs == {"topic": ["a", None], "audience": True, "other": 1}
        assert client.status(kickoff_id)["result"] == "['a', None] True"

    def test_of_a_flow_needs_nothing_and_drops_what_it_does_not_know(self, connect):
        client = connect(kind="flow", output="{topic} for {audience}.")
        kickoff_id = client.kickoff({"topic": "tides", "other": 1})
        client.service.finish(kickoff_id)

        assert client.service.kickoffs[0].inputs == {"topic": "tides", "audience": ""}
        assert client.service.requests[0].json == {"inputs": {"topic": "tides", "other": 1}}
        assert client.status(kickoff_id)["result"] == "tides for ."

    @pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000])
    def test_that_is_no_json_is_an_internal_error(self, connect, body):
        answer = connect().post(body)

        assert answer.status_code == 500
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.text == "Internal Server Error"

    def test_of_another_shape_is_refused(self, connect):
        answer = connect().post(b'{"inputs": []}')

        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("inputs: ")


class TestRestoring:
    def test_a_flow_starts_from_the_state_of_an_earlier_run(self, connect):
        client = connect(kind="flow")
        earlier = client.kickoff({"topic": "tides", "audience": "sailors", "id": "mine"})

        later = client.kickoff({"audience": "children"}, restoreFromStateId=earlier)

        assert later != earlier
        taken = client.service.kickoffs[-1]
        assert taken.inputs == {"topic": "tides", "audience": "children"}
        assert taken.restored_from == earlier
        assert client.status(earlier)["state"] == client.status(later)["state"] == "STARTED"

    def test_a_crew_has_no_state(self, connect):
        client = connect()
        earlier = client.kickoff()

        answer = client.post(json.dumps({"inputs": {}, "restoreFromStateId": earlier}))

        assert answer.status_code == 422


class TestStatusOfACrew:
    def test_in_the_middle(self, connect, clock):
        client = connect()
        kickoff_id = client.kickoff(meta={"airflow": {"try": 1}})
        clock.now += 2.5

        assert client.status(kickoff_id) == NOTHING_KNOWN | {
            "state": "RUNNING",
            "status": "Task is Running",
            "progress": {
                "unit": "task",
                "completed": 1,
                "total": 2,
                "remaining": 1,
                "current": "second",
                "current_agent": "B",
                "started_at": "1970-01-01T00:16:40Z",
                "updated_at": "1970-01-01T00:16:42Z",
                "duration_seconds": 2.5,
            },
            "last_executed_task": {
                "name": "first",
                "description": "look at tides",
                "output": "about tides",
                "kickoff_id": kickoff_id,
                "meta": {"airflow": {"try": 1}},
            },
        }

    def test_that_is_done(self, connect, clock):
        client = connect(usage={"total_tokens": 7})
        kickoff_id = client.kickoff()
        clock.now += 100

        body = client.status(kickoff_id)

        assert body == NOTHING_KNOWN | {
            "state": "SUCCESS",
            "status": None,
            "result": "for sailors",
            "usage_metrics": {"total_tokens": 7},
            "progress": body["progress"],
            "last_executed_task": body["last_executed_task"],
        }
        assert body["last_executed_task"]["name"] == "second"
        assert body["progress"] == {
            "unit": "task",
            "completed": 2,
            "total": 2,
            "remaining": 0,
            "current": None,
            "current_agent": None,
            "started_at": "1970-01-01T00:16:40Z",
            "updated_at": "1970-01-01T00:16:45Z",
            "duration_seconds": 5.0,
        }

    def test_that_has_failed_tells_the_reason_in_its_sentence(self, connect, clock):
        client = connect(tasks=FAILING, usage={"total_tokens": 7})
        kickoff_id = client.kickoff()
        clock.now += 5

        body = client.status(kickoff_id)

        assert body == NOTHING_KNOWN | {
            "state": "FAILED",
            "status": "ValueError: out of credit",
            "usage_metrics": {"total_tokens": 7},
            "last_executed_task": body["last_executed_task"],
        }
        assert body["last_executed_task"]["name"] == "first"

    @pytest.mark.parametrize("tasks", [TASKS, FAILING])
    def test_counts_no_tokens_where_the_scenario_counts_none(self, connect, tasks):
        client = connect(tasks=tasks, usage={})
        kickoff_id = client.kickoff()
        client.service.finish(kickoff_id)

        assert client.status(kickoff_id)["usage_metrics"] is None

    @pytest.mark.parametrize(
        ("output", "told", "expected"),
        [
            ('{"about": "{topic}"}', None, {"about": "tides"}),
            ('["{topic}"]', None, None),
            ("{topic}", None, None),
            ('{"about": "{topic}"}', {"score": [1, None]}, {"score": [1, None]}),
        ],
    )
    def test_has_json_for_an_object_or_by_the_scenario(self, connect, output, told, expected):
        client = connect(output=output, result_json=told)
        kickoff_id = client.kickoff()
        client.service.finish(kickoff_id)

        assert client.status(kickoff_id)["result_json"] == expected

    def test_that_was_finished_early_ended_then(self, connect, clock):
        client = connect()
        kickoff_id = client.kickoff()
        clock.now += 1
        client.service.finish(kickoff_id)
        clock.now += 60
        client.service.finish(kickoff_id)

        body = client.status(kickoff_id)

        assert (body["state"], body["progress"]["updated_at"]) == ("SUCCESS", "1970-01-01T00:16:41Z")

    def test_that_was_revoked(self, connect, clock):
        client = connect()
        kickoff_id = client.kickoff()
        clock.now += 1
        client.service.revoke(kickoff_id)
        clock.now += 60

        assert client.status(kickoff_id) == NOTHING_KNOWN | {"state": "REVOKED", "status": "Task was revoked"}

    @pytest.mark.parametrize("kind", ["crew", "flow"])
    def test_that_is_unknown(self, connect, kind):
        assert connect(kind=kind).status("nobody") == NOTHING_KNOWN


class TestStatusOfAFlow:
    def test_counts_steps_and_does_not_know_how_many_there_are(self, connect, clock):
        client = connect(kind="flow")
        kickoff_id = client.kickoff({})
        clock.now += 2.5

        body = client.status(kickoff_id)

        assert body == NOTHING_KNOWN | {
            "state": "RUNNING",
            "status": "Task is Running",
            "progress": {
                "unit": "step",
                "completed": 1,
                "total": None,
                "remaining": None,
                "current": "second",
                "current_agent": None,
                "started_at": "1970-01-01T00:16:40Z",
                "updated_at": "1970-01-01T00:16:42Z",
                "duration_seconds": 2.5,
            },
        }

    def test_that_is_done_tells_no_task(self, connect, clock):
        client = connect(kind="flow")
        kickoff_id = client.kickoff()
        clock.now += 5

        body = client.status(kickoff_id)

        assert (body["state"], body["result"]) == ("SUCCESS", "for sailors")
        assert (body["progress"]["completed"], body["progress"]["remaining"]) == (2, None)
        assert body["last_executed_task"] is None
