"""What a crew run costs a whole Airflow, and how soon the next task starts when the crew is done."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_crew.local import LocalCrewService, Scenario
from benchmarks.lanes import LANES, POLL_INTERVAL, seconds_of
from benchmarks.report import Figure, Table
from benchmarks.rounds import cpu, idle_cpu, in_turn, succeed, warm_up
from benchmarks.stack import started
from benchmarks.workers import Use, use_of_workers
from dev.rest import seconds_since_epoch

if TYPE_CHECKING:
    from pydantic import JsonValue

    from airflow_provider_crew.local.executions import Execution
    from dev.stack import AirflowStack

_WAYS = {
    "ours_deferred": "ours: `CrewRunOperator(deferrable=True)`",
    "ours_reschedule": '`CrewKickoffOperator`, `CrewExecutionSensor(mode="reschedule")`',
    "http_reschedule": '`HttpOperator`, `HttpSensor(mode="reschedule")`',
    "python_sleep": "`@task` with requests and sleep",
}
_TEXT = """\
Each variant has its own DAG file, which runs the same crew {lanes} times in parallel in one DAG run, on \
LocalExecutor with PostgreSQL and Airflow's default settings. A crew takes a minute on average, spread over one \
poll interval so that no variant is in step with it. Every variant polls every {interval} s. The variants take \
turns for {rounds} rounds, after one that is not counted. _Next task_ is the time from the end of the crew to \
the start of the task that takes its result. It consists of the time until the first poll after the end, which \
is mostly chance, and the time from that poll. _CPU_ is the time of all Airflow processes per crew run, \
including tasks and the next task, without the database, and less the CPU time of the idle Airflow ({idle} CPU s \
per minute). _Workers_ are the processes started for a crew run, without the next task, and _held_ is how long \
they ran. _Polls_ are requests for the status."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """How soon after its crew was done a poll came, and how soon after that the next task started."""

    polled_after: float
    started_after: float


@dataclass(frozen=True, slots=True)
class _Round:
    """What one DAG run showed; CPU and polls are per crew run."""

    lanes: list[_Lane]
    cpu: float
    workers: Use
    polls: float


def measure(rounds: int) -> list[Table]:
    """Let the ways take turns."""
    rounds = _affordable(rounds)
    with _Crew(_scenario(1)) as crew, started("runs", {}) as benched:
        airflow = benched.airflow
        _connect(airflow, crew)
        warm_up(airflow, _WAYS)
        crew.hurried = False
        idle = []
        found: dict[str, list[_Round]] = {way: [] for way in _WAYS}
        for number in range(rounds):
            idle.append(idle_cpu(airflow))
            for way in in_turn(_WAYS, number):
                found[way].append(_play(airflow, crew, way, idle[-1]))
    text = _TEXT.format(
        lanes=LANES, interval=POLL_INTERVAL, rounds=rounds, idle=Figure.of(each * 60 for each in idle)
    )
    return [Table("A crew run, and what comes next", text, _COLUMNS, [_row(way, found[way]) for way in _WAYS])]


class _Crew(LocalCrewService):
    """A crew whose executions take as long as their lane says; while it is ``hurried``, hardly any time."""

    hurried = True

    def take(self, inputs: dict[str, JsonValue], *more: Any, **named: Any) -> JsonValue:
        """Start an execution."""
        self.scenario = _scenario(1 if self.hurried else _seconds(inputs))
        return super().take(inputs, *more, **named)


_COLUMNS = (
    "",
    "next task after, s",
    "until polled, s",
    "from there, s",
    "CPU, s",
    "workers",
    "held, s",
    "polls",
)


def _row(way: str, rounds: list[_Round]) -> list[object]:
    lanes = [lane for each in rounds for lane in each.lanes]
    return [
        _WAYS[way],
        Figure.of(lane.polled_after + lane.started_after for lane in lanes),
        Figure.of(lane.polled_after for lane in lanes),
        Figure.of(lane.started_after for lane in lanes),
        Figure.of(each.cpu for each in rounds),
        Figure.of(each.workers.processes / LANES for each in rounds),
        Figure.of(each.workers.seconds / LANES for each in rounds),
        Figure.of(each.polls for each in rounds),
    ]


def _affordable(rounds: int) -> int:
    """Return how many rounds to play: each takes as long as several that need no Airflow."""
    return max(rounds // 2, 1)


def _scenario(seconds: float) -> Scenario:
    return Scenario.model_validate(
        {
            "inputs": [{"name": "run"}, {"name": "lane"}],
            "tasks": [{"name": "work", "agent": "Worker", "seconds": seconds, "output": "Done in lane {lane}"}],
        }
    )


def _seconds(inputs: dict[str, JsonValue]) -> float:
    return seconds_of(int(str(inputs["lane"])))


def _connect(airflow: AirflowStack, crew: LocalCrewService) -> None:
    """Store both connections where production has them, so that every look-up costs what it costs there."""
    described = json.loads(crew.connection_json)
    airflow.api.set_connection("crew_default", described)
    headers = json.dumps({"Authorization": f"Bearer {described.pop('password')}"})
    airflow.api.set_connection("crew_http", described | {"conn_type": "http", "extra": headers})


def _play(airflow: AirflowStack, crew: _Crew, way: str, idle: float) -> _Round:
    before, began = cpu(airflow), time.monotonic()
    run_id = airflow.api.trigger(way)
    time.sleep(seconds_of(0))
    succeed(airflow, way, run_id)
    used = cpu(airflow) - before - idle * (time.monotonic() - began)
    executions = {str(each.inputs["lane"]): each for each in crew.kickoffs if each.inputs["run"] == run_id}
    if len(executions) != LANES:
        raise RuntimeError(f"{way} ran {len(executions)} crews, not {LANES}")
    tasks = {task["task_id"]: task for task in airflow.api.task_instances(way, run_id)}
    ids = {task["id"] for task_id, task in tasks.items() if not task_id.startswith("next_")}
    polls = {lane: _polls(crew, execution) for lane, execution in executions.items()}
    return _Round(
        lanes=[
            _lane(execution, polls[lane], tasks[f"next_{lane}"]["start_date"])
            for lane, execution in executions.items()
        ],
        cpu=used / LANES,
        workers=use_of_workers(airflow.logs / "api-server.log", ids),
        polls=sum(map(len, polls.values())) / LANES,
    )


def _lane(execution: Execution, polls: list[float], next_task_started: str) -> _Lane:
    completed = execution.started_at + _seconds(execution.inputs)
    polled = min(at for at in polls if at >= completed)
    return _Lane(polled - completed, seconds_since_epoch(next_task_started) - polled)


def _polls(crew: LocalCrewService, execution: Execution) -> list[float]:
    looks = crew.requests.on("status")
    return [look.received_at for look in looks if execution.kickoff_id in look.path]
