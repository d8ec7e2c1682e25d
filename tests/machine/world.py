"""A crew, and the truth about every execution, with which the end of each attempt is compared."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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
from tests.integration.attempts import Airflow, Outcome, Task
from tests.integration.tasks import CONNECTION, StoreBroken, api_error
from tests.machine.virtual import Clock, Process, Wire, faults

_ID = re.compile(r"kickoff-\d{4}")
_MOST_WITH_OLD_TOKEN = 5


@dataclass
class Fact:
    """The truth about one execution, and what people know of it."""

    execution: Execution
    task: Task
    row: str | None
    clears: int
    wipes: int
    stopped_by_person: bool = False
    is_misfit: bool = False
    """Whether a retry was told to start another, because the output does not match."""
    uncertain_at: int | None = None
    """Number of clears when an error or a line about a row reported that it may exist, without its ID."""
    delivered_at: int | None = None
    """Number of clears when Airflow has stored its result."""

    @property
    def kickoff_id(self) -> str:
        return self.execution.kickoff_id

    @property
    def is_given_up(self) -> bool:
        """Whether people have chosen another, or Airflow has forgotten it."""
        is_cleared = self.uncertain_at is not None and self.task.clears > self.uncertain_at
        return is_cleared or self.task.wipes > self.wipes


class _Crew(Crew):
    """A crew whose executions have readable IDs, and each an output of its own."""

    world: World

    def take(self, *args: Any) -> JsonValue:
        number = len(self.kickoffs) + 1
        self.next_kickoff_id(f"kickoff-{number:04}")
        output = json.dumps({"number": number, "text": "x" * self.world.size})
        tasks = (self.scenario.tasks[0].model_copy(update={"output": output}),)
        self.scenario = self.scenario.model_copy(update={"tasks": tasks})
        return super().take(*args)


class World(Airflow):
    """Everything besides the package."""

    running: Task

    def __init__(self, clock: Clock, folder: Path) -> None:
        super().__init__()
        self.clock = clock
        self.process = partial(Process, clock)
        self.folder = folder
        self.tokens = ["organization-token-1"]
        self.known_token = self.tokens[0]
        self.has_connection = True
        self.crew = _Crew(Scenario(inputs=(), token=self.tokens[0]), Scripted(), clock, self._started)
        self.crew.world = self
        self.api = Api(self.crew, Browser(self.crew, "crew.test"), pages_need_token=False)
        self.faults = faults(clock)
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

    def new_folder(self) -> Path:
        return self.folder

    def connect(self) -> None:
        """Write the connection as a user has it."""
        self._rejected: list[str] = []
        if self.has_connection:
            os.environ[CONNECTION] = f"crew://:{self.known_token}@127.0.0.1:8000/http"
        else:
            os.environ.pop(CONNECTION, None)

    # What happens at which step of a process.

    @contextmanager
    def seam(self, name: str) -> Iterator[None]:
        self._step(f"before {name}")
        yield
        self._step(f"after {name}")

    def request(self, name: str, act: Callable[[], Any]) -> Any:
        with self.seam(name):
            if name != "success":
                self.airflow_answers()
            return act()

    def _step(self, place: str) -> None:
        self.running.check_alive()
        for deed in [each for each in self.deeds if each[0] == place]:
            deed[1] -= 1
            if deed[1] <= 0:
                self.deeds.remove(deed)
                deed[2]()
        self.running.check_alive()

    def airflow_answers(self) -> None:
        """Raise if Airflow's API server is away, or refuses a write."""
        if self.clock.now < self.away_until:
            raise api_error(503)
        if self.breaks:
            self.breaks -= 1
            raise StoreBroken("refused")

    def show(self, text: str) -> None:
        """Note what people may read, or what is stored."""
        if self.running.is_dead:
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
        if operation == "kickoff" and getattr(self.running.process, "is_told", False):
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

    # The truth.

    def _started(self, execution: Execution) -> None:
        meta: Any = (execution.meta or {}).get("airflow") or {}
        task, row = self.tasks[meta.get("task_id", "crew")], meta.get("row")
        for fact in self.facts.values():
            if (fact.task, fact.row) != (task, row):
                continue
            if why := self._must_not_follow(fact):
                self.broken.append(f"{execution.kickoff_id} started although {fact.kickoff_id} {why}")
        self.facts[execution.kickoff_id] = Fact(execution, task, row, task.clears, task.wipes)

    def _must_not_follow(self, fact: Fact) -> str:
        """Return why no other execution may follow, or an empty text."""
        task, at = fact.task, fact.execution.standing(self.clock.now)
        is_cleared = task.clears > fact.clears
        if fact.is_given_up:
            return ""
        if not at.over:
            return "is running"
        if at.error is not None:
            return "was stopped by a person" if fact.stopped_by_person and not is_cleared else ""
        runs_again = is_cleared and (self.options.get("rerun") == "all" or task.ti.map_index >= 0)
        is_wanted = fact.delivered_at is not None and task.clears > fact.delivered_at
        return "" if fact.is_misfit or runs_again or is_wanted else "has completed"

    def is_stored(self, fact: Fact) -> bool:
        """Whether Airflow or a result file has the ID."""
        texts = [*fact.task.store.texts.values(), *self.files()]
        return any(fact.kickoff_id in text for text in texts)

    def files(self) -> Iterator[str]:
        """Yield the content of the result files."""
        for path in sorted(self.folder.rglob("*.jsonl")):
            yield path.read_text()

    def has_intent(self, task: Task) -> bool:
        """Whether a kickoff without an ID is stored."""
        run = task.store.kickoff or {}
        groups = [lines for key, lines in task.store.entries.items() if key.startswith("crew_batch_")]
        return run.get("kickoff_id", "") is None or any(not line[2] for group in groups for line in group)

    def deliver(self, task: Task) -> None:
        """Note which results Airflow has stored, and check them."""
        value = task.xcoms["return_value"]
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

    def _check_stop(self, kickoff_id: str) -> None:
        self.stops.append(kickoff_id)
        task, options = self.running, self.options
        is_marked = task.is_marked and options.get("cancel_on_kill")
        limits = [options.get(name) for name in ("timeout", "row_timeout", "execution_timeout")]
        limit = min(getattr(each, "total_seconds", lambda each=each: each)() for each in limits if each)
        is_late = (
            options.get("cancel_on_timeout")
            and self.clock.now - task.ti.start_date.timestamp() >= limit * 0.9 - 10
        )
        if not (is_marked or is_late):
            self.broken.append(f"{kickoff_id} was stopped, but nobody wanted it")

    # What an attempt makes of it.

    def check(self, outcome: Outcome, started_before: int) -> None:
        """Note what an attempt has told, and check its cost."""
        failure = outcome.failure
        if isinstance(failure, InvalidOutput) and self.options.get("on_invalid_output") == "retry":
            self.facts[failure.kickoff_id].is_misfit = True
        lines = [json.loads(line) for text in self.files() for line in text.splitlines()]
        keys = {line["key"] for line in lines if isinstance(line, dict) and line.get("status") == "uncertain"}
        for fact in self.facts.values():
            is_told = isinstance(failure, UncertainKickoff) or fact.row in keys
            if fact.uncertain_at is None and is_told and not self.is_stored(fact):
                fact.uncertain_at = fact.task.clears
        cost, has_started = getattr(failure, "cost", None), len(self.facts) > started_before
        if cost and (why := self._is_untrue(cost, has_started=has_started)):
            self.broken.append(f"{type(failure).__name__} says that the cost is {cost}, but {why}")

    def _is_untrue(self, cost: Cost, *, has_started: bool) -> str:
        """Return why a cost is wrong, or an empty text."""
        current = [it for it in self.facts.values() if not it.is_given_up]
        running = [it.kickoff_id for it in current if not self.is_over(it.execution)]
        if running and cost in {Cost.ENDED, Cost.NONE}:
            return f"{running[0]} is running"
        if cost is Cost.NONE and has_started:
            return "an execution was started"
        if cost is Cost.RUNNING and not self.facts:
            return "there is no execution"
        return "nothing was unusual" if cost is Cost.UNKNOWN and not self.has_trouble else ""

    def check_known(self) -> None:
        """Check that every execution that may run is stored, or that people were told of it."""
        for fact in self.facts.values():
            is_told = fact.uncertain_at is not None or fact.kickoff_id in self.named
            if is_told or fact.is_given_up or self.is_over(fact.execution):
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
