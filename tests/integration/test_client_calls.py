"""What both clients put on the wire, and what they make of proper answers."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest

from airflow_provider_crew.client.errors import InvalidKickoffId, Rejected, UncertainKickoff
from airflow_provider_crew.client.payload import KickoffRequest
from tests.integration.clients import INPUTS, KICKOFF, TOKEN
from tests.integration.hostile import answer
from tests.option_values import OPTIONS


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


def test_every_option_is_a_field_of_the_api(crew):
    options: Any = OPTIONS

    assert crew.kickoff(KickoffRequest.of(INPUTS, **options))


def test_renamed_field_is_rejected(crew, service):
    body = json.dumps({"inputs": INPUTS, "task_webhook_url": "https://hooks.example"}).encode()

    with pytest.raises(Rejected) as caught:
        crew.kickoff(KickoffRequest(INPUTS, body))

    assert caught.value.http_status == 422
    assert service.kickoffs == ()


def test_reads_share_connection_and_kickoff_does_not(crew, service):
    crew.inputs()
    crew.inputs()
    crew.kickoff(KICKOFF)

    first, second, kickoff = (sent.client for sent in service.requests)
    assert first == second
    assert kickoff != first


TRICKS = [
    *("größe", "a/b", "..", "../kickoff", "a b ", "50%25", "what?#now", "run:7@home", "..%2fkickoff", "..;/admin"),
    *("%2E%2E/%2e%2e/admin", "http://evil.example/x", "\\\\evil.example\\x", ":80@evil.example", "a?token=x"),
    *("a HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /x", "a\r\nX-Evil: 1", "a\x00b", "\u2028\u2029\x85"),
    "\uff0f\uff0e\uff0e",  # a slash and dots, once normalised
    *("%%32%65", "%u002e", "{{ 7 * 7 }}", "k" * 1001),
]
LINE = re.compile(r"GET /teams/my%20crew/(?:status/([A-Za-z0-9_.~%-]+)|([A-Za-z0-9_.~%-]+)/status) HTTP/1\.1")


@pytest.mark.parametrize("missing", [[], [answer(status=b"404 Not Found")]], ids=["status_first", "id_first"])
@pytest.mark.parametrize("trick", TRICKS)
def test_malicious_kickoff_id_stays_in_its_path_or_is_rejected(connect, hostile, trick, missing):
    hostile.keeps = True
    started = answer(json.dumps({"kickoff_id": trick}).encode())
    hostile.says = [started, *missing, answer(b'{"status": "running"}')]
    crew = connect(f"{hostile.url}/teams/my%20crew")

    if len(trick) > 1000 or not trick.isprintable():
        with pytest.raises(UncertainKickoff):
            crew.kickoff(KICKOFF)
        with pytest.raises(InvalidKickoffId):
            crew.status(trick)
        assert len(hostile.requests) == 1
        return
    crew.status(crew.kickoff(KICKOFF))

    head, _, rest = hostile.requests[-1].decode("ascii").partition("\r\n")
    found = LINE.fullmatch(head)
    assert found, head
    assert (found[1] or found[2]) not in {".", ".."}
    assert unquote(found[1] or found[2]) == trick
    assert rest.lower().count("host:") == 1
    assert "evil" not in rest.lower()
