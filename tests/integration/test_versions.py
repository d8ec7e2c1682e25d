"""The compatibility page against the installed Airflow; other tests compare the remaining rows."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.supported import has


def there(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False


@pytest.mark.parametrize("feature", ["Retries reattach", "A rescheduled sensor keeps"])
def test_attempts_and_pokes_reattach_with_a_task_state_store(feature):
    assert has(feature) == there("airflow.sdk.execution_time.context", "NEVER_EXPIRE")


def test_deferred_tasks_are_counted_with_active_states():
    assert has("`max_active_tis_per_dag` counts") == there("airflow.ti_deps.dependencies_states", "ACTIVE_STATES")


def test_async_functions_need_async_operators():
    assert has("`async def` tasks") == there("airflow.sdk", "BaseAsyncOperator")


def test_task_loops_are_there_as_the_table_says():
    assert has("Task loops") == there("airflow.sdk", "LoopDecision")


def test_retry_policy_recipe_needs_retry_policies():
    assert has("Recipe: retry policy") == there("airflow.sdk.definitions.retry_policy", "RetryPolicy")
