"""A crew, and the truth about every execution, with which the end of each attempt is compared."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from airflow_provider_crew.client.errors import Cost, InvalidOutput, UncertainKickoff
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.crew import Crew
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.local.scripted import Scripted
from airflow_provider_crew.local.wire.api import Api
from airflow_provider_crew.local.wire.browser import Browser
from tests.integration.tasks import CONNECTION, StoreBroken, api_error
from tests.machine.airflow import Killed, Outcome, Process, Task
from tests.machine.virtual import Clock, Wire, faults

_ID = re.compile(r"kickoff-\d{4}")
_MOST_WITH_OLD_TOKEN = 5


@dataclass
class Fact:
    """The truth about one execution, and what people know of it."""

    execution: Execution
    task: Task
    unit: str
    clears: int
    wipes: int
    stopped_by_person: bool = False
    uncertain: bool = False
    """Whether an error or a line about a row reports that it may exist, without its ID."""
    chosen: bool = False
    """Whether a user has cleared the task after that report."""
    is_misfit: bool = False
    """Whether a retry was told to start another, because the output does not match."""
    delivered_at: int | None = None
    """Number of clears when Airflow has stored its result."""

    @property
    def kickoff_id(self) -> str:
        return self.execution.kickoff_id


def _output(number: int, size: int) -> str:
    return json.dumps({"number": number, "text": "x" * size})


class _Crew(Crew):
    """A crew whose executions have readable IDs, and each an output of its own."""

    world: World

    def take(self, *args: Any) -> JsonValue:
        number = len(self.kickoffs) + 1
        self.next_kickoff_id(f"kickoff-{number:04}")
        tasks = (self.scenario.tasks[0].model_copy(update={"output": _output(number, self.world.size)}),)
        self.scenario = self.scenario.model_copy(update={"tasks": tasks})
        return super().take(*args)


class _Shown(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        self.world.show(record.getMessage())


class World:
    """Everything besides the package."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        self.clock = clock
        self.folder = folder
        self.tokens = ["organization-token-1"]
        self.known_token = self.tokens[0]
        self.has_connection = True
        self.crew = _Crew(Scenario(inputs=(), token=self.tokens[0]), Scripted(), clock, self._started)
        self.crew.world = self
        self.api = Api(self.crew, Browser(self.crew, "crew.test"), pages_need_token=False)
        self.faults = faults(clock)
        self.handler = _Shown(self)
        self.process: Process | None = None
        self.tasks: dict[str, Task] = {}
        self.running: Task
        self.suspended = 0.0
        self.away_until = 0.0
        self.breaks = 0
        self.broken: list[str] = []
        """Promises that were broken."""
        self.named: set[str] = set()
        self.facts: dict[str, Fact] = {}
        self.deeds: list[list[Any]] = []
        self.stops: list[str] = []
        self.has_trouble = False
        self.options: dict[str, Any] = {}
        self.course(seconds=20)
        self.connect()

    def close(self) -> None:
        """Forget everything."""
        logging.getLogger("airflow_provider_crew").removeHandler(self.handler)
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self) -> None:
        """Write the connection as a user has it."""
        self._rejected: list[str] = []
        known = {
            "conn_type": "crew",
            "host": "127.0.0.1",
            "port": 8000,
            "schema": "http",
            "password": self.known_token,
        }
        if self.has_connection:
            os.environ[CONNECTION] = json.dumps(known)
        else:
            os.environ.pop(CONNECTION, None)

    # What happens at which step of a process.

    @contextmanager
    def seam(self, name: str) -> Iterator[None]:
        self._step(f"before {name}")
        yield
        self._step(f"after {name}")

    def _step(self, place: str) -> None:
        self._check_alive()
        for deed in [each for each in self.deeds if each[0] == place]:
            deed[1] -= 1
            if deed[1] <= 0:
                self.deeds.remove(deed)
                deed[2]()
        self._check_alive()

    def _check_alive(self) -> None:
        if self.process and self.process.is_dead:
            raise Killed

    def airflow_answers(self) -> None:
        """Raise if Airflow's API server is away, or refuses a write."""
        if self.clock.now < self.away_until:
            raise api_error(503)
        if self.breaks:
            self.breaks -= 1
            raise StoreBroken("refused")

    def show(self, text: str) -> None:
        """Note what people may read, or what is stored."""
        if self.process and self.process.is_dead:
            return
        self.named.update(_ID.findall(text))
        if any(token in text for token in self.tokens):
            self.broken.append(f"a token is shown: {text[:300]}")

    # The crew.

    def course(self, *, seconds: float, size: int = 0, dialect: Any = "deployed", **task: Any) -> None:
        """Set the course of the next executions."""
        self.size = size
        self.has_trouble = self.has_trouble or bool(task.get("human_input"))  # a deployed crew is unknown then
        tasks = (ScenarioTask(name="writing", seconds=seconds, **task),)
        self.crew.scenario = Scenario(tasks=tasks, inputs=(), dialect=dialect, token=self.tokens[-1])

    def send(self, request: ReceivedRequest) -> Answer:
        """Send a request to the crew, and return what the client gets, or raise what it sees."""
        operation = str(request.operation)
        if operation == "kickoff" and self.process and self.process.is_told:
            self.broken.append("a kickoff was sent after the process was told to end")
        self._check_token(request)
        with self.seam(operation):
            if operation == "stop":
                self._check_stop(request.path.rpartition("/")[2])
            fault = self.faults.next_for(request.operation)
            return Wire(request, self.api.answer).result_of(fault)

    def _check_token(self, request: ReceivedRequest) -> None:
        """Check that a task soon uses the token that the connection has."""
        is_old = self.has_connection and str(request.header("authorization")).split()[-1] != self.known_token
        self._rejected = [*self._rejected, request.path] if is_old else self._rejected
        if self._rejected.count(request.path) > _MOST_WITH_OLD_TOKEN:
            self.broken.append(f"{request.path} is polled with an old token")

    @property
    def last(self) -> Execution | None:
        """The newest execution."""
        return self.crew.kickoffs[-1] if self.crew.kickoffs else None

    def knows(self, execution: Execution) -> bool:
        """Whether the crew has not forgotten the execution."""
        try:
            return bool(self.crew.execution(execution.kickoff_id))
        except LookupError:
            return False

    def is_over(self, execution: Execution) -> bool:
        return execution.standing(self.clock.now).over

    def has_failed(self, execution: Execution) -> bool:
        return self.is_over(execution) and execution.standing(self.clock.now).error is not None

    # The truth.

    def _started(self, execution: Execution) -> None:
        meta: Any = (execution.meta or {}).get("airflow") or {}
        task = self.tasks[meta.get("task_id", "crew")]
        unit = f"{task.task_id} {execution.inputs['topic'] if 'row' in meta else ''}"
        for fact in self.of_unit(unit):
            is_given_up = self.options.get("on_uncertain_kickoff") == "retry" and not self.is_stored(fact)
            fact.chosen = fact.chosen or is_given_up
            if why := self._must_not_follow(fact):
                self.broken.append(f"{execution.kickoff_id} started although {fact.kickoff_id} {why}")
        self.facts[execution.kickoff_id] = Fact(execution, task, unit, task.clears, task.wipes)

    def of_unit(self, unit: str) -> list[Fact]:
        return [fact for fact in self.facts.values() if fact.unit == unit]

    def _must_not_follow(self, fact: Fact) -> str:
        """Return why no other execution may follow, or an empty text."""
        task, execution, options = fact.task, fact.execution, self.options
        is_cleared = task.clears > fact.clears
        if fact.chosen or task.wipes > fact.wipes:
            return ""
        at = execution.standing(self.clock.now)
        if at.over and at.error is not None:
            return "was stopped by a person" if fact.stopped_by_person and not is_cleared else ""
        if at.over and fact.is_misfit:
            return ""
        if at.over and is_cleared and (options.get("rerun") == "all" or task.map_index >= 0):
            return ""
        if at.over:
            is_wanted = fact.delivered_at is not None and task.clears > fact.delivered_at
            return "" if is_wanted else "has completed"
        return "is running"

    def is_stored(self, fact: Fact) -> bool:
        """Whether Airflow or a result file has the ID."""
        texts = [*fact.task.store.values(), *self.files()]
        return any(fact.kickoff_id in text for text in texts)

    def files(self) -> Iterator[str]:
        """Yield the content of the result files."""
        for path in sorted(self.folder.rglob("*.jsonl")):
            yield path.read_text()

    def has_intent(self, task: Task) -> bool:
        """Whether a kickoff without an ID is stored."""
        run = json.loads(task.store.get("crew_kickoff", "{}"))
        groups = [json.loads(text) for key, text in task.store.items() if key.startswith("crew_batch_")]
        return run.get("kickoff_id", "") is None or any(not line[2] for group in groups for line in group)

    def note_delivery(self, task: Task, value: Any) -> None:
        """Note which results Airflow has stored, and check them."""
        if isinstance(value, dict) and "counts" in value:
            for line in map(json.loads, (self.folder / "results.jsonl").read_text().splitlines()):
                if line["status"] == "success":
                    self._note_result(task, line["kickoff_id"], line["raw_output"])
        elif isinstance(value, dict):
            self._note_result(task, value["kickoff_id"], value["output"])
        else:
            self.facts[str(value)].delivered_at = task.clears

    def _note_result(self, task: Task, kickoff_id: str, output: Any) -> None:
        fact = self.facts[kickoff_id]
        if fact.task is task:
            fact.delivered_at = task.clears
        if (output if isinstance(output, str) else json.dumps(output)) != fact.execution.scenario.tasks[0].output:
            self.broken.append(f"{kickoff_id} has returned {str(output)[:80]}")

    def note_clear(self, task: Task) -> None:
        """Note which executions a user gives up who clears a task."""
        for fact in self.facts.values():
            if fact.task is task and fact.uncertain:
                fact.chosen = True

    def _check_stop(self, kickoff_id: str) -> None:
        self.stops.append(kickoff_id)
        task, options = self.running, self.options
        is_marked = task.is_marked and options.get("cancel_on_kill")
        limits = [options.get(name) for name in ("timeout", "row_timeout", "execution_timeout")]
        limit = min(getattr(each, "total_seconds", lambda each=each: each)() for each in limits if each)
        is_late = options.get("cancel_on_timeout") and self.clock.now - task.began_at >= limit * 0.9 - 10
        if not (is_marked or is_late):
            self.broken.append(f"{kickoff_id} was stopped, but nobody wanted it")

    # What an attempt makes of it.

    def check(self, task: Task, outcome: Outcome, started_before: int) -> None:
        """Note what an attempt has told, and check its cost."""
        failure, watched = outcome.failure, task.watched()
        own = [fact for fact in self.facts.values() if fact.task is task or fact.kickoff_id == watched]
        if isinstance(failure, InvalidOutput) and self.options.get("on_invalid_output") == "retry":
            self.facts[failure.kickoff_id].is_misfit = True
        lines = [json.loads(line) for text in self.files() for line in text.splitlines()]
        keys = {line["key"] for line in lines if isinstance(line, dict) and line.get("status") == "uncertain"}
        for fact in own:
            is_told = isinstance(failure, UncertainKickoff) or fact.unit.rpartition(" ")[2] in keys
            fact.uncertain = fact.uncertain or (is_told and not self.is_stored(fact))
        cost, has_started = getattr(failure, "cost", None), len(self.facts) > started_before
        if cost and (why := self._is_untrue(cost, own, has_started=has_started)):
            self.broken.append(f"{type(failure).__name__} says that the cost is {cost}, but {why}")

    def _is_untrue(self, cost: Cost, facts: list[Fact], *, has_started: bool) -> str:
        """Return why a cost is wrong, or an empty text."""
        current = [it for it in facts if not it.chosen and it.task.wipes == it.wipes]
        running = [it.kickoff_id for it in current if not self.is_over(it.execution)]
        if running and cost in {Cost.ENDED, Cost.NONE}:
            return f"{running[0]} is running"
        if cost is Cost.NONE and has_started:
            return "an execution was started"
        if cost is Cost.RUNNING and not facts:
            return "there is no execution"
        return "nothing was unusual" if cost is Cost.UNKNOWN and not self.has_trouble else ""

    def check_known(self) -> None:
        """Check that every execution that may run is stored, or that people were told of it."""
        for fact in self.facts.values():
            is_given_up = fact.chosen or fact.task.wipes > fact.wipes or fact.uncertain
            if is_given_up or self.is_over(fact.execution) or fact.kickoff_id in self.named:
                continue
            if not (self.is_stored(fact) or self.has_intent(fact.task)):
                self.broken.append(f"{fact.kickoff_id} runs, and nobody knows")

    def finish_all(self) -> None:
        """Let nothing go wrong any more, and end every execution."""
        self.deeds.clear()
        self.clock.forget()
        self.faults.clear()
        self.away_until = self.breaks = 0
        self.has_connection, self.known_token = True, self.crew.token
        self.connect()
        self.crew.remember(())
        self.course(seconds=1)
        for execution in self.crew.kickoffs:
            execution.finish(self.clock.now)
        self.clock.now += 1.0
