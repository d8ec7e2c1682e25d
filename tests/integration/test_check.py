"""``python -m airflow_provider_crew check``: the requests that it sends, and what they prove."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_crew.answers.check import check_receiver, what_settles
from airflow_provider_crew.cli import ANSWERED, FAILED, INTERRUPTED, UNDECIDED
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.local.scenario import Delivery
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.commands import ENDLESS, FAILING, WRITING, playing
from tests.integration.question_receiver import SECRET, receiving

pytest_plugins = ["tests.integration.command_fixtures"]

GIVEN = ("--inputs", json.dumps(INPUTS))
SLOWLY = WRITING.model_copy(update={"seconds": 0.5})


@pytest.fixture
def check(command, timing) -> Callable[..., tuple[int, dict[str, Any]]]:
    timing(shortest_interval=0.1)
    return lambda crew, *arguments: command("check", "crew_default", *arguments, crew=crew)[:2]


def methods(service: LocalCrewService) -> set[str]:
    return {request.method for request in service.requests}


def test_without_start_it_only_reads(check, dialect):
    with playing(dialect, WRITING) as service:
        code, told = check(service)

        assert methods(service) == {"GET"}
    assert (code, told["dialect"], told["token"]) == (ANSWERED, dialect, "organization")
    assert told["inputs"] == told["required_inputs"] == ["topic", "audience"]
    assert not {"cost", "receiver"} & told.keys()


def test_required_inputs_are_told_only_if_the_crew_tells_them(check):
    with playing("deployed", WRITING, required_inputs=False) as service:
        assert "required_inputs" not in check(service)[1]
    with playing("deployed", WRITING, kind="flow") as service:
        assert check(service)[1]["required_inputs"] == []


def test_crew_that_lists_no_inputs_is_checked_further(check, dialect):
    with playing(dialect, SLOWLY) as service:
        service.faults.answer(403, on="inputs", times=2)
        code, told = check(service)
        started, proven = check(service, "--start", "--yes", *GIVEN)

    assert (code, told["dialect"], "inputs" in told, "warning" in told) == (ANSWERED, dialect, False, True)
    assert "error" not in told
    assert (started, proven["result"], "doubts" in proven) == (ANSWERED, "proven", False)


@pytest.mark.parametrize("answer", ["", "n\n"])
def test_unconfirmed_start_only_reads(check, monkeypatch, answer):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    with playing("deployed", WRITING) as service:
        code, _ = check(service, "--start", "--stop", *GIVEN)

        assert methods(service) == {"GET"}
    assert code == FAILED


def test_start_proves_what_the_crew_reports(check, dialect):
    with playing(dialect, WRITING.model_copy(update={"name": "first"}), SLOWLY) as service:
        code, told = check(service, "--start", "--yes", *GIVEN)

        (kickoff,) = service.kickoffs
    assert code == ANSWERED
    assert (told["kickoff_ids"], told["output"], told["cost"]) == ([kickoff.kickoff_id], "A page.", Cost.ENDED)
    proven = {name for name, value in told.items() if value == "proven"}
    always = {"running", "progress", "result", "execution_time"}
    # Only deployed crews report tokens and repeat the meta.
    assert proven == always | ({"token_usage", "meta"} if dialect == "deployed" else set())


@pytest.mark.parametrize("starts", [["--stop"], ["--start", "--stop"]])
def test_stop_stops_an_execution_of_its_own(check, dialect, starts):
    with playing(dialect, SLOWLY if len(starts) > 1 else ENDLESS) as service:
        code, told = check(service, *starts, "--yes", *GIVEN)

        kickoffs = [kickoff.kickoff_id for kickoff in service.kickoffs]
        assert len(service.requests.on("stop")) == 1
    assert (told["kickoff_ids"], len(kickoffs)) == (kickoffs, len(starts))
    assert (code, told["cancel"], told["running"], told["cost"]) == (ANSWERED, "proven", "proven", Cost.ENDED)


def test_rejected_second_kickoff_does_not_hide_the_first(check):
    with playing("deployed", SLOWLY) as service:
        take = service.take

        def take_one(*given: Any) -> Any:
            service.faults.answer(401, on="kickoff")
            return take(*given)

        service.take = take_one  # type: ignore[method-assign, assignment]
        code, told = check(service, "--start", "--stop", "--yes", *GIVEN)

        (kickoff,) = service.kickoffs
    assert (code, told["error"], told["kickoff_ids"]) == (FAILED, "NotAuthenticated", [kickoff.kickoff_id])
    assert told["cost"] == Cost.ENDED


def test_failed_execution_is_reported(check, dialect):
    with playing(dialect, FAILING) as service:
        code, told = check(service, "--start", "--yes", *GIVEN)

        assert told["kickoff_ids"] == [kickoff.kickoff_id for kickoff in service.kickoffs]
    assert (code, told["error"], told["cost"]) == (FAILED, "ExecutionFailed", Cost.ENDED)


@pytest.mark.parametrize(
    ("status", "on", "code", "error", "cost"),
    [
        (401, "inputs", FAILED, "NotAuthenticated", Cost.NONE),
        (403, "status", FAILED, "NotAllowed", Cost.RUNNING),
        (422, "kickoff", FAILED, "Rejected", Cost.NONE),
        (429, "kickoff", UNDECIDED, "RateLimited", Cost.NONE),
        (504, "kickoff", UNDECIDED, "UncertainKickoff", Cost.UNKNOWN),
    ],
)
def test_error_ends_the_check(check, dialect, status, on, code, error, cost):
    with playing(dialect, WRITING) as service:
        service.faults.answer(status, on=on)
        ended, told = check(service, "--start", "--stop", "--yes", *GIVEN)

        assert not service.kickoffs
        assert len(service.requests.on("kickoff")) == (on == "kickoff")
    assert (ended, told["error"], told["cost"], told["connection"]) == (code, error, cost, "crew_default")


def test_missing_stop_leaves_the_execution_running(check, dialect):
    with playing(dialect, ENDLESS) as service:
        service.faults.answer(404, on="stop", times=3)
        code, told = check(service, "--stop", "--yes", *GIVEN)

        assert len(service.kickoffs) == 1
    assert (code, told["error"], told["cost"]) == (FAILED, "NotCancelled", Cost.RUNNING)
    assert told["cancel"] != "proven"


@pytest.mark.parametrize("moment", ["kickoff", "wait"])
def test_ctrl_c_prints_the_kickoff_id(check, moment):
    held = HeldAnswer(on="kickoff" if moment == "kickoff" else "status")

    def hold(request: ReceivedRequest) -> None:
        if request.operation == ("status" if moment == "kickoff" else "kickoff"):
            service.faults.add(held)

    def press_ctrl_c() -> None:
        eventually(lambda: held.is_held, pause=0.05)
        os.kill(os.getpid(), signal.SIGINT)
        held.release()

    scenario = Scenario(dialect="deployed", tasks=(ENDLESS,))
    with LocalCrewService(scenario, token=TOKEN, on_request=hold) as service:
        presses = threading.Thread(target=press_ctrl_c)
        presses.start()
        code, told = check(service, "--start", "--stop", "--yes", *GIVEN)
        presses.join()

        (kickoff,) = service.kickoffs
    assert (code, told["kickoff_ids"], told["cost"]) == (INTERRUPTED, [kickoff.kickoff_id], Cost.RUNNING)


def test_missing_input_is_found_before_the_kickoff(check, dialect):
    with playing(dialect, WRITING, inputs=[{"name": "topic"}]) as service:
        code, told = check(service, "--start", "--yes")

        assert methods(service) == {"GET"}
    assert (code, told["error"], told["cost"]) == (FAILED, "InvalidInputs", Cost.NONE)


class TestReceiver:
    """What is told about ``[crew] events_url``."""

    @pytest.fixture
    def told(self, monkeypatch) -> Callable[..., dict[str, Any]]:
        def of(url: str, crew: str = "https://crew.example.com") -> dict[str, Any]:
            monkeypatch.setenv("AIRFLOW__CREW__EVENTS_URL", url)
            monkeypatch.setenv("AIRFLOW__CREW__WEBHOOK_CONN_ID", "crew_webhook")
            return check_receiver(crew)

        return of

    def test_command_shows_the_receiver(self, check, monkeypatch):
        with receiving({}, {}) as questions, playing("documented", WRITING) as service:
            monkeypatch.setenv("AIRFLOW__CREW__EVENTS_URL", questions.url)
            monkeypatch.delenv("AIRFLOW__CREW__WEBHOOK_CONN_ID", raising=False)
            code, told = check(service)

            assert (code, told["receiver"], told["receiver_from_here"]) == (ANSWERED, questions.url, "proven")
            assert [("webhook_conn_id" in doubt, "https" in doubt) for doubt in told["receiver_doubts"]] == [
                (True, False),
                (False, True),
            ]
            assert questions.changes == 0

    @pytest.mark.parametrize(
        ("way", "settles"), [({}, "proven"), ({"other_ids": True}, "different ID"), ({"times": 0}, "not called")]
    )
    def test_started_execution_proves_that_crews_call(self, check, monkeypatch, timing, way, settles):
        timing(settle_look=0.02)
        scenario = Scenario(tasks=(WRITING,), inputs=(), started_webhook=Delivery(**way))
        monkeypatch.setenv("AIRFLOW_CONN_CREW_WEBHOOK", json.dumps({"conn_type": "generic", "password": SECRET}))
        with (
            receiving({}, {}) as questions,
            LocalCrewService(scenario, token=TOKEN, call_webhooks=True) as service,
        ):
            monkeypatch.setenv("AIRFLOW__CREW__EVENTS_URL", questions.url)
            monkeypatch.setenv("AIRFLOW__CREW__WEBHOOK_CONN_ID", "crew_webhook")
            code, told = check(service, "--start", "--yes")

        assert code == ANSWERED
        assert settles in told["settles"]
        assert len(service.kickoffs) == 1

    @pytest.mark.parametrize(
        ("url", "crew", "doubts"),
        [
            ("http://127.0.0.1:9", "https://crew.example.com", 2),
            ("http://127.0.0.1:9", "http://127.0.0.1:8765", 1),
            *((f"https://{host}/crew/events", "", 1) for host in ("host.invalid", "x..y", f"{'x' * 70}.invalid")),
        ],
    )
    def test_private_or_unknown_address_is_a_doubt(self, told, url, crew, doubts):
        assert len(told(url, crew)["receiver_doubts"]) == doubts

    def test_other_program_is_no_receiver(self, told, timing):
        timing(settle_look=0.02)
        with playing("documented", WRITING) as service:
            for path, status in (("/kickoff", "401"), ("/crew/events", "404")):
                assert status in told(f"{service.url}{path}")["receiver_from_here"]
                assert "404" in what_settles(f"{service.url}{path}/address", "id")

    def test_closed_port_is_no_receiver(self, told):
        with playing("documented", WRITING) as service:
            url = f"{service.url}/crew/events"

        assert "ConnectionError" in told(url)["receiver_from_here"]
