"""Human input for the local server: by ``POST /resume``, and on its page in a browser."""

import re

import pytest
import requests

from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.local.projects.engine import Project
from tests.airflow_runs import eventually
from tests.integration.fake_project import write_project
from tests.integration.local_client import Client

TASKS = (
    ScenarioTask(name="draft", seconds=5, output="a <b>draft</b>", human_input=True),
    ScenarioTask(name="polish", output="the end"),
)
DONE = {"said": "completed", "output": "sent", "seconds": 1.0, "tasks": []} | dict.fromkeys(
    ("json", "usage", "state_id")
)


class Person(Client):
    """A client with a browser."""

    def resume(self, **body):
        return self.post("/resume", body)

    def page(self, **options):
        options = {"auth": ("anybody", self.token), "headers": {}} | options
        return self.get("/local/", **options)

    def answer(self, *, origin=None, host=None, **form):
        headers = {"Origin": self.service.url if origin is None else origin} | ({"Host": host} if host else {})
        auth = ("anybody", self.token)
        url = f"{self.service.url}/local/"
        return requests.post(url, data=form, headers=headers, auth=auth, allow_redirects=False, timeout=60)

    def form(self):
        """Read the hidden fields of the first form on the page."""
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.page().text)[:2])


@pytest.fixture
def client(serve):
    return Person(serve(Scenario(inputs=(), tasks=TASKS, dialect="deployed")).service)


@pytest.fixture
def waiting(client, clock):
    """Return the id of an execution that waits for a person."""
    kickoff_id = client.kickoff()
    clock.now += 60
    assert client.status(kickoff_id)["state"] == "NOT FOUND"
    return kickoff_id


def documented(kickoff_id, *, approve, **more):
    return {"execution_id": kickoff_id, "human_feedback": "shorter", "is_approve": approve, **more}


class TestOfAProject:
    @pytest.fixture
    def host(self, serve, tmp_path):
        def start(kind, dialect="deployed"):
            wait = {"do": "wait", "task": "draft", "draft": "a draft"}
            write_project(tmp_path, ready={"kind": kind}, steps=[wait, DONE])
            return Person(serve(Scenario(dialect=dialect), project=Project(tmp_path)).service)

        return start

    @pytest.mark.parametrize(
        ("kind", "dialect", "word"),
        [
            ("crew", "deployed", "NOT FOUND"),
            ("flow", "deployed", "PAUSED"),
        ],
    )
    def test_crew_hears_the_answers_of_a_person(self, host, kind, dialect, word):
        client = host(kind, dialect)
        kickoff_id = client.kickoff()
        execution = client.service.execution(kickoff_id)

        def waits(draft):
            eventually(lambda: (at := execution.standing(0)).waiting and at.draft.startswith(draft), pause=0.02)

        waits("a draft\n\nApprove this.")
        body = client.status(kickoff_id)
        client.resume(**documented(kickoff_id, approve=False))
        waits("a draft, shorter")
        assert client.resume(**documented(kickoff_id, approve=True)).status_code == 200
        eventually(lambda: execution.standing(0).over, pause=0.02)

        assert (body.get("state") or body["status"]) == word
        assert "sent" in str(client.status(kickoff_id))

    def test_draft_is_shown_with_the_token_only(self, host):
        client = host("crew")
        page = f"/executions/{client.kickoff()}"

        assert client.get(page, headers={}).status_code == 401
        assert client.get(page, headers={}, auth=("", client.token)).status_code == 200


class TestPage:
    def test_shows_executions_and_nothing_that_a_crew_writes_is_markup(self, client, waiting):
        answer = client.page()

        assert answer.status_code == 200
        assert waiting in answer.text
        assert "a &lt;b&gt;draft&lt;/b&gt;" in answer.text
        assert "<b>" not in answer.text
        assert client.service.token not in answer.text

    def test_can_load_run_and_send_nothing_but_its_form(self, client):
        headers = client.page().headers

        assert headers["content-type"] == "text/html; charset=utf-8"
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        # Its own style, and nothing that a crew could write.
        assert policy.pop("style-src").startswith("'sha256-")
        assert policy == {
            "default-src": "'none'",
            "form-action": "'self'",
            "base-uri": "'none'",
            "frame-ancestors": "'none'",
        }
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")

    @pytest.mark.parametrize("auth", [None, ("anybody", "wrong")])
    def test_asks_for_the_token(self, client, waiting, auth):
        answer = client.page(auth=auth)

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert waiting not in answer.text

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            *((host, 403) for host in ("crew.example", "127.0.0.1.crew.example:80", "")),
            *((host, 200) for host in ("localhost", "localhost:8765", "192.0.2.1:8765", "[::1]:8765")),
        ],
    )
    def test_is_shown_by_an_address_of_this_machine_only(self, client, waiting, host, status):
        answer = client.page(headers={"Host": host})

        assert answer.status_code == status
        assert (waiting in answer.text) is (status == 200)

    @pytest.mark.parametrize(("answer", "state"), [("approve", "SUCCESS"), ("reject", "STARTED")])
    def test_takes_an_answer(self, client, waiting, answer, state):
        done = client.answer(**client.form(), answer=answer, feedback="shorter")

        assert (done.status_code, done.headers["location"]) == (303, "/local/")
        assert client.status(waiting)["state"] == state

    @pytest.mark.parametrize(
        ("origin", "host"),
        [
            *((origin, None) for origin in ("", "null", "http://crew.example", "http://127.0.0.1")),
            ("http://crew.example", "crew.example"),
        ],
    )
    def test_takes_none_from_elsewhere(self, client, waiting, origin, host):
        assert client.answer(origin=origin, host=host, **client.form(), answer="approve").status_code == 403
        assert client.status(waiting)["state"] == "NOT FOUND"

    def test_approves_only_of_what_was_seen(self, client, waiting, clock):
        seen = client.form()
        client.service.reject(waiting)
        clock.now += 5

        assert client.answer(**seen, answer="approve").status_code == 409
        assert client.answer(answer="approve").status_code == 409
        assert client.status(waiting)["state"] == "NOT FOUND"
