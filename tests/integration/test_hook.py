"""The hook in plain Python, from a connection in the environment to the result of a crew."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.sdk import redact
from asgiref.sync import async_to_sync

from airflow_provider_crew.client.errors import (
    Cost,
    ExecutionFailed,
    ExecutionNotFound,
    NotAuthenticated,
)
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.local.record import ReceivedRequest
from tests.integration.clients import INPUTS, TOKEN

CONNECTION = "AIRFLOW_CONN_CREW_DEFAULT"


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


def test_run_from_inputs_to_result(hook, service):
    assert hook.inputs().names == ("topic", "audience")
    kickoff_id = hook.kickoff(INPUTS, meta={"run": 7})
    assert hook.status(kickoff_id).status == "completed"

    result = hook.wait(kickoff_id, poll_interval=0.05).result()

    assert result["kickoff_id"] == kickoff_id
    assert result["output"].startswith("Briefing: harbours\nFor: sailors")
    assert [task["agent"] for task in result["tasks"]] == ["Researcher", "Writer", "Editor"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert [kickoff.meta for kickoff in service.kickoffs] == [{"run": 7}]


def test_token_type_chooses_token(service, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{service.connection_uri}?user_bearer_token={service.user_token}")

    CrewHook().inputs()
    CrewHook(token_type="user").inputs()

    sent = [request.header("Authorization") for request in service.requests]
    assert sent == [f"Bearer {TOKEN}", f"Bearer {service.user_token}"]


async def test_secrets_are_masked_outside_the_event_loop(service, monkeypatch):
    """A triggerer of Airflow 3.0 tells its supervisor so, and refuses to do that on the loop itself."""
    monkeypatch.setenv(CONNECTION, service.connection_uri)
    told: list[str] = []

    async def tell(secret: str) -> None:
        told.append(secret)

    monkeypatch.setattr("airflow_provider_crew.hooks.connection.mask_secret", async_to_sync(tell))

    async with await CrewHook().get_async_conn() as crew:
        assert crew.settings.token == TOKEN
    assert TOKEN in told


def test_failed_crew_raises_its_own_error(hook, service):
    service.scenario = Scenario(tasks=(ScenarioTask(name="research_task", error="out of credit"),), inputs=())

    with pytest.raises(ExecutionFailed, match="out of credit") as caught:
        hook.wait(hook.kickoff({}), poll_interval=0.05)

    assert caught.value.error == "out of credit"
    assert caught.value.cost is Cost.ENDED
    assert caught.value.kickoff_id == service.kickoffs[0].kickoff_id


def test_unknown_execution_ends_wait_at_once(hook, service):
    with pytest.raises(ExecutionNotFound):
        hook.wait("never-was", poll_interval=60)

    assert [request.path for request in service.requests] == ["/status/never-was", "/never-was/status"]


def test_token_rotated_while_waiting_is_picked_up(hook, slow_service, reactions, monkeypatch, log):
    monkeypatch.setattr("airflow_provider_crew.hooks.polling._FRESH_AFTER_REJECTION", 0.0)
    kickoff_id = hook.kickoff({})
    slow_service.finish(kickoff_id)
    slow_service.rotate_token("the-next-token-0815")
    renewed = slow_service.connection_uri
    reactions.append(lambda request: request.status == 401 and monkeypatch.setenv(CONNECTION, renewed))

    completed = hook.wait(kickoff_id, poll_interval=0.05)

    assert completed.kickoff_id == kickoff_id
    assert "token-0815" not in log.text
    assert {request.status for request in slow_service.requests.on("status")} == {401, 200}


def test_deleted_connection_does_not_end_wait(hook, service, reactions, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.hooks.polling._FRESH_AFTER_REJECTION", 0.0)
    kickoff_id = hook.kickoff(INPUTS)
    service.faults.answer(401, on="status", times=2)
    reactions.append(lambda request: request.status == 401 and monkeypatch.delenv(CONNECTION, raising=False))

    assert hook.wait(kickoff_id, poll_interval=0.05).status == "completed"

    assert [request.status for request in service.requests.on("status")] == [401, 401, 200]


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


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of this package."""
    records = [record for record in caplog.records if record.name.startswith("airflow_provider_crew")]
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def test_interrupted_kickoff_is_logged(hook, service, caplog):
    service.faults.hang(on="kickoff", after_taken=True)

    with interrupted_after(0.2, once=lambda: service.kickoffs):
        hook.kickoff(INPUTS)

    assert len(service.kickoffs) == 1
    assert warnings_of(caplog)


def test_interrupted_pause_logs_no_uncertain_kickoff(hook, service, caplog):
    service.faults.answer(429, retry_after=5, on="kickoff")

    with interrupted_after(0.2, once=lambda: service.requests):
        hook.kickoff(INPUTS)

    assert not service.kickoffs
    # The one warning is about the rejection.
    assert [("429" in warning) for warning in warnings_of(caplog)] == [True]


@pytest.mark.parametrize(
    ("spoil", "works", "shown"),
    [
        (lambda faults: faults.clear(), True, "topic, audience"),
        (lambda faults: faults.answer(401), False, "401"),
        (lambda faults: faults.answer(403), False, "403"),
        (lambda faults: faults.answer(404), False, "404"),
        (lambda faults: faults.answer(500), False, "500"),
        (lambda faults: faults.answer(200, body="<html>"), False, "<html>"),
        (lambda faults: faults.refuse(), False, "127.0.0.1"),
        (lambda faults: faults.redirect("https://else.example"), False, "https://else.example"),
    ],
)
def test_connection_test_shows_what_it_found(service, monkeypatch, spoil, works, shown):
    monkeypatch.setenv(CONNECTION, service.connection_uri)
    spoil(service.faults)

    has_worked, message = CrewHook().test_connection()

    assert has_worked is works
    assert shown in message
    assert TOKEN not in message


@pytest.mark.parametrize(
    ("connection", "shown"),
    [
        ("crew://:secret-token@crew.example/http", "allow_http"),
        ("crew://:secret-token@", ""),
        ("crew://crew.example", ""),
        ("crew://:secret-token@no-such-crew.invalid", "no-such-crew.invalid"),
    ],
)
def test_connection_test_names_wrong_setting(monkeypatch, connection, shown):
    monkeypatch.setenv(CONNECTION, connection)

    works, message = CrewHook().test_connection()

    assert works is False
    assert shown in message
    assert "secret-token" not in message


def test_secrets_are_masked_and_not_shown(monkeypatch, service, log):
    secrets = [TOKEN, "user-token-3141", "proxy-password-2718"]
    extra = urlencode({"user_bearer_token": secrets[1], "proxy": f"http://somebody:{secrets[2]}@127.0.0.1:9"})
    monkeypatch.setenv(CONNECTION, f"{service.connection_uri}?{extra}")
    hook = CrewHook()

    hook.test_connection()

    for secret in secrets:
        assert secret not in str(redact(f"it says {secret} here"))
        assert secret not in log.text
        assert secret not in repr(vars(hook)) + repr(vars(hook.get_conn()))


def test_wrong_token_is_not_shown(monkeypatch, service):
    monkeypatch.setenv(CONNECTION, service.connection_uri.replace(TOKEN, "wrong-token-99999"))

    with pytest.raises(NotAuthenticated) as caught:
        CrewHook().inputs()

    assert "99999" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.usefixtures("slow_service")
def test_interrupted_wait_logs_kickoff_id(hook, log):
    kickoff_id = hook.kickoff({})
    before = log.text

    with interrupted_after(0.2):
        hook.wait(kickoff_id, poll_interval=10)

    assert kickoff_id in log.text.removeprefix(before)
