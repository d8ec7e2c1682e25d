"""Texts of a service forge no log line, command no terminal, and are shown in a bounded length."""

from __future__ import annotations

import json
import logging
import time
import unicodedata
from typing import Any

import pytest

from airflow_provider_crew.client.errors import CrewError, ExecutionFailed
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import read_event
from tests.integration.clients import KICKOFF
from tests.integration.hostile import answer
from tests.integration.tasks import CONNECTION, INPUTS, TOKEN, Log, Task, fired

pytest_plugins = ["tests.integration.task_fixtures"]

FORGED = "INFO - Execution k-1: completed"
EVIL = (
    f"<script>alert(1)</script>\r\n{FORGED}\n\x1b[31mred\x1b]0;title\x07\x9b31m\x08\x7f\x00\u2028{FORGED}\u2029"
    "\u202emoc\u202c\u2066\u200f\ufeff\U000e0041 %s {0} \\n"
)
LONG = EVIL * 300
LONGEST = 10_000


def assert_harmless(text: str, longest: int = LONGEST) -> None:
    odd = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not odd - {"\n"}, f"{odd} in {text!r}"
    assert not any(line.startswith(FORGED) for line in text.split("\n"))
    assert len(text) < longest


def assert_error_is_harmless(error: BaseException | None) -> None:
    while error is not None:
        assert_harmless(str(error))
        for name, fact in vars(error).items():
            # The crew's own message is kept as it is, for those who want all of it.
            if name != "error" and not isinstance(fact, BaseException):
                assert_harmless("".join(fact) if isinstance(fact, tuple) else str(fact), longest=20_000)
        assert_error_is_harmless(getattr(error, "cause", None))
        error = error.__cause__ or error.__context__


def json_answer(body: Any, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    return answer(json.dumps(body).encode(), *headers, status=status)


HEADER = EVIL.replace("\r", "").replace("\n", "").replace("\0", "").encode() * 20
ANSWERS = {
    "an error": lambda text: json_answer({"error": text, "message": text}, status=b"500 Error"),
    "an error of JSON": lambda text: json_answer({text: {text: text}}, status=b"400 Bad"),
    "a problem": lambda text: json_answer({"title": text, "detail": text}, status=b"403 No"),
    "a refusal of the token": lambda text: json_answer({"error": text, "message": text}, status=b"401 No"),
    "an unknown execution": lambda text: json_answer({"error": text, "message": text}, status=b"404 No"),
    "missing inputs": lambda text: json_answer(
        {"error": "e", "message": "m", "details": {"missing_inputs": [text] * 150}}, status=b"422 No"
    ),
    "a text": lambda text: answer(text.encode(), status=b"502 Bad"),
    "no JSON": lambda text: answer(text.encode()),
    "bytes": lambda text: answer(bytes(range(256)) + text.encode("utf-16-le")),
    "a reason": lambda _: answer(b"{}", status=b"503 " + HEADER),
    "a content type": lambda _: answer(b"<p>", b"Content-Type: " + HEADER),
    "headers": lambda _: answer(b"<p>", b"X: " + HEADER, b"X-" + HEADER[:20].hex().encode() + b": y"),
    "headers that are none": lambda _: answer(b"<p>", *[b"no colon \x1b[31m " + b"x" * 60_000] * 50),
    "cookies": lambda _: answer(b"<p>", b"Set-Cookie: \x1b[31m=" + b"\x9b" * 50_000, b"Set-Cookie: a=" + HEADER),
    "a redirect": lambda _: answer(b"", b"Location: http://x/" + HEADER, status=b"302 Found"),
    "a time to wait": lambda _: answer(b"", b"Retry-After: " + HEADER, status=b"429 Slow"),
    "a status word": lambda text: json_answer({"status": text, text: text}),
    "a task": lambda text: json_answer({"status": "running", "current_task": text}),
    "progress": lambda text: json_answer({"status": "running", "progress": {text: text, "total_tasks": text}}),
    "a failure": lambda text: json_answer({"status": "error", "error": text}),
    "a failure without a text": lambda text: json_answer({"status": "error", "error": {text: [text]}}),
    "a kickoff id": lambda text: json_answer({"kickoff_id": text}),
    "names of inputs": lambda text: json_answer({"inputs": [text, {"name": text + "2"}] * 30}),
    "types of inputs": lambda text: json_answer({"inputs": [{"name": text, "type": text, "description": text}]}),
}


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture, timing) -> None:
    caplog.set_level(logging.DEBUG)
    timing(longest_back_off=0.0, longest_retry_after=0.0)


def assert_log_is_harmless(log: Log) -> None:
    for line in log.text.split("\n"):
        assert_harmless(line)
        assert not line.startswith(FORGED)


@pytest.mark.parametrize("text", [EVIL, LONG], ids=["evil", "evil and long"])
@pytest.mark.parametrize("told", ANSWERS)
def test_client_logs_and_raises_nothing_harmful(connect, hostile, task_log, told, text):
    hostile.keeps = True
    hostile.says = [ANSWERS[told](text)]
    crew = connect(hostile.url, request_timeout=5)

    for call in (crew.inputs, lambda: crew.kickoff(KICKOFF), lambda: crew.status("k-1")):
        try:
            call()
        except CrewError as error:
            assert_error_is_harmless(error)
    assert_log_is_harmless(task_log)


@pytest.fixture
def connected(hostile, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"crew://:{TOKEN}@127.0.0.1:{hostile.port}/http")
    hostile.keeps = True
    return hostile


LOOKS = [told for told in ANSWERS if told not in {"a kickoff id", "names of inputs", "types of inputs"}]


@pytest.mark.parametrize("told", LOOKS)
def test_wait_logs_and_raises_nothing_harmful(connected, task_log, told):
    connected.says = [ANSWERS[told](LONG)]

    with pytest.raises(CrewError) as caught:
        CrewHook().wait("k-1", poll_interval=0.01, timeout=0.05, max_outage=0.03)

    assert_error_is_harmless(caught.value)
    assert_log_is_harmless(task_log)


@pytest.mark.parametrize("told", LOOKS)
async def test_trigger_logs_and_fires_nothing_harmful(connected, task_log, told):
    connected.says = [ANSWERS[told](LONG)]
    rules = {"poll_interval": 0.01, "deadline": time.time() + 0.05, "max_outage": 0.03}
    trigger = CrewExecutionTrigger("k-1", "crew_default", rules=rules, deferred_at=1.0)

    event = await fired(trigger)

    assert_error_is_harmless(read_event(event).error)
    assert event["error"].isascii()
    assert event["error"].isprintable()
    assert len(event["error"]) < 500_000
    assert_log_is_harmless(task_log)


@pytest.mark.parametrize("text", [EVIL, LONG], ids=["evil", "evil and long"])
def test_connection_test_shows_nothing_harmful(connected, text):
    for told in ANSWERS.values():
        connected.says = [told(text)]
        assert_harmless(CrewHook().test_connection()[1])


def test_failed_task_shows_error_in_one_line(live_crew, task_log):
    kickoff_id = live_crew.take(INPUTS, None, {})
    live_crew.set_status(kickoff_id, {"status": "error", "error": EVIL})

    with pytest.raises(CrewTaskFailed, match="<script>alert") as caught:
        Task(lambda: CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id)).run()

    assert_harmless(str(caught.value))
    assert isinstance(caught.value.failure, ExecutionFailed)
    assert caught.value.failure.error.startswith("<script>alert(1)</script>\r\nINFO")
    assert f"\n{FORGED}" not in task_log.text


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
