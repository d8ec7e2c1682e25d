"""Real crews and flows behind the local service, run by a real Airflow: each kickoff is one execution."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.stack import AirflowStack
from tests.airflow_runs import Run, eventually
from tests.crews.hosting import EXAMPLE, by_hand
from tests.crews.service import TOKEN, CrewService, kill

pytestmark = pytest.mark.timeout(900)
INPUTS = {"topic": "electric ferries", "audience": "harbour masters"}
# Each with what it does first.
PROJECTS = {
    "briefing": (str(EXAMPLE), "research"),
    "failing": ("scripted_crews:failing", "write"),
    "reviewed": ("scripted_crews:reviewed", "write"),
    "flow": ("scripted_crews:Reviewing", "draft"),
}


class Crews:
    """A service for each project, started when it is needed: each takes the memory of a crewai or two."""

    def __init__(self, folder: Callable[[str], Path], stack: ExitStack) -> None:
        self.services = {
            name: CrewService(*project, folder(name), seconds=3) for name, project in PROJECTS.items()
        }
        self._stack = stack
        self._started: set[str] = set()

    def __call__(self, name: str) -> CrewService:
        if name not in self._started:
            self._stack.enter_context(self.services[name])
            self._started.add(name)
        return self.services[name]


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crews]:
    with ExitStack() as stack:
        yield Crews(tmp_path_factory.mktemp, stack)


@pytest.fixture(scope="module")
def airflow(crew: Crews, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    dags = tmp_path_factory.mktemp("dags")
    shutil.copy(Path(__file__).parent / "dags" / "real_crews.py", dags)
    connections = {
        f"AIRFLOW_CONN_CREW_{name.upper()}": service.connection for name, service in crew.services.items()
    }
    with AirflowStack(tmp_path_factory.mktemp("airflow"), dags, connections) as running:
        yield running


@pytest.fixture
def start(airflow: AirflowStack) -> Callable[[str], Run]:
    def start_run(dag_id: str) -> Run:
        airflow.api.wait_for_dag(dag_id)
        return Run(airflow, dag_id, airflow.api.trigger(dag_id, {}))

    return start_run


def told_by(run: Run) -> str:
    return "\n".join(
        line
        for event in run.events("run")
        for line in (event["event"], *(detail["exc_value"] for detail in event.get("error_detail") or ()))
    )


@pytest.mark.parametrize("dag_id", [pytest.param("real_run", marks=pytest.mark.core), "real_run_sync"])
def test_task_returns_what_the_crew_returns_by_hand(crew, start, tmp_path, dag_id):
    briefing = crew("briefing")
    before = briefing.begun
    run = start(dag_id)
    returned = by_hand(tmp_path, **INPUTS)

    assert run.wait() == "success"
    result = run.xcom("run")
    assert result["output"] == returned["raw"]
    assert result["usage"]["total_tokens"] == returned["token_usage"]["total_tokens"] > 0
    assert briefing.begun - before == {result["kickoff_id"]: 1}
    log = told_by(run)
    assert all(name in log for name in ("research", "write", "check")), log


def test_failed_crew_fails_its_task_with_its_reason(crew, start):
    failing = crew("failing")
    run = start("real_failing")

    assert run.wait() == "failed"
    assert list(failing.begun.values()) == [1]
    assert "KeyError: 'SECRET_OF_THE_PROJECT'" in told_by(run)


@pytest.mark.parametrize(("name", "reads"), [("reviewed", "NOT FOUND"), ("flow", "PAUSED")])
def test_task_waits_for_a_person(crew, start, name, reads):
    service = crew(name)
    run = start(f"real_{name}")
    (kickoff_id,) = eventually(lambda: list(service.begun), 120)
    eventually(lambda: service.status(kickoff_id)["state"] == reads)
    # A task that has been told so goes on waiting.
    run.wait_for("run", "deferred")
    if name == "reviewed":
        service.answer("reject", "shorter")
        eventually(lambda: "A draft and shorter" in service.page())
    service.answer("approve")

    assert run.wait() == "success"
    result = run.xcom("run")
    assert result["kickoff_id"] == kickoff_id
    assert "A draft and shorter" in result["output"] or result["output_json"] == {
        "published": "ferries",
        "runs": 1,
    }
    assert service.begun == {kickoff_id: 1}


def test_killed_runner_fails_its_task_without_a_new_kickoff(crew, start):
    briefing = crew("briefing")
    before = briefing.begun
    run = start("real_run")
    (kickoff_id,) = eventually(lambda: list(briefing.begun - before), 120)
    for pid in briefing.runners():
        kill(pid)

    assert run.wait() == "failed"
    assert briefing.begun - before == {kickoff_id: 1}
    told = told_by(run)
    assert "research" in told
    assert "-9" in told


def test_no_token_is_in_a_log(crew, airflow):
    logs = [*airflow.home.rglob("*.log")]
    assert logs
    assert all(TOKEN not in log.read_text(encoding="utf-8", errors="replace") for log in logs)
    # The services print the connection to copy, and the token in nothing else.
    for service in crew.services.values():
        assert service.log.count(TOKEN) == 2 * service.log.count("export AIRFLOW_CONN_CREW_DEFAULT"), service.log
