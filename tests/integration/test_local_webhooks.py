"""The webhooks that a kickoff names, as those hear of it who are called."""

import pytest

from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.airflow_runs import eventually
from tests.integration.receivers import http_receiver

TASKS = (
    ScenarioTask(name="first", agent="A", description="look at {topic}", output="about {topic}", human_input=True),
    ScenarioTask(name="second", agent="B", output="the end"),
)
PROOF = {"strategy": "bearer", "token": "of the receiver"}


@pytest.fixture
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def said():
    return []


@pytest.fixture
def begin(serve, said, receiver):
    """Start a service and an execution with webhooks; return the service and the kickoff ID."""
    _, address = receiver
    named = {
        "taskWebhookUrl": f"{address}/task",
        "crewWebhookUrl": f"{address}/crew",
        "humanInputWebhookUrl": f"{address}/person",
        "webhooks": {"events": ["task_completed"], "url": f"{address}/events", "authentication": PROOF},
    }

    def start(changes=None, *, call_webhooks=True, **keys):
        scenario = Scenario(**{"inputs": (), "tasks": TASKS, "dialect": "deployed"} | keys)
        client = serve(scenario, call_webhooks=call_webhooks, log=said.append)
        return client.service, client.kickoff({"topic": "tides"}, meta={"a": 1}, **{**named, **(changes or {})})

    return start


def heard(receiver, path, times=1):
    return eventually(
        lambda: len(found := [each for each in receiver[0] if each[0] == path]) >= times and found, pause=0.02
    )


@pytest.mark.parametrize("dialect", ["deployed", "documented"])
def test_each_webhook_is_called_for_its_event(begin, receiver, said, dialect):
    service, kickoff_id = begin(dialect=dialect, usage={"total_tokens": 7})
    ids = {"kickoff_id": kickoff_id, "execution_id": kickoff_id, "meta": {"a": 1}}

    ((_, proof, asked),) = heard(receiver, "/person")
    assert asked.items() >= {**ids, "task": "first", "task_output": "about tides"}.items()
    assert receiver[0] == [("/person", proof, asked)]
    service.answer(kickoff_id, approved=True, question=asked["task_id"])
    tasks = heard(receiver, "/task", 2)
    ((_, _, end),) = heard(receiver, "/crew")
    events = heard(receiver, "/events", 2)

    assert {proof, *(each[1] for each in tasks)} == {None}
    assert tasks[0][2].items() >= {**ids, "name": "first", "agent": "A", "output": "about tides"}.items()
    assert end.items() >= {**ids, "result": "the end", "token_usage": {"total_tokens": 7}}.items()
    assert {each[1] for each in events} == {"Bearer of the receiver"}
    (event,) = events[0][2]["events"]
    assert event["type"] == "task_completed"
    assert (event["execution_id"], event["data"]["name"]) == (kickoff_id, "first")
    assert said == []


def test_failed_call_is_logged_without_secrets(begin, said):
    dead = "http://127.0.0.1:1/secret"
    changes = {"taskWebhookUrl": dead, "crewWebhookUrl": f"{dead}2", "webhooks": None}
    service, kickoff_id = begin(changes, tasks=TASKS[1:])

    eventually(lambda: len(said) == 2, pause=0.02)
    assert {line.replace(kickoff_id, "ID") for line in said} == {
        "ID webhook at 127.0.0.1 cannot be called: ClientConnectorError"
    }
    assert service.execution(kickoff_id).standing(service.now()).error is None
