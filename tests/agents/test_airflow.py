"""Agents of a real Airflow that consult crews, and faults. No fault starts an execution twice."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

pytest.importorskip("airflow.providers.common.ai")

from airflow_provider_crew.local import LocalCrewService
from dev.stack import AirflowStack
from tests.airflow_runs import ROOT, TOKEN, Run, deployed, scenario, task_processes

pytestmark = pytest.mark.nightly

QUICK, SLOW = (deployed(scenario(inputs=(), seconds=last, output="A briefing")) for last in (0, 3600))
SCENARIOS = {"single": QUICK, "uncertain": QUICK, "standby": QUICK, "killed": SLOW}


@pytest.fixture(scope="module")
def crews() -> Iterator[dict[str, LocalCrewService]]:
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(LocalCrewService(story, token=TOKEN)) for name, story in SCENARIOS.items()
        }
        started["uncertain"].faults.answer(502, on="kickoff", after_taken=True)
        yield started


@pytest.fixture(scope="module")
def airflow(
    crews: dict[str, LocalCrewService], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    dags = tmp_path_factory.mktemp("dags")
    for path in (ROOT / "tests/agents/dags/agents.py", ROOT / "example_dags/agents/crew_as_tool.py"):
        shutil.copy(path, dags)
    connections = {f"AIRFLOW_CONN_CREW_{name.upper()}": crew.connection_uri for name, crew in crews.items()}
    connections["AIRFLOW_CONN_LLM"] = '{"conn_type": "pydanticai"}'
    with AirflowStack(tmp_path_factory.mktemp("airflow"), dags, connections) as running:
        yield running


@pytest.fixture(scope="module")
def start(airflow: AirflowStack) -> Callable[..., Run]:
    return partial(Run.start, airflow)


@pytest.fixture(scope="module")
def run(start: Callable[..., Run]) -> Run:
    run = start("agents")
    run.wait()
    return run


def outcome(run: Run, task_id: str, *crews: LocalCrewService) -> tuple[Any, ...]:
    task = run.task(task_id)
    return task["state"], task["try_number"], *(len(crew.kickoffs) for crew in crews)


def test_agent_gets_the_output_of_the_crew(run, crews):
    assert outcome(run, "single", crews["single"]) == ("success", 1, 1)
    assert run.xcom("single") == {"research": "A briefing"}  # the test model lists what its tools returned
    (kickoff,) = crews["single"].kickoffs
    assert run.xcom("single", "kickoff_id") == kickoff.kickoff_id
    assert "kickoff_id" not in run.xcom("single", "usage")  # it is that of the agent
    task = {"task_id": "single", "map_index": -1, "try_number": 1}
    assert kickoff.meta["airflow"] == {"dag_id": "agents", "run_id": run.run_id, **task}


def test_failover_starts_no_second_if_the_first_is_uncertain(run, crews):
    assert outcome(run, "uncertain", crews["uncertain"], crews["standby"]) == ("failed", 1, 1, 0)


def test_retry_after_a_kill_waits_for_the_same_execution(start, airflow, crews):
    run, crew = start("agents_killed"), crews["killed"]
    run.xcom_once_pushed("killed", "kickoff_id")
    for pid in task_processes(airflow):
        os.kill(pid, signal.SIGKILL)
    run.wait_for("killed", "running", tries=2)
    crew.finish(crew.kickoffs[0].kickoff_id)

    assert run.wait() == "success"
    assert outcome(run, "killed", crew) == ("success", 2, 1)


def test_example_is_a_dag(airflow):
    airflow.api.wait_for_dag("crew_as_tool")
