"""What the README and the documentation show is true."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from typing import Any

import pytest

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
from airflow_provider_crew.task.output import _METRICS
from airflow_provider_crew.task.record import KICKOFF_ID, ROW
from airflow_provider_crew.task.result import RESULT, RETURN_VALUE, USAGE
from airflow_provider_crew.triggers.events import DEFERRAL
from tests.integration.clients import INPUTS
from tests.integration.pages import (
    A_RESULT,
    MIGRATING,
    PAGES,
    README,
    RECEIVER,
    ROOT,
    blocks,
    is_dag,
    rows,
    table,
    wherever,
)

# Each Python block is a DAG, which test_pages_dag.py runs, or contains one of these marks. It is then run below,
# except for the receiver of webhooks, which test_input_receiver.py runs, and for agents, which tests/agents runs.
RUN_HERE = ("hook.inputs().names", "async def brief", "def test_", A_RESULT, RECEIVER, "CrewAgentHook(")
MODULES = "Modules and versions"


# The blocks about a migration are parts of DAGs.
@pytest.mark.parametrize("page", [page for page in PAGES if page != MIGRATING and blocks(page, "python")])
def test_every_block_of_a_page_is_run(page):
    for shown in blocks(page, "python"):
        assert is_dag(shown) or any(mark in shown for mark in RUN_HERE), shown


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
            assert anchor in anchors(found.read_text()), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_whole(page):
    prose = re.sub(r"^ *```.*?^ *```", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    tables = re.findall(r"(?:^\|.*\n?)+", re.sub(r"`[^`\n]*`", "", prose), re.MULTILINE)

    for rows_of_table in (text.splitlines() for text in tables):
        assert set(rows_of_table[1]) <= set("|-: "), rows_of_table[0]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows_of_table}) == 1, rows_of_table[0]


def test_index_links_to_every_page():
    folder = ROOT / "docs"
    for_contributors = {"index.md", "architecture.md", "releasing.md"}
    pages = {path.relative_to(folder).as_posix() for path in folder.glob("*.md")}

    assert pages - for_contributors <= {*re.findall(r"\]\(([^)#]*)", PAGES["docs/index.md"])}


def test_sidebar_has_the_order_of_the_index():
    toc, index = (ROOT / "docs/_toc.yml").read_text(), PAGES["docs/index.md"].partition("## Get started")[2]
    pages = re.findall(r"^ {6}- file: (\S+)$", toc, re.MULTILINE)
    links = [os.path.normpath(f"docs/{link}") for link in re.findall(r"\]\((\S*?)\.(?:md|rst)", index)]

    assert pages == links
    assert re.findall("caption: (.*)", toc) == re.findall("^## (.*)$", PAGES["docs/index.md"], re.MULTILINE)


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | {
        *re.findall(r'<a id="(.*?)">', text)
    }


@pytest.mark.parametrize(
    "shown", [*wherever("console", "'crew://:TOKEN"), *wherever("console", '"conn_type": "crew"')]
)
def test_a_connection_as_shown_is_read(monkeypatch, shown):
    value = re.search(r"(?:AIRFLOW_CONN_CREW_DEFAULT|conn_uri|connection)='(.*?)'", shown, re.DOTALL)
    assert value
    monkeypatch.setenv("AIRFLOW_CONN_CREW_DEFAULT", value[1])

    settings = read_connection(CrewHook.get_connection("crew_default")).settings

    assert (settings.address, settings.token) == ("https://my-crew.crewai.com", "TOKEN")


@pytest.mark.parametrize(
    "operator", [CrewKickoffOperator, CrewRunOperator, CrewBatchOperator, CrewExecutionSensor]
)
def test_every_argument_is_listed_with_its_default(operator):
    listed = {
        name.strip("`"): default.strip("`") for name, default, _ in table("docs/operators.md", operator.__name__)
    }

    shared = {*arguments(CrewKickoffOperator)} if operator in (CrewRunOperator, CrewBatchOperator) else set()
    if operator is CrewBatchOperator:
        shared -= {"inputs", "on_uncertain_kickoff"}  # which have a meaning of their own
    own = {name: default for name, default in arguments(operator).items() if name not in shared}
    assert listed == {name: shown_default(name, default) for name, default in own.items()}


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


def test_errors_page_lists_every_error():
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CrewError)
    }
    parents = {parent for kind in kinds for parent in kind.__bases__}
    headings = ("Before and during the kickoff", "While waiting")

    listed = [row[0] for heading in headings for row in table("docs/errors.md", heading)]

    raised = {
        *kinds - parents - {errors.HumanInputNeeded},
        errors.CrewError,
        errors.ExecutionFailed,
        errors.TransientError,
        ends.CrewTaskError,
        ends.OtherInputs,
        ends.CutShort,
        ends.EndedByAirflow,
        ends.BatchFailed,
        ends.InvalidResultPath,
    }
    names = {kind.__name__ for kind in raised}
    assert sorted(listed) == sorted(f'<a id="{name.lower()}"></a>`{name}`' for name in names)


@pytest.mark.parametrize("of", [str, lambda text: {"title": text}], ids=["text", "JSON"])
def test_check_of_the_batch_page_finds_the_output_of_another_row(of):
    (shown,) = re.findall(r"`(lambda inputs, output: .*?)`", PAGES["docs/batch.md"], re.DOTALL)
    check = eval(" ".join(shown.split()))  # noqa: S307 - our own page

    assert check({"topic": "Oslo"}, of("Ferries in Oslo"))
    assert not check({"topic": "Oslo"}, of("Ferries in Hamburg"))


def test_readme_lists_modules_that_exist():
    listed = [name for row in table(README, MODULES) for name in re.findall(r"`([\w.]+)`", row[0])]

    assert len(listed) > 8
    for name in listed:  # an import would fail where Airflow's agents are missing
        module, attribute = re.fullmatch(r"([a-z_.]+?)(?:\.([A-Z]\w+))?", name).groups()
        path = ROOT / "airflow_provider_crew" / module.replace(".", "/")
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert (attribute or "") in source.read_text(), name


def test_readme_lists_the_tested_versions_of_airflow():
    *_, tested = table(README, MODULES)
    locks = ("airflow-3.1", "airflow-3.2", "dev", "airflow-3.4")
    pinned = [
        re.findall(r"^apache-airflow==(\S+)", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE)
        for lock in locks
    ]

    assert re.findall(r"\d+\.\d+\.\w+", " ".join(tested)) == [version for (version,) in pinned]


def test_readme_does_not_exaggerate_the_number_of_fault_cases():
    (stated,) = re.findall(r"over (\d+) fault\s+cases", PAGES[README])
    cells = r"^\|(?! Fault \||---)"
    pages = (text for page, text in PAGES.items() if re.search(r"cases/\d", page))

    assert sum(len(re.findall(cells, text, re.MULTILINE)) for text in pages) > int(stated)


def test_errors_page_has_its_title_every_exception_and_every_cost():
    title = PAGES["docs/errors.md"].splitlines()[0].removeprefix("# ")
    exceptions = {row[0].strip("`") for row in table("docs/errors.md", "Exceptions in code")}
    costs = [[cell.strip("`") for cell in row[:2]] for row in table("docs/errors.md", "Cost")]

    assert title in str(errors.CrewError("out of credit")).splitlines()[-1]
    assert exceptions == {kind.__name__ for kind in ends.EndedTask.__subclasses__()}
    assert sorted(costs) == sorted([cost.value, cost.sentence] for cost in errors.Cost)


def test_errors_page_quotes_log_lines_of_the_package():
    source = "".join(path.read_text() for path in (ROOT / "airflow_provider_crew").rglob("*.py"))
    cells = [row[0] for row in table("docs/errors.md", "Log lines and symptoms")]
    quoted = [text for cell in cells for text in re.findall("`(.*?)`", cell) if "No module" not in text]

    assert len(quoted) > 4
    for text in quoted:
        assert all(part.strip() in source for part in text.split("…")), text


def test_scenario_page_lists_every_key():
    listed = {word for row in table("docs/scenario.md", "Keys") for word in re.findall(r"`(\w+)`", str(row))}

    for model in (Scenario, ScenarioTask, CrewInput, Delivery):
        assert model.model_fields.keys() <= listed


def test_connection_page_lists_every_field_and_option():
    fields = {field.strip("`"): label for label, field, _ in table("docs/connection.md", "Fields") if field}
    options = {
        row[0].strip("`"): row[1].strip("`") for row in table("docs/connection.md", "Configuration options")
    }

    assert fields == {name: field["label"] for name, field in CONNECTION_FIELDS.items()}
    assert options == {name: option["default"] for name, option in CONFIGURATION["crew"]["options"].items()}


def test_xcoms_page_lists_every_key_and_every_metric():
    keys = {row[0].partition(" ")[0].strip("`") for row in rows(PAGES["docs/xcoms.md"])}
    known = {RETURN_VALUE, KICKOFF_ID, USAGE, RESULT, DASHBOARD_KEY, PROGRESS, SENT, ROW, DEFERRAL, QUESTION}
    of_progress = {key for row in table("docs/xcoms.md", PROGRESS) for key in re.findall(r"`(\w+)`", row[0])}
    metrics = {row[0].strip("`") for row in table("docs/xcoms.md", "Metrics")}
    kickoffs = {f"crew.kickoff.{end}" for end in ("started", "not_taken", "uncertain")}
    executions = {f"crew.execution.{end}" for end in (*_METRICS.values(), "completed", "broken", "duration")}

    assert keys == known
    assert of_progress == {*begun("57a13a6e", 0.0), "choices", "batch", "if_lost"}
    assert metrics == kickoffs | executions | {f"crew.tokens.{kind}" for kind in ("prompt", "completion", "total")}


def test_command_line_page_lists_every_command(capsys):
    listed = {row[0].strip("`") for row in rows(PAGES["docs/command-line.md"])}

    with pytest.raises(SystemExit):
        cli.main(["--help"])

    assert listed == set(re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE))


@pytest.mark.usefixtures("connected")
def test_the_test_button_answers_as_shown():
    assert CrewHook().test_connection()[1] in PAGES["docs/installation.md"]
    assert CrewHook().kickoff(INPUTS)


def test_next_steps_are_those_of_the_verdict():
    printed = without_numbers((ROOT / "tests/unit/verdicts.txt").read_text())
    shown = [
        line
        for page in PAGES
        for text in blocks(page, "text")
        for line in re.findall("^Next: (.*)", text, re.MULTILINE)
    ]
    assert len(shown) > 3
    for line in shown:
        assert all(step in printed for step in without_numbers(line).rstrip(".").split(". ")), line


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)
