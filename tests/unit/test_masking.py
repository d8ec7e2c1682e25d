"""Secrets that a server repeats are masked in the spellings that the package looks for."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_crew.client.api import CrewApi, Response
from airflow_provider_crew.client.models import TaskResult
from airflow_provider_crew.client.settings import secrets_of_proxy
from airflow_provider_crew.client.text import forms_of
from tests.unit.crew_builders import TOKEN, answer, settings

WEBHOOK_SECRET = "webhook/secret+0123=&<q>"
PASSWORD = "pässwort/+ 0123 😀"
PROXY = f"http://proxy-user:{quote(PASSWORD, safe='')}@proxy.example:3128"


def unicode_escaped(text: str, digits: str = "04x") -> str:
    units = text.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(f"\\u{unit:{digits}}" for unit in pairs)


def base64_of(text: str, before: str = "", after: str = "") -> str:
    return base64.b64encode(f"{before}{text}{after}".encode()).decode()


# As one writes it into a text. How JSON spells that text is another matter.
IN_TEXT: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON, slash escaped": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    "percent": lambda text: quote(text, safe=""),
    "percent, slash kept": quote,
    "percent, lower case": lambda text: re.sub("%..", lambda each: each[0].lower(), quote(text, safe="")),
    "HTML": html.escape,
    "base64": base64_of,
    "base64 behind one": lambda text: base64_of(text, "x", "y"),
    "base64 behind two": lambda text: base64_of(text, "Bearer ", "yz"),
    "base64, for URLs": lambda text: base64_of(text).replace("+", "-").replace("/", "_"),
}
# As a JSON encoder may spell a text.
IN_JSON: dict[str, Callable[[str], str]] = {
    "ASCII": lambda text: json.dumps(text)[1:-1],
    "UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "PHP": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    ".NET": lambda text: "".join(
        unicode_escaped(each, "04X") if each in "+<>&'`" else json.dumps(each)[1:-1] for each in text
    ),
    "every character": unicode_escaped,
}
SECRETS = {"token": TOKEN, "webhook": WEBHOOK_SECRET, "proxy": PASSWORD}
HIDDEN = forms_of(TOKEN, WEBHOOK_SECRET, *secrets_of_proxy(PROXY))


def least_left(secret: str, spelled: str) -> list[str]:
    """Return what must not be left of a secret: none of its spelling but what base64 mixes with its neighbours."""
    return [secret, secret[2:-2], spelled, spelled[5:-5]]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("spell", IN_TEXT.values(), ids=IN_TEXT.keys())
@pytest.mark.parametrize("encode", IN_JSON.values(), ids=IN_JSON.keys())
def test_secret_in_json_is_masked(encode: Any, spell: Any, secret: str) -> None:
    spelled = spell(secret)
    told = encode(f"before {spelled} after")
    body = f'{{"error": "{told}", "{told}": [["{told}"], {{"a": "{told}"}}]}}'

    document = answer(200, body.encode(), forms=HIDDEN).read(dict)

    first, second = document.items()
    texts = [first[1], second[0], second[1][0][0], second[1][1]["a"]]
    assert len({*texts}) == 1
    assert not [left for left in least_left(secret, spelled) if left in texts[0]]
    assert texts[0].startswith("before ")
    assert "***" in texts[0]
    assert texts[0].endswith(" after")


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("spell", IN_TEXT.values(), ids=IN_TEXT.keys())
def test_secret_in_a_page_and_in_a_header_is_masked(spell: Any, secret: str) -> None:
    spelled = spell(secret)
    headers = {"Content-Type": f"text/html; x={spelled}", "Location": f"/{spelled}/"}

    received = answer(407, f"<p>before {spelled} after</p>".encode(), headers, HIDDEN)

    for shown in (received.excerpt(), received.reason(), received.content_type):
        assert not [left for left in least_left(secret, spelled) if left in shown]
        assert "***" in shown
    assert spelled not in answer(302, b"", headers, HIDDEN).error().event
    assert "<p>before " in received.excerpt()


def test_text_around_a_spelled_secret_stays_as_it_is() -> None:
    around = 'a %2F b &amp;lt; \\u0041 \\\\n "q" \n \\/ %%% &#43; 渡輪'
    told = f"{around}{quote(TOKEN, safe='')}{around}{TOKEN}{around}{html.escape(WEBHOOK_SECRET)}{around}"
    body = json.dumps({"a": told, "b": around}).encode()

    document = answer(200, body, {}, HIDDEN).read(dict)

    assert document == {"a": f"{around}***{around}***{around}***{around}", "b": around}


@pytest.mark.parametrize("secret", ["Rotterdam", "20261128"])
def test_webhook_secret_is_masked_in_reasons_not_results(secret: str) -> None:
    crew = CrewApi(settings(), [secret])
    task = {"name": secret, "output": f"In {secret}."}
    done = {"output": f"In {secret}.", "output_json": {secret: 20261128}, "tokens": 20261128.5}

    def read(body: Any) -> Any:
        return Response(crew.status("7", "/status/{}"), 200, {}, json.dumps(body).encode()).execution()

    completed = read({"status": "completed", "result_json": done, "result": {"output": secret, "tasks": [task]}})
    running = read({"status": "running", "current_task": secret, "last_executed_task": task})
    reasons = [read({"state": "FAILED", name: {"said": f"No {secret}"}}).error for name in ("error", "result")]

    assert (completed.output, completed.output_json) == (secret, done)
    assert running.last_task == completed.tasks[0] == TaskResult(task_id=secret, output=f"In {secret}.")
    assert running.current_task == "***"
    assert reasons == ['{"said": "No ***"}'] * 2
    assert read({"status": "completed", "result": TOKEN}).output == "***"
