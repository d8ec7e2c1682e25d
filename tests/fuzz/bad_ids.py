"""Kickoff ids, from people and from the service, on their way into a path."""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import unquote

from hypothesis import strategies as st

from airflow_provider_crew.client.api import CrewApi, checked_kickoff_id, issued_kickoff_id, path_segment
from airflow_provider_crew.client.errors import InvalidKickoffId
from tests.fuzz.bad_answers import SETTINGS
from tests.fuzz.bad_kind import Kind, World
from tests.fuzz.bad_outcomes import outcome
from tests.fuzz.bad_values import any_json, any_text

_SEGMENT = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})+")
_ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"status": "running"}'

path_texts = (
    any_text | st.text("./%2Fe\\?#:@ \u2028é", max_size=10) | st.sampled_from(["x" * 100_000, "é" * 20_000])
)


def a_given_id_stays_in_its_place(_: World, given: Any) -> None:
    asked = outcome(lambda: next(CrewApi(SETTINGS).status(given)))

    if isinstance(asked, InvalidKickoffId):
        return
    match = re.fullmatch(r"GET https://crew.example/status/([^/]+)", str(asked))
    assert match
    assert _SEGMENT.fullmatch(match[1])
    assert match[1] not in {".", ".."}
    assert unquote(match[1]) == given


def an_issued_id_leads_back(_: World, value: Any) -> None:
    try:
        kept = issued_kickoff_id(value)
    except ValueError:
        is_none = value == "" or isinstance(value, bool) or not isinstance(value, str | int)
        assert is_none or len(str(value)) > 1000 or not str(value).isprintable()
        return
    assert kept == str(value)
    assert unquote(path_segment(checked_kickoff_id(kept))) == kept


def an_id_arrives_as_it_is(world: World, given: str) -> None:
    world.service.answer = _ANSWER
    for crew in world.crews:
        world.service.asked.clear()
        came = outcome(partial(crew.status, given))
        if isinstance(came, InvalidKickoffId):
            assert world.service.asked == []
            continue
        line = world.service.asked[0].split(b"\r\n")[0]
        # urllib3 writes the letters of an escape in upper case, which means the same.
        assert line.upper() == f"GET /STATUS/{path_segment(given)} HTTP/1.1".upper().encode()
        assert len(world.service.asked) == 1


KINDS = (
    Kind(
        "kickoff id from a person",
        path_texts | any_json,
        a_given_id_stays_in_its_place,
        weight=6,
    ),
    Kind("kickoff id from the service", path_texts | any_json, an_issued_id_leads_back, weight=4),
    Kind("kickoff id on the wire", path_texts.map(lambda text: text[:3000]), an_id_arrives_as_it_is, weight=3),
)
