"""Recipe pages show whole files, which tests/system/test_recipes.py runs in a real Airflow."""

from __future__ import annotations

import json
import re
import runpy
from types import SimpleNamespace

import pytest

from airflow_provider_crew.client import errors
from tests.integration.pages import PAGES, RECEIVER, RECIPES, ROOT, anywhere, blocks
from tests.supported import has
from tests.system.mail_server import MailServer

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


@pytest.mark.parametrize(
    ("left", "subject", "told"),
    [("57a13a6e", "[running] the_dag.report in today", "57a13a6e"), (None, "[unknown]", "none is known")],
)
def test_alert_after_killed_process_names_the_execution(monkeypatch, left, subject, told):
    xcoms = {"task_ids": "report", "map_indexes": -1, "key": "kickoff_id"}
    ti = SimpleNamespace(
        dag_id="the_dag",
        task_id="report",
        run_id="today",
        map_index=-1,
        xcom_pull=lambda **asked: left if asked == xcoms else "another",
    )
    with MailServer() as server:
        described = server.connection | {"extra": json.loads(server.connection["extra"])}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(described))
        recipe("crew_alert")["alert"]({"ti": ti, "dag": None})
        (mail,) = server.mails

    assert mail["Subject"].startswith(subject)
    assert mail.get_body(("html",)).get_content().strip().endswith(f"<br>Execution: {told}")
