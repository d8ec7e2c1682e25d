"""Recipe pages show whole files, which tests/system/test_recipes.py runs in a real Airflow."""

from __future__ import annotations

import runpy

import pytest

from airflow_provider_crew.client import errors
from tests.integration.pages import PAGES, RECIPES, ROOT, SHOWN_FILE, blocks, table
from tests.supported import has


def test_pages_show_each_recipe_as_it_is():
    shown = dict(recipe for text in PAGES.values() for recipe in SHOWN_FILE.findall(text))
    files = [*(ROOT / "example_dags/recipes").glob("*.py"), ROOT / "example_dags/crew_asset.py"]

    assert shown == {str(path.relative_to(ROOT)): path.read_text() for path in files}
    in_recipes = {code for page in PAGES if page.startswith(RECIPES) for code in blocks(page, "python")}
    assert in_recipes <= set(shown.values())


def test_index_lists_every_example():
    listed = {row[0].split("]")[0].strip("[") for row in table("docs/recipes/index.md", "Example DAGs")}

    assert listed == {path.stem for path in (ROOT / "example_dags").glob("*.py")}


def recipe(name):
    return runpy.run_path(str(ROOT / "example_dags/recipes" / f"{name}.py"))


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
