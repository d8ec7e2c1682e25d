"""Calls of crews that have started, honest and hostile: each has its status, and only the right ones an effect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import requests

from airflow_provider_crew.answers.receiver import Receiver, State, task_state
from airflow_provider_crew.client.calls import Address, new_address, read_address
from airflow_provider_crew.client.settings import WebhookSecret
from dev.postgres import PostgresServer
from tests.integration.question_receiver import SECRET, receiving
from tests.integration.test_question_receiver import MAPPED as STORED_TASK
from tests.integration.test_question_receiver import Database
from tests.integration.test_question_receiver import database as database  # noqa: PLC0414 - a fixture
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

    def called(self, body: Any, url: str = "", method: str = "POST") -> int:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = requests.request(method, url or self.url, data=sent, timeout=30)
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


HONEST = {
    "flat": {"kickoff_id": ID, "execution_id": "other"},
    "camel case": {"kickoffId": ID},
    "number": {"kickoff_id": None, "data": {"kickoff_id": ID}},
    "nested": {"type": "crew_kickoff_started", "payload": {"kickoff_id": ID}},
    "with a result": {"kickoff_id": ID, "result": "x" * 100_000},
    "in meta": {"meta": {"kickoff_id": ID}},
    "event": {"events": [{"id": "1", "execution_id": ID, "type": "crew_kickoff_started", "data": {}}]},
    "nested events": {"body": {"events": [{"execution_id": ID}]}},
    "ID in the event's data": {"events": [{"execution_id": "other", "data": {"kickoff_id": ID}}]},
}


@pytest.mark.parametrize("name", HONEST)
def test_call_names_the_execution(kickoff, name):
    assert kickoff.called(HONEST[name]) == 204
    assert next(iter(kickoff.heard.values())) == ID
    assert kickoff.entries[RECORD] == json.dumps({"kickoff_id": None, "call": kickoff.call})


def test_repeated_call_with_another_id_changes_nothing(kickoff):
    for kickoff_id in (ID, "second", ID):
        assert kickoff.called({"kickoff_id": kickoff_id}) == 204

    assert kickoff.heard == {"kickoff_id": ID}


@pytest.mark.parametrize("changes", [{"task_id": "other"}, {"map_index": 1}, {"run_id": "manual__2"}, {}])
def test_call_for_another_task_or_kickoff_changes_nothing(kickoff, changes):
    """The secret goes to every crew, so a forged address may be signed well."""
    assert kickoff.called({"kickoff_id": ID}, kickoff.address(**changes)[0]) == 204
    assert list(kickoff.entries) == [RECORD]


@pytest.mark.parametrize("known", [{"kickoff_id": "known", "call": ""}, {"kickoff_id": None, "call": "later"}])
def test_call_after_the_response_or_a_later_kickoff_changes_nothing(kickoff, known):
    kickoff.entries[RECORD] = json.dumps(known)

    assert kickoff.called({"kickoff_id": ID}) == 204
    assert list(kickoff.entries) == [RECORD]


def test_command_asks_whether_its_crew_has_called(running):
    mine, other = (new_address(running.url, SECRET, {}, "")[0] for _ in range(2))

    assert requests.get(mine, timeout=30).json() == {}
    requests.post(mine, json={"kickoff_id": ID}, timeout=30)
    assert requests.get(mine, timeout=30).json() == {"kickoff_id": ID}
    assert requests.get(other, timeout=30).json() == {}


def test_stranger_is_turned_away(kickoff):
    for forged in (
        kickoff.address(key="another-secret")[0],
        kickoff.url[:-1] + ("0" if kickoff.url[-1] != "0" else "1"),
        kickoff.url.replace("/events/", "/events/x"),
        kickoff.url.partition(".")[0],
        f"{kickoff.receiver.url}/{'x' * 5000}",
        f"{kickoff.receiver.url}/.",
        kickoff.address(dag_id="research\0")[0],
        kickoff.address(map_index={})[0],
    ):
        assert kickoff.called({"kickoff_id": ID}, forged) == 404, forged
    assert list(kickoff.entries) == [RECORD]


def test_replaced_secret_ends_old_addresses(kickoff):
    kickoff.receiver.secret = WebhookSecret(password="another-secret")

    assert kickoff.called({"kickoff_id": ID}) == 404
    assert kickoff.heard is None


@pytest.mark.parametrize(
    "body",
    [
        *([{"kickoff_id": ID}], {"kickoff_id": "a\nb"}, {"kickoff_id": ["x"]}, {"kickoff_id": "x" * 1001}),
        *({"events": {"execution_id": ID}}, {"events": [ID, None, 7]}, {}),
    ],
)
def test_odd_body_names_nothing(kickoff, body):
    assert kickoff.called(body) == 204
    assert not kickoff.heard


def test_get_tells_nothing_about_a_task(kickoff):
    kickoff.called({"kickoff_id": ID})

    assert kickoff.called(b"", method="GET") == 200
    assert kickoff.called(b"", kickoff.address(key="x")[0], method="GET") == 404


def test_address_shows_no_record_how_to_forge_it():
    made = [new_address("https://airflow.example", SECRET, TASK, RECORD) for _ in range(2)]
    assert made[0][1] != made[1][1]
    assert all(call not in url for url, call in made)


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="This Airflow has no task state store.")
def test_ids_are_stored_in_airflows_database(database: Database):
    database.add(STORED_TASK, "failed")
    url, call = new_address("http://x", SECRET, STORED_TASK, RECORD)
    address = read_address(url.rpartition("/")[2], SECRET)
    assert address
    with task_state(STORED_TASK) as (get, put):
        put(RECORD, json.dumps({"call": call}))
    receiver = Receiver()

    for kickoff_id in (ID, "second"):
        receiver.keep(address, {"kickoff_id": kickoff_id})

    with task_state(STORED_TASK) as (get, _):
        assert json.loads(get(f"crew_heard_{call}") or "") == {"kickoff_id": ID}
        assert json.loads(get(RECORD) or "") == {"call": call}
    with task_state(STORED_TASK | {"map_index": 0}) as (get, _):
        assert get(RECORD) is None


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="This Airflow has no task state store.")
def test_two_first_calls_at_once_are_both_kept(monkeypatch):
    address, others = Address(STORED_TASK, RECORD, "call"), []

    @contextmanager
    def while_another_arrives(task: Mapping[str, Any], **lock: bool) -> Iterator[State]:
        def put_late(key: str, value: str) -> None:
            others.append(Thread(target=Receiver().keep, args=(address, {"kickoff_id": ID})))
            others[0].start()
            others[0].join(timeout=0.5)  # it waits for this transaction
            put(key, value)

        with task_state(task, **lock) as (get, put):
            yield get, put_late

    with PostgresServer() as server:
        database = Database(server.settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
        monkeypatch.setattr("airflow.settings.Session", database.session)
        database.add(STORED_TASK, "running")
        with task_state(STORED_TASK) as (get, put):
            put(RECORD, json.dumps({"call": "call"}))
        Receiver(state=while_another_arrives).keep(address, {"execution_id": "other"})
        others[0].join()
        with task_state(STORED_TASK) as (get, _):
            assert json.loads(get("crew_heard_call") or "") == {"execution_id": "other", "kickoff_id": ID}
        database.session.remove()
        database.engine.dispose()
