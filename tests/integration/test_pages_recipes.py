"""Pages show recipes or link to them, and tests/system/test_recipes.py runs them in a real Airflow."""

from __future__ import annotations

import runpy

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_crew.client import errors
from tests.integration.pages import PAGES, ROOT, SHOWN_FILE
from tests.supported import has

RECIPE_FILES = ROOT / "example_dags/recipes"


def test_pages_show_recipes_as_they_are():
    for path, code in (recipe for text in PAGES.values() for recipe in SHOWN_FILE.findall(text)):
        assert code == (ROOT / path).read_text()


@pytest.mark.parametrize(
    "path", [*(ROOT / "airflow_provider_crew/dags").glob("crew_*.py")], ids=lambda path: path.stem
)
def test_example_is_the_dag_of_the_package(path):
    assert (ROOT / "example_dags" / path.name).read_text() == path.read_text()


def recipe(name):
    return runpy.run_path(str(RECIPE_FILES / f"{name}.py"))


def test_failures_are_not_reported_as_none_if_no_rows_were_read():
    with pytest.raises(AirflowFailException):
        recipe("crew_for_each_row")["report_failures"].function(None)


@pytest.mark.skipif(not has("Recipe: retry policy"), reason="Airflow has retry policies from 3.3 on")
@pytest.mark.parametrize(
    ("kind", "action", "minutes"),
    [
        (errors.ExecutionFailed, "fail", None),
        (errors.Unreachable, "retry", 10),
        (errors.ServiceError, "retry", 10),
        (errors.LostContact, "retry", 10),
        (errors.WaitedTooLong, "default", None),
    ],
)
def test_the_policy_leaves_to_people_what_is_paid_for_again(kind, action, minutes):
    decision = recipe("crew_retry_policy")["NEVER_PAY_TWICE"].evaluate(kind("it ended"), try_number=1, max_tries=5)

    assert decision.action.value == action
    assert decision.retry_delay is None or decision.retry_delay.total_seconds() == 60 * minutes
