"""Secrets that a server repeats are masked in the spellings that the package looks for."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import pytest
from markupsafe import escape

from airflow_provider_crew.client.api import CrewApi, Response
from airflow_provider_crew.client.models import TaskResult
from airflow_provider_crew.client.settings import secrets_of_proxy
from airflow_provider_crew.client.text import maskable
from tests.unit.crew_builders import TOKEN, answer, settings

WEBHOOK_SECRET = "webhook/secret+0123=&<q>"
PASSWORD = "pässwort/+ 0123 😀"
PROXY = f"http://proxy-user:{quote(PASSWORD, safe='')}@proxy.example:3128"


def in_dot_net(text: str) -> str:
    return "".join(unicode_escaped(each, "04X") if each in "+<>&'`" else json.dumps(each)[1:-1] for each in text)


def unicode_escaped(text: str, digits: str = "04x") -> str:
    units = text.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(f"\\u{unit:{digits}}" for unit in pairs)


# As one writes it into a text. How JSON spells that text is another matter.
IN_TEXT: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON, slash escaped": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    "JSON, .NET": in_dot_net,
    "JSON, every character": unicode_escaped,
    "percent": lambda text: quote(text, safe=""),
    "percent, as encodeURIComponent": lambda text: quote(text, safe="!'()*"),
    "percent, slash kept": quote,
    "percent, lower case": lambda text: re.sub("%..", lambda each: each[0].lower(), quote(text, safe="")),
    "percent, every character": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "HTML": html.escape,
    "HTML, Flask and Jinja": lambda text: str(escape(text)),
    "HTML, every character": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "HTML, every character, hexadecimal": lambda text: "".join(f"&#x{ord(each):04X};" for each in text),
}
# As a JSON encoder may spell a text.
IN_JSON: dict[str, Callable[[str], str]] = {
    "ASCII": lambda text: json.dumps(text)[1:-1],
    "UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "PHP": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    ".NET": in_dot_net,
    "every character": unicode_escaped,
}
SECRETS = {"token": TOKEN, "webhook": WEBHOOK_SECRET, "proxy": PASSWORD}
HIDDEN = maskable(TOKEN, WEBHOOK_SECRET, *secrets_of_proxy(PROXY))
every_secret = pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
every_spelling = pytest.mark.parametrize("spell", IN_TEXT.values(), ids=IN_TEXT.keys())


def is_left(secret: str, text: str) -> bool:
    """Whether a reader who undoes an escape finds the secret, or what is left of it."""
    undone = [text, html.unescape(text), unquote(text), text.encode().decode("unicode_escape")]
    return any(part in each for each in undone for part in (secret, secret[2:-2]))


@pytest.mark.parametrize("secret", [TOKEN, WEBHOOK_SECRET])
@every_spelling
@pytest.mark.parametrize("encode", IN_JSON.values(), ids=IN_JSON.keys())
def test_secret_in_a_result_is_masked_alone(encode: Any, spell: Any, secret: str) -> None:
    told = encode(f"50% &lt; {spell(secret)} \\n")
    body = f'{{"error": "{told}", "{told}": [["{told}"], {{"a": "{told}"}}]}}'

    document = answer(200, body.encode(), forms=HIDDEN).read(dict)

    first, second = document.items()
    texts = [first[1], second[0], second[1][0][0], second[1][1]["a"]]
    assert texts == ["50% &lt; *** \\n"] * 4


@every_secret
@every_spelling
@pytest.mark.parametrize("encode", IN_JSON.values(), ids=IN_JSON.keys())
def test_secret_in_an_error_is_not_shown(encode: Any, spell: Any, secret: str) -> None:
    body = f'{{"error": "{encode(f"before {spell(secret)} after")}", "message": "m"}}'

    error = answer(400, body.encode(), forms=HIDDEN).error()

    assert not is_left(secret, error.event)
    assert "before *** after: m" in error.event or " characters: m" in error.event


def test_text_around_a_spelled_secret_stays_as_it_is() -> None:
    around = 'a %2F b &amp;lt; \\u0041 \\\\n "q" \n \\/ %%% &#43; 渡輪'
    told = f"{around}{quote(TOKEN, safe='')}{around}{TOKEN}{around}{html.escape(TOKEN)}{around}"
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
