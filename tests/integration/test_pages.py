"""What the README and the documentation show is true."""

from __future__ import annotations

import asyncio
import inspect
import re
import runpy
from collections.abc import Iterable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import airflow_provider_crew
from airflow_provider_crew import cli
from airflow_provider_crew import exceptions as ends
from airflow_provider_crew.answers.question import QUESTION
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.progress import PROGRESS, begun
from airflow_provider_crew.get_provider_info import CONFIGURATION, CONNECTION_FIELDS
from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.local import CrewInput, Scenario, ScenarioTask
from airflow_provider_crew.local.scenario import Delivery
from airflow_provider_crew.notifications import SENT
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from airflow_provider_crew.task.output import REASON
from airflow_provider_crew.task.record import KICKOFF_ID
from airflow_provider_crew.task.result import RESULT, RETURN_VALUE, USAGE
from airflow_provider_crew.triggers.events import DEFERRAL
from tests.integration.pages import (
    A_RESULT,
    MIGRATING,
    PAGES,
    ROOT,
    SHOWN_FILE,
    anywhere,
    blocks,
    is_dag,
    rows,
    table,
    wherever,
)
from tests.supported import has
from tests.unit.test_example_metrics import METRICS
from tests.unit.test_signatures import own_arguments

PACKAGE = Path(airflow_provider_crew.__file__).parent

# Each Python block is a DAG, which test_pages_dag.py runs, or contains one of these marks. It is then run below,
# except for agents, which tests/agents runs.
RUN_HERE = ("hook.inputs().names", "async def brief", "def test_", A_RESULT, "CrewAgentHook(", ".dags.")


# The blocks about a migration are parts of DAGs.
@pytest.mark.parametrize("page", [page for page in PAGES if page != MIGRATING and blocks(page, "python")])
def test_every_block_of_a_page_is_run(page):
    for shown in blocks(page, "python"):
        assert is_dag(shown) or any(mark in shown for mark in RUN_HERE), shown


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", PAGES[page]):
        found = (ROOT / page).parent / target if target else ROOT / page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text()), f"{target}#{anchor}"


# A name of this package in backticks, and what a block of code imports.
NAMED = re.compile(r"`(?:airflow_provider_crew\.)?([a-z_]+(?:\.\w+)+)`")
IMPORTED = re.compile(r"from airflow_provider_crew((?:\.\w+)*) import ([\w, ]+)")


def names_of_the_package(text: str) -> set[str]:
    imported = {f"{module}.{name}"[1:] for module, names in IMPORTED.findall(text) for name in names.split(", ")}
    folders = {path.stem for path in PACKAGE.iterdir()}
    named = {name for name in NAMED.findall(text) if name.partition(".")[0] in folders}
    return {name.partition(" as ")[0] for name in imported | named if not name.endswith((".py", ".json"))}


def exists(name: str) -> bool:
    """Whether a module has a name. Nothing is imported, because one module needs common-ai."""
    module, _, member = name.rpartition(".")
    path = PACKAGE / module.replace(".", "/")
    if (path / member).is_dir() or (path / f"{member}.py").exists():
        return True
    file = path.with_suffix(".py") if module and not path.is_dir() else path / "__init__.py"
    return file.exists() and re.search(rf"\b{member}\b", file.read_text()) is not None


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_names_on_a_page_exist(page):
    assert [name for name in names_of_the_package(PAGES[page]) if not exists(name)] == []


def test_operator_of_batches_is_where_the_pages_import_it():
    assert resolve_name("airflow_provider_crew.operators.crew:CrewBatchOperator") is CrewBatchOperator


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | {
        *re.findall(r'<a id="(.*?)">', text)
    }


@pytest.mark.parametrize(
    "shown", [*wherever("console", "'crew://:YOUR_TOKEN"), *wherever("console", '"conn_type": "crew"')]
)
def test_a_connection_as_shown_is_read(monkeypatch, shown):
    value = re.search(r"(?:AIRFLOW_CONN_CREW_DEFAULT|conn_uri|connection)='(.*?)'", shown, re.DOTALL)
    assert value
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", value[1])

    settings = read_connection(CrewHook.get_connection("crew_default")).settings

    assert (settings.address, settings.token) == ("https://my-crew.crewai.com", "YOUR_TOKEN")


@pytest.mark.parametrize(
    "operator", [CrewKickoffOperator, CrewRunOperator, CrewBatchOperator, CrewExecutionSensor]
)
def test_every_argument_is_listed_with_its_default(operator):
    listed = {
        name.strip("`"): default.strip("`") for name, default, _ in table("docs/operators.md", operator.__name__)
    }

    shared = {*own_arguments(CrewKickoffOperator)} if operator in (CrewRunOperator, CrewBatchOperator) else set()
    if operator is CrewBatchOperator:
        shared -= {"inputs"}  # which has a meaning of its own
    own = {name: each.default for name, each in own_arguments(operator).items() if name not in shared}
    assert listed == {name: shown_default(name, default) for name, default in own.items()}


def shown_default(name: str, default: object) -> str:
    if default is inspect.Parameter.empty:
        return ""
    if name == "deferrable":
        return "[operators] default_deferrable"
    if isinstance(default, float):
        return f"{default:.0f}"
    return f'"{default}"' if isinstance(default, str) else repr(default)


@pytest.mark.parametrize("shown", wherever("python", "hook.inputs().names"))
def test_the_hook_as_shown_runs(service, monkeypatch, shown):
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", service.connection_uri)
    names: dict[str, Any] = {}
    exec(shown, names)  # noqa: S102
    assert names["completed"].output.startswith("Briefing: electric ferries")
    assert CrewHook().test_connection()[1] in PAGES["docs/installation.md"]

    names = {"task": lambda **_: lambda function: function, "CrewHook": CrewHook}
    exec(anywhere("python", "async def brief"), names)  # noqa: S102
    assert asyncio.run(names["brief"]("electric ferries"))["kickoff_id"] == service.kickoffs[-1].kickoff_id


def first_cells(page: str, *headings: str) -> set[str]:
    tables = [table(page, heading) for heading in headings] or [rows(PAGES[page])]
    return {re.sub(r"`(\w+)` .*", r"\1", row[0]).strip("`") for rows in tables for row in rows}


def commands(capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    return re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE)


def test_pages_list_everything(capsys):
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CrewError)
    }
    raised = {
        *kinds - {parent for kind in kinds for parent in kind.__bases__} - {errors.HumanInputNeeded},
        *(errors.CrewError, errors.ExecutionFailed, errors.TransientError, ends.CrewTaskError, ends.OtherInputs),
        *(ends.CutShort, ends.EndedByAirflow, ends.BatchFailed, ends.InvalidResultPath),
    }
    keys = {
        RETURN_VALUE,
        KICKOFF_ID,
        USAGE,
        RESULT,
        DASHBOARD_KEY,
        PROGRESS,
        SENT,
        DEFERRAL,
        QUESTION,
        f"{REASON}…",
    }
    listed: dict[tuple[str, ...], Iterable[str]] = {
        ("docs/errors.md", "Before and during the kickoff", "While waiting"): [
            f'<a id="{kind.__name__.lower()}"></a>`{kind.__name__}' for kind in raised
        ],
        ("docs/errors.md", "Exceptions in code"): [kind.__name__ for kind in ends.EndedTask.__subclasses__()],
        ("docs/errors.md", "Cost"): [cost.value for cost in errors.Cost],
        ("docs/xcoms.md",): keys,
        ("docs/xcoms.md", "Metrics"): [f"crew.{name}" for name in METRICS],
        ("docs/command-line.md",): commands(capsys),
        ("docs/connection.md", "Configuration options"): CONFIGURATION["crew"]["options"],
    }
    for where, known in listed.items():
        assert first_cells(*where) == {*known}, where
    scenario = {
        word for row in table("docs/local-server.md", "Scenario file") for word in re.findall(r"`(\w+)`", str(row))
    }
    for model in (Scenario, ScenarioTask, CrewInput, Delivery):
        assert model.model_fields.keys() <= scenario
    progress = {key for row in table("docs/xcoms.md", PROGRESS) for key in re.findall(r"`(\w+)`", row[0])}
    assert progress == {*begun("57a13a6e", 0.0), "try_number", "choices", "batch", "if_lost"}


def test_pages_have_the_words_of_the_package():
    fields = {field.strip("`"): label for label, field, _ in table("docs/connection.md", "Fields") if field}
    assert fields == {name: field["label"] for name, field in CONNECTION_FIELDS.items()}
    for row in table("docs/connection.md", "Configuration options"):
        assert row[1].strip("`") == CONFIGURATION["crew"]["options"][row[0].strip("`")]["default"]
    assert {row[1].strip("`") for row in table("docs/errors.md", "Cost")} == {
        cost.sentence for cost in errors.Cost
    }
    title = PAGES["docs/errors.md"].splitlines()[0].removeprefix("# ")
    assert title in str(errors.CrewError("out of credit")).splitlines()[-1]


def test_pages_show_recipes_as_they_are():
    for path, code in (recipe for text in PAGES.values() for recipe in SHOWN_FILE.findall(text)):
        assert code == (ROOT / path).read_text()


@pytest.mark.parametrize(
    "path", [*(ROOT / "airflow_provider_crew/dags").glob("crew_*.py")], ids=lambda path: path.stem
)
def test_example_is_the_dag_of_the_package(path):
    assert (ROOT / "example_dags" / path.name).read_text() == path.read_text()


def recipe(name):
    return runpy.run_path(str(ROOT / f"example_dags/recipes/{name}.py"))


@pytest.mark.skipif(not has("Recipe: retry policy"), reason="Airflow has retry policies from 3.3 on")
@pytest.mark.parametrize(
    ("kind", "action", "minutes"),
    [
        (errors.ExecutionFailed, "fail", None),
        (ends.BatchFailed, "fail", None),
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
