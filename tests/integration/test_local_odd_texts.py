"""Texts that no encoding or no terminal takes, on every page and in every answer of the local service."""

import io
import json
import sys

import pytest
import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.local.__main__ import _say_now
from airflow_provider_crew.local.scenario import CrewInput

PATIENCE = 60
ODD = {
    "half a pair": "a\ud800b",
    "NUL": "a\0b",
    "line separator": "a\u2028b",
    "escape": "a\x1b[2Jb",
}


@pytest.fixture(params=[*ODD.values()], ids=[*ODD])
def odd(request):
    return request.param


class Client:
    def __init__(self, service):
        self.url = service.url
        self.headers = {"Authorization": f"Bearer {service.token}"}

    def get(self, path):
        return requests.get(self.url + path, headers=self.headers, timeout=PATIENCE)

    def post(self, path, body):
        # Which json= of requests would not take.
        return requests.post(self.url + path, data=json.dumps(body), headers=self.headers, timeout=PATIENCE)


def tasks(*, error=None, waits=False):
    written = {"output": "{topic}", "description": "{topic}"}
    return (
        ScenarioTask(name="draft", human_input=waits, **written),
        ScenarioTask(name="polish", error=error, **written),
    )


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
@pytest.mark.parametrize("kind", ["crew", "flow"])
@pytest.mark.parametrize("waits", [False, True])
def test_odd_text_is_on_every_page_and_in_every_answer(odd, dialect, kind, waits):
    inputs = (CrewInput(name="topic"), CrewInput(name="more"))
    scenario = Scenario(dialect=dialect, kind=kind, inputs=inputs, tasks=tasks(waits=waits))
    with LocalCrewService(scenario if waits else scenario.without_waiting()) as service:
        client = Client(service)
        body = {"inputs": {"topic": odd, "more": [odd]}, "meta": {"more": odd}}
        kickoff_id = client.post("/kickoff", body).json()["kickoff_id"]
        page = client.get("/local/")
        shown = client.get(f"/executions/{kickoff_id}")
        told = [client.get(path) for path in (f"/status/{kickoff_id}", f"/{kickoff_id}/status", "/inputs")]

        assert [each.status_code for each in (page, shown, *told)] == [200] * 5
        assert page.content.decode("utf-8").count("topic") == 1
        assert shown.json()["inputs"] == body["inputs"]
        if not waits:
            assert json.dumps(odd)[1:-1] in told[0].text


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_odd_reason_of_a_failure_is_told(odd, dialect):
    # A scenario file cannot hold it, but a real crew can fail with it.
    scenario = Scenario(dialect=dialect, inputs=(), tasks=tasks(error="x")).without_waiting()
    failing = scenario.tasks[-1].model_copy(update={"error": odd})
    scenario = scenario.model_copy(update={"tasks": (*scenario.tasks[:-1], failing)})
    with LocalCrewService(scenario) as service:
        client = Client(service)
        kickoff_id = client.post("/kickoff", {"inputs": {}}).json()["kickoff_id"]

        assert client.get("/local/").status_code == 200
        assert odd in client.get(f"/status/{kickoff_id}").json().values()


@pytest.mark.parametrize("path", ["/kickoff", "/resume"])
def test_odd_field_is_refused_with_a_reason(odd, path):
    with LocalCrewService(Scenario(dialect="documented", inputs=())) as service:
        client = Client(service)
        sent = [{odd: odd}, {"inputs": odd}, {"execution_id": odd, "is_approve": True}, odd]
        answers = [client.post(path, body) for body in sent]

        assert {each.status_code for each in answers} <= {400, 404}
        assert all(each.json()["message"] for each in answers)


@pytest.mark.parametrize("field", ["kickoff_id", "task_id", "feedback", "answer"])
def test_odd_answer_on_the_page_is_refused(odd, field):
    with LocalCrewService(Scenario(inputs=())) as service:
        form = {field: odd.encode("utf-8", "surrogatepass")}
        headers = Client(service).headers | {"Origin": service.url}
        answer = requests.post(f"{service.url}/local/", data=form, headers=headers, timeout=PATIENCE)

        assert answer.status_code == 409


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_odd_line_is_printed(odd, encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))

    _say_now(f"begins {odd}")

    assert b"begins a" in written.getvalue()
