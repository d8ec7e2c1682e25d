"""The local server: what importing it costs, scenarios, and Markdown on its pages."""

import subprocess
import sys

import pytest

from airflow_provider_crew.local import Scenario, ScenarioError


def test_invalid_file_says_what_is_wrong_and_where(tmp_path, evaluated):
    def load(text):
        file = tmp_path / "scenario.toml"
        file.write_text(text)
        with pytest.raises(ScenarioError) as caught:
            Scenario.load(file)
        return str(caught.value).removeprefix(f"{file}: ")

    evaluated("scenarios.txt", load=load)


def test_pytest_plugin_loads_nothing_heavy():
    heavy = {"aiohttp", "pydantic", "airflow", "asyncio", "ssl"}
    script = (
        "import pytest, sys; before = set(sys.modules); import airflow_provider_crew.local.pytest_plugin; "
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert "airflow_provider_crew" in loaded.split()
    assert heavy.isdisjoint(loaded.split())
