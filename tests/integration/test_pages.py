"""What the README and the documentation show is true."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
import tomllib
from typing import Any, get_args

import pytest

from airflow_provider_crew.client import errors, models
from airflow_provider_crew.durable import outcome as ends
from airflow_provider_crew.get_provider_info import CONNECTION_FIELDS
from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.clients import INPUTS
from tests.integration.pages import A_RESULT, DAGS, OPERATORS, PAGES, README, ROOT, block, blocks, table, wherever

# Every block of Python that is shown has one of these in it, and a test that runs it, here or as a DAG.
RUN_HERE = ("hook.inputs().names", "async def brief", "crew_service.faults", '"read_a_result"', '"name_each_run"')
RUN_IN_A_DAG = ("CrewRunOperator(", "CrewExecutionSensor(", "@task.crew")
RUN_AS_A_DAG = ("output_type=Report", '"report_that_tells"', '"quickstart"')


@pytest.fixture
def connected(service, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", service.connection_uri)
    return service


# Of the page about migrating, every block is a part of a DAG that is run; of the next two, a whole one. The last
# has tests of its own.
@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"docs/migrating.md", README, DAGS, "docs/recipes.md"}))
def test_every_block_is_run_by_a_test(page):
    marks = (*RUN_HERE, *RUN_AS_A_DAG, A_RESULT, *(RUN_IN_A_DAG if page == OPERATORS else ()))
    for shown in blocks(page, "python"):
        assert any(mark in shown for mark in marks), shown


def test_the_readme_shows_nothing_but_a_dag_and_commands():
    assert set(re.findall(r"^```(.+)$", PAGES[README], re.MULTILINE)) == {"python", "console"}
    assert len(blocks(README, "python")) == 1


def test_each_way_is_shown_as_a_dag():
    for mark in RUN_IN_A_DAG:
        assert any(mark in shown for shown in blocks(DAGS, "python"))


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
    ("takes", "besides"),
    [(CrewKickoffOperator, None), (CrewRunOperator, CrewKickoffOperator), (CrewExecutionSensor, None)],
)
def test_every_argument_is_told_with_its_default(takes, besides):
    heading = takes.__name__
    wanted = arguments(takes)
    for name in arguments(besides) if besides else ():
        del wanted[name]

    told = {name.strip("`"): default.strip("`") for name, default, _ in table("docs/operators.md", heading)}

    assert told == {name: shown_default(name, default) for name, default in wanted.items()}


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


def test_the_scenarios_show_every_key_that_makes_another_crew():
    shown = [tomllib.loads(text) for page in PAGES for text in blocks(page, "toml") if "[[tasks]]" in text]

    keys = {key for scenario in shown for key in scenario}
    of_tasks = {key for scenario in shown for task in scenario["tasks"] for key in task}
    assert {"inputs", "output", "result_json", "usage", "dialect", "kind", "inputs_shape", "faults"} <= keys
    assert of_tasks == ScenarioTask.model_fields.keys() - {"description"}


@pytest.mark.parametrize("shown", wherever("python", "crew_service.faults"))
def test_the_test_is_one(tmp_path, shown):
    (tmp_path / "test_example.py").write_text(shown)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path],
        check=False,
        capture_output=True,
        text=True,
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


def test_what_the_hook_returns_has_the_fields_of_the_reference():
    reference = (ROOT / "docs/api/hook.rst").read_text()
    told = re.findall(
        r"^\.\. autoclass:: airflow_provider_crew\.client\.models\.(\w+)\n(.*?)(?=^\S|\Z)",
        reference,
        re.DOTALL | re.MULTILINE,
    )

    assert {name for name, _ in told} >= {kind.__name__ for kind in get_args(models.Execution)}
    for name, about in told:
        assert set(re.findall(r"py:attribute:: (\w+)", about)) <= getattr(models, name).model_fields.keys()


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
