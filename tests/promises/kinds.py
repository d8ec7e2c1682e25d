"""Kinds of task that keep the promises. Each starts one execution, or one for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.batches import lines
from tests.integration.tasks import INPUTS
from tests.promises.attempts import Outcome, Task
from tests.promises.harness import World

_OF_A_WAIT = {"timeout", "max_outage", "output_type", "poll_interval", "human_input", "deferrable", "mode"}
_OF_A_WAIT |= {"cancel_on_kill", "cancel_on_timeout"}
_OF_BOTH = {"execution_timeout"}


class Job:
    """
    A crew that is run by one task.

    ``row_timeout`` limits the wait for one execution, and ``timeout`` that of the task.
    """

    has_rows = False

    def __init__(self, world: World, *, rows: int = 1, **options: Any) -> None:
        self.world = world
        self.rows = rows if self.has_rows else 1
        if not self.has_rows and "row_timeout" in options:
            options["timeout"] = options.pop("row_timeout")
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
        self.now.tell()

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
        return str(self.task.xcoms["crew_result"]["output"])

    @property
    def files(self) -> str:
        """The content of all files that were written."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return "".join(path.read_text() for path in files)


class Run(Job):
    def operator(self, **options: Any) -> Any:
        named: dict[str, Any] = {"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02}
        return CrewRunOperator(**named | options)


class Sensor(Job):
    """Two tasks: one starts the execution, and the other waits for it."""

    def __init__(self, world: World, **options: Any) -> None:
        self.kickoff = Task(world, lambda: self._kickoff(**self.options), task_id="kickoff")
        super().__init__(world, **options)

    @property
    def kickoff_id(self) -> Any:
        return self.kickoff.xcoms.get("return_value")

    def _kickoff(self, **options: Any) -> Any:
        own = {name: value for name, value in options.items() if name not in _OF_A_WAIT}
        return CrewKickoffOperator(task_id="kickoff", inputs=INPUTS, **own)

    def operator(self, **options: Any) -> Any:
        own = {name: value for name, value in options.items() if name in _OF_A_WAIT | _OF_BOTH}
        own["poke_interval"] = own.pop("poll_interval", 0.02)
        sensor = CrewExecutionSensor(task_id="crew", kickoff_id=self.kickoff_id, **own)
        sensor.given = sensor.given | {"kickoff_id": self._kickoff(**self.options).output}  # type: ignore[operator]
        return sensor

    def attempt(self) -> Outcome:
        if not self.kickoff_id:
            started = self.kickoff.attempt()
            if started.error:
                return started
        return self.task.attempt()

    @property
    def now(self) -> Task:
        return self.task if self.kickoff_id else self.kickoff


class Batch(Job):
    """Rows that run side by side or, if each has a time limit, one after the other."""

    has_rows = True

    def operator(self, **options: Any) -> Any:
        named = {"task_id": "crew", "result_path": str(self.folder), "poll_interval": 0.02}
        named |= {"max_active": 1} if "row_timeout" in options else {}
        inputs = [INPUTS | {"audience": f"reader {number}"} for number in range(1, self.rows)]
        given = {"inputs": [INPUTS, *inputs], **named, **options}
        return CrewBatchOperator(**given)

    def output(self, outcome: Outcome) -> Any:
        assert outcome.value["counts"]["success"] == self.rows
        return self.kept()

    def kept(self) -> str:
        return str(lines(self.folder)[0]["raw_output"])


KINDS: Mapping[str, Callable[..., Job]] = {
    "run": Run,
    "deferred run": partial(Run, deferrable=True),
    "sensor": Sensor,
    "deferred sensor": partial(Sensor, deferrable=True),
    "rescheduled sensor": partial(Sensor, mode="reschedule"),
    "batch": Batch,
    "deferred batch": partial(Batch, deferrable=True),
}
"""Those whose environment the other tests have. The tool is in tests/agents."""
