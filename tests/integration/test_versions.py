"""The compatibility page against the installed Airflow; other tests compare the remaining rows."""

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


@pytest.mark.parametrize("feature", ["Retries reattach", "A rescheduled sensor keeps"])
def test_attempts_and_pokes_reattach_with_a_task_state_store(feature):
    assert has(feature) == there("airflow.sdk.execution_time.context", "NEVER_EXPIRE")


def test_inputs_are_shown_with_rewritten_rendered_fields():
    assert has("Rendered inputs of `@task.crew`") == hasattr(BaseOperator, "overwrite_rtif_after_execution")


def test_deferred_tasks_are_counted_with_active_states():
    assert has("`max_active_tis_per_dag` counts") == there("airflow.ti_deps.dependencies_states", "ACTIVE_STATES")


def test_async_functions_need_async_operators():
    assert has("`async def` tasks") == there("airflow.sdk", "BaseAsyncOperator")


@pytest.mark.parametrize(
    ("recipe", "module", "name"),
    [
        ("retry policy", "airflow.sdk.definitions.retry_policy", "RetryPolicy"),
        ("approval", "airflow.sdk.execution_time.hitl", "upsert_hitl_detail"),
        ("backfill", "airflow.models.backfill", "Backfill"),
    ],
)
def test_recipes_need_an_airflow_with_their_module(recipe, module, name):
    assert has(f"Recipe: {recipe}") == there(module, name)


def test_progress_is_pushed_where_plugins_may_show_it():
    from airflow import plugins_manager

    assert has("Progress in XCom") == SHOWS_PROGRESS == ("react_apps" in plugins_manager.AirflowPlugin.__dict__)
