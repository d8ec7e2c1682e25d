"""
Write the rows that tasks of this version leave in Airflow's database: ``make stored-rows``.

The real Airflow of this environment runs them. Three times its database is read: while they are deferred, when
their triggers have fired and no scheduler has resumed them yet, and at their end. What a release has left is never
changed or deleted: tests show that newer versions take it up.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version
from sqlalchemy import create_engine, inspect, text

from airflow_provider_crew import __version__
from airflow_provider_crew.local import LocalCrewService, Scenario
from dev.stack import AirflowStack

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Connection

_STORED = Path(__file__).parents[1] / "tests" / "stored"
_DAG = "stored"
_TOKENS = {"organization": "organization-token-4711", "user": "user-token-4712"}
_DEFERRED = ("report", "failing", "result", "brief")
_KEPT = ("run_id", "map_index", "try_number", "max_tries", "start_date", "next_method", "next_kwargs")
_EVERY_FIELD = {
    "user_bearer_token": _TOKENS["user"],
    "token_type": "user",
    "dashboard_url": "https://app.example/executions/{kickoff_id}",
    "request_timeout": 30,
    "verify": "/etc/ssl/certs/crew.pem",
    "max_kickoffs_per_day": 50,
    "proxy": "http://proxy.example:3128",
    "status_path": "status_first",
    "allow_http": True,
}
# They last until they are told to end.
_TASKS = [{"name": "research_task", "seconds": 0}, {"name": "writing_task", "seconds": 3600, "output": "Done"}]
_SETTINGS = {
    # Rows as they are: a key of this machine would be needed to read others.
    "AIRFLOW__CORE__FERNET_KEY": "",
    "AIRFLOW__CREW__REMEMBER_IN_VARIABLES": "True",
}
if airflow_version < "3":  # which runs one task at a time on SQLite
    _SETTINGS["AIRFLOW__CORE__EXECUTOR"] = "SequentialExecutor"


def main() -> None:
    """Record them in the folder of this version."""
    with ExitStack() as stack:
        crews = {
            "crew_default": stack.enter_context(LocalCrewService(_scenario(), token=_TOKENS["organization"])),
            "crew_failing": stack.enter_context(LocalCrewService(_scenario(error="out of credit"))),
        }
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        airflow = stack.enter_context(AirflowStack(home, _STORED / "dags", _SETTINGS))
        rows = {"package": __version__, "airflow": airflow_version, **_recorded(airflow, crews)}
    folder = _STORED / __version__
    folder.mkdir(exist_ok=True)
    name = "airflow-{}.{}.json".format(*airflow_version.split("."))
    (folder / name).write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"Written: {folder / name}")


def _scenario(**last: Any) -> Scenario:
    return Scenario.model_validate({"inputs": [], "tasks": [_TASKS[0], _TASKS[1] | last]})


def _recorded(airflow: AirflowStack, crews: dict[str, LocalCrewService]) -> dict[str, Any]:
    for conn_id, crew in crews.items():
        extra = json.dumps({"dashboard_url": crew.dashboard_url})
        airflow.api.set_connection(conn_id, json.loads(crew.connection_json) | {"extra": extra})
    everything = {"conn_type": "crew", "host": "https://crew.example/prefix", "port": 8443}
    everything |= {"password": _TOKENS["organization"], "extra": json.dumps(_EVERY_FIELD)}
    airflow.api.set_connection("crew_full", everything)
    airflow.api.wait_for_dag(_DAG)
    run_id = airflow.api.trigger(_DAG)
    recorded: dict[str, Any] = {}

    def record(stage: str, is_there: Callable[[dict[str, Any]], bool]) -> None:
        until = time.monotonic() + 300
        while not is_there(rows := _rows(airflow)):
            if time.monotonic() > until:
                raise TimeoutError(f"The tasks are not {stage}: {json.dumps(rows, indent=1)}")
            time.sleep(0.5)
        recorded[stage] = rows

    record("deferred", _all_wait)
    airflow.processes["scheduler"].kill()
    for crew in crews.values():
        for execution in crew.kickoffs:
            crew.finish(execution.kickoff_id)
    record("told", _all_are_told)
    airflow.processes["scheduler"].start()
    airflow.wait_until_healthy()
    airflow.api.wait_for(_DAG, run_id, timeout=300)
    return recorded | {"ended": _rows(airflow)}


def _all_wait(rows: dict[str, Any]) -> bool:
    tasks = rows["tasks"]
    progress = "crew_progress" in tasks.get("report", {}).get("xcoms", {}) or airflow_version < "3.1"
    has_poked: bool = tasks.get("rescheduled", {}).get("state_of_task") == "up_for_reschedule"
    return progress and has_poked and all("trigger" in tasks.get(name, {}) for name in _DEFERRED)


def _all_are_told(rows: dict[str, Any]) -> bool:
    return all('"event"' in json.dumps(rows["tasks"][name]["next_kwargs"]) for name in _DEFERRED)


def _rows(airflow: AirflowStack) -> dict[str, Any]:
    """Return what the tasks have in Airflow's database now."""
    engine = create_engine(f"sqlite:///{airflow.home}/airflow.db?timeout=30")
    try:
        with engine.connect() as database:
            return _rows_in(database)
    finally:
        engine.dispose()


def _rows_in(database: Connection) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for row in _read(database, "task_instance"):
        task = {name: row[name] for name in _KEPT} | {"state_of_task": row["state"], "xcoms": {}, "states": {}}
        task["next_kwargs"] = _parsed(task["next_kwargs"])
        tasks[row["task_id"]] = task
        if row["trigger_id"]:
            (trigger,) = _read(database, "trigger", f"id = {row['trigger_id']}")
            task["trigger"] = {"classpath": trigger["classpath"], "kwargs": _parsed(trigger["kwargs"])}
    for row in _read(database, "xcom"):
        tasks[row["task_id"]]["xcoms"][row["key"]] = _parsed(row["value"])
    if inspect(database).has_table("task_state_store"):
        for row in _read(database, "task_state_store"):
            tasks[row["task_id"]]["states"][row["key"]] = _parsed(row["value"])
    variables = _read(database, "variable", "key like 'crew%'")
    connections = _read(database, "connection", "conn_id like 'crew%'")
    fields = ("conn_id", "conn_type", "host", "schema", "login", "password", "port", "extra")
    return {
        "at": time.time(),
        "tasks": tasks,
        "variables": {row["key"]: row["val"] for row in variables},
        "connections": {row["conn_id"]: {name: row[name] for name in fields} for row in connections},
    }


def _read(database: Connection, table: str, where: str = f"dag_id = '{_DAG}'") -> list[dict[str, Any]]:
    found = database.execute(text(f"select * from {table} where {where}"))  # noqa: S608 - ours, all of it
    return [dict(row) for row in found.mappings()]


def _parsed(stored: Any) -> Any:
    """Return JSON as data, so that people can read it here."""
    return None if stored is None else json.loads(stored)


if __name__ == "__main__":
    main()
