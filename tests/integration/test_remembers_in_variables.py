"""Kickoff records in Airflow variables, for an Airflow without a task state store."""

from __future__ import annotations

import json
import re

import pytest

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.task.record import VariableStore
from tests.integration.tasks import (
    INPUTS,
    SLOW,
    TOKEN,
    Task,
    TaskInstance,
    TaskStateStore,
    Variables,
)
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]
SENT = {"kickoff_id": None, "kicked_off_at": 1.5}
ANSWERED = SENT | {"kickoff_id": "4711"}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    return Variables(monkeypatch)


def of_try(number: int, map_index: int = -1) -> VariableStore:
    ti = TaskInstance()
    ti.try_number, ti.map_index = number, map_index
    return VariableStore(ti)


@pytest.mark.skipif(AIRFLOW >= (3, 3), reason="what tasks remember has its own place in this Airflow")
class TestATask:
    @pytest.mark.usefixtures("live_crew")
    def test_leaves_nothing_by_default(self, variables):
        Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS)).run()
        assert variables.written == []

    def test_leaves_its_name_and_not_the_token(self, live_crew, variables):
        live_crew.scenario = SLOW
        seen: list[str] = []
        live_crew.at_kickoff = lambda: seen.extend(variables.texts)
        Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), store=variables).run()

        (text,) = seen
        assert TOKEN not in text
        assert json.loads(text)["crew_kickoff"]["address"] == live_crew.url
        (about,) = {*variables.written}
        assert {"crew", "research", "manual__2026"} <= {*re.findall(r"\w+", about)}

    @pytest.mark.usefixtures("live_crew")
    def test_leaves_nothing_when_it_has_returned(self, variables):
        Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS, deferrable=False), store=variables).run()
        assert variables.written
        assert variables.texts == []

    def test_kicks_off_if_cleared_after_that(self, live_crew, variables):
        live_crew.scenario = SLOW
        task = Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), store=variables)
        first = task.run()
        task.clear()

        assert task.run() != first
        assert len(live_crew.kickoffs) == 2


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no other place")
@pytest.mark.usefixtures("live_crew")
def test_airflow_with_a_store_gets_no_variable(variables):
    variables.switch_on()
    store = TaskStateStore()
    Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS), store=store).run()
    assert variables.written == []
    assert store.kickoff


class TestASupersededProcess:
    def test_does_not_overwrite_a_later_record(self):
        of_try(2).set("crew_kickoff", SENT)
        with pytest.raises(RuntimeError, match="2"):
            of_try(1).set("crew_kickoff", {"kickoff_id": "of the first", "kicked_off_at": 1.0})
        assert of_try(2).get("crew_kickoff") == SENT

    def test_does_not_delete_a_later_record(self):
        of_try(2).set("crew_kickoff", SENT)
        of_try(1).delete("crew_kickoff")
        assert of_try(2).get("crew_kickoff") == SENT


def test_mapped_tasks_have_records_of_their_own():
    of_try(1, map_index=0).set("crew_kickoff", SENT)
    assert of_try(1, map_index=1).get("crew_kickoff") is None
    assert of_try(1, map_index=0).get("crew_kickoff") == SENT
