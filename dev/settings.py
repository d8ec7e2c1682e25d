"""The settings of a small Airflow that is quick, quiet, and all on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dev.loopback import HOST, NETWORK

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of crews to the receiver of their questions.
WEBHOOK_CONN_ID = "crew_webhook"
WEBHOOK_SECRET = "local-webhook-secret"  # noqa: S105 - only on this machine

_ROOT = Path(__file__).parents[1]

_SETTINGS = {
    "core": {
        "executor": "LocalExecutor",
        "parallelism": "8",
        "load_examples": "False",
        "dags_are_paused_at_creation": "False",
        "test_connection": "Enabled",
        "simple_auth_manager_all_admins": "True",
        "hostname_callable": "dev.loopback.hostname",
        # A run takes the DAG as it was parsed last, not as it was half a minute ago.
        "min_serialized_dag_update_interval": "0",
    },
    "api": {"host": HOST, "workers": "1"},
    "usage_data_collection": {"enabled": "False"},
    "scheduler": {
        "scheduler_heartbeat_sec": "1",
        "scheduler_idle_sleep_time": "0.5",
        "job_heartbeat_sec": "1",
        "scheduler_health_check_threshold": "15",
        "orphaned_tasks_check_interval": "15",
    },
    "triggerer": {"job_heartbeat_sec": "1", "triggerer_health_check_threshold": "15"},
    # A file that has changed is parsed at once, whatever min_file_process_interval says.
    "dag_processor": {"refresh_interval": "2", "bundle_refresh_check_interval": "1"},
}


def environment(home: Path, dags_folder: Path, *, port: int, log_port: int) -> dict[str, str]:
    """Return the environment for Airflow's processes: this one's, with other settings of Airflow."""
    url = f"http://{HOST}:{port}"
    return (
        _inherited()
        | {"AIRFLOW_HOME": str(home)}
        | variables(_SETTINGS)
        | variables(
            {
                "core": {"dags_folder": str(dags_folder), "execution_api_server_url": f"{url}/execution/"},
                # Several processes write: SQLite's own patience of 5 seconds is short on a busy machine.
                "database": {"sql_alchemy_conn": f"sqlite:///{home}/airflow.db?timeout=30"},
                "logging": {"worker_log_server_port": str(log_port), "trigger_log_server_port": str(log_port)},
                "api": {"port": str(port), "base_url": url},
                "dag_processor": {"dag_bundle_storage_path": str(home / "bundles")},
                "crew": {"events_url": f"{url}/crew/events", "webhook_conn_id": WEBHOOK_CONN_ID},
            }
        )
        | {"AIRFLOW_CONN_CREW_WEBHOOK": f"generic://:{WEBHOOK_SECRET}@"}
    )


def _inherited() -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW"))
    }
    inherited["PYTHONPATH"] = _joined(os.pathsep, str(_ROOT), inherited.get("PYTHONPATH"))
    for name in ("no_proxy", "NO_PROXY"):
        inherited[name] = _joined(",", HOST, NETWORK, inherited.get(name))
    if inherited.pop("PYTHONDONTWRITEBYTECODE", None):
        # Without any bytecode, each of the processes compiles all of Airflow, and starting takes twice as long.
        inherited.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix) / "bytecode"))
    return inherited


def _joined(separator: str, *parts: str | None) -> str:
    return separator.join(part for part in parts if part)


def variables(settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return settings as Airflow reads them from its environment."""
    return {
        f"AIRFLOW__{section}__{option}".upper(): value
        for section, options in settings.items()
        for option, value in options.items()
    }
