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


@pytest.mark.parametrize(
    ("feature", "module", "name"),
    [
        ("Retries reattach", "airflow.sdk.execution_time.context", "NEVER_EXPIRE"),
        ("A rescheduled sensor keeps", "airflow.sdk.execution_time.context", "NEVER_EXPIRE"),
        ("`max_active_tis_per_dag` counts", "airflow.ti_deps.dependencies_states", "ACTIVE_STATES"),
        ("`async def` tasks", "airflow.sdk", "BaseAsyncOperator"),
        ("Task loops", "airflow.sdk", "LoopDecision"),
        ("Recipe: retry policy", "airflow.sdk.definitions.retry_policy", "RetryPolicy"),
    ],
)
def test_feature_is_there_as_the_table_says(feature, module, name):
    assert has(feature) == there(module, name)
