"""What the page about versions says of the Airflow that is here; the other rows are compared where they show."""

from __future__ import annotations

from importlib import import_module

import pytest
from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_crew.compat import SHOWS_PROGRESS
from tests.supported import has


def there(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False


@pytest.mark.parametrize("feature", ["A retry goes on with the execution", "A rescheduled sensor knows"])
def test_tries_and_pokes_remember_where_there_is_a_store(feature):
    assert has(feature) == there("airflow.sdk.execution_time.context", "NEVER_EXPIRE")


def test_inputs_are_shown_where_rendered_fields_are_written_again():
    assert has("The inputs that a `@task.crew`") == hasattr(BaseOperator, "overwrite_rtif_after_execution")


def test_deferred_tasks_are_counted_where_there_is_a_name_for_all_that_are_under_way():
    assert has("`max_active_tis_per_dag` counts") == there("airflow.ti_deps.dependencies_states", "ACTIVE_STATES")


def test_functions_may_be_asynchronous_where_operators_may():
    assert has("`async def` tasks") == there("airflow.sdk", "BaseAsyncOperator")


@pytest.mark.parametrize(
    ("recipe", "module", "name"),
    [
        ("A retry policy", "airflow.sdk.definitions.retry_policy", "RetryPolicy"),
        ("An approval", "airflow.sdk.execution_time.hitl", "upsert_hitl_detail"),
        ("A backfill", "airflow.models.backfill", "Backfill"),
    ],
)
def test_recipes_are_for_an_airflow_that_has_what_they_need(recipe, module, name):
    assert has(f"The recipe [{recipe}]") == there(module, name)


def test_progress_is_left_where_pages_may_have_a_part_of_ours_that_shows_it():
    from airflow import plugins_manager

    assert has("Progress in XCom") == SHOWS_PROGRESS == ("react_apps" in plugins_manager.AirflowPlugin.__dict__)
