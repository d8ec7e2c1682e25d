"""A connection may allow so many kickoffs in a day: what is counted, what is refused, and what is said of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_crew import compat
from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.service.errors import BudgetSpent, Cost, InvalidSettings, TransientError
from airflow_provider_crew.tasks import budget
from airflow_provider_crew.tasks.ends import CrewTaskFailed
from tests.integration.tasks import CONNECTION, INPUTS, Task

pytest_plugins = ["tests.integration.task_fixtures"]

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"


class Ledger:
    """The runs of the DAG that counts, as Airflow's database keeps them: a name once."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.questions = 0
        self.unseen: set[str] = set()
        """Runs that another has started since somebody looked."""
        self.breaks_with: Exception | None = None
        self._lock = threading.Lock()

    def has(self, _ti: Any, dag_id: str, run_id: str) -> bool:
        assert dag_id == "crew_budget"
        self.questions += 1
        return run_id in self.runs and run_id not in self.unseen

    def start(self, dag_id: str, run_id: str, conf: dict[str, Any]) -> bool:
        assert dag_id == "crew_budget"
        self.questions += 1
        if self.breaks_with:
            raise self.breaks_with
        with self._lock:
            return self.runs.setdefault(run_id, conf) is conf


@pytest.fixture
def ledger(monkeypatch) -> Ledger:
    counted = Ledger()
    monkeypatch.setattr(budget, "has_run", counted.has)
    monkeypatch.setattr(budget, "start_run", counted.start)
    return counted


@pytest.fixture
def allow(live_crew, ledger, monkeypatch):  # noqa: ARG001 - without it, nothing counts here
    def allow_kickoffs(limit: int, connection: str = CONNECTION) -> None:
        monkeypatch.setenv(connection, f"{live_crew.connection_uri}?max_kickoffs_per_day={limit}")

    return allow_kickoffs


def kickoff(**options: Any) -> Task:
    store = options.pop("store", None)
    return Task(
        lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS, **options),
        store=store,
        retries=1,
        run_id="morning",
    )


def test_without_a_limit_nothing_is_counted(live_crew, ledger):
    kickoff().run()

    assert len(live_crew.kickoffs) == 1
    assert (ledger.runs, ledger.questions) == ({}, 0)


def test_kickoffs_are_counted_in_order_with_where_they_come_from(ledger, allow, task_log):
    allow(3)
    kickoff().run()
    kickoff().run()

    assert [*ledger.runs] == [f"crew_default.{TODAY}.1", f"crew_default.{TODAY}.2"]
    origin = {"dag_id": "research", "run_id": "morning", "task_id": "crew", "map_index": -1, "try_number": 1}
    assert [*ledger.runs.values()] == [origin, origin]
    assert "This is kickoff 2 of at most 3 today." in task_log.text


@pytest.mark.parametrize("limit", [0, 2])
def test_one_more_is_refused_before_it_is_sent_and_not_retried(live_crew, ledger, allow, limit, task_log):
    allow(limit)
    for _ in range(limit):
        kickoff().run()
    before = len(ledger.runs)

    with pytest.raises(CrewTaskFailed) as caught:
        kickoff().run()

    failure = caught.value.failure
    assert isinstance(failure, BudgetSpent)
    assert failure.cost is Cost.NONE
    assert caught.value.told() == {
        "what": f"There were {limit} kickoffs today, and max_kickoffs_per_day allows no more.",
        "cost": "Nothing was started, and there is nothing to pay for.",
        "next": "Wait for midnight (UTC), or raise max_kickoffs_per_day. "
        "Then clear the task: a retry would not help.",
    }
    assert "The connection 'crew_default' sets that limit." in failure.details
    assert len(live_crew.kickoffs) == limit
    assert len(ledger.runs) == before
    assert "What: There were" in task_log.text


def test_a_raised_limit_lets_more_through(live_crew, allow):
    allow(1)
    kickoff().run()
    allow(2)
    kickoff().run()

    assert len(live_crew.kickoffs) == 2


def test_each_connection_and_each_day_has_a_budget_of_its_own(ledger, allow, monkeypatch):
    allow(1)
    allow(1, "AIRFLOW_CONN_TEAM/A%1")
    kickoff().run()
    kickoff(crew_conn_id="team/a%1").run()
    monkeypatch.setattr(budget, "datetime", SimpleNamespace(now=lambda zone: datetime(2031, 5, 7, tzinfo=zone)))
    kickoff().run()

    assert [*ledger.runs] == [
        f"crew_default.{TODAY}.1",
        f"team~2Fa~251.{TODAY}.1",  # only what Airflow takes in the name of a run
        "crew_default.2031-05-07.1",
    ]


def test_a_number_that_another_was_faster_to_have_is_passed_over(live_crew, ledger, allow):
    allow(3)
    ledger.runs = {f"crew_default.{TODAY}.{number}": {} for number in (1, 2)}
    ledger.unseen = {f"crew_default.{TODAY}.2"}

    kickoff().run()
    with pytest.raises(CrewTaskFailed, match="There were 3 kickoffs today"):
        kickoff().run()

    assert len(ledger.runs) == 3
    assert len(live_crew.kickoffs) == 1


def test_the_number_of_a_late_kickoff_is_found_by_few_questions(ledger, allow):
    allow(1000)
    ledger.runs = {f"crew_default.{TODAY}.{number}": {} for number in range(1, 701)}

    kickoff().run()

    assert f"crew_default.{TODAY}.701" in ledger.runs
    assert ledger.questions <= 12


def test_of_twenty_at_once_as_many_as_are_allowed_kick_off(live_crew, ledger, allow):
    allow(5)
    # All of them have looked before the first one is counted.
    ledger.unseen = {f"crew_default.{TODAY}.{number}" for number in range(1, 6)}
    ready = threading.Barrier(20)

    def outcome(_: int) -> str:
        task = kickoff()
        ready.wait()
        try:
            task.run()
        except CrewTaskFailed as error:
            return type(error.failure).__name__
        return "kicked off"

    with ThreadPoolExecutor(20) as pool:
        outcomes = [*pool.map(outcome, range(20))]

    assert sorted(outcomes) == ["BudgetSpent"] * 15 + ["kicked off"] * 5
    assert len(live_crew.kickoffs) == 5


def test_a_kickoff_that_is_sent_again_by_itself_is_counted_once(live_crew, ledger, allow):
    allow(5)
    live_crew.faults.answer(429, on="kickoff", times=2)

    kickoff().run()

    assert len(ledger.runs) == 1


def test_a_kickoff_that_the_crew_declines_stays_counted(live_crew, ledger, allow):
    allow(5)
    live_crew.faults.answer(400, on="kickoff")
    with pytest.raises(CrewTaskFailed):
        kickoff().run()

    assert len(ledger.runs) == 1


def test_inputs_that_are_wrong_and_a_crew_that_is_away_are_not_counted(live_crew, ledger, allow):
    allow(5)
    live_crew.faults.answer(503, on="inputs", times=100)

    with pytest.raises(TransientError):
        kickoff().run()

    assert ledger.runs == {}


def test_a_retry_that_goes_on_with_an_execution_is_not_counted(ledger, allow, store):
    allow(1)
    task = kickoff(store=store)
    first = task.begin().execute(task.context)  # and its process is killed before Airflow has the id

    assert task.run() == first
    assert len(ledger.runs) == 1


def test_without_the_dag_nothing_is_sent_and_the_task_is_not_retried(live_crew, ledger, allow):
    allow(5)
    ledger.breaks_with = no_such_dag()

    with pytest.raises(CrewTaskFailed) as caught:
        kickoff().run()

    assert isinstance(caught.value.failure, InvalidSettings)
    assert caught.value.told()["what"] == (
        "The connection 'crew_default' cannot be used. There is no DAG crew_budget to count its kickoffs."
    )
    assert "Add the DAG crew_budget, or empty max_kickoffs_per_day." in str(caught.value)
    assert not live_crew.kickoffs


def test_an_airflow_that_cannot_count_just_now_leaves_the_task_to_its_retries(live_crew, ledger, allow):
    allow(5)
    ledger.breaks_with = OSError("no route to the database")
    task = kickoff()

    with pytest.raises(TransientError, match="Airflow did not count the kickoff to come") as caught:
        task.run()

    assert caught.value.cost is Cost.NONE
    assert not isinstance(caught.value, AirflowException)
    assert not live_crew.kickoffs
    ledger.breaks_with = None
    task.run()
    assert len(live_crew.kickoffs) == 1


def no_such_dag() -> Exception:
    if compat.IS_AIRFLOW_2:
        from airflow.exceptions import DagNotFound

        return DagNotFound("Dag id crew_budget not found")
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse

    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404}))


def test_what_airflow_answers_tells_who_was_first(monkeypatch):
    comms = pytest.importorskip("airflow.sdk.execution_time.comms")
    exceptions = pytest.importorskip("airflow.sdk.exceptions")
    taken = comms.ErrorResponse(error=exceptions.ErrorType.DAGRUN_ALREADY_EXISTS)
    asked: list[Any] = []

    def send(message: Any) -> Any:
        asked.append(message)
        return comms.OKResponse(ok=True) if len(asked) == 1 else taken

    supervisor = SimpleNamespace(send=send)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", supervisor, raising=False)

    assert [compat.start_run("crew_budget", "a.1", {"task_id": "crew"}) for _ in range(2)] == [True, False]
    assert (asked[0].dag_id, asked[0].run_id, asked[0].conf) == ("crew_budget", "a.1", {"task_id": "crew"})
    assert not asked[0].reset_dag_run
