"""Webhooks that a kickoff names, as their receivers see them. Human input is in test_input_receiver.py."""

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.airflow_runs import eventually
from tests.integration.receivers import http_receiver

TASKS = (
    ScenarioTask(name="first", agent="A", output="about {topic}"),
    ScenarioTask(name="second", output="the end"),
)
PROOF = {"strategy": "bearer", "token": "of the receiver"}
DEAD = "http://127.0.0.1:1/secret"


@pytest.mark.parametrize("dialect", ["deployed", "documented"])
def test_each_webhook_is_called_for_its_event(serve, dialect):
    said: list[str] = []
    scenario = Scenario(inputs=(), tasks=TASKS, dialect=dialect, usage={"total_tokens": 7}).without_waiting()
    client = serve(scenario, call_webhooks=True, log=said.append)
    with http_receiver() as (heard, address):
        events = {"events": ["task_completed"], "url": f"{address}/events", "authentication": PROOF}
        named = {"taskWebhookUrl": f"{address}/task", "crewWebhookUrl": f"{address}/crew", "webhooks": events}
        kickoff_id = client.kickoff({"topic": "tides"}, meta={"a": 1}, **named)
        eventually(lambda: len(heard) == 5, pause=0.02)
        dead = client.kickoff({"topic": "tides"}, taskWebhookUrl=DEAD)
        eventually(lambda: len(said) == 2, pause=0.02)

    bodies = {path: body for path, _, body in reversed(heard)}
    assert {(path, proof) for path, proof, _ in heard} == {
        *(("/task", None), ("/crew", None), ("/events", "Bearer of the receiver"))
    }
    ids = {"kickoff_id": kickoff_id, "execution_id": kickoff_id, "meta": {"a": 1}}
    assert bodies["/task"].items() >= {**ids, "name": "first", "agent": "A", "output": "about tides"}.items()
    assert bodies["/crew"].items() >= {**ids, "result": "the end", "token_usage": {"total_tokens": 7}}.items()
    (event,) = bodies["/events"]["events"]
    found = (event["type"], event["execution_id"], event["data"]["name"])
    assert found == ("task_completed", kickoff_id, "first")
    assert set(said) == {f"{dead} webhook at 127.0.0.1 cannot be called: ClientConnectorError"}
