"""A task whose inputs change between attempts: after a clear, the record of a mapped task may be another row's."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.client.errors import Cost, WaitedTooLong
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed, OtherInputs
from airflow_provider_crew.task.record import fingerprint
from tests.integration.operators import id_of, kickoff, run
from tests.integration.tasks import QUICK, SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]

FERRIES, HARBOURS = {"topic": "ferries", "audience": "sailors"}, {"topic": "harbours", "audience": "sailors"}


class Row:
    """A task of which each attempt is given the inputs that its row has by then."""

    def __init__(self, live_crew: Any, store: Any, *, map_index: int = 3, kind: str = "run") -> None:
        self.inputs: Any = FERRIES
        self.state: Any = None
        self.kind = kind
        self.called = 0
        self.crew = live_crew
        self.task = Task(self._operator, store=store, retries=1, map_index=map_index)

    def _operator(self) -> Any:
        if self.kind == "kickoff":
            return kickoff(inputs=self.inputs)
        if self.kind == "run":
            return run(inputs=self.inputs, restore_from_state_id=self.state, timeout=0.1)
        decorated: Any = crew_task(task_id="crew", poll_interval=0.02, timeout=0.1)(self._asked)
        return decorated().operator

    def _asked(self) -> Any:
        self.called += 1
        return self.inputs

    def run(self, scenario: Any) -> Any:
        """Run the task to its end."""
        self.crew.scenario = scenario
        return self.task.run()

    def next_item(self, inputs: Any) -> None:
        """Run with other inputs within the same attempt, as a task does that iterates over items."""
        self.inputs = inputs
        self.task.ti.try_number -= 1

    def begin(self, scenario: Any = SLOW) -> str:
        """Kick off, and leave the execution running."""
        self.crew.scenario = scenario
        if self.kind == "kickoff":
            return str(self.task.run())
        with pytest.raises(WaitedTooLong):
            self.task.run()
        return str(self.crew.kickoffs[0].kickoff_id)


each_kind = pytest.mark.parametrize("kind", ["run", "decorated", "kickoff"])


@each_kind
@pytest.mark.parametrize("stands", ["running", "unknown", "not told"])
def test_another_row_fails_and_kicks_nothing_off(live_crew, store, kind, stands):
    row = Row(live_crew, store, kind=kind)
    earlier = row.begin()
    if stands == "unknown":
        live_crew.forget(earlier)
    elif stands == "not told":
        live_crew.faults.answer(503, on="status", times=50)
    kept = store.kickoff
    row.inputs = HARBOURS
    for _ in range(2):
        row.task.clear()
        with pytest.raises(CrewTaskFailed) as caught:
            row.task.run()

        assert isinstance(caught.value.failure, OtherInputs)
        assert caught.value.kickoff_id == earlier
        assert caught.value.cost is Cost.RUNNING
    assert len(live_crew.kickoffs) == 1
    assert store.kickoff == kept


@each_kind
@pytest.mark.parametrize("end", ["completed", "failed"])
def test_another_row_starts_its_own_when_the_other_ended(live_crew, store, kind, end):
    row = Row(live_crew, store, kind=kind)
    earlier = row.begin()
    if end == "completed":
        live_crew.finish(earlier)
    else:
        live_crew.set_status(earlier, {"status": "error", "error": "out of credit"})
    row.inputs, live_crew.scenario = HARBOURS, QUICK
    row.task.clear()

    assert id_of(row.task.run()) == live_crew.kickoffs[1].kickoff_id
    assert [taken.inputs for taken in live_crew.kickoffs] == [FERRIES, HARBOURS]


@each_kind
@pytest.mark.parametrize("map_index", [-1, 3])
@pytest.mark.parametrize("cleared", [False, True])
def test_the_same_inputs_reattach(live_crew, store, kind, map_index, cleared):
    row = Row(live_crew, store, kind=kind, map_index=map_index)
    earlier = row.begin()
    live_crew.finish(earlier) if kind != "kickoff" else None
    row.inputs = dict(reversed(FERRIES.items()))
    if cleared:
        row.task.clear()

    assert id_of(row.task.run()) == earlier
    assert len(live_crew.kickoffs) == 1
    assert row.called == (1 + (cleared and map_index >= 0) if kind == "decorated" else 0)


@pytest.mark.parametrize(("map_index", "cleared"), [(-1, False), (-1, True), (3, False)])
def test_other_inputs_reattach_where_it_is_the_same_row(live_crew, store, map_index, cleared):
    row = Row(live_crew, store, map_index=map_index)
    earlier = row.begin()
    live_crew.finish(earlier)
    row.inputs = HARBOURS
    if cleared:
        row.task.clear()

    assert row.task.run()["kickoff_id"] == earlier
    assert len(live_crew.kickoffs) == 1


@pytest.mark.parametrize("change", ["another state to restore", "inputs that are no JSON"])
def test_any_other_request_is_another_row(live_crew, store, change):
    row = Row(live_crew, store)
    row.begin()
    if change == "another state to restore":
        row.state = "4711"
    else:
        row.inputs = {"topic": {1, 2}}
    row.task.clear()

    with pytest.raises(CrewTaskFailed) as caught:
        row.task.run()
    assert isinstance(caught.value.failure, OtherInputs)
    assert len(live_crew.kickoffs) == 1


def test_the_fingerprint_is_of_canonical_json():
    told = fingerprint({"b": [1, "é"], "a": {"y": None, "x": 1.5}}, None)
    assert told == fingerprint({"a": {"x": 1.5, "y": None}, "b": (1, "é")}, "")
    assert len(bytes.fromhex(told)) == 32
    assert told != fingerprint({"b": [1, "é"], "a": {"y": None, "x": 1.5}}, "4711")
    assert fingerprint({}, 4711) == fingerprint({}, "4711")


@each_kind
@pytest.mark.parametrize("map_index", [-1, 3])
def test_next_item_of_the_same_attempt_gets_its_own_result(live_crew, store, kind, map_index):
    row = Row(live_crew, store, kind=kind, map_index=map_index)
    earlier = row.begin(QUICK) if kind == "kickoff" else row.run(QUICK)["kickoff_id"]
    row.next_item(HARBOURS)

    ended = row.run(QUICK)

    assert [kickoff.inputs for kickoff in live_crew.kickoffs] == [FERRIES, HARBOURS]
    assert (ended if kind == "kickoff" else ended["kickoff_id"]) != earlier


@each_kind
@pytest.mark.parametrize("map_index", [-1, 3])
def test_next_item_of_the_same_attempt_never_waits_for_another(live_crew, store, kind, map_index):
    row = Row(live_crew, store, kind=kind, map_index=map_index)
    earlier = row.begin(SLOW)
    row.next_item(HARBOURS)
    waited_for = failure = None

    try:
        waited_for = row.run(SLOW)
    except CrewTaskFailed as error:
        failure = error.failure
    except WaitedTooLong as error:
        waited_for = error.kickoff_id

    started = [kickoff.kickoff_id for kickoff in live_crew.kickoffs if kickoff.inputs == HARBOURS]
    assert isinstance(failure, OtherInputs) or [waited_for] == started
    assert waited_for != earlier
