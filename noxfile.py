"""
The suites on every supported Airflow and Python, and on the newest pre-release of Airflow: ``nox``.

Every session has an environment below ``.nox``, pinned to the lock of its Airflow. The next run uses it again.
``nox -l`` lists the sessions. ``-k`` chooses the suite, ``-t`` the Airflow and ``-p`` the Python. What follows
``--`` goes to pytest. ``-s`` has no effect beside ``-k`` or ``-t``.

    nox -k smoke -t airflow-3.1 airflow-3.2 -p 3.11
    nox -k tests -t airflow-3.1 -p 3.12 -- -k watch
    nox -k faults -t airflow-3.4 -- --keep-task-state
"""

from __future__ import annotations

import os
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests", "system"]
# A Python that is not here is no success, and none is fetched unless that is asked for.
nox.options.error_on_missing_interpreters = True
if "NOX_DOWNLOAD_PYTHON" not in os.environ:
    nox.options.download_python = "never"

_DEVELOPED_WITH = "3.3"
_AIRFLOWS = ("3.1", "3.2", _DEVELOPED_WITH, "3.4")  # the last is the newest pre-release
_PYTHONS = ("3.11", "3.12", "3.13")
# Real processes for minutes: on the oldest Python, which all share.
_OF_REAL_PROCESSES = "3.11"
# Environment of Airflow's agents.
_AGENTS = "agents-next"
# Every name of Airflow that is not public: docs/decisions/16-private-names.md.
_PRIVATE_NAMES = ("budget", "answer_in_airflow", "reattach", "features", "loops")
# Airflow and what it needs may warn of each other in old environments; this package may not cause any warning.
_WARNINGS = "filterwarnings=default\nerror:::airflow_provider_crew"


def _param(airflow: str, python: str) -> object:
    return nox.param(python, airflow, id=f"airflow-{airflow}-python-{python}", tags=[f"airflow-{airflow}"])


_everywhere = nox.parametrize(
    "python, airflow", [_param(airflow, python) for airflow in _AIRFLOWS for python in _PYTHONS]
)
_once_each = nox.parametrize("python, airflow", [_param(airflow, _OF_REAL_PROCESSES) for airflow in _AIRFLOWS])


@nox.session
@_everywhere
def smoke(session: nox.Session, airflow: str) -> None:
    """Check the imports, the metadata, the form, and the three ways to run a crew, one of them deferred."""
    _pytest(
        session,
        airflow,
        "tests/unit/test_package.py",
        "tests/integration/test_pages_dag.py::test_dags_of_a_page_run[docs/run-a-crew.md]",
    )


@nox.session
@_everywhere
def tests(session: nox.Session, airflow: str) -> None:
    """Run unit and integration tests, except the local service's description: it needs a newer schemathesis."""
    _pytest(
        session,
        airflow,
        "tests/unit",
        "tests/integration",
        "--ignore=tests/integration/test_local_description.py",
        "--numprocesses=4",
    )


@nox.session
@_once_each
def system(session: nox.Session, airflow: str) -> None:
    """Run built wheels and a real Airflow for each core."""
    _pytest(session, airflow, "tests/system", "--numprocesses=2", "--dist=loadfile")


@nox.session
@_once_each
def faults(session: nox.Session, airflow: str) -> None:
    """
    Play the core of the faults in a real Airflow on PostgreSQL.

    The rows say what 3.3 and newer do. Those that need a kickoff record are skipped on older ones.
    """
    _pytest(session, airflow, "tests/faults", "-m", "core")


@nox.session(python=_OF_REAL_PROCESSES)
def agents(session: nox.Session) -> None:
    """Test a crew as a tool with the newest pre-release of common-ai. ``make test-agents`` has the release."""
    _pytest(session, _AGENTS, "tests/agents", "--numprocesses=2", "--dist=loadfile")


@nox.session(python=_OF_REAL_PROCESSES)
def newest(session: nox.Session) -> None:
    """Try the private names of Airflow on its newest release or pre-release of today, which no lock has."""
    wanted, lock = (Path(session.create_tmp(), name) for name in ("wanted.txt", "newest.txt"))
    parts = ("apache-airflow>=3.4.0b1", "apache-airflow-core>=3.4.0b1", "apache-airflow-task-sdk>=1.4.0b1")
    wanted.write_text("\n".join(parts), encoding="utf-8")
    session.run_install(
        *("uv", "pip", "compile", "--quiet", "--upgrade", "--generate-hashes", "--group", "test"),
        *("--python-version", _OF_REAL_PROCESSES, "--constraint", str(wanted)),
        *("--output-file", str(lock), "pyproject.toml"),
    )
    suite = [f"tests/system/test_{name}.py" for name in _PRIVATE_NAMES]
    _pytest(session, str(lock), "tests/unit/test_package.py", *suite, "--numprocesses=2", "--dist=loadfile")


def _pytest(session: nox.Session, airflow: str, *suite: str) -> None:
    _run(session, airflow, "pytest", "--no-cov", "-q", "-o", _WARNINGS, *suite, *session.posargs)


def _run(session: nox.Session, airflow: str, *module: str) -> None:
    """Install what the lock says, and run a module in that environment without any setting of Airflow."""
    session.run_install("uv", "pip", "sync", "--quiet", "--require-hashes", _lock(airflow))
    session.install("--no-deps", "--no-build-isolation", "--editable", ".")
    unset = {name: None for name in os.environ if name.startswith(("AIRFLOW_", "_AIRFLOW"))}
    session.run("python", "-m", *module, env=unset)


def _lock(airflow: str) -> str:
    """Return the lock of an Airflow: its own file, or ``dev.txt`` for the Airflow that we develop with."""
    if airflow.endswith(".txt"):
        return airflow
    name = {_DEVELOPED_WITH: "dev.txt", _AGENTS: f"{_AGENTS}.txt"}.get(airflow, f"airflow-{airflow}.txt")
    return str(Path("requirements", name))
