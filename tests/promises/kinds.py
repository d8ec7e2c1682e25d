"""Kinds of task that keep the promises. Each starts one execution, or one for each row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.tasks import INPUTS
from tests.promises.harness import Outcome, Task, World

_OF_A_WAIT = frozenset({"timeout", "max_outage", "output_type"})


class Job:
    """
    A crew that is run by one task.

    ``row_timeout`` limits the wait for one execution, and ``timeout`` that of the task.
    """

    has_rows = False

    def __init__(self, world: World, *, rows: int = 1, **options: Any) -> None:
        self.world = world
        self.rows = rows if self.has_rows else 1
        self.options = options
        self.folder = world.new_folder()
        self.task = Task(world, lambda: self.operator(**self.options))

    def operator(self, **options: Any) -> Any:
        """Return the operator."""
        raise NotImplementedError

    def attempt(self) -> Outcome:
        """Run the next attempt to its end."""
        return self.task.attempt()

    @property
    def now(self) -> Task:
        """The task that runs now."""
        return self.task

    def tell_to_end(self) -> None:
        """Tell the task to end, as a worker does that shuts down."""
        self.now.tell_to_end()

    def mark(self) -> None:
        """Mark the task as failed."""
        self.now.mark()

    def kill(self) -> None:
        """Kill the process of the task."""
        self.now.kill()

    def clear(self) -> None:
        """Clear the task."""
        self.now.clear()

    def output(self, outcome: Outcome) -> Any:
        """Return the output of the crew that an attempt has returned."""
        return outcome.value["output"]

    def kept(self) -> str:
        """Return the output that is kept if the task fails."""
        return str(self.world.xcoms["crew"]["crew_result"]["output"])

    @property
    def files(self) -> str:
        """The content of all files that were written."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return "".join(path.read_text() for path in files)


class Run(Job):
    deferrable = False

    def operator(self, **options: Any) -> Any:
        if "row_timeout" in options:
            options["timeout"] = options.pop("row_timeout")
        named: dict[str, Any] = {"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02}
        return CrewRunOperator(deferrable=self.deferrable, **named | options)


class DeferredRun(Run):
    deferrable = True


class Sensor(Job):
    """Two tasks: one starts the execution, and the other waits for it."""

    deferrable = False
    mode = "poke"

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world, **options)
        self.kickoff = Task(world, lambda: self._kickoff(**self.options), task_id="kickoff")
        self.kickoff_id: str | None = None

    def _kickoff(self, **options: Any) -> Any:
        own = {name: value for name, value in options.items() if name not in {*_OF_A_WAIT, "row_timeout"}}
        return CrewKickoffOperator(task_id="kickoff", inputs=INPUTS, **own)

    def operator(self, **options: Any) -> Any:
        if "row_timeout" in options:
            options["timeout"] = options.pop("row_timeout")
        own = {name: value for name, value in options.items() if name in {*_OF_A_WAIT, "execution_timeout"}}
        named = {"task_id": "crew", "kickoff_id": self.kickoff_id, "poke_interval": 0.02, "mode": self.mode}
        return CrewExecutionSensor(deferrable=self.deferrable, **named | own)

    def attempt(self) -> Outcome:
        if not self.kickoff_id:
            started = self.kickoff.attempt()
            if started.error:
                return started
            self.kickoff_id = started.value
        return self.task.attempt()

    @property
    def now(self) -> Task:
        return self.task if self.kickoff_id else self.kickoff


class DeferredSensor(Sensor):
    deferrable = True


class RescheduledSensor(Sensor):
    mode = "reschedule"


class Batch(Job):
    """Rows that run side by side or, if each has a time limit, one after the other."""

    has_rows = True
    deferrable = False

    def operator(self, **options: Any) -> Any:
        if "row_timeout" in options:
            options["max_active"] = 1
        named = {"task_id": "crew", "result_path": str(self.folder), "poll_interval": 0.02}
        inputs = [INPUTS | {"audience": f"reader {number}"} for number in range(1, self.rows)]
        given = {"inputs": [INPUTS, *inputs], **named, **options}
        return CrewBatchOperator(deferrable=self.deferrable, **given)

    def output(self, outcome: Outcome) -> Any:
        assert outcome.value["counts"]["success"] == self.rows
        return self.kept()

    def kept(self) -> str:
        lines = (self.folder / "results.jsonl").read_text().splitlines()
        return str(json.loads(lines[0])["raw_output"])


class DeferredBatch(Batch):
    deferrable = True


KINDS: Mapping[str, Callable[..., Job]] = {
    "run": Run,
    "deferred run": DeferredRun,
    "sensor": Sensor,
    "deferred sensor": DeferredSensor,
    "rescheduled sensor": RescheduledSensor,
    "batch": Batch,
    "deferred batch": DeferredBatch,
}
"""Those whose environment the other tests have. The tool is in tests/agents."""
