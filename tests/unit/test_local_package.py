"""What the local service may import, and what importing it may cost."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_crew import local
from airflow_provider_crew.local import pytest_plugin

HOME = Path(local.__file__).parent


def imported_by(module):
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("module", sorted(HOME.glob("*.py")), ids=lambda module: module.stem)
def test_nothing_is_shared_with_airflow_or_with_the_client(module):
    for name in imported_by(module):
        assert name.split(".")[0] != "airflow"
        assert not name.startswith("airflow_provider_crew") or name.startswith("airflow_provider_crew.local")


def test_the_pytest_plugin_loads_nothing_heavy():
    heavy = {"fastapi", "starlette", "uvicorn", "pydantic", "airflow", "asyncio", "ssl"}
    script = (
        "import pytest, sys; before = set(sys.modules); import airflow_provider_crew.local.pytest_plugin; "
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert "airflow_provider_crew" in loaded.split()
    assert heavy.isdisjoint(loaded.split())


@pytest.mark.parametrize("module", [local, pytest_plugin])
def test_loading_what_every_session_loads_needs_nothing_but_pytest(module, monkeypatch):
    for name in ("fastapi", "uvicorn", "pydantic", "airflow"):
        monkeypatch.setitem(sys.modules, name, None)

    assert importlib.reload(module) is module


@pytest.mark.parametrize("name", local.__all__)
def test_every_public_name_is_there(name):
    assert getattr(local, name).__name__ == name


def test_another_name_is_not():
    with pytest.raises(AttributeError, match="no attribute 'Remote'"):
        _ = local.Remote
