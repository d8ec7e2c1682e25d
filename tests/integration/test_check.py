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
from airflow_provider_crew.cli import ANSWERED, INTERRUPTED
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.local.scenario import Delivery
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.commands import ENDLESS, FAILING, WRITING, Crew, answers, crew, playing
from tests.integration.question_receiver import SECRET, receiving

pytest_plugins = ["tests.integration.command_fixtures"]

GIVEN = ("--inputs", json.dumps(INPUTS))
SLOWLY = WRITING.model_copy(update={"seconds": 1.0})


@pytest.fixture
def check(command, timing) -> Callable[..., tuple[int, dict[str, Any]]]:
    timing(shortest_interval=0.1)
    return lambda crew, *arguments: command("check", "crew_default", *arguments, crew=crew)[:2]


def takes_one(service: LocalCrewService) -> None:
    """Reject each kickoff after the first."""
    take = service.take

    def take_one(*given: Any) -> Any:
        service.faults.answer(401, on="kickoff")
        return take(*given)

    service.take = take_one  # type: ignore[method-assign, assignment]


# A crew, the arguments of the command, and what the user types.
CHECKS: dict[str, tuple[Crew, str, str | None]] = {
    "it only reads": (crew(WRITING), "", None),
    "required inputs are unknown": (crew(WRITING, required_inputs=False), "", None),
    "a flow requires none": (crew(WRITING, kind="flow"), "", None),
    "inputs are not listed": (crew(SLOWLY, spoil=answers(403, "inputs")), "", None),
    "inputs are not listed, but it starts": (crew(SLOWLY, spoil=answers(403, "inputs")), "--start", None),
    "nothing is typed": (crew(WRITING), "--start --stop", ""),
    "no is typed": (crew(WRITING), "--start --stop", "n\n"),
    "it starts": (crew(WRITING.model_copy(update={"name": "first"}), SLOWLY), "--start", None),
    "it stops": (crew(ENDLESS), "--stop", None),
    "it starts and stops": (crew(SLOWLY), "--start --stop", None),
    "second kickoff is rejected": (crew(SLOWLY, spoil=takes_one), "--start --stop", None),
    "execution fails": (crew(FAILING), "--start", None),
    "an input is missing": (crew(WRITING, inputs=[{"name": "port"}]), "--start", None),
    "stop is missing": (crew(ENDLESS, spoil=answers(404, "stop")), "--stop", None),
}
for status, on in [(401, "inputs"), (403, "status"), (422, "kickoff"), (429, "kickoff"), (504, "kickoff")]:
    CHECKS[f"{status} for {on}"] = crew(WRITING, spoil=answers(status, on)), "--start --stop", None


def test_checks_ask_and_tell_as_in_the_table(check, printed, monkeypatch):
    """Each line has the exit code, the requests besides polls, what is proven, and what else is told."""

    def line(name: str, dialect: str) -> str:
        make, arguments, typed = CHECKS[name]
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with make(dialect) as service:
            code, told = check(service, *arguments.split(), *(["--yes"] if typed is None else []), *GIVEN)
            asked = [str(each.operation) for each in service.requests if each.operation != "status"]
            ids = [kickoff.kickoff_id for kickoff in service.kickoffs]
        assert told.pop("kickoff_ids", []) == ids
        assert told.pop("connection", "crew_default") == "crew_default"
        proven = [key for key in told if told[key] == "proven"]
        facts = {key: told[key] for key in ("error", "cost", "dialect", "token", "output") if key in told}
        facts |= {"inputs": told.get("inputs"), "required_inputs": told.get("required_inputs")}
        others = [key for key in told if key not in {*facts, *proven, "address"}]
        shown = " ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        cells = f"{code} | {' '.join(asked)} | {' '.join(proven)} | {shown} | {' '.join(others)}"
        return f"{name}, {dialect}: {cells}".rstrip()

    printed("check.txt", lambda _: [line(name, each) for name in CHECKS for each in ("documented", "deployed")])


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
