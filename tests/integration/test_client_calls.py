"""What both clients put on the wire, and what they make of proper answers."""

from __future__ import annotations

import pytest

from airflow_provider_crew.client.api import KickoffRequest
from airflow_provider_crew.client.errors import InvalidKickoffId, Refused
from airflow_provider_crew.local import CrewInput, LocalCrewService, Scenario, ScenarioTask
from tests.integration.clients import INPUTS, KICKOFF, TOKEN


def test_requests_carry_token_and_body(crew, service):
    crew.inputs()
    kickoff_id = crew.kickoff(
        KickoffRequest.of(INPUTS, meta={"run": 7}, crew_webhook_url="https://hooks.example/end")
    )
    crew.status(kickoff_id)

    inputs, kickoff, status = service.requests
    assert [(sent.method, sent.path, sent.query) for sent in service.requests] == [
        ("GET", "/inputs", ""),
        ("POST", "/kickoff", ""),
        ("GET", f"/status/{kickoff_id}", ""),
    ]
    for sent in (inputs, kickoff, status):
        names = [name for name, _ in sent.headers]
        assert names.count("authorization") == 1
        assert sent.header("Authorization") == f"Bearer {TOKEN}"
        assert sent.header("Accept") == "application/json"
        assert sent.header("User-Agent").startswith("airflow-provider-crew/")
    assert kickoff.header("Content-Type") == "application/json"
    assert kickoff.json == {"inputs": INPUTS, "meta": {"run": 7}, "crewWebhookUrl": "https://hooks.example/end"}
    assert inputs.body == status.body == b""


def test_empty_options_are_not_sent(crew, service):
    crew.kickoff(KickoffRequest.of(INPUTS, meta=None, task_webhook_url="", step_webhook_url=None))

    assert service.requests[0].json == {"inputs": INPUTS}


def test_webhook_urls_are_sent(crew, service):
    crew.kickoff(
        KickoffRequest.of(
            INPUTS,
            task_webhook_url="https://hooks.example/task",
            step_webhook_url="https://hooks.example/step",
            crew_webhook_url="https://hooks.example/crew",
        )
    )

    assert service.requests[0].json == {
        "inputs": INPUTS,
        "taskWebhookUrl": "https://hooks.example/task",
        "stepWebhookUrl": "https://hooks.example/step",
        "crewWebhookUrl": "https://hooks.example/crew",
    }


def test_reads_share_connection_and_kickoff_does_not(crew, service):
    crew.inputs()
    crew.inputs()
    kickoff_id = crew.kickoff(KICKOFF)
    crew.status(kickoff_id)

    first, second, kickoff, _ = (sent.client for sent in service.requests)
    assert first == second
    assert kickoff != first


def test_path_of_address_is_kept(connect, service):
    crew = connect(f"{service.url}/teams/my%20crew/")

    with pytest.raises(Refused):
        crew.inputs()

    assert service.requests[0].path == "/teams/my%20crew/inputs"


@pytest.mark.parametrize("shape", ["names", "objects", "mapping"])
def test_inputs_are_read_in_every_shape(crew, service, shape):
    service.scenario = Scenario(
        inputs=(CrewInput(name="topic", description="What about"), CrewInput(name="tone", required=False)),
        inputs_shape=shape,
    )

    inputs = crew.inputs()

    # Only the objects say what is needed; the other shapes leave out what is not.
    assert (inputs.required, inputs.optional) == ((("topic",), ("tone",)) if shape == "objects" else ((), ()))
    assert inputs.names == (("topic", "tone") if shape == "objects" else ("topic",))


@pytest.mark.parametrize("path", ["both", "status_first", "id_first"])
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_run_reads_the_same_in_all_dialects_and_paths(connect, dialect, path):
    scenario = Scenario(
        tasks=(
            ScenarioTask(name="research_task", agent="Researcher", output="About {topic}"),
            ScenarioTask(name="writing_task", agent="Writer", output='{"title": "{topic}"}'),
        ),
        inputs=(CrewInput(name="topic"),),
        dialect=dialect,
        status_paths=path,
    )
    with LocalCrewService(scenario, token=TOKEN) as service:
        crew = connect(service.url)
        kickoff_id = crew.kickoff(KickoffRequest.of({"topic": "harbours"}))
        result = crew.status(kickoff_id).result()

    assert result["kickoff_id"] == kickoff_id
    assert result["output"] == '{"title": "harbours"}'
    assert result["output_json"] == {"title": "harbours"}
    if dialect == "documented":
        assert [(task["task_id"], task["agent"], task["output"]) for task in result["tasks"]] == [
            ("research_task", "Researcher", "About harbours"),
            ("writing_task", "Writer", '{"title": "harbours"}'),
        ]


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_run_is_seen_from_start_to_failure(connect, dialect):
    now = 1_000.0
    scenario = Scenario(
        tasks=(
            ScenarioTask(name="research_task", seconds=10),
            ScenarioTask(name="writing_task", seconds=10, error="out of credit"),
        ),
        inputs=(),
        dialect=dialect,
    )
    with LocalCrewService(scenario, token=TOKEN, clock=lambda: now) as service:
        crew = connect(service.url)
        kickoff_id = crew.kickoff(KickoffRequest.of({}))
        first = crew.status(kickoff_id)
        now = 1_012.0
        second = crew.status(kickoff_id)
        now = 1_020.0
        statuses = [first, second, crew.status(kickoff_id)]

    assert [status.status for status in statuses] == ["running", "running", "error"]
    assert statuses[-1].error == "out of credit"
    assert statuses[1].current_task == "writing_task"
    assert (statuses[1].progress.completed, statuses[1].progress.total) == (1, 2)
    if dialect == "documented":
        assert statuses[-1].execution_time == pytest.approx(20)


def test_status_path_is_found_once(connect):
    with LocalCrewService(Scenario(status_paths="id_first").without_waiting(), token=TOKEN) as service:
        crew = connect(service.url)
        kickoff_id = crew.kickoff(KICKOFF)
        for _ in range(3):
            crew.status(kickoff_id)

        assert [sent.path for sent in service.requests.on("status")] == [
            f"/status/{kickoff_id}",
            f"/{kickoff_id}/status",
            f"/{kickoff_id}/status",
            f"/{kickoff_id}/status",
        ]


@pytest.mark.parametrize("style", ["status_first", "id_first"])
def test_configured_status_path_is_the_only_one(connect, service, style):
    crew = connect(service.url, status_path=style)
    kickoff_id = crew.kickoff(KICKOFF)

    crew.status(kickoff_id)

    paths = {"status_first": f"/status/{kickoff_id}", "id_first": f"/{kickoff_id}/status"}
    assert [sent.path for sent in service.requests.on("status")] == [paths[style]]


@pytest.mark.parametrize(
    ("sent_by_service", "segment"),
    [
        ("abcd1234-5678-90ef-ghij-klmnopqrstuv", "abcd1234-5678-90ef-ghij-klmnopqrstuv"),
        (4711, "4711"),
        ("run:7@home", "run%3A7%40home"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        ("../kickoff", "%2E%2E%2Fkickoff"),
        ("a b ", "a%20b%20"),
        ("50%25", "50%2525"),
        ("what?#now", "what%3F%23now"),
    ],
)
def test_odd_kickoff_id_finds_its_execution(crew, service, sent_by_service, segment):
    service.next_kickoff_id(sent_by_service)

    kickoff_id = crew.kickoff(KICKOFF)
    status = crew.status(kickoff_id)

    assert status.status == "completed"
    assert status.kickoff_id == kickoff_id
    assert service.requests[-1].path == f"/status/{segment}"


@pytest.mark.parametrize(
    "kickoff_id", ["", "a\tb", "id\n", "\x00", "\u2028", "\ud800", "7" * 1001], ids=lambda text: repr(text[:9])
)
def test_impossible_kickoff_id_is_not_sent(crew, service, kickoff_id):
    with pytest.raises(InvalidKickoffId):
        crew.status(kickoff_id)

    assert not service.requests


def test_user_token_is_sent(connect, service):
    crew = connect(service.url, token=service.user_token)

    crew.inputs()

    assert service.requests[0].header("Authorization") == f"Bearer {service.user_token}"
    assert service.requests[0].status == 200


def test_text_that_cannot_be_stored_is_replaced(crew, service):
    kickoff_id = crew.kickoff(KICKOFF)
    output = rb"nul \u0000 lone \ud800 latin " + "ä".encode("latin-1")
    body = b'{"status": "completed", "result": {"output": "' + output + b'", "tasks": []}}'
    service.faults.answer(200, body=body, on="status")

    assert crew.status(kickoff_id).output == "nul \ufffd lone \ufffd latin \ufffd"
