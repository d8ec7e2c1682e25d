"""Calls of crews that have started, honest and hostile: each has its status, and only the right ones an effect."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from airflow_provider_crew.settle.address import Address, new_address
from airflow_provider_crew.settle.receiver import keep, task_state
from dev.postgres import PostgresServer
from tests.integration.question_receiver import SECRET, receiving
from tests.integration.test_question_receiver import MAPPED as STORED_TASK
from tests.integration.test_question_receiver import Database
from tests.supported import AIRFLOW

TASK = {"dag_id": "research", "run_id": "manual__1", "task_id": "crew", "map_index": -1}
RECORD = "crew_kickoff"
ID = "57a13a6e-3a4c-4c55-9f0e-2f1f8a4b9c01"


@pytest.fixture(scope="module")
def running():
    with receiving(TASK, {}) as receiver:
        yield receiver


class Kickoff:
    """A kickoff without a response, and the receiver of the calls of its crew."""

    def __init__(self, receiver: Any) -> None:
        receiver.reset({})
        self.receiver = receiver
        self.entries: dict[str, str] = {}
        receiver.entries_of = lambda task: self.entries if task == TASK else {}
        self.url, self.call = self.address()
        self.entries[RECORD] = json.dumps({"kickoff_id": None, "call": self.call})

    def address(self, key: str = SECRET, **changes: Any) -> tuple[str, str]:
        return new_address(self.receiver.url, key, TASK | changes, RECORD)

    def called(self, body: Any, url: str = "") -> int:
        answer = requests.post(url or self.url, json=body, timeout=30)
        assert ID not in answer.text
        assert "research" not in answer.text
        if not answer.ok and answer.headers.get("Content-Type") == "application/json":
            assert answer.json().keys() == {"detail"}
            assert len(answer.json()["detail"]) > len("None")
        return answer.status_code

    @property
    def heard(self) -> Any:
        return json.loads(self.entries.get(f"crew_heard_{self.call}", "null"))


@pytest.fixture
def kickoff(running):
    return Kickoff(running)


def test_call_names_the_execution_and_a_later_one_changes_nothing(kickoff):
    for kickoff_id in (ID, "second"):
        assert kickoff.called({"kickoff_id": kickoff_id, "result": "x" * 100_000}) == 204

    assert kickoff.heard == {"kickoff_id": ID}
    assert kickoff.entries[RECORD] == json.dumps({"kickoff_id": None, "call": kickoff.call})


@pytest.mark.parametrize(
    ("changes", "record"),
    [
        # The secret goes to every crew, so a forged address may be signed well.
        *((changes, None) for changes in ({"task_id": "other"}, {"map_index": 1}, {"run_id": "manual__2"}, {})),
        *(({}, record) for record in ({"kickoff_id": "known", "call": ""}, {"kickoff_id": None, "call": "later"})),
    ],
)
def test_call_for_another_task_or_kickoff_changes_nothing(kickoff, changes, record):
    url = kickoff.url if record else kickoff.address(**changes)[0]
    kickoff.entries |= {RECORD: json.dumps(record)} if record else {}

    assert kickoff.called({"kickoff_id": ID}, url) == 204
    assert list(kickoff.entries) == [RECORD]


def test_stranger_is_turned_away(kickoff):
    for forged in (kickoff.address(key="another-secret")[0], kickoff.url.partition(".")[0], f"{kickoff.url}/x"):
        assert kickoff.called({"kickoff_id": ID}, forged) == 404, forged
    assert list(kickoff.entries) == [RECORD]


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="This Airflow has no task state store.")
def test_call_is_kept_in_the_store_of_airflow(monkeypatch):
    with PostgresServer() as server:
        database = Database(server.settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
        monkeypatch.setattr("airflow.settings.Session", database.session)
        monkeypatch.setattr("airflow_provider_crew.settle.receiver.task_state", task_state)
        database.add(STORED_TASK, "failed")
        with task_state(STORED_TASK) as (get, put):
            put(RECORD, json.dumps({"call": "call"}))
        for ids in ({"execution_id": "other"}, {"execution_id": "third", "kickoff_id": ID}):
            keep(Address(STORED_TASK, RECORD, "call"), ids)
        with task_state(STORED_TASK) as (get, _):
            assert json.loads(get("crew_heard_call") or "") == {"execution_id": "other", "kickoff_id": ID}
        database.session.remove()
        database.engine.dispose()
