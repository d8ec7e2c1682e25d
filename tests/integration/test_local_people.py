"""What the local service tells while an execution waits for a person, and what a test can do about it."""

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from tests.integration.clock import Clock


class Story:
    """One execution of two tasks, the first of which waits for a person."""

    def __init__(self, service, clock):
        self.service = service
        self.clock = clock
        self.headers = {"Authorization": f"Bearer {service.token}"}
        started = requests.post(f"{service.url}/kickoff", json={"inputs": {}}, headers=self.headers, timeout=5)
        self.kickoff_id = started.json()["kickoff_id"]

    def status(self, kickoff_id=None):
        url = f"{self.service.url}/status/{kickoff_id or self.kickoff_id}"
        answer = requests.get(url, headers=self.headers, timeout=5)
        assert answer.status_code == 200
        return answer.json()

    def word(self):
        """Return the one word that counts in either dialect."""
        body = self.status()
        return body.get("state") or body["status"]

    def after(self, seconds):
        """Return that word so many seconds after the start."""
        self.clock.now = 1_000.0 + seconds
        return self.word()

    def approve(self):
        self.service.approve(self.kickoff_id)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def begin(clock):
    running = []

    def start(human_input, *, last=False, **keys):
        tasks = (
            ScenarioTask(name="draft", seconds=5, output="a draft", human_input=human_input),
            ScenarioTask(name="polish", seconds=5, output="the end", human_input=last),
        )
        scenario = Scenario(**{"inputs": (), "tasks": tasks, "dialect": "deployed"} | keys)
        running.append(LocalCrewService(scenario, clock=clock).start())
        return Story(running[-1], clock)

    yield start
    for service in running:
        service.stop()


def test_a_crew_that_waits_reads_like_an_unknown_one(begin):
    story = begin(human_input=True)

    assert story.after(4.9) == "STARTED"
    assert story.after(5) == "NOT FOUND"
    assert story.after(1_000_000) == "NOT FOUND"
    assert story.status() == story.status("nobody")
    assert story.service.execution(story.kickoff_id).standing(story.clock.now).waiting


def test_a_flow_that_waits_is_paused(begin):
    story = begin(human_input=True, kind="flow")

    assert story.after(60) == "PAUSED"
    body = story.status()
    assert body["status"] == "Task is Paused"
    assert body["usage_metrics"] is None
    assert (body["progress"]["completed"], body["progress"]["current"]) == (0, "draft")
    assert body["progress"]["updated_at"] == "1970-01-01T00:16:45Z"
    assert body["progress"]["duration_seconds"] == 60.0


@pytest.mark.parametrize("kind", ["crew", "flow"])
def test_in_the_documented_dialect_it_goes_on_as_running(begin, kind):
    story = begin(human_input=True, dialect="documented", kind=kind)

    assert story.after(60) == "running"
    assert story.status() == {
        "status": "running",
        "current_task": "draft",
        "progress": {"completed_tasks": 0, "total_tasks": 2},
    }


def test_after_so_many_seconds_it_goes_on_by_itself(begin):
    story = begin(human_input=10)

    assert story.after(14.9) == "NOT FOUND"
    assert story.after(15) == "RUNNING"
    assert story.after(19.9) == "RUNNING"
    assert story.after(20) == "SUCCESS"


@pytest.mark.parametrize("human_input", [True, 500])
def test_after_an_approval_the_next_task_takes_its_time(begin, human_input):
    story = begin(human_input)
    story.after(100)

    story.approve()

    assert story.word() == "RUNNING"
    assert story.status()["last_executed_task"]["output"] == "a draft"
    assert story.after(104.9) == "RUNNING"
    assert story.after(105) == "SUCCESS"


def test_the_last_task_waits_for_its_own_approval(begin):
    story = begin(human_input=True, last=True)
    story.after(10)
    story.approve()

    assert story.after(15) == "NOT FOUND"
    story.clock.now += 15
    story.approve()

    body = story.status()
    assert (body["state"], body["result"]) == ("SUCCESS", "the end")
    assert body["progress"]["duration_seconds"] == 30.0


def test_waiting_is_no_work(begin):
    story = begin(human_input=10, last=True, dialect="documented")
    story.after(100)
    story.approve()

    assert story.status()["execution_time"] == 10.0


@pytest.mark.parametrize("seconds", [0, 15, 20])
def test_what_does_not_wait_cannot_be_approved(begin, seconds):
    story = begin(human_input=10)
    story.after(seconds)

    with pytest.raises(ValueError, match=f"^execution '{story.kickoff_id}' does not wait for a person$"):
        story.approve()
    with pytest.raises(LookupError, match="no execution 'x'"):
        story.service.approve("x")


@pytest.mark.parametrize("seconds", [0, 60])
def test_finishing_passes_over_people(begin, seconds):
    story = begin(human_input=True, last=True)
    story.after(seconds)

    story.service.finish(story.kickoff_id)

    assert story.word() == "SUCCESS"
    assert story.status()["progress"]["duration_seconds"] == seconds


def test_what_waits_can_be_revoked(begin):
    story = begin(human_input=True)
    story.after(60)

    story.service.revoke(story.kickoff_id)

    assert story.word() == "REVOKED"
    with pytest.raises(ValueError, match="does not wait"):
        story.approve()
