"""``python -m airflow_provider_crew check``: the requests that it sends, and what they and its report prove."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_crew import __version__
from airflow_provider_crew.answers.check import check_receiver
from airflow_provider_crew.cli import ANSWERED, FAILED, INTERRUPTED, UNDECIDED
from airflow_provider_crew.client.api import Request, Response
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.shapes import _NAMES, Shapes
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


def test_receivers_are_doubted_as_in_the_table(monkeypatch, timing, evaluated):
    """Each line has what a request from here finds, and how many doubts there are whether the crew reaches it."""
    timing(settle_look=0.02)

    def found(url: str, crew: str = "https://crew.example.com", conn_id: str = "crew_webhook") -> tuple[Any, int]:
        monkeypatch.setenv("AIRFLOW__CREW__WEBHOOK_CONN_ID", conn_id)
        monkeypatch.setenv("AIRFLOW__CREW__EVENTS_URL", url)
        receiver: dict[str, Any] = check_receiver(crew)
        return receiver["receiver_from_here"], len(receiver["receiver_doubts"])

    with playing("documented", WRITING) as service:
        evaluated("receivers.txt", found=found, url=service.url)


# Every text, name and number of this deployment has one of these.
MARK, NUMBER = "zqMark", 918273645
VALUE: Any = [MARK, NUMBER, None, [MARK], {MARK: MARK, "name": MARK, "status": {MARK: [NUMBER]}}]


@pytest.fixture
def report(monkeypatch, timing, command):
    """Run the check against a service. The report holds no value of the deployment."""
    timing(shortest_interval=0.05, waking_pause=0.01, waking_up=0.05, longest_back_off=0.01)

    def reported(crew: LocalCrewService, *arguments: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setenv(f"AIRFLOW_CONN_{MARK.upper()}", crew.connection_uri)
        code, printed, _ = command("check", MARK, "--report", "--yes", *arguments, as_json=False)
        for secret in (MARK, str(NUMBER), str(crew.port), *(each.kickoff_id for each in crew.kickoffs)):
            assert secret.lower() not in printed.lower()
        told = json.loads(printed)
        assert told.pop("versions")["provider"] == __version__
        assert told.pop("python")[0] == "3"
        return code, told

    return reported


ODD = [f"<html>{MARK} {NUMBER} {TOKEN}</html>", "", f'"{MARK}"', str(NUMBER), "[" * 5000, f'{{"{MARK}": 1', "NaN"]


@pytest.mark.parametrize("on", ["inputs", "kickoff", "status"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, dict.fromkeys(_NAMES, VALUE) | {MARK: VALUE, "state": "SUCCESS", "kickoff_id": f"{MARK}-{NUMBER}"}),
        *((status, {"message": MARK, MARK: VALUE}) for status in (400, 401, 422, 500)),
        *((200, body) for body in ODD),
    ],
)
def test_odd_body_shows_no_value(report, on, status, body):
    headers = {"Content-Type": f"text/{MARK}", "Server": MARK, "X": TOKEN}
    with playing("deployed", WRITING) as service:
        service.faults.answer(status, body=body, headers=headers, on=on, times=99)
        code, told = report(service, "--start", "--inputs", json.dumps({MARK: MARK, f"{MARK}2": NUMBER}))

    assert told["responses"]
    assert code in {ANSWERED, FAILED, UNDECIDED}


ANY_BODY = st.recursive(
    st.sampled_from([MARK, NUMBER, True, None, float(NUMBER), "SUCCESS"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([MARK, f"{MARK}2", *sorted(_NAMES)]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(body=ANY_BODY)
def test_no_body_shows_a_value(body):
    shapes = Shapes()
    request = Request("GET", f"https://{MARK}.example", f"/status/{MARK}", kickoff_id=MARK)
    for _ in range(2):
        shapes.note(Response(request, 200, {MARK: MARK}, json.dumps(body).encode()), 0.25)

    (told,) = shapes.all()
    assert (told["times"], told["request"]) == (2, "GET /status/{kickoff_id}")
    assert not [each for each in (MARK, str(NUMBER)) if each in json.dumps(told)]
