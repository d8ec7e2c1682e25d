"""The token is shown, stored, logged and raised nowhere, even when the service repeats it in every field."""

from __future__ import annotations

import json
import logging
import pickle
import time
import traceback
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.integration.clients import TOKEN
from tests.integration.hostile import CALLS, answer
from tests.integration.operators import run
from tests.integration.tasks import CONNECTION, Task, TaskInstance, TaskStateStore, fired
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]


REPEATS = {
    "as it is": TOKEN,
    "as a header": f"Authorization: Bearer {TOKEN}",
    "in a URL": f"https://x.example/?token={quote(TOKEN)}&a=b",
    "in JSON": json.dumps({"token": TOKEN}),
    "in JSON in JSON": json.dumps(json.dumps({"token": TOKEN})),
}


def assert_nowhere(told: Any) -> None:
    text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False, default=repr)
    for candidate in (text, text.replace("\\", "")):
        assert not [form for form in (TOKEN, quote(TOKEN, safe="")) if form in candidate]


def everything_about(error: BaseException | None) -> str:
    """Return what any report of an error could show: messages, facts, causes, and the variables on the way."""
    told = []
    while error is not None:
        told += [repr(error), repr(vars(error))]
        stack = traceback.TracebackException.from_exception(error, capture_locals=True).stack
        told += [repr((frame.line, frame.locals)) for frame in stack if "/tests/" not in frame.filename]
        told.append(everything_about(getattr(error, "cause", None)))
        error = error.__cause__ or error.__context__
    return " ".join(told)


BODIES = {
    "error": '{{"error": "{0}", "message": "{0}", "{0}": 1}}',
    "missing": '{{"error": "e", "message": "m", "details": {{"missing_inputs": ["{0}"]}}}}',
    "inputs": '{{"inputs": ["{0}", {{"name": "b{0}", "type": "{0}"}}]}}',
    "kickoff": '{{"kickoff_id": "{0}"}}',
    "running": '{{"status": "running", "current_task": "{0}"}}',
    "word": '{{"status": "{0}"}}',
    "failed": '{{"status": "error", "error": "{0}"}}',
    "completed": '{{"status": "completed", "result": {{"output": "{0}", "tasks": [{{"agent": "{0}"}}]}},'
    ' "result_json": {{"{0}": ["{0}"]}}}}',
    "nested": '{{"status": "completed", "result": {{"output": "{{\\"a\\": \\"{0}\\"}}"}}}}',
    "text": "<p>{0}</p>",
}
ESCAPED = {name: json.dumps(text)[1:-1] for name, text in REPEATS.items()}
# .NET escapes a plus by default, and any encoder may escape any character.
ESCAPED |= {
    "as .NET escapes it": TOKEN.replace("+", "\\u002B"),
    "with every character escaped": "".join(f"\\u{ord(each):04x}" for each in TOKEN),
}
DISGUISED = {("nested", "with every character escaped")}


@pytest.fixture(autouse=True)
def every_line(caplog, timing):
    caplog.set_level(logging.DEBUG)
    for name in ("urllib3", "requests", "aiohttp", "asyncio", "http.client", "airflow_provider_crew"):
        caplog.set_level(logging.DEBUG, logger=name)
    timing(longest_back_off=0.0, longest_retry_after=0.0)


@pytest.mark.parametrize(
    ("body", "how"),
    # Escapes nested in escapes are not masked.
    [(body, how) for body in BODIES for how in ESCAPED if (body, how) not in DISGUISED],
)
def test_client_does_not_show_token(connect, hostile, task_log, body, how):
    repeated = ESCAPED[how]
    text = BODIES[body].format(repeated if body != "nested" else repeated.replace("\\", "\\\\")).encode()
    header = REPEATS.get(how, TOKEN).encode()
    hostile.keeps = True
    hostile.says = [
        answer(text, b"Content-Type: text/html; x=" + header, b"Location: https://x/" + header, status=status)
        for status in (b"200 OK", b"200 OK", b"200 OK", b"302 " + header, b"401 " + header, b"404 No", b"422 No")
    ]
    crew = connect(hostile.url)

    for call in ("inputs", "status", "kickoff", "inputs", "status", "status", "kickoff"):
        try:
            assert_nowhere(repr(CALLS[call](crew)))
        except CrewError as error:
            assert_nowhere(everything_about(error))
    assert_nowhere(task_log.text)


@pytest.mark.parametrize("how", ESCAPED)
@pytest.mark.parametrize("deferrable", [False, True])
def test_task_does_not_show_token(live_crew, hostile, monkeypatch, task_log, how, deferrable):
    repeated = ESCAPED[how]
    monkeypatch.setenv(CONNECTION, f"crew://:{TOKEN}@127.0.0.1:{hostile.port}/http")
    hostile.keeps = True
    hostile.says = [
        answer(BODIES[name].format(repeated).encode()) for name in ("inputs", "kickoff", "running", "completed")
    ]
    store = TaskStateStore() if AIRFLOW >= (3, 3) else None
    operator = run(inputs={TOKEN[:4]: 1}, validate_inputs=False, deferrable=deferrable)
    task = Task(lambda: operator, store=store)

    result = task.run()

    assert_nowhere(result)
    assert_nowhere(task.ti.xcoms)
    states = ["running", "completed"]
    assert [told["state"] for told in live_crew.xcoms.progress] == states
    assert_nowhere(live_crew.xcoms.progress)
    assert_nowhere(vars(store) if store else None)
    assert_nowhere(task_log.text)
    assert_nowhere({name: getattr(operator, name) for name in operator.template_fields})
    assert_nowhere(repr(operator) + repr(vars(operator)) + repr(vars(operator._attempt)))
    assert_nowhere(repr(operator.get_openlineage_facets_on_complete(None)))


BROKEN = {
    "no answer": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9\r\n",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("broken", [*BROKEN, "nobody", "no TLS"])
def test_broken_exchange_does_not_show_token(connect, hostile, task_log, broken, call):
    hostile.says = [BROKEN.get(broken, b"")]
    crew = connect(hostile.url.replace("http:", "https:" if broken == "no TLS" else "http:"), request_timeout=0.5)
    if broken == "nobody":
        hostile.close()

    with pytest.raises(CrewError) as caught:
        CALLS[call](crew)

    error: BaseException | None = caught.value
    while error is not None:
        assert isinstance(error, CrewError)
        error = error.__cause__ or error.__context__
    assert_nowhere(everything_about(caught.value))
    assert_nowhere(task_log.text)


async def test_trigger_does_not_show_token(live_crew, hostile, monkeypatch, task_log):
    monkeypatch.setenv(CONNECTION, f"crew://:{TOKEN}@127.0.0.1:{hostile.port}/http")
    hostile.keeps = True
    for name in ("completed", "nested", "failed", "running", "word", "error", "text"):
        hostile.says = [answer(BODIES[name].format(TOKEN).encode(), status=b"200 " + TOKEN.encode())]
        rules = {"poll_interval": 0.01, "deadline": time.time() + 0.05, "max_outage": 0.03}
        trigger = CrewExecutionTrigger("some-id", "crew_default", rules=rules, deferred_at=1.0)
        trigger.task_instance = TaskInstance()  # type: ignore[assignment]
        assert_nowhere(await fired(trigger))
        assert_nowhere(repr(trigger) + repr(vars(trigger)))
        assert_nowhere(trigger.serialize())
    assert live_crew.xcoms.progress
    assert_nowhere(live_crew.xcoms.progress)
    assert_nowhere(task_log.text)


@pytest.mark.usefixtures("live_crew")
def test_pickled_hook_holds_no_token():
    hook = CrewHook(token_type="organization")
    hook.inputs()

    stored = pickle.dumps(hook)
    revived = pickle.loads(stored)  # noqa: S301 - our own

    assert TOKEN.encode() not in stored
    assert revived.token_type == "organization"
    assert revived.inputs()
