"""Every way a call can end badly, as seen by both clients over a real socket."""

from __future__ import annotations

import logging
import socket
import ssl
import time

import pytest
import requests
import tenacity

from airflow_provider_crew.client.api import KickoffRequest
from airflow_provider_crew.client.errors import (
    AnswerTooLarge,
    Cost,
    CrewError,
    ExecutionNotFound,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    Refused,
    ServiceError,
    UncertainKickoff,
    Unreachable,
    UnreadableAnswer,
)
from airflow_provider_crew.local import LocalCrewService, Scenario
from tests.integration.clients import KICKOFF, TOKEN, ask, kick_off


def look(crew):
    return crew.status("some-id")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotAuthenticated),
        (403, NotAllowed),
        (404, ExecutionNotFound),
        (400, Refused),
        (410, Refused),
        (408, ServiceError),
        (429, RateLimited),
        (500, ServiceError),
        (503, ServiceError),
    ],
)
def test_status_code_chooses_error(crew, service, status, kind):
    service.faults.answer(status, on="status")

    with pytest.raises(kind) as caught:
        look(crew)

    assert type(caught.value) is kind
    assert caught.value.http_status == status
    assert f"{service.url}/status/some-id" in str(caught.value)


def test_wrong_token_is_rejected_and_not_shown(connect, service):
    crew = connect(service.url, token="a-wrong-token-0815")

    with pytest.raises(NotAuthenticated) as caught:
        crew.inputs()

    assert "token-0815" not in str(caught.value)
    assert len(service.requests) == 1


def test_token_repeated_by_service_is_not_shown(crew, service):
    service.faults.answer(
        403,
        body={"error": "Forbidden", "message": f"token {TOKEN} may not"},
        headers={"content-type": f"application/json; token={TOKEN}"},
        on="status",
    )
    service.faults.answer(200, body=f"<html>{TOKEN}</html>", on="status")
    service.faults.redirect(f"https://login.example/{TOKEN}?token={TOKEN}", on="status")

    for _ in range(3):
        with pytest.raises(CrewError) as caught:
            look(crew)
        assert TOKEN not in str(caught.value)
        assert TOKEN not in repr(vars(caught.value))


def test_user_token_without_permission_is_rejected(connect):
    with LocalCrewService(Scenario(user_token_may_kickoff=False), token=TOKEN) as service:
        crew = connect(service.url, token=service.user_token)

        with pytest.raises(NotAllowed) as caught:
            crew.kickoff(KICKOFF)

        assert caught.value.cost is Cost.NONE
        assert not service.kickoffs


def test_missing_inputs_are_named(crew, service):
    with pytest.raises(Refused) as caught:
        crew.kickoff(KickoffRequest.of({}))

    assert caught.value.missing_inputs == ("topic", "audience")
    assert caught.value.http_status == 422
    assert not service.kickoffs


def test_redirect_is_not_followed_and_named_without_query(crew, service):
    service.faults.redirect("https://elsewhere.example/login?session=secret", on="inputs")

    with pytest.raises(Refused, match="https://elsewhere.example/login") as caught:
        crew.inputs()

    assert "secret" not in str(caught.value)
    assert len(service.requests) == 1


def test_unknown_execution_is_named(crew, service):
    with pytest.raises(ExecutionNotFound, match="never-was") as caught:
        crew.status("never-was")

    assert caught.value.kickoff_id == "never-was"
    assert [request.path for request in service.requests] == ["/status/never-was", "/never-was/status"]


def test_state_not_found_is_unknown_execution(connect):
    scenario = Scenario(dialect="deployed")
    with LocalCrewService(scenario, token=TOKEN) as service, pytest.raises(ExecutionNotFound):
        connect(service.url).status("never-was")


@pytest.mark.parametrize(
    ("body", "excerpt"),
    [
        ("<html><h1>Welcome</h1></html>", "<html><h1>Welcome</h1></html>"),
        ('{"status": "runn', '{"status": "runn'),
        ("[1, 2]", "[1, 2]"),
        ('{"progress": 1}', '{"progress": 1}'),
        ('{"status": 5}', '{"status": 5}'),
        ("", ""),
        ("[" * 100_000, "[" * 200 + "…"),
    ],
)
def test_unreadable_answer_is_excerpted(crew, service, body, excerpt):
    service.faults.answer(200, body=body, on="status")

    with pytest.raises(UnreadableAnswer) as caught:
        look(crew)

    assert caught.value.http_status == 200
    assert excerpt in str(caught.value)


def test_html_of_gateway_is_excerpted(crew, service):
    service.faults.answer(502, body="<html><title>Bad gateway</title></html>", on="status")

    with pytest.raises(ServiceError, match="Bad gateway"):
        look(crew)


def test_problem_json_is_read(crew, service):
    service.faults.answer(
        503,
        body={"title": "Deploying", "detail": "Back in a minute."},
        headers={"content-type": "application/problem+json"},
        on="status",
    )

    with pytest.raises(ServiceError, match=r"Deploying: Back in a minute\."):
        look(crew)


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
def test_retry_after_is_read(crew, service, as_date):
    service.faults.answer(429, retry_after=90, retry_after_date=as_date, on="status")
    began = time.time()

    with pytest.raises(RateLimited) as caught:
        look(crew)

    # A date is told in whole seconds, and read a moment later.
    less = 1 + time.time() - began if as_date else 0
    assert 90 - less <= (caught.value.retry_after or 0) <= 90


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_answer_over_limit_is_not_read(crew, service, chunked, monkeypatch):
    monkeypatch.setattr("airflow_provider_crew.client.api.MAX_ANSWER_BYTES", 1_000_000)
    kickoff_id = crew.kickoff(KICKOFF)
    service.faults.huge(3_000_000, chunked=chunked, on="status")

    with pytest.raises(AnswerTooLarge):
        crew.status(kickoff_id)

    assert crew.status(kickoff_id).status == "completed"
    assert len(service.requests.on("status")) == 2


def test_answer_under_limit_is_read(crew, service):
    kickoff_id = crew.kickoff(KICKOFF)
    service.faults.huge(20_000_000, on="status")

    assert crew.status(kickoff_id).status == "completed"


class TestKickoffIsNotSentTwice:
    """POST /kickoff is sent again only when the service certainly did not take it."""

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    @pytest.mark.parametrize("taken", [False, True], ids=["not taken", "taken"])
    def test_5xx_is_uncertain(self, crew, service, status, taken):
        service.faults.answer(status, on="kickoff", after_taken=taken)

        with pytest.raises(UncertainKickoff, match=str(status)) as caught:
            crew.kickoff(KICKOFF)

        assert caught.value.cost is Cost.UNKNOWN
        assert len(service.requests.on("kickoff")) == 1
        assert len(service.kickoffs) == int(taken)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda faults: faults.truncate(on="kickoff"),
            lambda faults: faults.truncate(on="kickoff", incomplete=True),
            lambda faults: faults.answer(200, body="<html>", on="kickoff", after_taken=True),
            lambda faults: faults.answer(200, body={"id": 7}, on="kickoff", after_taken=True),
            lambda faults: faults.answer(200, body={"kickoff_id": ""}, on="kickoff", after_taken=True),
            lambda faults: faults.answer(200, body={"kickoff_id": None}, on="kickoff", after_taken=True),
            lambda faults: faults.answer(204, on="kickoff", after_taken=True),
        ],
        ids=["cut", "incomplete", "html", "no id", "empty id", "null id", "no body"],
    )
    def test_unreadable_success_is_uncertain(self, crew, service, spoil):
        spoil(service.faults)

        with pytest.raises(UncertainKickoff):
            crew.kickoff(KICKOFF)

        assert len(service.kickoffs) == 1
        assert len(service.requests.on("kickoff")) == 1

    def test_connection_never_made_is_retried(self, crew, service, monkeypatch):
        def come_back(_: tenacity.RetryCallState) -> float:
            service.faults.clear()
            return 0.0

        monkeypatch.setattr("airflow_provider_crew.client.api._JITTER", come_back)
        service.faults.refuse()

        kick_off(crew)

        assert len(service.kickoffs) == 1

    def test_failure_that_caller_handles_proves_nothing(self, crew, service):
        service.faults.reset(on="kickoff", times=3)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        try:
            requests.get(f"http://127.0.0.1:{port}", timeout=5)
        except requests.ConnectionError:  # a task that turns to a crew because another service is down
            with pytest.raises(UncertainKickoff):
                kick_off(crew)

        assert len(service.requests.on("kickoff")) == 1

    def test_client_sends_once(self, crew, service):
        service.faults.answer(429, on="kickoff")

        with pytest.raises(RateLimited):
            crew.kickoff(KICKOFF)

        assert len(service.requests.on("kickoff")) == 1


class TestReadsAreRepeated:
    def test_while_caller_handles_rejected_certificate(self, crew, service):
        service.faults.reset(on="inputs", times=2)  # aiohttp by itself repeats a read that was cut off, once

        try:
            raise ssl.SSLCertVerificationError  # noqa: TRY301 - of a call to another server
        except ssl.SSLCertVerificationError:
            with pytest.raises(Unreachable) as caught:
                crew.inputs()

        assert caught.value.trusted is True

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda faults: faults.answer(503, on="inputs", times=2),
            lambda faults: faults.answer(429, on="inputs", times=2),
            lambda faults: faults.reset(on="inputs", times=2),
            lambda faults: faults.truncate(on="inputs", times=2),
            lambda faults: faults.raw(b"SSH-2.0-OpenSSH\r\n", on="inputs", times=2),
        ],
        ids=["503", "429", "reset", "cut", "not HTTP"],
    )
    def test_after_transient_failures(self, crew, service, spoil, caplog):
        spoil(service.faults)

        assert ask(crew).names == ("topic", "audience")
        assert len(service.requests) == 3
        assert any(record.levelno == logging.WARNING for record in caplog.records)
        assert TOKEN not in caplog.text

    def test_three_times_at_most(self, crew, service):
        service.faults.answer(500, times=9)

        with pytest.raises(ServiceError):
            ask(crew)

        assert len(service.requests) == 3

    @pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
    def test_not_before_retry_after(self, crew, service, as_date):
        service.faults.answer(503, retry_after=2, retry_after_date=as_date, on="inputs")

        ask(crew)

        first, second = service.requests
        assert second.received_at - first.received_at >= (1 if as_date else 2)

    def test_not_by_client_itself(self, crew, service):
        service.faults.answer(503, times=2)

        with pytest.raises(ServiceError):
            crew.status("some-id")
        with pytest.raises(ServiceError):
            crew.inputs()

        assert len(service.requests) == 2
