"""The local server: its responses in both dialects, and its pages in a browser."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import requests

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.local_client import Client

TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", seconds=2, output="about {topic}"),
    ScenarioTask(name="second", agent="B", seconds=3, output="for {audience}"),
)
FAILING = (TASKS[0], ScenarioTask(name="second", seconds=3, error="out of credit"))
ASKING = (TASKS[0], ScenarioTask(name="second", human_input=True))
META = {"airflow": {"try": 1}}
UNAUTHORIZED = "The bearer token is missing or invalid."


def test_responses_are_those_of_the_table(serve, clock, evaluated):
    def status(seconds: float, dialect: str = "deployed", **scenario: Any) -> Any:
        client = serve(Scenario(**{"dialect": dialect, "tasks": TASKS} | scenario))
        kickoff_id = client.kickoff(meta=META)
        clock.now += seconds
        found = client.status(kickoff_id)
        clock.now -= seconds
        known = {name: value for name, value in found.items() if value is not None}
        return json.loads(json.dumps(known).replace(kickoff_id, "ID"))

    def respond(request: str, body: Any = None, dialect: str = "deployed") -> tuple[int, Any]:
        client = serve(Scenario(dialect=dialect, tasks=TASKS))
        kickoff_id = client.kickoff()
        method, path = request.replace("ID", kickoff_id).split()
        response = client.get(path) if method == "GET" else client.post(path, body)
        assert len(client.service.kickoffs) == 1
        return response.status_code, json.loads(response.text.replace(kickoff_id, "ID"))

    evaluated("local_server.txt", status=status, respond=respond, **globals())


@pytest.mark.parametrize(
    ("dialect", "body"),
    [("documented", {"error": "Unauthorized", "message": UNAUTHORIZED}), ("deployed", {"detail": UNAUTHORIZED})],
)
@pytest.mark.parametrize("path", ["/kickoff", "/resume", "/local/"])
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}])
def test_stranger_is_answered_before_the_body(serve, dialect, body, path, header):
    service = serve(Scenario(dialect=dialect)).service
    with requests.Session() as session:
        prepared = session.prepare_request(requests.Request("POST", service.url + path, headers=header))
        prepared.headers["Content-Length"] = "1000000000000"
        response = session.send(prepared, timeout=60)

    assert (response.status_code, response.headers["Connection"]) == (401, "close")
    assert path == "/local/" or response.json() == body
    assert [(each.path, each.status, each.body) for each in service.requests] == [(path, 401, b"")]
    assert service.kickoffs == ()


AIRFLOW = "http://airflow.example:8080"
ASKS = ScenarioTask(name="ask", seconds=5, human_input=True, output="# A draft\n\n- one")
ENDS = ScenarioTask(name="polish", seconds=5, output="the end")


class Browser(Client):
    """A browser that has logged in."""

    def load(self, path="/local/", **options):
        return self.get(path, **{"headers": {"Accept": "text/html,*/*;q=0.8"}, "auth": ("", self.token)} | options)

    def form(self):
        """Read the hidden fields of the first form on the page."""
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.load().text)[:2])

    def answer(self, *, origin=None, host=None, **form):
        headers = {"Origin": self.service.url if origin is None else origin} | ({"Host": host} if host else {})
        url, auth = f"{self.service.url}/local/", ("anybody", self.token)
        return requests.post(url, data=form, headers=headers, auth=auth, allow_redirects=False, timeout=60)


@pytest.fixture
def browse(serve):
    def start(*tasks):
        browser = Browser(serve(Scenario(inputs=(), tasks=tasks, dialect="deployed")).service)
        browser.service.airflow_url = AIRFLOW
        return browser

    return start


@pytest.fixture
def browser(browse):
    return browse(ASKS, ENDS)


@pytest.fixture
def waiting(browser, clock):
    """Return the ID of an execution that waits for a person."""
    kickoff_id = browser.kickoff()
    clock.now += 60
    return kickoff_id


@pytest.mark.parametrize(
    ("accept", "content_type"), [("text/html,*/*;q=0.8", "text/html; charset=utf-8"), ("*/*", "application/json")]
)
@pytest.mark.parametrize(("index", "end"), [(-1, '/report"'), (0, '/report/mapped/0"')])
def test_browser_gets_a_page_and_a_program_json(browser, accept, content_type, index, end):
    task = {"dag_id": "daily", "run_id": "at 7", "task_id": "report", "map_index": index}
    url = browser.service.dashboard_url.format(kickoff_id=browser.kickoff(meta={"airflow": task}))

    response = requests.get(url, headers={"Accept": accept}, timeout=60)

    assert (response.status_code, response.headers["content-type"]) == (200, content_type)
    assert (f'"{AIRFLOW}/dags/daily/runs/at%207/tasks{end}' in response.text) is ("html" in accept)
    assert requests.get(f"{url}x", headers={"Accept": accept}, timeout=60).status_code == 404


def test_requests_are_allowed_as_in_the_table(browser, waiting, evaluated):
    """The page needs its token and an address of this machine, and an answer has to come from the page."""

    def load(**options: Any) -> int:
        response = browser.load(**options)
        assert (waiting in response.text) is (response.status_code == 200)
        assert browser.token not in response.text
        assert "default-src 'none'; style-src 'sha256-" in response.headers["content-security-policy"]
        return response.status_code

    def approve(origin: str, host: str | None = None) -> int:
        status: int = browser.answer(origin=origin, host=host, **browser.form(), answer="approve").status_code
        assert browser.status(waiting)["state"] == "NOT FOUND"
        return status

    evaluated("local_page.txt", load=load, approve=approve)


@pytest.mark.parametrize(("answer", "state"), [("approve", "RUNNING"), ("reject", "STARTED")])
def test_page_takes_an_answer(browser, waiting, answer, state):
    shown = browser.load().text
    response = browser.answer(**browser.form(), answer=answer, feedback="shorter")

    assert "A draft" in shown
    assert (response.status_code, response.headers["location"]) == (303, "/local/")
    assert browser.status(waiting)["state"] == state
    # A page with a form does not reload itself, which would lose what was entered.
    assert [("<textarea" in page, 'http-equiv="refresh"' in page) for page in (shown, browser.load().text)] == [
        *((True, False), (False, True))
    ]


def test_page_approves_only_of_what_was_seen(browser, waiting, clock):
    seen = browser.form()
    browser.service.reject(waiting)
    clock.now += 5

    assert browser.answer(**seen, answer="approve").status_code == 409
    assert browser.answer(answer="approve").status_code == 409
    assert browser.status(waiting)["state"] == "NOT FOUND"


def test_program_gets_a_list_of_executions(browser, waiting):
    url = f"{browser.service.url}/local/"
    listed = requests.get(url, auth=("", browser.token), timeout=60)

    (execution,) = listed.json()
    assert execution.pop("started_at") > 0
    inputs = {"topic": "tides", "audience": "sailors"}
    assert execution == {"kickoff_id": waiting, "state": "waiting for human input", "inputs": inputs, "meta": None}
    assert requests.get(url, timeout=60).status_code == 401


def test_fault_affects_each_third_kickoff(serve):
    fault = {"kind": "answer", "on": "kickoff", "status": 504, "after_taken": True, "every": 3}
    client = serve(Scenario(faults=[fault]))
    url, secret = f"{client.service.url}/kickoff", {"Authorization": f"Bearer {client.token}"}
    body = {"inputs": {"topic": "tides", "audience": "sailors"}}
    statuses = [requests.post(url, json=body, headers=secret, timeout=60).status_code for _ in range(7)]

    assert statuses == [200, 200, 504, 200, 200, 504, 200]
    assert len(client.service.kickoffs) == 7
