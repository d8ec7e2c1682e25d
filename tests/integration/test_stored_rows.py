"""
What each release has left in Airflow's database is taken up by this one: ``tests/stored``.

So an upgrade may come while executions go on. A test runs at the time at which the rows were recorded.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.models.trigger import Trigger
from airflow.providers.common.compat.sdk import Asset, Connection

from airflow_provider_crew import __version__
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.links.crew import CrewDashboardLink
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.service.errors import ExecutionFailed
from tests.integration.shown import ShownTask
from tests.integration.tasks import INPUTS, SLOW, TaskStateStore, Variables, fired
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

FILES = sorted((Path(__file__).parents[1] / "stored").glob("*/airflow-*.json"))
REPORT = Asset("crew://stored/report")
DEFERRED = ["report", "failing", "result", "brief"]
FAILING = Scenario(tasks=(ScenarioTask(name="writing_task", seconds=3600, error="out of credit"),), inputs=())
MORE = {"since_the_next_version": {"a": 1}}
# No link asks for it.
NO_KEY: Any = None


def airflow_of(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.stem.removeprefix("airflow-").split("."))


class Row:
    """One task, as Airflow's database has it, and what it is told of that by Airflow."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row
        self.xcoms: dict[str, Any] = row["xcoms"]
        self.states: dict[str, Any] = row["states"]
        self.retries: int = row["max_tries"]
        self.instance = {name: row[name] for name in ("run_id", "map_index")} | {"dag_id": "stored"}

    @property
    def kickoff_id(self) -> str:
        if "trigger" in self._row:
            return str(self.stored_trigger()["kickoff_id"])
        return str(self.xcoms["kickoff_id"])

    def stored_trigger(self) -> dict[str, Any]:
        return decoded(self._row["trigger"]["kwargs"])

    def trigger(self, ti: Any, **more: Any) -> Any:
        """Return the trigger as the triggerer builds it."""
        module, _, name = self._row["trigger"]["classpath"].rpartition(".")
        trigger = getattr(import_module(module), name)(**self.stored_trigger() | more)
        trigger.task_instance = ti
        return trigger

    def waiting(self) -> Any:
        """Return how the task resumes."""
        told = decoded(self._row["next_kwargs"])
        return SimpleNamespace(method_name=self._row["next_method"], kwargs=told)


def decoded(stored: dict[str, Any]) -> dict[str, Any]:
    """Read what Airflow has encoded, as it does itself: the arguments of triggers and of methods alike."""
    return dict(Trigger._decrypt_kwargs(json.dumps(stored)))


class Stored:
    """What one release has left in the database of one Airflow, while its executions go on at a crew."""

    def __init__(self, path: Path, crew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.is_of_this_version = self._rows["package"] == __version__
        self.crew = crew
        self._monkeypatch = monkeypatch
        self._has_store = airflow_of(path) >= (3, 3)
        monkeypatch.setenv("AIRFLOW_CONN_CREW_FAILING", crew.connection_uri)
        passed = time.time() - self._rows["deferred"]["at"]
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() - passed)

    def row(self, name: str, stage: str = "deferred") -> Row:
        return Row(self._rows[stage]["tasks"][name])

    def connection(self, conn_id: str) -> Connection:
        return Connection(**self._rows["deferred"]["connections"][conn_id])

    def begin(self, name: str) -> str:
        """Have the crew work on the execution of the row; return its id."""
        kickoff_id = self.row(name).kickoff_id
        self.crew.scenario = FAILING if name == "failing" else SLOW
        self.crew.next_kickoff_id(kickoff_id)
        self.crew.take(INPUTS, None, {})
        return kickoff_id

    def new_task(self, name: str) -> ShownTask:
        """Return the task as it was before it kicked off."""
        task = self.task(name)
        task.ti.try_number = 0
        task.store = Variables(self._monkeypatch) if AIRFLOW < (3, 3) else None
        return task

    def task(self, name: str, stage: str = "deferred") -> ShownTask:
        """Return the task, which knows what it has left, and has had one try."""
        row = self.row(name, stage)
        template = "about {{ topic }}" if name == "brief" else None
        outlets = (REPORT,) if name == "brief" else ()
        options: dict[str, Any] = {"template": template, "outlets": outlets, **row.instance, "task_id": name}
        task = ShownTask(lambda: self._operator(name), store=self._store(row), retries=row.retries, **options)
        task.ti.try_number = 1
        task.ti.xcoms = dict(row.xcoms)
        return task

    def _store(self, row: Row) -> Any:
        if AIRFLOW < (3, 3):
            variables = Variables(self._monkeypatch)
            variables._kept = dict(self._rows["deferred"]["variables"])
            return variables
        if not self._has_store:
            return None
        store = TaskStateStore()
        store._kept = {key: json.dumps(kept) for key, kept in row.states.items()}
        return store

    def _operator(self, name: str) -> Any:
        waits: dict[str, Any] = {"task_id": name, "deferrable": True}
        known = self.row("result").kickoff_id
        match name:
            case "report" | "failing":
                return CrewRunOperator(inputs=INPUTS, **waits)
            case "kickoff":
                return CrewKickoffOperator(task_id=name, inputs=INPUTS)
            case "result":
                return CrewExecutionSensor(kickoff_id=known, **waits)
            case "rescheduled":
                return CrewExecutionSensor(task_id=name, kickoff_id=known, mode="reschedule")
        crew: Any = crew_task(**waits)(_brief)
        return crew().operator


def _brief() -> dict[str, Any]:
    raise AssertionError("a task that goes on with an execution does not call its function again")


readable = [path for path in FILES if airflow_of(path) <= AIRFLOW]
remembering = [path for path in readable if (airflow_of(path) >= (3, 3)) == (AIRFLOW >= (3, 3))]


def name_of(path: Path) -> str:
    return f"{path.parent.name} on {path.stem}"


@pytest.fixture
def stored(request, live_crew, monkeypatch) -> Stored:
    monkeypatch.setattr("airflow_provider_crew.hooks.polling.random.random", lambda: 0.0)
    for limit in ("SHORTEST_INTERVAL", "LONGEST_INTERVAL"):
        monkeypatch.setattr(f"airflow_provider_crew.service.limits.{limit}", 0.02)
    return Stored(request.param, live_crew, monkeypatch)


def rows_of(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stored", files, ids=name_of, indirect=True)


each_row = rows_of(readable)
# Where a task remembers is another place from Airflow 3.3 on, and Airflow takes nothing from one to the other.
remembered = rows_of(remembering)
in_the_store = rows_of([path for path in remembering if airflow_of(path) >= (3, 3)])


def watched(stored: Stored, name: str, **more: Any) -> tuple[ShownTask, dict[str, Any]]:
    """Let the trigger of a row watch until the execution has ended; return its task, and the event."""
    kickoff_id = stored.begin(name)
    task, row = stored.task(name), stored.row(name)
    stored.crew.at_look(2, lambda: stored.crew.finish(kickoff_id))
    event = asyncio.run(fired(row.trigger(task.ti, **more)))
    assert stored.crew.calls.count("status") > 2, "it was going on at first"
    return task, event


@each_row
@pytest.mark.parametrize("name", DEFERRED)
def test_stored_trigger_polls_to_the_end(stored, name):
    task, event = watched(stored, name)

    if name == "failing":
        with pytest.raises(ExecutionFailed, match="out of credit"):
            task.resume(stored.row(name).waiting(), event)
    else:
        assert task.resume(stored.row(name).waiting(), event)["kickoff_id"] == stored.row(name).kickoff_id
    assert len(stored.crew.kickoffs) == 1
    if name == "brief":
        assert task.rendered() == "about ferries"
        assert task.told(REPORT)["topic"] == "ferries"


@each_row
@pytest.mark.parametrize("name", DEFERRED)
def test_task_resumes_with_an_event_of_an_earlier_version(stored, name):
    """The triggerer was the earlier version's, and the worker is this one's."""
    task, waiting = stored.task(name), stored.row(name, "told").waiting()
    event = waiting.kwargs.pop("event")

    if name == "failing":
        with pytest.raises(ExecutionFailed, match="out of credit"):
            task.resume(waiting, event)
    else:
        result = task.resume(waiting, event)
        assert (result["kickoff_id"], result["output"]) == (stored.row(name).kickoff_id, "Done")
    assert stored.crew.calls == []


@each_row
def test_task_with_a_broken_trigger_finds_its_execution(stored):
    kickoff_id = stored.begin("report")
    stored.crew.finish(kickoff_id)

    result = stored.task("report").resume_without_event("Trigger failure")

    assert result["kickoff_id"] == kickoff_id


@remembered
@pytest.mark.parametrize("name", ["report", "brief"])
def test_retry_reattaches_to_the_stored_execution(stored, name):
    kickoff_id = stored.begin(name)
    stored.crew.finish(kickoff_id)

    assert stored.task(name).run()["kickoff_id"] == kickoff_id
    assert len(stored.crew.kickoffs) == 1


@in_the_store
def test_retry_of_a_kickoff_returns_the_stored_id(stored):
    kickoff_id = stored.begin("kickoff")

    assert stored.task("kickoff").run() == kickoff_id
    assert len(stored.crew.kickoffs) == 1


@in_the_store
def test_clear_after_the_return_kicks_off(stored):
    kickoff_id = stored.begin("report")
    stored.crew.finish(kickoff_id)
    task = stored.task("report", "ended")
    task.clear()

    assert task.deferred().kwargs["try_number"] == 2
    assert len(stored.crew.kickoffs) == 2


@in_the_store
def test_rescheduled_sensor_knows_its_execution_exists(stored):
    stored.crew.forget(stored.begin("result"))
    task = stored.task("rescheduled")
    task.ti.try_number = 0
    # Longer ago than a service may take to know what it has just started.
    task.ti.first_poke = datetime.fromtimestamp(time.time() - 300, UTC)

    with pytest.raises(AirflowRescheduleException):
        task.run()


@each_row
@pytest.mark.parametrize("name", ["report", "result", "kickoff"])
def test_link_leads_to_the_execution(stored, name, monkeypatch):
    xcoms = stored.row(name, "ended").xcoms
    link: Any = CrewDashboardLink()
    monkeypatch.setattr("airflow_provider_crew.links.crew.XCom.get_value", lambda *, key, **_: xcoms[key])

    page = link.get_link(object(), ti_key=NO_KEY)

    assert page == xcoms[link.xcom_key]
    assert page.startswith("http://127.0.0.1:")
    assert page.endswith(stored.row(name).kickoff_id)


@each_row
def test_result_keeps_all_its_keys(stored):
    """Your DAG may read any of them."""
    task, event = watched(stored, "report")
    had = stored.row("report", "ended").xcoms["return_value"]

    result = task.resume(stored.row("report").waiting(), event)

    assert had.keys() <= result.keys()
    assert had["tasks"][0].keys() <= result["tasks"][0].keys()


@each_row
def test_connection_has_the_same_settings(stored):
    read = read_connection(stored.connection("crew_full"))
    settings = read.settings

    assert settings.address == "https://crew.example:8443/prefix"
    assert settings.token == "user-token-4712"
    assert (settings.request_timeout, settings.verify) == (30, "/etc/ssl/certs/crew.pem")
    assert settings.status_path == "status_first"
    assert settings.proxy == "http://proxy.example:3128"
    assert settings.allow_http
    assert read.dashboard_url == "https://app.example/executions/{kickoff_id}"
    assert read.max_kickoffs_per_day == 50


def shape(data: Any) -> Any:
    """Return which keys there are, however deep."""
    return {key: shape(value) for key, value in data.items()} if isinstance(data, dict) else None


@each_row
def test_rows_of_this_version_are_current(stored):
    """Else somebody has changed what is stored: ``make stored-rows``."""
    if not stored.is_of_this_version:
        pytest.skip("they are those of a release")
    stored.crew.scenario = SLOW
    task, row = stored.new_task("report"), stored.row("report")

    waiting = task.deferred()

    classpath, kwargs = waiting.trigger.serialize()
    assert classpath == row._row["trigger"]["classpath"]
    assert shape(kwargs) == shape(row.stored_trigger())
    assert shape(waiting.kwargs) == shape(row.waiting().kwargs)
    assert waiting.method_name == row.waiting().method_name


class TestARowOfANewerVersion:
    """What this version does with it when somebody goes back to it. The rows are this one's, with more in them."""

    @each_row
    def test_may_have_more_rules_and_memory(self, stored):
        trigger = stored.row("report").stored_trigger()

        more = {name: trigger[name] | MORE for name in ("rules", "memory")}
        task, event = watched(stored, "report", **more)

        assert task.resume(stored.row("report").waiting(), event)["kickoff_id"] == event["kickoff_id"]

    @each_row
    def test_may_have_more_in_its_event(self, stored):
        task, waiting = stored.task("report"), stored.row("report", "told").waiting()
        event = waiting.kwargs.pop("event") | MORE
        waiting.kwargs |= MORE

        assert task.resume(waiting, event)["output"] == "Done"

    @in_the_store
    def test_may_have_more_in_its_record(self, stored):
        kickoff_id = stored.begin("report")
        stored.crew.finish(kickoff_id)
        task = stored.task("report")
        task.store.set("crew_kickoff", task.store.kickoff | MORE)

        assert task.run()["kickoff_id"] == kickoff_id
        assert len(stored.crew.kickoffs) == 1

    @each_row
    def test_with_an_unknown_trigger_polls_once(self, stored):
        """Airflow resumes the task without an event then: it polls once, and neither waits nor kicks off."""
        kickoff_id = stored.begin("report")
        task = stored.task("report")

        with pytest.raises(TypeError, match="since_the_next_version"):
            stored.row("report").trigger(task.ti, **MORE)
        with pytest.raises(Exception, match=kickoff_id):
            task.resume_without_event("Trigger failure")
        assert len(stored.crew.kickoffs) == 1
