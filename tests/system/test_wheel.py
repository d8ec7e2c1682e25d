"""The built wheel, in environments that hold nothing else."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from tests.supported import LOCK
from tests.system.wheels import ROOT, build, run

PACKAGE = ROOT / "airflow_provider_crew"


def uv(*arguments: str | Path) -> None:
    run(sys.executable, "-m", "uv", "--quiet", *arguments)


def environment(folder: Path, *requirements: str | Path) -> Path:
    """Make a virtual environment with just these requirements, at the locked versions."""
    uv("venv", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    uv("pip", "install", "--python", python, "--constraints", LOCK, *requirements)
    return folder / "bin"


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    kinds = {".py", ".typed", ".js", ".css", ".svg", ".html"}
    package = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.suffix in kinds}
    assert {name for name in names if ".dist-info/" not in name} == package
    assert {"airflow_provider_crew/py.typed", "airflow_provider_crew/plugins/tab/crew.js"} <= names


def test_the_same_files_make_the_same_wheel(wheel, tmp_path):
    build(tmp_path, "--wheel")

    # The first was built from the sdist.
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


FORM = """
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
print(*(kind.extra_fields for kind in HookMetaService.hook_meta_data() if kind.connection_type == "crew"))
"""


@pytest.mark.nightly
def test_airflow_finds_the_provider_in_an_empty_environment(wheel, tmp_path):
    bin_ = environment(tmp_path / "env", wheel)
    home = {"AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

    assert "airflow-provider-crew" in run(bin_ / "airflow", "providers", "get", "airflow-provider-crew", **home)
    hooks = run(bin_ / "airflow", "providers", "hooks", "--output", "json", **home)
    assert "airflow_provider_crew.hooks.crew.CrewHook" in hooks
    run(bin_ / "airflow", "db", "migrate", **home)
    added = ["--conn-type", "crew", "--conn-host", "https://crew.example", "--conn-password", "a-token-4711"]
    run(bin_ / "airflow", "connections", "add", "my_crew", *added, **home)
    said = run(bin_ / "airflow", "connections", "get", "my_crew", "--output", "json", **home)
    (kept,) = json.loads(said.splitlines()[-1])  # what goes before is Airflow 3.2's log
    assert (kept["conn_type"], kept["host"]) == ("crew", "https://crew.example")
    assert "user_bearer_token" in run(bin_ / "python", "-I", "-c", FORM, **home)


def test_client_and_local_server_need_no_airflow(wheel, tmp_path):
    needed = ("aiohttp", "certifi", "jinja2", "pydantic", "requests", "urllib3")
    bin_ = environment(tmp_path / "env", *needed)
    uv("pip", "install", "--python", bin_ / "python", "--no-deps", wheel)
    client = ", ".join(f"airflow_provider_crew.client.{name}" for name in ("client", "poll", "watch"))

    run(bin_ / "python", "-I", "-c", f"import {client}")
    assert "--scenario" in run(bin_ / "python", "-I", "-m", "airflow_provider_crew.local", "--help")
