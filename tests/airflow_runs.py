"""Local crews for a real Airflow, and access to its runs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_crew.local import LocalCrewService, Scenario
from dev.rest import ApiError, path_of_run
from dev.stack import AirflowStack
from tests.supported import AIRFLOW

ROOT = Path(__file__).parents[1]
TOKEN = "organization-token-that-nobody-may-see"
DASHBOARD = "https://app.example/crews/7?execution={kickoff_id}"
INPUTS = {"topic": "ferries", "audience": "sailors"}
# Seconds in which a fact comes on the busiest machine. Where it comes sooner, nothing waits so long.
PATIENCE = 420.0


def scenario(each: float = 0, *, inputs: Sequence[str] = tuple(INPUTS), **last: Any) -> Scenario:
    tasks = [
        {"name": "research_task", "agent": "Researcher", "seconds": each, "output": "Notes on {topic}"},
        {"name": "writing_task", "agent": "Writer", "seconds": each, "output": "Briefing: {topic}", **last},
    ]
    return Scenario.model_validate({"inputs": [{"name": name} for name in inputs], "tasks": tasks})


def deployed(story: Scenario) -> Scenario:
    """Return the same crew, which responds as deployments do."""
    return story.model_copy(update={"dialect": "deployed"})


def live(story: Scenario, *, kind: str = "crew", human_input: float | bool = False) -> Scenario:
    """Return the same as a deployment tells it; at its first task it may wait for a person."""
    first, *others = story.model_dump(exclude_defaults=True)["tasks"]
    first |= {"seconds": 0, "human_input": human_input}
    inputs = [each.model_dump() for each in story.inputs] + [{"name": "tone"}] * (kind == "flow")
    told = {"dialect": "deployed", "kind": kind, "inputs": inputs, "tasks": [first, *others]}
    return Scenario.model_validate(told)


SCENARIOS = {
    # Long enough at its second task for a triggerer on a busy machine to see it there.
    "default": deployed(scenario(3, seconds=8)),
    # Every look before the end finds it at the second task, whenever it comes.
    "failing": deployed(scenario(0, seconds=1.5, error="The writer ran out of credit")),
    # It fails between two polls, after the task at which the last one finds it.
    "ending": deployed(scenario(6, seconds=0.2, error="The writer ran out of credit")),
    "json": deployed(Scenario.load(ROOT / "example_dags/crew_json_output.toml")),
    "brief": scenario(1, output='{"headlines": ["{topic} for {audience}"]}'),
    "slow": scenario(300),
    # A flow that keeps its state, and two that wait for people.
    "flow": Scenario.load(ROOT / "example_dags/crew_restore_flow_state.toml"),
    "pausing": live(scenario(0, seconds=1), kind="flow", human_input=2),
    "answering": live(scenario(), human_input=True),
}


def connection(crew: LocalCrewService, *, extra: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return the fields of a connection to a crew."""
    more = {"dashboard_url": DASHBOARD, **(extra or {})}
    return json.loads(crew.connection_json) | fields | {"extra": json.dumps(more)}


def eventually(look: Callable[[], Any], *, seconds: float = PATIENCE, pause: float = 0.3) -> Any:
    """Call ``look`` until it returns something true."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "not in time"
        time.sleep(pause)
    return found


def task_processes(airflow: AirflowStack) -> list[int]:
    """Return the processes that run tasks: children of the executor's workers, or those of Celery."""
    parents = {each.pid: each.info["ppid"] for each in psutil.process_iter(["ppid"])}
    executors = {process.pid for process in airflow.executors}
    workers = {pid for pid, parent in parents.items() if parent in executors}
    return [pid for pid, parent in parents.items() if parent in workers]


@dataclass
class Run:
    """One run of a DAG."""

    airflow: AirflowStack
    dag_id: str
    run_id: str
    keeps_task_state: bool = False
    """Whether clearing a task keeps its task state; an option of Airflow from 3.4 on."""

    @classmethod
    def start(cls, airflow: AirflowStack, dag_id: str, *, keeps_task_state: bool = False, **conf: Any) -> Run:
        """Start a run as soon as Airflow knows its DAG."""
        airflow.api.wait_for_dag(dag_id)
        return cls(airflow, dag_id, airflow.api.trigger(dag_id, conf), keeps_task_state)

    def path(self, task_id: str = "") -> str:
        """Return the path of the run, or of one of its tasks, in Airflow's REST API."""
        task = f"/taskInstances/{task_id}" if task_id else ""
        return f"{path_of_run(self.dag_id, self.run_id)}{task}"

    def task(self, task_id: str, map_index: int = -1) -> dict[str, Any]:
        found = self.airflow.api.task_instances(self.dag_id, self.run_id)
        return next(ti for ti in found if (ti["task_id"], ti["map_index"]) == (task_id, map_index))

    def tasks(self, task_id: str) -> list[dict[str, Any]]:
        """Return the instances of a mapped task."""
        found = self.airflow.api.task_instances(self.dag_id, self.run_id)
        return [ti for ti in found if ti["task_id"] == task_id]

    def kickoffs(self, crew: LocalCrewService) -> list[Any]:
        """Return the executions that this run has started at a crew, in their order."""
        origins = ((each, (each.meta or {}).get("airflow") or {}) for each in crew.kickoffs)
        own = {"dag_id": self.dag_id, "run_id": self.run_id}
        return [each for each, origin in origins if own.items() <= origin.items()]

    @property
    def state(self) -> str:
        return self.airflow.api.run_state(self.dag_id, self.run_id)

    def wait(self) -> str:
        """Wait for its end. What is told about a failed one shows where a test fails."""
        state = self.airflow.api.wait_for(self.dag_id, self.run_id, PATIENCE)
        if state == "failed":
            self.tell()
        return state

    def tell(self) -> None:
        """Print the state of each task, the log of those that failed, and what the scheduler says about them."""
        told: list[Any] = []
        for ti in self.airflow.api.task_instances(self.dag_id, self.run_id):
            told.append({name: ti[name] for name in ("task_id", "map_index", "state", "try_number")})
            if ti["state"] == "failed":
                at = (ti["task_id"], ti["try_number"], ti["map_index"])
                with suppress(ApiError):
                    told += self.airflow.log_events(self.dag_id, self.run_id, *at)[-50:]
        for scheduler in self.airflow.all_of("scheduler"):
            lines = scheduler.log.read_text(errors="replace").splitlines()
            told += [line for line in lines if self.run_id in line][-50:]
        print(self.dag_id, *told, sep="\n")  # noqa: T201 - pytest shows it if the test fails

    def wait_for(self, task_id: str, state: str, *, tries: int = 1) -> None:
        """Wait until a task is in a state after this many tries."""
        # From Airflow 3.4 on a task that waits for its retry is that retry already.
        counted = tries + (state == "up_for_retry" and AIRFLOW >= (3, 4))

        def there() -> bool:
            ti = self.task(task_id)
            return ti["state"] == state and ti["try_number"] == counted

        eventually(there)

    def may_be_answered(self, task_id: str) -> bool:
        """
        Whether a task is deferred, and the scheduler has seen the end of its last process.

        Airflow fails a task that resumes before. No person is that fast. The scheduler may see the ends of two
        processes as one, so their number proves nothing.
        """
        task = self.task(task_id)
        if task["state"] != "deferred":
            return False
        queued_at = task["queued_when"].replace("T", " ").removesuffix("Z")
        seen = re.compile(
            f"TaskInstance Finished: dag_id={re.escape(self.dag_id)}, task_id={task_id}, "
            f"run_id={re.escape(self.run_id)}, .* state=deferred, .* queued_dttm={re.escape(queued_at)}"
        )
        return any(seen.search(it.log.read_text(errors="replace")) for it in self.airflow.all_of("scheduler"))

    def open_requests(self) -> list[dict[str, Any]]:
        """Return the requests under Required Actions that a user can answer now."""
        path = f"{self.path()}/hitlDetails"
        return list(self.airflow.api.get(path, response_received=False)["hitl_details"])

    def respond(self, task_id: str, option: str, **text: str) -> None:
        """Answer the request of a task."""
        answer = {"chosen_options": [option], "params_input": text}
        self.airflow.api.patch(f"{self.path(task_id)}/-1/hitlDetails", answer)

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        return self.airflow.api.xcom(self.dag_id, self.run_id, task_id, key, map_index)

    def xcom_once_pushed(self, task_id: str, key: str) -> Any:
        """Wait for an XCom. For its first one, a triggerer builds an API of its own, which may take a minute."""

        def look() -> Any:
            with suppress(ApiError):
                return self.xcom(task_id, key)

        return eventually(look)

    def clear(self, task_id: str, *, keep_task_state: bool | None = None) -> None:
        """
        Clear a task as the page does, which from Airflow 3.4 on discards its state unless told to keep it.

        Airflow answers 500, and does nothing, when the task changes its state in that moment: one clears it again.
        """
        keep = self.keeps_task_state if keep_task_state is None else keep_task_state

        for again in (True, True, False):
            try:
                self.airflow.api.clear(self.dag_id, self.run_id, task_id, keep_task_state=keep)
            except ApiError as error:
                if not again or "500" not in str(error):
                    raise
                time.sleep(1)
            else:
                return

    def mark(self, task_id: str, state: str) -> None:
        """Mark a task as success or failed, as in the Airflow UI."""
        self.airflow.api.patch(self.path(task_id), {"new_state": state})

    def stored(self, task_id: str) -> dict[str, Any]:
        """Return the task state of a task. Before Airflow 3.3, there is none."""
        if AIRFLOW < (3, 3):
            return {}
        found = self.airflow.api.get(f"{self.path(task_id)}/state-store", map_index=-1, limit=1000)
        return {each["key"]: each["value"] for each in found["task_state_store"]}

    def events(self, task_id: str, tries: int = 1, map_index: int = -1) -> list[dict[str, Any]]:
        try:
            return self.airflow.log_events(self.dag_id, self.run_id, task_id, tries, map_index)
        except ApiError as error:
            if "TaskInstance not found" in str(error):  # a run that has just begun has no tasks yet
                return []
            raise

    def error(self, task_id: str, tries: int = 1, map_index: int = -1) -> tuple[str, str]:
        """Return the class and the message of the exception that failed an attempt."""
        events = self.events(task_id, tries, map_index)
        details = [event["error_detail"] for event in events if event.get("error_detail")]
        assert len(details) == 1, details
        last = details[0][-1]
        return last["exc_type"], last["exc_value"]
