"""What the package tells Airflow is true, importing it costs what it says, and what a release needs."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

import airflow_provider_crew
from airflow_provider_crew.get_provider_info import get_provider_info
from dev import golden
from dev.release import NotReady, require_golden_set

PACKAGE = Path(airflow_provider_crew.__file__).parent


def named_paths(info: Any) -> Iterator[str]:
    """Find every dotted path of this package, wherever the metadata names one."""
    if isinstance(info, dict):
        for value in info.values():
            yield from named_paths(value)
    elif isinstance(info, list):
        for value in info:
            yield from named_paths(value)
    elif isinstance(info, str) and info.startswith("airflow_provider_crew."):
        yield info


def test_names_in_the_metadata_can_be_imported():
    for path in named_paths(get_provider_info()):
        assert pkgutil.resolve_name(path)


def test_airflow_accepts_the_metadata():
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())

    jsonschema.validate(get_provider_info(), schema)


def test_metadata_has_the_distribution_name():
    (entry_point,) = (
        found
        for found in entry_points(group="apache_airflow_provider")
        if found.module.startswith("airflow_provider_crew")
    )
    info = entry_point.load()()

    # Airflow's discovery raises when the two differ.
    assert info["package-name"] == "airflow-provider-crew"
    assert info["versions"] == [version("airflow-provider-crew")]


# The hook is loaded where a connection is tested, and where a task runs. Only DAGs with an alert load that.
LOADED_LATER = {"airflow_provider_crew.hooks.crew.CrewHook", "airflow_provider_crew.notifications.CrewAlert"}
LOADED_BY_AIRFLOW = [
    *sorted({path.rpartition(".")[0] for path in {*named_paths(get_provider_info())} - LOADED_LATER}),
    *(f"airflow_provider_crew.{name}" for name in ("get_provider_info", "operators.crew", "sensors.crew")),
    *(f"airflow_provider_crew.{package}.trigger" for package in ("answers", "batch")),
    *(f"airflow_provider_crew.{name}" for name in ("batch.operator", "triggers.crew", "plugins.crew")),
]


# Airflow is loaded once, and each module in a child of its own. Then Airflow reads each option.
IMPORTS_AND_OPTIONS = """
import importlib, json, os, sys
from airflow.providers.common.compat.sdk import BaseHook, BaseSensorOperator, DecoratedOperator, XCom, mask_secret
from airflow.providers.common.compat.sdk import AirflowPlugin, conf
import airflow.triggers.base
before = set(sys.modules)
for module in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module(module)
        print("", json.dumps([module, sorted(set(sys.modules) - before)]), sep="\\n", flush=True)
        os._exit(0)
    os.waitpid(child, 0)

from airflow.providers_manager import ProvidersManager
from airflow_provider_crew.get_provider_info import CONFIGURATION

ProvidersManager().initialize_providers_configuration()
options = CONFIGURATION["crew"]["options"]
switches = [name for name, option in options.items() if option["type"] == "boolean"]
read = {name: (conf.getboolean if name in switches else conf.get)("crew", name) for name in options}
print("", json.dumps(["options", read]), sep="\\n")
"""


RUN_BY_TASKS = ["airflow_provider_crew.task.attempt", "airflow_provider_crew.task.sensor"]
SYNC_CLIENT = "airflow_provider_crew.client.client"


@pytest.fixture(scope="module")
def seen_by_airflow() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_AND_OPTIONS, *LOADED_BY_AIRFLOW, *RUN_BY_TASKS, SYNC_CLIENT],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith('["'))


def test_airflow_knows_every_option_and_default(seen_by_airflow):
    assert seen_by_airflow["options"] == {
        "log_output": True,
        "progress_xcom": True,
        "tab": True,
        "required_actions": True,
        "events_url": "",
        "webhook_conn_id": "",
        "settle_kickoffs": False,
        "settle_within": "120",
    }


@pytest.mark.parametrize("module", LOADED_BY_AIRFLOW)
def test_modules_loaded_by_airflow_load_no_client(seen_by_airflow, module):
    heavy = {"requests", "aiohttp", "pydantic", "certifi", "urllib3", "fastapi", "uvicorn"}
    light = {f"airflow_provider_crew.client{part}" for part in ("", ".options", ".text", ".timing")}
    loaded = seen_by_airflow[module]

    assert not {name.partition(".")[0] for name in loaded} & heavy
    assert {name for name in loaded if name.startswith("airflow_provider_crew.client")} <= light


@pytest.mark.parametrize("module", RUN_BY_TASKS)
def test_task_without_a_call_loads_no_client(seen_by_airflow, module):
    loaded = {*seen_by_airflow[module]}
    assert module in loaded
    later = {f"airflow_provider_crew.{name}" for name in ("hooks", "client.settings", "triggers.crew")}
    assert not loaded & {"requests", "urllib3", "aiohttp", "opentelemetry.trace", *later}
    assert not [name for name in loaded if name.startswith("airflow_provider_crew.answers")]


def test_sync_client_loads_no_event_loop(seen_by_airflow):
    assert "urllib3" in seen_by_airflow[SYNC_CLIENT]
    assert "aiohttp" not in seen_by_airflow[SYNC_CLIENT]


def test_agent_hook_names_the_package_that_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.common.ai", None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError) as caught:
        import_module("airflow_provider_crew.tool.agent")

    assert caught.value.name.startswith("airflow.providers.common.ai")


def test_release_needs_its_golden_set(tmp_path):
    require_golden_set(tmp_path)
    with pytest.raises(NotReady, match="make golden"):
        require_golden_set(tmp_path / "1.1.0")


def test_golden_set_is_not_overwritten(tmp_path):
    assert golden.main(tmp_path) == 1
    assert [*tmp_path.iterdir()] == []


ROOT = PACKAGE.parent
DEFECTS = tomllib.loads((ROOT / "dev" / "defects.toml").read_text())["defect"]


def test_code_and_tests_of_each_defect_exist():
    for defect in DEFECTS:
        for name, old, _ in defect["changes"]:
            assert (PACKAGE / name).read_text().count(old) == 1, defect["name"]
        for test in defect["tests"]:
            path, *classes, function = test.partition("[")[0].split("::")
            text = (ROOT / "tests" / path).read_text()
            assert all(f"class {name}" in text for name in classes), test
            assert f"def {function}(" in text, test
