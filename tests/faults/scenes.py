"""A running row: its own crew, connection and DAG."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.versions import CLEARING_DELETES_TASK_STATE
from dev.postgres import PostgresServer
from dev.rest import ApiError
from dev.stack import AirflowStack
from tests.airflow_runs import PATIENCE, Run, connection, eventually
from tests.faults.facts import kickoff_record, record_state
from tests.faults.harm import Incident
from tests.faults.held import HeldAnswer

TOPIC = "ferries"
# Between two requests to Airflow, because many rows run at a time.
PAUSE = 1.0
# Longer than a row needs for what it does while an answer is held.
_NO_TIMEOUT = {"request_timeout": 900}

_DAG = """\
import datetime
import os
import pathlib
import signal
import time

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor


def until(moment):
    while not pathlib.Path(__file__).with_suffix("." + moment).exists():
        time.sleep(0.1)


def killed_once(*_):
    once = pathlib.Path(__file__).with_suffix(".killed")
    if not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def settles(within):
    os.environ["AIRFLOW__CREW__SETTLE_KICKOFFS"] = "True"
    os.environ["AIRFLOW__CREW__SETTLE_WITHIN"] = str(within)
    return lambda context: context["ti"].try_number > 1 and until("retry")


{code}
with DAG({dag_id!r}, schedule=None, **{of_dag}) as dag:
    {task}
"""


class Code(str):
    """A value that is written into the DAG file as it is."""

    __slots__ = ()

    __repr__ = str.__str__


@dataclass
class Scene:
    """
    A running row, with the methods that its function uses.

    ``task_id`` is the task under test: ``report`` runs a crew, ``kickoff`` starts an execution, and ``result``
    waits for it.
    """

    airflow: AirflowStack
    database: PostgresServer
    crew: LocalCrewService
    dags: Path
    dag_id: str
    way: str
    mapped: int = 0
    """Number of inputs over which the task is mapped, or 0."""
    batch: int = 0
    """Number of rows, if the task is a batch."""
    keeps_task_state: bool = False
    """Whether clearing a task keeps its kickoff record, if Airflow asks."""
    incident: Incident | None = None
    code: str = ""
    """More code of the DAG file, above the DAG."""
    of_dag: Mapping[str, Any] = field(default_factory=lambda: {"max_active_runs": 1})
    """Arguments of the DAG."""
    then: str = ""
    """Code behind the task."""
    after_request: Callable[[ReceivedRequest], None] = lambda _: None
    """Called when the crew has answered a request, before the next one."""
    _run: Run | None = None

    def __post_init__(self) -> None:
        self.connection = f"crew_{self.dag_id}"
        self.task_id = {"deferred": "report", "sync": "report", "kickoff": "kickoff"}.get(self.way, "result")
        self.file = self.dags / f"{self.dag_id}.py"

    @property
    def results(self) -> Path:
        """Folder for the results of a batch."""
        return self.file.parent.parent / "results" / self.dag_id

    @property
    def forgets(self) -> bool:
        """Whether clearing a task deletes its kickoff record."""
        return CLEARING_DELETES_TASK_STATE and not self.keeps_task_state

    def start(self, *, until: str = "") -> None:
        """Start a run of the DAG, and wait until the task is in a state."""
        self._run = Run.start(self.airflow, self.dag_id, keeps_task_state=self.keeps_task_state)
        if until:
            self.wait_for(until)

    def start_and_hold(self, operation: Any) -> HeldAnswer:
        """Start a run, and hold the answer to the first such request. The row releases it, if ever."""
        held = self.hold(operation)
        self.start()
        eventually(lambda: held.is_held, pause=0.2)
        return held

    @property
    def run(self) -> Run:
        """The run that was started."""
        assert self._run, f"{self.dag_id} was not started"
        return self._run

    def connect(self, **fields: Any) -> None:
        """Set the connection to the crew."""
        self.airflow.api.set_connection(self.connection, connection(self.crew, **fields))

    def write_dag(self, options: Mapping[str, Any]) -> None:
        """Write the DAG file."""
        task = f"{self._task(options)}{self.then}"
        code = _DAG.format(dag_id=self.dag_id, code=self.code, of_dag=self.of_dag, task=task)
        self.file.write_text(code, encoding="utf-8")

    def rewrite_dag(self, options: Mapping[str, Any]) -> None:
        """Write the DAG file again during a run, and wait until Airflow has read it."""
        before = time.time()
        self.write_dag(options)
        self.airflow.api.wait_for_dag(self.dag_id, parsed_after=before)

    def pause(self) -> None:
        """Pause the DAG."""
        self.airflow.api.patch(f"dags/{self.dag_id}", {"is_paused": True})

    def now(self, moment: str) -> None:
        """Release the code in the DAG file that waits ``until`` this moment."""
        self.file.with_suffix(f".{moment}").touch()

    @contextmanager
    def harmed(self) -> Iterator[None]:
        """Wait for the row's fault. Leaving the block repairs it."""
        assert self.incident, f"{self.dag_id} names no harm"
        with self.incident.suffered():
            yield

    def _task(self, options: Mapping[str, Any]) -> str:
        """Return the code of the task, and of the one before it."""
        start: dict[str, Any] = {"crew_conn_id": self.connection, "inputs": {"topic": TOPIC}}
        given = start | {"retry_delay": Code("datetime.timedelta(seconds=3)")}
        if self.way == "kickoff":
            return _call("CrewKickoffOperator", "kickoff", given, options)
        if self.way.startswith("sensor"):
            given.pop("inputs")
            kickoff = Code(f"{_call('CrewKickoffOperator', 'kickoff', start)}.output")
            mode = "reschedule" if self.way == "sensor reschedule" else "poke"
            own = {"poke_interval": 2.0, "mode": mode, "deferrable": self.way == "sensor deferred"}
            return _call("CrewExecutionSensor", "result", given, {"kickoff_id": kickoff}, own, options)
        given |= {"poll_interval": 2.0, "deferrable": self.way == "deferred"}
        if self.batch:
            rows = [{"topic": f"{TOPIC} {number}"} for number in range(self.batch)]
            own = {"inputs": rows, "key": "topic", "result_path": str(self.results), "max_active": 4}
            return _call("CrewBatchOperator", "report", given, own, {"max_failed": None}, options)
        if self.mapped:
            given.pop("inputs")
            each = f"[{{'topic': f'{TOPIC} {{number}}'}} for number in range({self.mapped})]"
            return f"{_call('CrewRunOperator.partial', 'report', given, options)}.expand(inputs={each})"
        return _call("CrewRunOperator", "report", given, options)

    # The crew

    def execution(self, number: int = 1) -> str:
        """Wait for the crew's nth kickoff, and return its kickoff ID."""
        eventually(lambda: len(self.crew.kickoffs) >= number, pause=PAUSE)
        return str(self.crew.kickoffs[number - 1].kickoff_id)

    def finish(self, number: int = 1) -> None:
        """Let the crew's nth execution complete."""
        self.crew.finish(self.execution(number))

    def looked(self, times: int = 1) -> None:
        """Wait for this many more polls."""
        before = len(self.crew.requests.on("status"))
        eventually(lambda: len(self.crew.requests.on("status")) >= before + times, pause=PAUSE)

    def asked(self, operation: Any, times: int = 1) -> None:
        """Wait until the crew has received this many requests."""
        eventually(lambda: len(self.crew.requests.on(operation)) >= times, pause=0.2)

    def answered(self, operation: Any, status: int | None = None) -> None:
        """Wait until the crew has answered such a request, optionally with this HTTP status."""

        def there() -> bool:
            statuses = [request.status for request in self.crew.requests.on(operation)]
            return status in statuses if status else any(statuses)

        eventually(there, pause=0.2)

    def hold(self, operation: Any) -> HeldAnswer:
        """Let the crew process the next request, and hold its answer until the row releases it, if ever."""
        self.connect(extra=_NO_TIMEOUT)
        held = HeldAnswer(on=operation)
        self.crew.faults.add(held)
        return held

    # The task

    @property
    def task(self) -> dict[str, Any]:
        """The task instance in Airflow."""
        return self.run.task(self.task_id)

    def wait_for(self, state: str, *, tries: int | None = None) -> dict[str, Any]:
        """Wait until the task is in a state, optionally in this attempt."""

        def there() -> dict[str, Any] | None:
            task = self.task
            return task if task["state"] == state and tries in (None, task["try_number"]) else None

        found: dict[str, Any] = eventually(there, pause=PAUSE)
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

        found: psutil.Process = eventually(there, pause=0.3)
        return found

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the process that runs the task."""
        self.process().send_signal(number)

    def clear(self, state: str) -> None:
        """Clear the task when it is in a state, as in the Airflow UI."""
        self.wait_for(state)
        if state in _OVER:
            # If the scheduler is about to end the run, it would stay ended.
            self.wait_until_over()
            self.wait_until_noted()
        self.run.clear(self.task_id)

    def wait_until_noted(self) -> None:
        """Wait until a successful task has noted its delivery. If cleared before, it returns the same result."""
        if self.task["state"] == "success":
            noted = {"delivered", "none"}
            eventually(lambda: record_state(kickoff_record(self.run, self.task_id)) in noted, pause=0.5)

    def mark(self, state: str) -> None:
        """Mark the task as success or failed, as in the Airflow UI."""
        self.run.mark(self.task_id, state)

    def xcom(self, key: str = "return_value") -> Any:
        """Return an XCom of the task, or None."""
        try:
            return self.run.xcom(self.task_id, key)
        except ApiError as error:
            if "404" in str(error):
                return None
            raise

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The instances of a mapped task in Airflow."""
        return [task for task in self.run.tasks(self.task_id) if task["map_index"] >= 0]

    def wait_for_all(self, state: str) -> None:
        """Wait until all mapped tasks are in a state."""
        wanted = [state] * self.mapped
        eventually(lambda: [task["state"] for task in self.tasks] == wanted, seconds=900, pause=PAUSE)

    def log(self, map_index: int = -1) -> str:
        """Return the log of all attempts, one event per line."""
        attempts = range(1, self.run.task(self.task_id, map_index)["try_number"] + 1)
        events = (each for number in attempts for each in self.run.events(self.task_id, number, map_index))
        return "\n".join(map(str, events))

    def wait_until_over(self, seconds: float = PATIENCE, *, finishing: bool = False) -> None:
        """Wait until the run is over. ``finishing``: let all started executions complete."""

        def over() -> bool:
            for execution in self.crew.kickoffs if finishing else ():
                self.crew.finish(execution.kickoff_id)
            return self.run.state in _OVER

        eventually(over, seconds=seconds, pause=PAUSE)


def waiting(scene: Scene) -> None:
    """Start, and return when the task waits where it will wait."""
    scene.start()
    scene.looked()
    if "deferred" in scene.way:
        scene.wait_for("deferred")
        scene.looked()


def never_stopped(scene: Scene) -> None:
    """Check that the crew was not asked to stop, even some time after the task has ended."""
    scene.wait_until_over()
    time.sleep(5)
    assert not scene.crew.requests.on("stop")


_OVER = frozenset({"success", "failed"})


def standing(execution: Execution) -> str:
    """Return the state of an execution at the crew."""
    now = execution.standing(time.time())
    return "revoked" if now.revoked else "completed" if now.over else "running"


def _call(kind: str, task_id: str, *given: Mapping[str, Any]) -> str:
    """Return the code that makes an operator of this kind. A later argument replaces an earlier one."""
    arguments = {"task_id": task_id, **{name: value for each in given for name, value in each.items()}}
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
