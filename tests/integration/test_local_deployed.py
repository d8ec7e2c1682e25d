"""The deployed dialect of the local server, as a plain HTTP client sees it."""

import pytest

from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask

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


def test_error_is_a_detail(connect):
    client = connect()
    client.token = "wrong"

    answer = client.get("/inputs")

    assert (answer.status_code, set(answer.json())) == (401, {"detail"})
    assert "www-authenticate" in answer.headers


@pytest.mark.parametrize("shape", ["names", "objects"])
@pytest.mark.parametrize(("kind", "names"), [("crew", ["topic"]), ("flow", ["id", "topic", "tone"])])
def test_inputs_are_bare_names(connect, kind, names, shape):
    wanted = (CrewInput(name="topic"), CrewInput(name="tone", required=False))
    client = connect(kind=kind, inputs=wanted, inputs_shape=shape)

    assert client.get("/inputs").json() == {"inputs": names}


class TestKickoff:
    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            ({"inputs": {"other": 1}}, "Missing inputs: audience, topic"),
            ({"inputs": []}, "inputs: "),
            ({"inputs": {}, "restoreFromStateId": "earlier"}, ""),
        ],
    )
    def test_unusable_inputs_of_a_crew_are_rejected(self, connect, body, complaint):
        client = connect()

        answer = client.post("/kickoff", body)

        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(complaint)
        assert client.service.kickoffs == ()

    def test_crew_takes_any_value_and_unlisted_inputs(self, connect):
        client = connect(output="{topic} {audience}")
        inputs = {"topic": ["a", None], "audience": True, "other": 1}
        kickoff_id = client.kickoff(inputs)
        client.service.finish(kickoff_id)

        assert client.service.kickoffs[0].inputs == inputs
        assert client.status(kickoff_id)["result"] == "['a', None] True"

    def test_flow_needs_nothing_and_drops_unlisted_inputs(self, connect):
        client = connect(kind="flow", output="{topic} for {audience}.")
        kickoff_id = client.kickoff({"topic": "tides", "other": 1})
        client.service.finish(kickoff_id)

        assert client.service.kickoffs[0].inputs == {"topic": "tides", "audience": ""}
        assert client.status(kickoff_id)["result"] == "tides for ."

    @pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000])
    def test_body_that_is_not_json_is_an_internal_error(self, connect, body):
        answer = connect().post("/kickoff", body)

        assert (answer.status_code, answer.text) == (500, "Internal Server Error")
        assert answer.headers["content-type"].startswith("text/plain")

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

    @pytest.mark.parametrize("tasks", [TASKS, FAILING])
    def test_usage_without_tokens_is_null(self, connect, tasks):
        client = connect(tasks=tasks, usage={})
        kickoff_id = client.kickoff()
        client.service.finish(kickoff_id)

        assert client.status(kickoff_id)["usage_metrics"] is None

    @pytest.mark.parametrize(
        ("output", "given", "expected"),
        [
            ('{"about": "{topic}"}', None, {"about": "tides"}),
            ('["{topic}"]', None, None),
            ("{topic}", None, None),
            ('{"about": "{topic}"}', {"score": [1, None]}, {"score": [1, None]}),
        ],
    )
    def test_json_is_that_of_an_object_or_of_the_scenario(self, connect, output, given, expected):
        client = connect(output=output, result_json=given)
        kickoff_id = client.kickoff()
        client.service.finish(kickoff_id)

        assert client.status(kickoff_id)["result_json"] == expected

    def test_execution_finished_early_ended_then(self, connect, clock):
        client = connect()
        kickoff_id = client.kickoff()
        clock.now += 1
        client.service.finish(kickoff_id)
        clock.now += 60

        body = client.status(kickoff_id)

        assert (body["state"], body["progress"]["updated_at"]) == ("SUCCESS", "1970-01-01T00:16:41Z")

    def test_revoked_execution(self, connect):
        client = connect()
        kickoff_id = client.kickoff()
        client.service.revoke(kickoff_id)

        assert client.status(kickoff_id) == UNKNOWN | {"state": "REVOKED", "status": "Task was revoked"}

    @pytest.mark.parametrize("kind", ["crew", "flow"])
    def test_unknown_execution(self, connect, kind):
        assert connect(kind=kind).status("nobody") == UNKNOWN


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

    @pytest.mark.parametrize("kind", ["crew", "flow"])
    def test_documented_dialect_reads_running(self, begin, kind):
        *_, after = begin(human_input=True, dialect="documented", kind=kind)

        assert after(60) == {
            "status": "running",
            "current_task": "draft",
            "progress": {"completed_tasks": 0, "total_tasks": 2},
        }

    def test_wait_ends_by_itself_after_its_seconds(self, begin):
        *_, after = begin(human_input=10)

        states = [after(seconds)["state"] for seconds in (14.9, 15, 19.9, 20)]
        assert states == ["NOT FOUND", "RUNNING", "RUNNING", "SUCCESS"]

    @pytest.mark.parametrize("human_input", [True, 500])
    def test_next_task_starts_at_the_approval(self, begin, human_input):
        service, kickoff_id, after = begin(human_input)
        after(100)

        service.approve(kickoff_id)

        assert after(104.9)["state"] == "RUNNING"
        assert after(104.9)["last_executed_task"]["output"] == "a draft"
        assert after(105)["state"] == "SUCCESS"

    def test_last_task_waits_for_its_own_approval(self, begin):
        service, kickoff_id, after = begin(human_input=True, last=True)
        after(10)
        service.approve(kickoff_id)
        assert after(15)["state"] == "NOT FOUND"
        after(30)
        service.approve(kickoff_id)

        body = after(30)
        assert (body["state"], body["result"], body["progress"]["duration_seconds"]) == (
            "SUCCESS",
            "the end",
            30.0,
        )

    def test_waiting_is_not_execution_time(self, begin):
        service, kickoff_id, after = begin(human_input=10, last=True, dialect="documented")
        after(100)
        service.approve(kickoff_id)

        assert after(100)["execution_time"] == 10.0

    @pytest.mark.parametrize("seconds", [0, 15, 20])
    def test_execution_that_does_not_wait_cannot_be_approved(self, begin, seconds):
        service, kickoff_id, after = begin(human_input=10)
        after(seconds)

        with pytest.raises(ValueError, match=kickoff_id):
            service.approve(kickoff_id)
        with pytest.raises(LookupError, match="no execution 'x'"):
            service.approve("x")

    @pytest.mark.parametrize(("how", "state"), [("finish", "SUCCESS"), ("revoke", "REVOKED")])
    def test_execution_that_waits_can_be_ended(self, begin, how, state):
        service, kickoff_id, after = begin(human_input=True, last=True)
        after(60)

        getattr(service, how)(kickoff_id)

        assert after(60)["state"] == state
        with pytest.raises(ValueError, match="does not wait"):
            service.approve(kickoff_id)
