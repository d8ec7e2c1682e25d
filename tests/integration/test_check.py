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

from airflow_provider_crew.cli import ANSWERED, INTERRUPTED
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.local.record import ReceivedRequest
from tests.airflow_runs import eventually
from tests.faults.held import HeldAnswer
from tests.integration.clients import INPUTS, TOKEN
from tests.integration.commands import ENDLESS, FAILING, WRITING, Crew, answers, crew, playing

GIVEN = ("--inputs", json.dumps(INPUTS))
SLOWLY = WRITING.model_copy(update={"seconds": 0.3})


@pytest.fixture
def check(command, timing) -> Callable[..., tuple[int, dict[str, Any]]]:
    timing(shortest_interval=0.02)
    return lambda crew, *arguments: command("check", "crew_default", *arguments, crew=crew)[:2]


def takes_one(service: LocalCrewService) -> None:
    """Reject the second kickoff. The first is only delayed."""
    service.faults.hang(seconds=0.01, on="kickoff")
    service.faults.answer(401, on="kickoff")


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
    """Each line has the exit code, the requests besides polls, and what is told."""

    def line(name: str, dialect: str) -> str:
        make, arguments, typed = CHECKS[name]
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        with make(dialect) as service:
            code, told = check(service, *arguments.split(), *(["--yes"] if typed is None else []), *GIVEN)
            asked = [str(each.operation) for each in service.requests if each.operation != "status"]
            ids = [kickoff.kickoff_id for kickoff in service.kickoffs]
        assert told.pop("kickoff_ids", []) == ids
        assert told.pop("connection", "crew_default") == "crew_default"
        facts = {key: told[key] for key in ("error", "cost", "token", "inputs", "cancel") if key in told}
        facts |= {key: told["result"][key] for key in ("output", "usage") if "result" in told}
        others = [key for key in told if key not in {*facts, "address", "result"}]
        shown = " ".join(f"{key}={value}" for key, value in facts.items() if value is not None)
        cells = f"{code} | {' '.join(asked)} | {shown} | {' '.join(others)}"
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


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "https://x..y", "/kickoff", "/crew/events"])
def test_check_tells_what_is_not_the_receiver(check, monkeypatch, address):
    with playing("documented", WRITING) as service:
        url = f"{service.url}{address}" if address.startswith("/") else address
        monkeypatch.setenv("AIRFLOW__CREW__EVENTS_URL", url)
        code, told = check(service)
    assert code == ANSWERED
    assert told["receiver_from_here"].startswith("HTTP 40" if address.startswith("/") else "There is no response")
