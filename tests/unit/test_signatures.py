"""Signatures of operators and hook, for users, editors and type checkers."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_type_hints

import pytest

import airflow_provider_crew
from airflow_provider_crew import CrewExecutionSensor, CrewHook, CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.client import async_client, client
from airflow_provider_crew.operators.crew import KickoffTask


def own_arguments(operator: Any) -> dict[str, inspect.Parameter]:
    given = inspect.signature(inspect.unwrap(operator.__init__)).parameters.values()
    return {each.name: each for each in given if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize(
    ("operator", "declared_in"),
    [
        (CrewKickoffOperator, KickoffTask),
        (CrewRunOperator, CrewRunOperator),
        (CrewExecutionSensor, CrewExecutionSensor),
    ],
)
def test_every_argument_is_documented(operator: type, declared_in: type) -> None:
    documented = re.findall(r":param (\w+):", operator.__doc__ or "")

    assert documented == list(own_arguments(declared_in))


def test_run_and_kickoff_share_their_arguments() -> None:
    assert own_arguments(CrewKickoffOperator) == {}
    assert issubclass(CrewRunOperator, KickoffTask)
    assert not own_arguments(CrewRunOperator).keys() & own_arguments(KickoffTask).keys()


@pytest.mark.parametrize("name", [name for name, _ in inspect.getmembers(CrewHook, inspect.isfunction)])
def test_type_hints_of_the_hook_resolve(name: str) -> None:
    if name in vars(CrewHook):
        assert get_type_hints(getattr(CrewHook, name), localns={**vars(client), **vars(async_client)})


def test_hook_has_only_the_public_methods() -> None:
    public = {name for name in vars(CrewHook) if not name.startswith("_")}
    operations = {"inputs", "kickoff", "status", "cancel", "wait"}

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
    with pytest.raises(TypeError, match=operator.__name__):
        operator(task_id="crew", **options)


def test_package_exports_the_classes() -> None:
    assert set(airflow_provider_crew.__all__) == {*airflow_provider_crew._ROOMS}
    for name in airflow_provider_crew.__all__:
        assert getattr(airflow_provider_crew, name).__module__.startswith("airflow_provider_crew.")
    with pytest.raises(AttributeError, match="CrewOperator"):
        _ = airflow_provider_crew.CrewOperator
