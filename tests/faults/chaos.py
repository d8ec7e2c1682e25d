"""Faults at random moments. The seed determines their order, and the machine their timing."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import psutil

from airflow_provider_crew.local import LocalCrewService, Scenario
from dev.distributed import CeleryStack
from dev.postgres import PostgresServer
from dev.rest import ApiError
from dev.server import Server
from dev.stack import AirflowStack
from tests.airflow_runs import Run, deployed, eventually, scenario, task_processes
from tests.faults.harm import whole

_AFTERMATH = 5.0
# There are more processes than tasks, so that no task waits for one.
_FORGOTTEN = 60.0


def story(seconds: float, error: str | None = None, *, person: float = 0) -> Scenario:
    """Return a crew with this duration, this wait for human input in the middle, and this end."""
    told = scenario(seconds / 2, inputs=("topic",), error=error)
    first, last = told.tasks
    return told.model_copy(
        update={"tasks": (first.model_copy(update={"human_input": float(person) or False}), last)}
    )


# A third waits for human input, up to max_outage and longer. The dialect changes all the time.
_STORIES = (
    story(0),
    deployed(story(4)),
    story(15),
    deployed(story(40)),
    story(3, error="out of credit"),
    deployed(story(3, error="running out of credit")),
    deployed(story(4, person=10)),
    deployed(story(4, person=40)),
    deployed(story(10, person=80)),
)
_CLEARED = ("queued", "scheduled", "running", "deferred", "up_for_retry", "up_for_reschedule")


class Chaos:
    """
    Kills processes, and makes the crew fail.

    ``done`` counts the faults that took effect: a task has to exist to be killed.
    """

    def __init__(
        self,
        airflow: AirflowStack,
        database: PostgresServer,
        crew: LocalCrewService,
        seed: int,
        stories: Sequence[Scenario] = _STORIES,
    ) -> None:
        self._stories = stories
        self._airflow = airflow
        self._database = database
        self.crew = crew
        self._dice = random.Random(seed)  # noqa: S311 - for tests
        self.done: Counter[str] = Counter()
        self.runs: list[Run] = []
        self.cleared: list[tuple[str, str, float]] = []
        """Run, task and time of each clear."""
        self._harms: dict[str, tuple[int, Callable[[], bool | None]]] = {
            "task killed": (10, lambda: self._kill_task(with_supervisor=False)),
            "task and supervisor killed": (2, lambda: self._kill_task(with_supervisor=True)),
            "task asked to end": (2, lambda: self._kill_task(with_supervisor=False, number=signal.SIGTERM)),
            "task cleared": (6, self._clear),
            "triggerer killed": (2, lambda: self._restart("triggerer")),
            "scheduler killed": (1, lambda: self._restart("scheduler")),
            "API server killed": (1, lambda: self._restart("api-server")),
            "database crashed": (1, self._crash_database),
            "crew refuses connections": (2, lambda: self.crew.faults.refuse(self._dice.uniform(1, 8))),
            "kickoff taken, 502 answered": (1, lambda: self._at_kickoff("answer", status=502)),
            "kickoff taken, connection reset": (1, lambda: self._at_kickoff("reset")),
            "kickoff taken, answered late": (
                2,
                lambda: self._at_kickoff("hang", seconds=self._dice.uniform(1, 8)),
            ),
        }
        if isinstance(airflow, CeleryStack):
            self._harms |= {
                "Celery worker killed": (3, lambda: self._restart("worker")),
                "Celery worker asked to end": (3, self._shut_down_worker),
                "broker crashed": (1, lambda: self._crash_broker(airflow.broker)),
            }

    def rage(self, until: Callable[[], bool]) -> None:
        """Cause a fault every few seconds until ``until`` returns True, then repair everything."""
        while not until():
            self.crew.scenario = self._dice.choice(self._stories)
            names, weights = zip(*((name, weight) for name, (weight, _) in self._harms.items()), strict=True)
            (name,) = self._dice.choices(names, weights)
            if self._harms[name][1]() is not False:
                self.done[name] += 1
            time.sleep(self._dice.uniform(0.5, 3))
            self._airflow.start_what_has_ended()
        self.crew.faults.clear()
        self.crew.scenario = story(1)
        whole(self._airflow, self._database)

    def see_out(self, seconds: float) -> None:
        """
        Wait until the runs are over.

        Airflow's LocalExecutor loses a task whose process was killed before it started. Only another scheduler
        finds it. On Celery, Airflow fails a task that is queued for too long.
        """

        restarted = 0.0

        def over() -> bool:
            nonlocal restarted
            oldest = min((_queued_at(task) for _, task in self._tasks()), default=math.inf)
            if not isinstance(self._airflow, CeleryStack) and max(oldest, restarted) < time.time() - _FORGOTTEN:
                restarted = time.time()
                self._restart("scheduler")
                self.done["scheduler killed for a task that it had forgotten"] += 1
            return all(run.state in {"success", "failed"} for run in self.runs)

        eventually(over, seconds=seconds, pause=2)

    def _at_kickoff(self, fault: str, **options: Any) -> None:
        getattr(self.crew.faults, fault)(on="kickoff", after_taken=True, **options)

    def _kill_task(self, *, with_supervisor: bool, number: int = signal.SIGKILL) -> bool:
        found = task_processes(self._airflow)
        if not found:
            return False
        try:
            process = psutil.Process(self._dice.choice(found))
            supervisor = process.parent()
            if with_supervisor and supervisor:
                supervisor.kill()
            os.kill(process.pid, number)
        except (psutil.NoSuchProcess, ProcessLookupError):  # it has just ended
            return False
        return True

    def _clear(self) -> bool:
        found = [(run, task) for run, task in self._tasks() if task["state"] in _CLEARED]
        return bool(found) and self._cleared(*self._dice.choice(found))

    def _tasks(self) -> list[tuple[Run, dict[str, Any]]]:
        try:
            return [
                (run, task)
                for run in self.runs
                for task in self._airflow.api.task_instances(run.dag_id, run.run_id)
            ]
        except (ApiError, OSError):  # Airflow is harmed, too
            return []

    def _cleared(self, run: Run, task: Mapping[str, Any]) -> bool:
        try:
            run.clear(task["task_id"])
        except (ApiError, OSError):
            return False
        self.cleared.append((run.run_id, task["task_id"], time.time()))
        return True

    def _shut_down_worker(self) -> None:
        """Let it finish its tasks while faults continue."""
        os.kill(self._dice.choice(self._airflow.all_of("worker")).pid, signal.SIGTERM)

    def _crash_broker(self, broker: Server) -> None:
        broker.crash()
        time.sleep(self._dice.uniform(0, 15))
        broker.start()

    def _restart(self, name: str) -> None:
        """Kill one of its processes. The next fault follows at once if others do its work."""
        processes = self._airflow.all_of(name)
        self._dice.choice(processes).kill()
        time.sleep(self._dice.uniform(0, 3))
        if len(processes) > 1:
            self._airflow.start_what_has_ended()
        else:
            whole(self._airflow, self._database)

    def _crash_database(self) -> None:
        self._database.crash()
        time.sleep(self._dice.uniform(0, 3))
        self._database.start()
        # Without a database, some parts end a moment later.
        time.sleep(_AFTERMATH)
        whole(self._airflow, self._database)


def _queued_at(task: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(task["queued_when"]).timestamp() if task["state"] == "queued" else math.inf
