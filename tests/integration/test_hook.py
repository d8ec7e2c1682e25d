"""The hook in plain Python, from a connection in the environment to the result of a crew."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.sdk import redact
from asgiref.sync import async_to_sync

from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.service.errors import (
    ExecutionFailed,
    ExecutionNotFound,
    InvalidSettings,
    LostContact,
    NotAuthenticated,
    WaitedTooLong,
    WatchBroken,
)
from tests.integration.clients import INPUTS, TOKEN

CONNECTION = "AIRFLOW_CONN_CREW_DEFAULT"
RUNNING = {
    "status": "running",
    "current_task": "writing_task",
    "progress": {"completed_tasks": 1, "total_tasks": 3},
}


class SyncCalls:
    """The hook's methods as they are."""

    def __init__(self, hook: CrewHook) -> None:
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hook, name)


class AsyncCalls(SyncCalls):
    """The hook's asynchronous methods, called like the others, so that one suite proves both."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._hook, f"{name}_async")
        return lambda *args, **options: asyncio.run(method(*args, **options))


@pytest.fixture
def reactions() -> list[Callable[[ReceivedRequest], None]]:
    """What the service's surroundings do after a request."""
    return []


@pytest.fixture
def service(reactions) -> Iterator[LocalCrewService]:
    def react(request: ReceivedRequest) -> None:
        for reaction in reactions:
            reaction(request)

    scenario = Scenario().without_waiting()
    with LocalCrewService(scenario, token=TOKEN, on_request=react) as running:
        yield running


class Log:
    """What this process wrote to its terminal, which is where the hook's log goes outside a task."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._text = ""

    @property
    def text(self) -> str:
        self._text += "".join(self._capfd.readouterr())
        return self._text


@pytest.fixture
def log(capfd) -> Log:
    return Log(capfd)


@pytest.fixture(params=[SyncCalls, AsyncCalls], ids=["sync", "async"])
def hook(request, service, monkeypatch) -> Any:
    monkeypatch.setenv(CONNECTION, service.connection_uri)
    return request.param(CrewHook())


@pytest.fixture
def slow_service(service) -> LocalCrewService:
    service.scenario = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=3600),), inputs=())
    return service


def test_a_run_from_inputs_to_result(hook, service):
    assert hook.inputs().names == ("topic", "audience")
    kickoff_id = hook.kickoff(INPUTS, meta={"run": 7})
    assert hook.status(kickoff_id).status == "completed"

    result = hook.wait(kickoff_id, poll_interval=0.05).result()

    assert result["kickoff_id"] == kickoff_id
    assert result["output"].startswith("Briefing: harbours\nFor: sailors")
    assert [task["agent"] for task in result["tasks"]] == ["Researcher", "Writer", "Editor"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert [kickoff.meta for kickoff in service.kickoffs] == [{"run": 7}]


def test_requests_name_package_python_and_airflow(hook, service):
    hook.inputs()

    agent = service.requests[0].header("User-Agent")
    assert [part.partition("/")[0] for part in agent.split()] == ["airflow-provider-crew", "Python", "Airflow"]


@pytest.mark.parametrize("form", ["connection_uri", "connection_json"])
def test_the_connection_may_be_uri_or_json(service, monkeypatch, form):
    monkeypatch.setenv("AIRFLOW_CONN_RESEARCH", getattr(service, form))

    assert CrewHook("research").kickoff(INPUTS)


def test_the_token_type_chooses_the_token(service, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{service.connection_uri}?user_bearer_token={service.user_token}")

    CrewHook().inputs()
    CrewHook(token_type="user").inputs()

    sent = [request.header("Authorization") for request in service.requests]
    assert sent == [f"Bearer {TOKEN}", f"Bearer {service.user_token}"]


def test_progress_is_logged_when_it_changes(hook, slow_service, log):
    kickoff_id = hook.kickoff({})
    later = RUNNING | {"progress": {"completed_tasks": 2, "total_tasks": 3}, "current_task": "review_task"}
    done = {"status": "completed", "result": {"output": "Done.", "tasks": []}, "execution_time": 250}
    slow_service.set_status(kickoff_id, RUNNING, RUNNING, RUNNING, later, later, done)

    assert hook.wait(kickoff_id, poll_interval=0.01).output == "Done."

    said = re.findall(rf"Execution {kickoff_id}: (.*?)(?: +\[|\n)", log.text)
    assert said == ["task 2 of 3, writing_task", "task 3 of 3, review_task", "completed after 4m 10s"]


async def test_what_is_to_be_masked_is_told_where_an_event_loop_may_be_waited_for(service, monkeypatch):
    """A triggerer of Airflow 3.0 tells its supervisor so, and refuses to do that on the loop itself."""
    monkeypatch.setenv(CONNECTION, service.connection_uri)
    told: list[str] = []

    async def tell(secret: str) -> None:
        told.append(secret)

    monkeypatch.setattr("airflow_provider_crew.hooks.connection.mask_secret", async_to_sync(tell))

    async with await CrewHook().get_async_conn() as crew:
        assert crew.settings.token == TOKEN
    assert TOKEN in told


def test_a_failed_crew_raises_with_its_own_error(hook, service):
    service.scenario = Scenario(tasks=(ScenarioTask(name="research_task", error="out of credit"),), inputs=())

    with pytest.raises(
        ExecutionFailed, match="(?s)It was paid for, and has ended.*The crew says: out of credit"
    ) as caught:
        hook.wait(hook.kickoff({}), poll_interval=0.05)

    assert caught.value.error == "out of credit"
    assert caught.value.kickoff_id == service.kickoffs[0].kickoff_id


def test_an_outage_is_waited_out(hook, service, log):
    kickoff_id = hook.kickoff(INPUTS)
    service.faults.answer(503, on="status", times=2)
    service.faults.answer(502, body="<html>", on="status")
    service.faults.reset(on="status", times=2)
    service.faults.truncate(on="status")

    assert hook.wait(kickoff_id, poll_interval=0.01).status == "completed"

    assert "The execution goes on, as far as is known" in log.text
    assert len(service.kickoffs) == 1


def test_an_outage_that_lasts_ends_the_wait(hook, service):
    kickoff_id = hook.kickoff(INPUTS)
    service.faults.refuse()

    with pytest.raises(LostContact, match="do not kick off again") as caught:
        hook.wait(kickoff_id, poll_interval=0.05, max_outage=0.3)

    assert caught.value.kickoff_id == kickoff_id


@pytest.fixture
def pauses(monkeypatch):
    """For how long a wait has paused, one after the other."""
    noted = []

    def sleep(seconds):
        noted.append(seconds)
        time.sleep(seconds)

    async def sleep_async(seconds):
        noted.append(seconds)
        await asyncio.sleep(seconds)

    monkeypatch.setattr(
        "airflow_provider_crew.hooks.polling.time", SimpleNamespace(**vars(time) | {"sleep": sleep})
    )
    stand_in = SimpleNamespace(**vars(asyncio) | {"sleep": sleep_async})
    monkeypatch.setattr("airflow_provider_crew.hooks.polling.asyncio", stand_in)
    return noted


@pytest.mark.usefixtures("slow_service")
def test_waiting_ends_at_its_deadline(hook, pauses):
    kickoff_id = hook.kickoff({})

    with pytest.raises(WaitedTooLong, match="still going when the time to wait was over") as caught:
        hook.wait(kickoff_id, poll_interval=10, timeout=0.3)

    assert sum(pauses) <= 0.3
    assert "Last seen: task 1 of 1, writing_task." in str(caught.value)


def test_an_unknown_execution_ends_the_wait_at_once(hook, service):
    with pytest.raises(ExecutionNotFound):
        hook.wait("never-was", poll_interval=60)

    assert [request.path for request in service.requests] == ["/status/never-was", "/never-was/status"]


def test_a_token_rotated_while_waiting_is_picked_up(hook, slow_service, reactions, monkeypatch, log):
    kickoff_id = hook.kickoff({})
    slow_service.finish(kickoff_id)
    slow_service.rotate_token("the-next-token-0815")
    renewed = slow_service.connection_uri
    reactions.append(lambda request: request.status == 401 and monkeypatch.setenv(CONNECTION, renewed))

    completed = hook.wait(kickoff_id, poll_interval=0.05)

    assert completed.kickoff_id == kickoff_id
    assert "in case the token was rotated" in log.text
    assert "token-0815" not in log.text
    assert {request.status for request in slow_service.requests.on("status")} == {401, 200}


def test_a_connection_that_vanishes_does_not_end_the_wait(hook, service, reactions, monkeypatch, log, caplog):
    monkeypatch.setattr("airflow_provider_crew.service.shared._FRESH_AFTER_REJECTION", 0.0)
    kickoff_id = hook.kickoff(INPUTS)
    service.faults.answer(401, on="status", times=2)
    reactions.append(lambda request: request.status == 401 and monkeypatch.delenv(CONNECTION, raising=False))

    assert hook.wait(kickoff_id, poll_interval=0.05).status == "completed"

    assert "could not be read anew" in log.text + caplog.text


def test_a_kickoff_that_the_service_does_not_know_yet_is_given_a_moment(hook, service):
    kickoff_id = hook.kickoff(INPUTS)
    service.faults.answer(404, on="status", times=2)

    assert hook.wait(kickoff_id, poll_interval=0.05).status == "completed"


def test_a_watch_that_cannot_go_on_says_that_the_crew_does(hook, service):
    kickoff_id = hook.kickoff(INPUTS)
    service.faults.answer(400, on="status")

    with pytest.raises(WatchBroken, match="(?s)is paid for.*Mend this") as caught:
        hook.wait(kickoff_id, poll_interval=0.05)

    assert caught.value.kickoff_id == kickoff_id
    assert caught.value.cause.http_status == 400


class Interrupted(BaseException):
    """What a time-out or a kill raises in a task."""


@contextlib.contextmanager
def interrupted_after(seconds: float, *, once: Callable[[], object] = lambda: True) -> Iterator[None]:
    """Interrupt the block, but not before ``once`` holds, for which a busy machine may take its time."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        if not once():
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return
        if frame and frame.f_code.co_name == "_remove":  # of a weak set, where Python drops what is raised
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("slow_service")
def test_an_interrupted_wait_says_what_goes_on(hook, log):
    kickoff_id = hook.kickoff({})

    with interrupted_after(0.5):
        hook.wait(kickoff_id, poll_interval=10)

    assert f"Execution {kickoff_id}: no longer watched, interrupted." in log.text
    assert "It goes on and is paid for." in log.text


def test_an_interrupted_kickoff_is_not_forgotten(hook, service, caplog):
    service.faults.hang(on="kickoff", after_taken=True)

    with interrupted_after(0.5, once=lambda: service.kickoffs):
        hook.kickoff(INPUTS)

    assert len(service.kickoffs) == 1
    assert "Interrupted while a kickoff was under way" in caplog.text


def test_an_interruption_between_two_tries_raises_no_false_alarm(hook, service, caplog):
    service.faults.answer(429, retry_after=5, on="kickoff")

    with interrupted_after(0.5, once=lambda: service.requests):
        hook.kickoff(INPUTS)

    assert not service.kickoffs
    assert "Interrupted while a kickoff was under way" not in caplog.text


@pytest.mark.parametrize(
    ("spoil", "answer"),
    [
        (lambda faults: faults.clear(), (True, "Connected. This crew expects: topic, audience")),
        (lambda faults: faults.answer(401), (False, "renew it in the connection")),
        (lambda faults: faults.answer(403), (False, "The token may not do this")),
        (lambda faults: faults.answer(404), (False, "There is no crew at this address")),
        (lambda faults: faults.answer(500), (False, "answers 500")),
        (lambda faults: faults.answer(200, body="<html>"), (False, "cannot be read: it is not JSON")),
        (lambda faults: faults.refuse(), (False, "connection refused")),
        (lambda faults: faults.redirect("https://else.example"), (False, "redirects to https://else.example")),
    ],
)
def test_the_test_button_says_what_it_found(service, monkeypatch, spoil, answer):
    monkeypatch.setenv(CONNECTION, service.connection_uri)
    spoil(service.faults)

    works, said = CrewHook().test_connection()

    assert works is answer[0]
    assert answer[1] in said
    assert TOKEN not in said


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        ("crew://:secret-token@crew.example/http", "would send the token unencrypted"),
        ("crew://:secret-token@", "address must be that of the crew"),
        ("crew://crew.example", "There is no organization token"),
        ("crew://:secret-token@no-such-crew.invalid", "its name is not known"),
    ],
)
def test_the_test_button_says_what_is_wrong_with_the_connection(monkeypatch, connection, said):
    monkeypatch.setenv(CONNECTION, connection)

    works, message = CrewHook().test_connection()

    assert works is False
    assert said in message
    assert "secret-token" not in message
    assert not message.startswith("The connection")


def test_the_test_button_marks_optional_inputs(service, monkeypatch):
    monkeypatch.setenv(CONNECTION, service.connection_uri)
    inputs = {"inputs": [{"name": "topic"}, {"name": "tone", "required": False}]}
    service.faults.answer(200, body=inputs)
    service.faults.answer(200, body={"inputs": []})

    assert CrewHook().test_connection()[1] == "Connected. This crew expects: topic, tone (optional)"
    assert CrewHook().test_connection()[1] == "Connected. This crew expects: no inputs"


def test_a_bad_connection_is_named(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_RESEARCH", "crew://:secret-token@crew.example/http")

    with pytest.raises(InvalidSettings, match="The connection 'research' cannot be used"):
        CrewHook("research").inputs()


def test_secrets_are_masked_and_shown_nowhere(monkeypatch, service, log):
    secrets = [TOKEN, "user-token-3141", "proxy-password-2718"]
    extra = urlencode({"user_bearer_token": secrets[1], "proxy": f"http://somebody:{secrets[2]}@127.0.0.1:9"})
    monkeypatch.setenv(CONNECTION, f"{service.connection_uri}?{extra}")
    hook = CrewHook()

    hook.test_connection()

    for secret in secrets:
        assert secret not in str(redact(f"it says {secret} here"))
        assert secret not in log.text
        assert secret not in repr(vars(hook)) + repr(vars(hook.get_conn()))


def test_a_wrong_token_is_not_repeated_in_the_error(monkeypatch, service):
    monkeypatch.setenv(CONNECTION, service.connection_uri.replace(TOKEN, "wrong-token-99999"))

    with pytest.raises(NotAuthenticated) as caught:
        CrewHook().inputs()

    assert "99999" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
