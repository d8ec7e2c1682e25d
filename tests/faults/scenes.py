"""One row as it is played: a crew, a connection and a DAG of its own."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from airflow_runs import DASHBOARD, Run, eventually

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.executions import Execution
from dev.postgres import PostgresServer
from dev.rest import ApiError
from dev.stack import AirflowStack

TOPIC = "ferries"
# Between two looks at Airflow: many rows are under way at a time.
PAUSE = 1.0

_HEAD = """\
import datetime
import time

from airflow.sdk import DAG

from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor

with DAG({dag_id!r}, schedule=None, max_active_runs=1):
"""


class Code(str):
    """A value that stands in the DAG file as it is."""

    __slots__ = ()

    __repr__ = str.__str__


class Scene:
    """
    One row under way: what its function has at hand.

    ``task_id`` is the task that the row is about: ``report`` runs a crew; ``kickoff`` kicks it off, and
    ``result`` waits for it.
    """

    def __init__(
        self,
        airflow: AirflowStack,
        database: PostgresServer,
        crew: LocalCrewService,
        dags: Path,
        dag_id: str,
        way: str,
    ) -> None:
        self.airflow = airflow
        self.database = database
        self.crew = crew
        self.way = way
        self.dag_id = dag_id
        self.connection = f"crew_{dag_id}"
        self.task_id = {"deferred": "report", "sync": "report", "kickoff": "kickoff"}.get(way, "result")
        self._file = dags / f"{dag_id}.py"
        self._run: Run | None = None

    def __str__(self) -> str:
        return self.dag_id

    def start(self) -> None:
        """Start a run of the DAG."""
        self.airflow.api.wait_for_dag(self.dag_id, timeout=240)
        self._run = Run(self.airflow, self.dag_id, self.airflow.api.trigger(self.dag_id))

    @property
    def run(self) -> Run:
        """The run that was started."""
        assert self._run, f"{self} was not started"
        return self._run

    def connect(self, **fields: Any) -> None:
        """Set the connection to the crew."""
        described = json.loads(self.crew.connection_json) | fields
        extra = {"dashboard_url": DASHBOARD} | described.pop("extra", {})
        self.airflow.api.set_connection(self.connection, described | {"extra": json.dumps(extra)})

    def write_dag(self, options: Mapping[str, Any], *, without: str = "") -> None:
        """Write the DAG file; ``without`` leaves one of its tasks out."""
        tasks = {name: text for name, text in self._tasks(options).items() if name != without}
        text = _HEAD.format(dag_id=self.dag_id) + "\n".join(f"    {task}" for task in tasks.values()) + "\n"
        self._file.write_text(text, encoding="utf-8")

    def _tasks(self, options: Mapping[str, Any]) -> dict[str, str]:
        common = {"crew_conn_id": self.connection}
        quick = {"retry_delay": Code("datetime.timedelta(seconds=3)")}
        inputs = {"inputs": {"topic": TOPIC}}
        waits = {"poll_interval": 2.0}
        match self.way.split():
            case ["deferred" | "sync" as how]:
                given = common | quick | inputs | waits | {"deferrable": how == "deferred"} | options
                return {"report": f"CrewRunOperator(task_id='report', {_arguments(given)})"}
            case ["kickoff"]:
                given = common | quick | inputs | options
                return {"kickoff": f"CrewKickoffOperator(task_id='kickoff', {_arguments(given)})"}
            case ["sensor", how]:
                mode = {"mode": "reschedule"} if how == "reschedule" else {"deferrable": how == "deferred"}
                given = common | quick | {"poke_interval": 2.0} | mode | options
                kickoff = f"CrewKickoffOperator(task_id='kickoff', {_arguments(common | inputs)}).output"
                return {
                    "result": f"CrewExecutionSensor(task_id='result', kickoff_id={kickoff}, {_arguments(given)})"
                }
        raise ValueError(self.way)

    # The crew

    def execution(self, number: int = 1, seconds: float = 120) -> str:
        """Wait for the crew's so manieth kickoff; return its id."""
        return str(eventually(lambda: self._kickoff_id(number), seconds, PAUSE))

    def _kickoff_id(self, number: int) -> str | None:
        return self.crew.kickoffs[number - 1].kickoff_id if len(self.crew.kickoffs) >= number else None

    def finish(self, number: int = 1) -> None:
        """Let the crew's so manieth execution complete."""
        self.crew.finish(self.execution(number))

    def looked(self, times: int = 1, seconds: float = 120) -> None:
        """Wait until so many more looks at the status have come."""
        before = len(self.crew.requests.on("status"))
        eventually(lambda: len(self.crew.requests.on("status")) >= before + times, seconds, PAUSE)

    def asked(self, operation: Any, times: int = 1, seconds: float = 120) -> None:
        """Wait until the crew was asked so often, in all."""
        eventually(lambda: len(self.crew.requests.on(operation)) >= times, seconds, 0.2)

    # The task

    @property
    def task(self) -> dict[str, Any]:
        """What Airflow says of the task."""
        return self.run.task(self.task_id)

    def wait_for(self, state: str, *, tries: int | None = None, seconds: float = 180) -> dict[str, Any]:
        """Wait until the task is in a state, of that try if it matters."""

        def there() -> dict[str, Any] | None:
            task = self.task
            return task if task["state"] == state and tries in (None, task["try_number"]) else None

        found: dict[str, Any] = eventually(there, seconds, PAUSE)
        return found

    def process(self) -> psutil.Process:
        """Return the process that runs the task; its parent is the supervisor."""

        def there() -> psutil.Process | None:
            task = self.task
            if task["state"] != "running" or not task["pid"]:
                return None
            try:
                process = psutil.Process(task["pid"])
            except psutil.NoSuchProcess:
                return None
            return process if process.status() != psutil.STATUS_ZOMBIE else None

        found: psutil.Process = eventually(there, 120, 0.3)
        return found

    def kill(self, *, with_supervisor: bool = False, number: int = signal.SIGKILL) -> None:
        """Kill the process that runs the task."""
        process = self.process()
        supervisor = process.parent()
        if with_supervisor and supervisor:
            supervisor.send_signal(number)
        process.send_signal(number)

    def xcom(self, key: str = "return_value") -> Any:
        """Return what the task has pushed; None for nothing."""
        try:
            return self.run.xcom(self.task_id, key)
        except ApiError as error:
            if "404" in str(error):
                return None
            raise

    def log(self) -> str:
        """Return all that the log of the task tells, over all tries, on one line each."""
        lines = []
        for number in range(1, self.task["try_number"] + 1):
            for event in self.run.events(self.task_id, number):
                lines.append(f"[{number}] {event.get('level', '')} {event['event']}")
                lines += [
                    f"[{number}] {detail['exc_type']}: {detail['exc_value']}"
                    for detail in event.get("error_detail") or ()
                ]
        return "\n".join(lines)

    def wait_until_over(self, seconds: float = 420) -> None:
        """Wait until the run is over."""
        eventually(lambda: self.airflow.api.run_state(self.dag_id, self.run.run_id) in _OVER, seconds, PAUSE)


_OVER = frozenset({"success", "failed"})


def standing(crew: LocalCrewService, execution: Execution) -> str:
    """Tell, from the crew's own books, how an execution stands."""
    try:
        crew.execution(execution.kickoff_id)
    except LookupError:
        return "is forgotten"
    now = execution.standing(time.time())
    if not now.over:
        return "goes on"
    return "has failed" if now.error else "has completed"


def _arguments(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def in_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
