"""Whatever a kickoff id is, what goes over the wire stays beneath the status path of the crew."""

from __future__ import annotations

import json
import re

import pytest

from airflow_provider_crew.client.errors import Cost, InvalidKickoffId, UncertainKickoff
from tests.integration.clients import KICKOFF
from tests.integration.hostile import answer

TRICKS = [
    "../kickoff",
    "..%2fkickoff",
    "%2e%2e",
    "%2E%2E/%2e%2e/admin",
    ".%2e",
    "..;/admin",
    "....//admin",
    "//evil.example/x",
    "http://evil.example/x",
    "\\\\evil.example\\x",
    "@evil.example",
    ":80@evil.example",
    "a?token=x",
    "a#b",
    "a;b=c",
    "a&b",
    "a HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /x",
    "a\r\nX-Evil: 1",
    "a\nb",
    "a\x00b",
    "a\tb",
    "\x7f",
    "\u2028\u2029\x85",
    "\u202egnp",
    "\uff0f\uff0e\uff0e",  # a slash and dots, once normalised
    "\u2024\u2024",
    "a\u0338b",
    "%",
    "%%32%65",
    "%252e%252e",
    "%u002e",
    "%c0%ae%c0%ae",
    "+",
    "*",
    "~root",
    "$(id)`id`",
    "{{ 7 * 7 }}",
    "'\"<>",
    "k" * 1000,
]
LINE = re.compile(r"GET /teams/7/(?:status/([A-Za-z0-9_.~%-]+)|([A-Za-z0-9_.~%-]+)/status) HTTP/1\.1")
STATUS = b'{"status": "running"}'


@pytest.mark.parametrize("path", ["status_first", "id_first"])
@pytest.mark.parametrize("trick", TRICKS)
def test_id_of_service_stays_in_its_path(connect, hostile, trick, path):
    hostile.keeps = True
    hostile.says = [answer(json.dumps({"kickoff_id": trick}).encode()), answer(STATUS)]
    crew = connect(f"{hostile.url}/teams/7", status_path=path)

    if not trick.isprintable():
        with pytest.raises(UncertainKickoff):
            crew.kickoff(KICKOFF)
        return
    crew.status(crew.kickoff(KICKOFF))

    _, look = hostile.requests
    assert_asks_only_for_a_status(look)


@pytest.mark.parametrize("trick", TRICKS)
def test_id_of_user_stays_in_its_path_or_is_rejected(connect, hostile, trick):
    hostile.says = [answer(STATUS)]
    crew = connect(f"{hostile.url}/teams/7")

    try:
        crew.status(trick)
    except InvalidKickoffId as error:
        assert_refusal_is_harmless(error)

    for request in hostile.requests:
        assert_asks_only_for_a_status(request)


def assert_refusal_is_harmless(error: InvalidKickoffId) -> None:
    assert error.cost is Cost.NONE
    assert all(line.isprintable() for line in str(error).split("\n"))


def assert_asks_only_for_a_status(request: bytes) -> None:
    head, _, rest = request.decode("ascii").partition("\r\n")
    found = LINE.fullmatch(head)
    assert found, head
    assert (found[1] or found[2]) not in {".", ".."}
    assert rest.lower().count("host:") == 1
    assert "evil" not in rest.lower()
    assert rest.endswith("\r\n\r\n")


@pytest.mark.parametrize("length", [1001, 100_000, 5_000_000])
def test_id_that_is_too_long_is_not_sent(connect, hostile, length):
    hostile.says = [answer(json.dumps({"kickoff_id": "k" * length}).encode())]
    crew = connect(hostile.url)

    with pytest.raises(UncertainKickoff) as issued:
        crew.kickoff(KICKOFF)
    with pytest.raises(InvalidKickoffId) as given:
        crew.status("k" * length)

    assert len(str(issued.value)) < 1000
    assert len(str(given.value)) < 1000
    assert len(hostile.requests) == 1
