"""The plugin with the tab and the page: what it tells Airflow, and what it serves."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.plugins.crew import CrewPlugin
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

FILES = Path(__file__).parents[2] / "airflow_provider_crew" / "plugins" / "tab"
SCRIPTS = sorted(FILES.glob("*.js"))


def test_entry_point_has_a_tab_for_tasks_of_crews_and_a_page():
    (found,) = entry_points(group="airflow.plugins", name="crew")
    tab, page = found.load()().react_apps
    registered = re.findall(r"^globalThis\.(\w+) =", (FILES / "crew.js").read_text(), flags=re.MULTILINE)

    assert registered == [tab["name"], page["name"]] == ["Crew", "Crews"]
    assert (tab["destination"], page["destination"]) == ("task_instance", "nav")
    assert (tab["applies_to"], page.get("applies_to")) == ({"task.template_fields": ["crew_conn_id"]}, None)
    assert all("crew_conn_id" in each.template_fields for each in (CrewRunOperator, CrewExecutionSensor))


@pytest.mark.parametrize(
    ("base_url", "root"), [("http://localhost:8080", ""), ("https://x.example/air/flow/", "/air/flow")]
)
def test_file_addresses_follow_the_base_url(monkeypatch, base_url, root):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)

    for app in CrewPlugin().react_apps:
        files = [app[name].removeprefix(f"{root}/crew-tab/") for name in ("bundle_url", "icon", "icon_dark_mode")]
        assert files == ["crew.js", "crew.svg", "crew-dark.svg"]


def test_tab_and_page_are_turned_off_by_one_option(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CREW__TAB", "False")
    plugin = CrewPlugin()

    assert (plugin.react_apps, plugin.fastapi_apps) == ([], [])


def test_plugin_serves_only_its_files():
    from fastapi.testclient import TestClient

    (served,) = CrewPlugin().fastapi_apps
    client = TestClient(served["app"])
    answers = {path.name: client.get(f"/{path.name}") for path in FILES.iterdir()}

    assert "crew.js" in answers
    assert {name: answer.status_code for name, answer in answers.items() if not answer.is_success} == {}
    assert {answer.headers["cache-control"] for answer in answers.values()} == {"no-cache"}
    assert answers["crew.js"].headers["content-type"].startswith("text/javascript")
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/../crew.py", "/%2e%2e/crew.py", "/none.js"):
        assert client.get(path).status_code == 404, path
    assert client.post("/crew.js").status_code == 405


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_turn_text_into_markup_or_code(script):
    source = script.read_text(encoding="utf-8")
    ways = r"(inner|outer)HTML|insertAdjacent|dangerously|document\.write|\beval\b|Function\(|DOMParser|Fragment\("

    assert re.findall(ways, source) == []
    assert len(source.splitlines()) <= 400
    # And nothing is loaded from elsewhere.
    assert set(re.findall(r"\bfrom \"(.*)\"", source)) <= {f"./{each.name}" for each in SCRIPTS}
    assert "://" not in re.sub(r"https\?:\\/\\/|https?:\\/\\/", "", source)
