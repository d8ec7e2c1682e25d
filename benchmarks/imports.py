"""What importing a provider adds to parsing a DAG: time and modules, beyond what Airflow itself has loaded."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from typing import NamedTuple

from benchmarks.report import Figure, Table

_PROVIDERS = {
    "airflow-provider-crew": [
        "airflow_provider_crew.operators.crew",
        "airflow_provider_crew.sensors.crew",
        "airflow_provider_crew.triggers.crew",
        "airflow_provider_crew.decorators.crew",
        "airflow_provider_crew.hooks.crew",
    ],
    "apache-airflow-providers-http": [
        "airflow.providers.http.operators.http",
        "airflow.providers.http.sensors.http",
        "airflow.providers.http.triggers.http",
        "airflow.providers.http.hooks.http",
    ],
    "apache-airflow-providers-dbt-cloud": [
        "airflow.providers.dbt.cloud.operators.dbt",
        "airflow.providers.dbt.cloud.sensors.dbt",
        "airflow.providers.dbt.cloud.triggers.dbt",
        "airflow.providers.dbt.cloud.hooks.dbt",
    ],
    "apache-airflow-providers-databricks": [
        "airflow.providers.databricks.operators.databricks",
        "airflow.providers.databricks.sensors.databricks",
        "airflow.providers.databricks.triggers.databricks",
        "airflow.providers.databricks.hooks.databricks",
    ],
}
# What Airflow has loaded when it forks a child to parse a file, and what a DAG and every provider import.
_LOADED_BEFORE = (
    "airflow.dag_processing.manager",
    "airflow.sdk.bases.decorator",
    "airflow.sdk.bases.hook",
    "airflow.sdk.bases.operator",
    "airflow.sdk.bases.sensor",
    "airflow.sdk.definitions.dag",
    "airflow.triggers.base",
)
_ALL = "all of them"
_KINDS = ("operators", "sensors", "triggers", "decorators", "hooks", _ALL)
_CHILDREN_A_ROUND = 10

_METHOD = """\
Each import runs in a new child of a process that has loaded the same modules as the DAG processor when it forks \
to parse a file, and the SDK modules that any DAG needs. There were {children} children for each import, in \
turns. Each column is independent: sensors were not imported after operators. Not included: before it forks, the \
DAG processor imports the modules of a DAG file whose names begin with `airflow.` (`[dag_processor] \
parsing_pre_import_modules`). It loads those once, and others, such as this provider's, at every parse."""


class _Import(NamedTuple):
    """What one import added."""

    milliseconds: float
    modules: int


def measure(rounds: int) -> list[Table]:
    """Import every module of every provider in children of a fresh process per round."""
    imports: dict[str, dict[str, list[_Import]]] = defaultdict(lambda: defaultdict(list))
    for provider, kind, milliseconds, modules in (each for _ in range(rounds) for each in _round()):
        imports[provider][kind].append(_Import(milliseconds, modules))
    text = _METHOD.format(children=rounds * _CHILDREN_A_ROUND)
    columns = ["import of", *_KINDS]
    return [
        Table(
            "Time that an import adds", text, columns, [_row(*each, "milliseconds") for each in imports.items()]
        ),
        Table(
            "Modules that it loads",
            "In the same imports.",
            columns,
            [_row(*each, "modules") for each in imports.items()],
        ),
    ]


def _row(provider: str, kinds: dict[str, list[_Import]], figure: str) -> list[object]:
    unit = "ms" if figure == "milliseconds" else ""
    figures = {kind: Figure.of((getattr(each, figure) for each in added), unit) for kind, added in kinds.items()}
    return [provider, *(figures.get(kind, "-") for kind in _KINDS)]


def _round() -> list[tuple[str, str, float, int]]:
    with tempfile.TemporaryDirectory() as home:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.imports"],
            env=inherited | {"AIRFLOW_HOME": home},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    return [tuple(json.loads(line)) for line in told.splitlines() if line.startswith("[")]


def _main() -> None:
    for module in _LOADED_BEFORE:
        importlib.import_module(module)
    # The first child of each compiles what no Python of this environment has imported yet.
    for turn in range(_CHILDREN_A_ROUND + 1):
        for provider, modules in _PROVIDERS.items():
            for kind, imported in _kinds(modules).items():
                added = _in_a_child(imported)
                if turn:
                    print(json.dumps([provider, kind, *added]), flush=True)


def _kinds(modules: list[str]) -> dict[str, list[str]]:
    return {module.split(".")[-2]: [module] for module in modules} | {_ALL: modules}


def _in_a_child(modules: list[str]) -> _Import:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(_import(modules)).encode())
        finally:
            os._exit(0)  # a copy must not do what this process does at its end
    os.close(writing)
    with os.fdopen(reading) as told:
        added = told.read()
    os.waitpid(child, 0)
    return _Import(*json.loads(added))


def _import(modules: list[str]) -> _Import:
    loaded, began = len(sys.modules), time.perf_counter()
    for module in modules:
        importlib.import_module(module)
    return _Import((time.perf_counter() - began) * 1000, len(sys.modules) - loaded)


if __name__ == "__main__":
    _main()
