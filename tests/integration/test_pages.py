"""What the README and the documentation show is true."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from airflow_provider_crew import exceptions as ends
from airflow_provider_crew.client import errors
from airflow_provider_crew.get_provider_info import CONNECTION_FIELDS
from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import Scenario
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator, KickoffTask
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.clients import INPUTS
from tests.integration.pages import A_RESULT, DAGS, OPERATORS, PAGES, README, ROOT, block, blocks, table, wherever

# Each Python block on a page contains one of these marks, and a test runs it, here or as a DAG.
RUN_HERE = ("hook.inputs().names", "async def brief", "crew_service.faults", '"read_a_result"', '"name_each_run"')
RUN_IN_A_DAG = ("CrewRunOperator(", "CrewExecutionSensor(", "@task.crew")
RUN_AS_A_DAG = ("output_type=Report", '"report_that_tells"', '"quickstart"')


# Every block of the migration page is part of a DAG that is run. README and the page on DAGs have one whole DAG.
# The recipes have their own tests.
@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"docs/migrating.md", README, DAGS, "docs/recipes.md"}))
def test_every_block_of_a_page_is_run(page):
    marks = (*RUN_HERE, *RUN_AS_A_DAG, A_RESULT, *(RUN_IN_A_DAG if page == OPERATORS else ()))
    for shown in blocks(page, "python"):
        assert any(mark in shown for mark in marks), shown


@pytest.fixture
def connected(service, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", service.connection_uri)
    return service


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", PAGES[page]):
        found = (ROOT / page).parent / target if target else ROOT / page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_example_is_listed():
    assert set(re.findall(r"\]\(\.\./(example_dags/.*?\.py)\)", PAGES["docs/examples.md"])) == {
        str(path.relative_to(ROOT)) for path in ROOT.glob("example_dags/*.py")
    }


@pytest.mark.parametrize("shown", [*wherever("console", "'crew://:TOKEN"), *wherever("console", '"conn_type"')])
def test_a_connection_as_shown_is_read(monkeypatch, shown):
    value = re.search(r"(?:AIRFLOW_CONN_CREW_DEFAULT|conn_uri)='(.*?)'", shown, re.DOTALL)
    assert value
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", value[1])

    settings = read_connection(CrewHook.get_connection("crew_default")).settings

    assert (settings.address, settings.token) == ("https://my-crew.crewai.com", "TOKEN")


def test_every_field_of_a_connection_is_told():
    told = {field.strip("`"): label for label, field, _ in table("docs/connection.md", "The fields") if field}

    assert told == {name: field["label"] for name, field in CONNECTION_FIELDS.items()}


@pytest.mark.parametrize(
    ("operator", "declared_in"),
    [
        (CrewKickoffOperator, KickoffTask),
        (CrewRunOperator, CrewRunOperator),
        (CrewExecutionSensor, CrewExecutionSensor),
    ],
)
def test_every_argument_is_listed_with_its_default(operator, declared_in):
    listed = {
        name.strip("`"): default.strip("`") for name, default, _ in table("docs/operators.md", operator.__name__)
    }

    assert listed == {name: shown_default(name, default) for name, default in arguments(declared_in).items()}


def arguments(operator):
    given = inspect.signature(inspect.unwrap(operator.__init__)).parameters.values()
    return {each.name: each.default for each in given if each.kind is each.KEYWORD_ONLY}


def shown_default(name: str, default: object) -> str:
    if default is inspect.Parameter.empty:
        return ""
    if name == "deferrable":
        return "[operators] default_deferrable"
    if isinstance(default, float):
        return f"{default:.0f}"
    return f'"{default}"' if isinstance(default, str) else repr(default)


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("shown", wherever("python", "hook.inputs().names"))
def test_the_first_example_runs(shown):
    names: dict[str, Any] = {}

    exec(shown, names)  # noqa: S102

    assert names["completed"].output.startswith("Briefing: electric ferries")


@pytest.mark.parametrize("shown", wherever("python", "async def brief"))
def test_the_asynchronous_example_runs(connected, shown):
    names: dict[str, Any] = {"task": lambda **_: lambda function: function, "CrewHook": CrewHook}
    exec(shown, names)  # noqa: S102

    result = asyncio.run(names["brief"]("electric ferries"))

    assert result["kickoff_id"] == connected.kickoffs[0].kickoff_id


@pytest.mark.parametrize("shown", wherever("toml", "[[tasks]]"))
def test_the_scenario_is_one(tmp_path, shown):
    path = tmp_path / "scenario.toml"
    path.write_text(shown)

    scenario = Scenario.load(path)

    assert [task.name for task in scenario.tasks] == ["research_task", "writing_task"]


@pytest.mark.parametrize("shown", wherever("python", "crew_service.faults"))
def test_the_test_is_one(tmp_path, shown):
    (tmp_path / "test_example.py").write_text(shown)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        # Loading every plugin that is installed takes seconds.
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )

    assert "1 passed" in done.stdout, done.stdout


def test_errors_page_lists_every_error():
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CrewError)
    }
    parents = {parent for kind in kinds for parent in kind.__bases__}
    headings = ("Before and during the kickoff", "While waiting")

    listed = [row[0].strip("`") for heading in headings for row in table("docs/errors.md", heading)]

    assert sorted(listed) == sorted(kind.__name__ for kind in {*kinds - parents, ends.OtherInputs})


def test_errors_page_lists_every_airflow_exception():
    listed = {row[0].strip("`") for row in table("docs/errors.md", "Airflow exceptions")}

    assert listed == {kind.__name__ for kind in ends.EndedTask.__subclasses__()}


def test_troubleshooting_page_quotes_every_cost():
    quoted = {cost.strip("`"): sentence for cost, sentence, _ in table("docs/troubleshooting.md", "Cost")}

    assert quoted == {cost.value: cost.sentence for cost in errors.Cost}


@pytest.mark.usefixtures("connected")
def test_the_test_button_answers_as_shown():
    assert CrewHook().test_connection()[1] in PAGES["docs/connection.md"]
    assert CrewHook().kickoff(INPUTS)


def test_constraints_pattern_drops_lines_that_may_be_too_old():
    (pattern,) = re.findall(r"grep -Ev '([^']+)'", block("docs/deployment.md", "console", "grep -Ev"))
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    file = ["apache-airflow-providers-common-compat==1.7.0", "requests==2.32.3", "requests-toolbelt==1.0.0"]

    left = [line for line in file if not re.search(pattern, line)]

    assert left == ["requests-toolbelt==1.0.0"]
    for name, bound in (each.split(">=") for each in needed if re.search(pattern, each.replace(">=", "=="))):
        assert f"`{name}` has to be {bound} or newer" in PAGES["docs/deployment.md"]
