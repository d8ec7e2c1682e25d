"""Texts of a service forge no log line, command no terminal, are short, and show no token that they repeat."""

from __future__ import annotations

import json
import logging
import traceback
import unicodedata
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.clients import TOKEN, AsyncCrew
from tests.integration.hostile import CALLS, answer
from tests.integration.operators import both_ways, run
from tests.integration.tasks import CONNECTION, INPUTS, Log, Task

pytest_plugins = ["tests.integration.task_fixtures"]

FORGED = "INFO - Execution k-1: completed"
EVIL = (
    f"<script>alert(1)</script>\r\n{FORGED}\n\x1b[31mred\x1b]0;title\x07\x9b31m\x08\x7f\x00\u2028{FORGED}\u2029"
    "\u202emoc\u202c\u2066\u200f\ufeff\U000e0041 %s {0} \\n"
)
# In the spellings of one who writes it into a text. tests/unit/test_masking.py has those of an encoder.
TOKENS = (
    f"{TOKEN} Bearer {TOKEN} https://x.example/?token={quote(TOKEN)}&a=b {json.dumps(json.dumps({'a': TOKEN}))}"
)
TEXTS = {"evil first": (EVIL + TOKENS) * 100, "tokens first": (TOKENS + EVIL) * 100}
LONGEST = 10_000


def assert_nowhere(told: Any) -> None:
    text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False, default=repr)
    for candidate in (text, text.replace("\\", "")):
        assert not [form for form in (TOKEN, quote(TOKEN, safe="")) if form in candidate]


def assert_harmless(text: str, longest: int = LONGEST) -> None:
    odd = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not odd - {"\n"}, f"{odd} in {text!r}"
    assert not any(line.startswith(FORGED) for line in text.split("\n"))
    assert len(text) < longest


def assert_error_is_harmless(error: BaseException | None) -> None:
    """Check all that a report of an error could show: messages, facts, causes, and the variables on the way."""
    while error is not None:
        assert isinstance(error, CrewError)
        assert_harmless(str(error))
        assert_nowhere(repr(error) + repr(vars(error)))
        stack = traceback.TracebackException.from_exception(error, capture_locals=True).stack
        assert_nowhere([repr((frame.line, frame.locals)) for frame in stack if "/tests/" not in frame.filename])
        for name, fact in vars(error).items():
            # The crew's own message is kept as it is, for those who want all of it.
            if name != "error" and not isinstance(fact, BaseException):
                assert_harmless("".join(fact) if isinstance(fact, tuple) else str(fact), longest=20_000)
        assert_error_is_harmless(getattr(error, "cause", None))
        error = error.__cause__ or error.__context__


def json_answer(body: Any, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    return answer(json.dumps(body).encode(), *headers, status=status)


HEADER = (EVIL + TOKENS).replace("\r", "").replace("\n", "").replace("\0", "").encode() * 20
ANSWERS = {
    "an error": lambda text: json_answer({"error": text, "message": text}, status=b"500 Error"),
    "a refusal of the token": lambda text: json_answer({"error": text, "message": text}, status=b"401 No"),
    "missing inputs": lambda text: json_answer(
        {"error": "e", "message": "m", "details": {"missing_inputs": [text] * 150}}, status=b"422 No"
    ),
    "no JSON": lambda text: answer(text.encode()),
    "a reason": lambda _: answer(b"{}", status=b"503 " + HEADER),
    "a content type": lambda _: answer(b"<p>", b"Content-Type: " + HEADER),
    "headers": lambda _: answer(b"<p>", b"X: " + HEADER, b"X-" + HEADER[:20].hex().encode() + b": y"),
    "headers that are none": lambda _: answer(b"<p>", *[b"no colon \x1b[31m " + b"x" * 60_000] * 50),
    "a redirect": lambda _: answer(b"", b"Location: http://x/" + HEADER, status=b"302 Found"),
    "a time to wait": lambda _: answer(b"", b"Retry-After: " + HEADER, status=b"429 Slow"),
    "a task": lambda text: json_answer({"status": "running", "current_task": text}),
    "progress": lambda text: json_answer({"status": "running", "progress": {text: text, "total_tasks": text}}),
    "a result": lambda text: json_answer(
        {
            "status": "completed",
            "result": {"output": text, "tasks": [{"agent": text}]},
            "result_json": {text: [text]},
        }
    ),
    "a failure": lambda text: json_answer({"status": "error", "error": text}),
    "a kickoff id": lambda text: json_answer({"kickoff_id": text}),
    "names of inputs": lambda text: json_answer({"inputs": [text, {"name": text + "2"}] * 30}),
    "no answer": lambda _: b"",
    "no HTTP": lambda _: b"SSH-2.0-OpenSSH_9\r\n",
    "half an answer": lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    "a bad chunk": lambda _: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a long header": lambda _: b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
}


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture, timing) -> None:
    for name in (None, "urllib3", "requests", "aiohttp", "asyncio", "http.client", "airflow_provider_crew"):
        caplog.set_level(logging.DEBUG, logger=name)
    timing(longest_back_off=0.0, longest_retry_after=0.0)


def assert_log_is_harmless(log: Log) -> None:
    assert_nowhere(log.text)
    for line in log.text.split("\n"):
        assert_harmless(line)
        assert not line.startswith(FORGED)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("told", [*ANSWERS, "nobody", "no TLS"])
def test_client_logs_and_raises_nothing_harmful(hostile, task_log, told, text):
    hostile.keeps = told not in {"no answer", "half an answer"}
    hostile.says = [ANSWERS.get(told, ANSWERS["no HTTP"])(TEXTS[text])]
    address = hostile.url.replace("http:", "https:" if told == "no TLS" else "http:")
    settings = ServiceSettings(address=address, token=TOKEN, request_timeout=5)
    if told == "nobody":
        hostile.close()

    with closing(CrewClient(settings)) as crew, closing(AsyncCrew(settings)) as polls:
        for call in (*(partial(call, crew) for call in CALLS.values()), partial(CALLS["status"], polls)):
            try:
                assert_nowhere(repr(call()))
            except CrewError as error:
                assert_error_is_harmless(error)
    assert_log_is_harmless(task_log)


@pytest.fixture
def connected(hostile, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"crew://:{TOKEN}@127.0.0.1:{hostile.port}/http")
    hostile.keeps = True
    return hostile


@pytest.mark.parametrize("deferrable", [False, True])
def test_result_is_kept_as_crew_gave_it(live_crew, deferrable):
    text = EVIL.replace("\x00", "")  # which no database stores
    kickoff_id = live_crew.take(INPUTS, None, {})
    tasks = [{"task_id": text, "agent": text, "output": text, "execution_time": 1}]
    output = json.dumps({text: [text]})
    live_crew.set_status(kickoff_id, {"status": "completed", "result": {"output": output, "tasks": tasks}})
    task = Task(lambda: CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, deferrable=deferrable))

    result = task.run()

    assert result["output"] == output
    assert result["output_json"] == {text: [text]}
    assert result["tasks"] == [{"task_id": text, "agent": text, "output": text, "execution_time": 1.0}]


@both_ways
def test_task_does_not_show_token(live_crew, connected, task_log, deferrable):
    """What tests/promises does not look at: the rendered fields, and all that the operator holds."""
    told = [ANSWERS[name](TOKENS) for name in ("names of inputs", "a task", "a result")]
    connected.says = [told[0], ANSWERS["a kickoff id"]("k-1"), *told[1:]]
    operator = run(inputs={TOKEN[:4]: 1}, validate_inputs=False, deferrable=deferrable)

    assert_nowhere(Task(lambda: operator).run())

    assert [told["state"] for told in live_crew.xcoms.progress] == ["running", "completed"]
    assert_nowhere([repr(operator), repr(vars(operator)), repr(vars(operator._attempt))])
    assert_nowhere({name: getattr(operator, name) for name in operator.template_fields})
    assert_nowhere(task_log.text)
