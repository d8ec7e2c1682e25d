"""Recipe pages show whole files, which tests/system/test_recipes.py runs in a real Airflow."""

from __future__ import annotations

import re
import runpy

import pytest

from airflow_provider_crew.client import errors
from tests.integration.pages import PAGES, RECEIVER, RECIPES, ROOT, anywhere, blocks
from tests.supported import has

# A link to the file, alone on its line, and the file.
RECIPE = re.compile(
    r"^\[(example_dags/\S+\.py)\]\(\.\./\.\./\1\)\n\n```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL
)


def test_pages_show_each_recipe_as_it_is():
    pages = [page for page in PAGES if page.startswith(RECIPES)]
    shown = dict(recipe for page in pages for recipe in RECIPE.findall(PAGES[page]))
    files = [*(ROOT / "example_dags/recipes").glob("*.py"), ROOT / "example_dags/crew_asset.py"]

    assert shown == {str(path.relative_to(ROOT)): path.read_text() for path in files}
    others = {code for page in pages for code in blocks(page, "python")} - set(shown.values())
    assert others <= {anywhere("python", RECEIVER)}, "which is run where the crew waits for human input"


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
