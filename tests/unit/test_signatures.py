"""Signatures of operators and hook, for users, editors and type checkers."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from airflow.providers.common.compat.sdk import AirflowException, BaseOperator, BaseSensorOperator

import airflow_provider_crew
from airflow_provider_crew import CrewExecutionSensor, CrewHook, CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.operators.arguments import RunArguments, SensorArguments, TaskArguments
from airflow_provider_crew.service import async_client, client
from tests.supported import AIRFLOW

OPERATORS = [CrewKickoffOperator, CrewRunOperator, CrewExecutionSensor]
# Of Airflow's own arguments, those that it has in some of the supported versions only, or is about to drop.
COMES_AND_GOES = {"task_concurrency", "retry_policy", "render_template_as_native_obj"}


def own_arguments(operator: Any) -> dict[str, inspect.Parameter]:
    given = inspect.signature(inspect.unwrap(operator.__init__)).parameters.values()
    return {each.name: each for each in given if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_argument_is_documented(operator: type) -> None:
    documented = re.findall(r":param (\w+):", operator.__doc__ or "")

    assert documented == list(own_arguments(operator))


def test_run_and_kickoff_share_their_defaults() -> None:
    run, kickoff = own_arguments(CrewRunOperator), own_arguments(CrewKickoffOperator)

    assert {name: each.default for name, each in run.items() if name in kickoff} == {
        name: each.default for name, each in kickoff.items()
    }


def test_decorator_has_the_arguments_of_a_run() -> None:
    own = RunArguments.__annotations__.keys() - TaskArguments.__annotations__.keys()

    assert own == own_arguments(CrewRunOperator).keys() - {"inputs"}


@pytest.mark.parametrize(
    ("base", "spelled_out"), [(BaseOperator, TaskArguments), (BaseSensorOperator, SensorArguments)]
)
def test_arguments_of_airflow_are_those_of_this_version(base: Any, spelled_out: Any) -> None:
    parameters = inspect.signature(inspect.unwrap(base.__init__)).parameters.values()
    theirs = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD} - {"self"}
    ours = {"poke_interval", "timeout"}  # which our sensor has itself

    missing = theirs - spelled_out.__annotations__.keys() - ours

    assert missing <= COMES_AND_GOES


@pytest.mark.parametrize("name", [name for name, _ in inspect.getmembers(CrewHook, inspect.isfunction)])
def test_type_hints_of_the_hook_resolve(name: str) -> None:
    if name in vars(CrewHook):
        assert get_type_hints(getattr(CrewHook, name), localns={**vars(client), **vars(async_client)})


def test_hook_has_only_the_public_methods() -> None:
    public = {name for name in vars(CrewHook) if not name.startswith("_")}
    operations = {"inputs", "kickoff", "status", "wait"}

    assert public == {
        *operations,
        *(f"{name}_async" for name in operations),
        "connection",
        "get_conn",
        "get_async_conn",
        "test_connection",
        "get_connection_form_widgets",
        "get_ui_field_behaviour",
        "conn_name_attr",
        "conn_type",
        "default_conn_name",
        "hook_name",
    }


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        (CrewRunOperator, {"inputs": {}, "poll_intervall": 5}),
        (CrewKickoffOperator, {"inputs": {}, "input": {}}),
        (CrewExecutionSensor, {"kickoff_id": "4711", "poll_interval": 5}),
    ],
)
def test_misspelled_argument_names_the_class(operator, options) -> None:
    with pytest.raises((TypeError, AirflowException), match=operator.__name__):  # the latter on Airflow 2
        operator(task_id="crew", **options)


def test_package_exports_the_classes() -> None:
    assert set(airflow_provider_crew.__all__) == {*airflow_provider_crew._ROOMS}
    for name in airflow_provider_crew.__all__:
        assert getattr(airflow_provider_crew, name).__module__.startswith("airflow_provider_crew.")
    with pytest.raises(AttributeError, match="CrewOperator"):
        _ = airflow_provider_crew.CrewOperator


MISSPELT = """
from airflow_provider_crew import CrewExecutionSensor, CrewKickoffOperator, CrewRunOperator, crew_task

CrewRunOperator(task_id="run", inputs={}, poll_interval=5, retries=2)
CrewKickoffOperator(task_id="kickoff", inputs={}, meta={})
CrewExecutionSensor(task_id="result", kickoff_id="4711", mode="reschedule")
CrewRunOperator(task_id="run", inputs={}, output_type=list[int] | None, on_invalid_output="retry")
CrewExecutionSensor(task_id="result", kickoff_id="4711", output_type="my_company.reports.Report")


@crew_task(crew_conn_id="crew_default", retries=2)
def right(day: str) -> dict[str, str]:
    return {"topic": day}


@crew_task(output_type=dict[str, int])
def typed(day: str) -> dict[str, str]:
    return {"topic": day}


@crew_task
def bare(day: str) -> dict[str, str]:
    return {"topic": day}


right("monday")
CrewRunOperator(task_id="run", inputs={}, poll_intervall=5)  # wrong
CrewRunOperator(task_id="run", inputs={}, output_type=int, on_invalid_output="skip")  # wrong
CrewKickoffOperator(task_id="kickoff", inputs={}, output_type=int)  # wrong
CrewKickoffOperator(task_id="kickoff", input={})  # wrong
CrewExecutionSensor(task_id="result", kickoff_id="4711", poll_interval=5)  # wrong


@crew_task(crew_connection="crew_default")  # wrong
def wrong(day: str) -> dict[str, str]:
    return {"topic": day}
"""


@pytest.mark.skipif(AIRFLOW != (3, 3), reason="type checkers are there on the Airflow that is developed with")
@pytest.mark.timeout(300)
# mypy goes on from what `make types` has found out about Airflow, where that has run.
@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["basedpyright", "--level", "error"]])
def test_type_checkers_find_misspelled_arguments(checker: list[str], tmp_path: Path) -> None:
    file = tmp_path / "misspelt.py"
    file.write_text(MISSPELT)
    wrong = [number for number, line in enumerate(MISSPELT.splitlines(), start=1) if line.endswith("# wrong")]

    told = subprocess.run([sys.executable, "-m", *checker, str(file)], capture_output=True, text=True, check=False)

    found = {int(number) for number in re.findall(r"misspelt\.py:(\d+):.*error", told.stdout)}
    assert sorted(found) == wrong, told.stdout + told.stderr
