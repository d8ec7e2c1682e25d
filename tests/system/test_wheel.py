"""The built wheel. The quickstart's test installs it with Airflow."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tests.supported import LOCK
from tests.system.wheels import ROOT, build, run

PACKAGE = ROOT / "airflow_provider_crew"


def uv(*arguments: str | Path) -> None:
    run(sys.executable, "-m", "uv", "--quiet", *arguments)


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


def test_client_and_local_server_need_no_airflow(wheel, tmp_path):
    needed = ("aiohttp", "certifi", "jinja2", "pydantic", "requests", "urllib3")
    bin_ = tmp_path / "env/bin"
    uv("venv", "--python", sys.executable, tmp_path / "env")
    uv("pip", "install", "--python", bin_ / "python", "--constraints", LOCK, *needed)
    uv("pip", "install", "--python", bin_ / "python", "--no-deps", wheel)
    client = ", ".join(f"airflow_provider_crew.client.{name}" for name in ("client", "poll", "watch"))

    run(bin_ / "python", "-I", "-c", f"import {client}")
    assert "--scenario" in run(bin_ / "python", "-I", "-m", "airflow_provider_crew.local", "--help")
