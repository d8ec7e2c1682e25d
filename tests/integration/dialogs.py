"""A task, its crew, the receiver of the crew's questions, and a user who answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from pydantic import PrivateAttr

from airflow_provider_crew.answers.people import KEY
from airflow_provider_crew.answers.question import ASKED
from airflow_provider_crew.local import Scenario, ScenarioTask
from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.faults.kinds import HangFault
from airflow_provider_crew.triggers.events import STOP_WAITING
from tests.integration.operators import run
from tests.integration.question_receiver import Questions
from tests.integration.tasks import Task, TaskStateStore, WatchedService

_times = count()


def asking(*drafts: str, **options: Any) -> Scenario:
    """Return a deployed crew that asks about each draft, and then completes."""
    asks = [ScenarioTask(name=text, output=text, human_input=True) for text in drafts]
    last = ScenarioTask(name="last", seconds=3600, output="The end")
    return Scenario(inputs=(), dialect="deployed", tasks=(*asks, last), **options)


class AfterWebhook(HangFault):
    """Answer a poll only when the webhook of the crew's question has arrived, as it does long before a poll."""

    _has_arrived: Callable[[str], bool] = PrivateAttr()

    async def happen(self, exchange: Exchange) -> None:
        while not self._has_arrived(exchange.request.path.rpartition("/")[2]):
            await exchange.pause(0.01)
        await exchange.send(await exchange.take())


class Dialog:
    """A task, its crew, the receiver of the crew's questions, and a user."""

    def __init__(self, crew: WatchedService, questions: Questions) -> None:
        self.crew = crew
        self.questions = questions
        self.begin()

    def begin(self) -> None:
        """Begin with another task, and forget the one before. Its crew has kept only the executions."""
        self.questions.reset({})
        self.crew.faults.clear()
        self.crew.requests.clear()
        self.store = TaskStateStore()
        self.requests: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.option = STOP_WAITING
        """Option of the request to wait for. A notice has only this one."""
        self.task = self.task_with()
        polls = AfterWebhook(on="status", for_seconds=math.inf)
        polls._has_arrived = self.has_arrived
        self.crew.faults.add(polls)

    def has_arrived(self, kickoff_id: str) -> bool:
        """Return whether the receiver has got the question of an execution, if it waits."""
        now = self.crew.execution(kickoff_id).standing(self.crew.now())
        return not now.waiting or self.crew.scenario.is_flow or now.question in self.questions.arrived

    def task_with(self, **options: Any) -> Task:
        """Make a task."""
        given = {"deferrable": True, "answer_in_airflow": True, **options}
        self.task = Task(lambda: run(**given), store=self.store, retries=1)
        self.task.ti.xcoms = self.questions.xcoms
        return self.task

    def opened(self, _ti: Any, subject: str, body: str, options: Any, **more: Any) -> None:
        self.requests.append({"subject": subject, "body": body, "options": list(options), **more})

    def asked(self, waiting: TaskDeferred | None = None) -> TaskDeferred:
        """Run the task until it has opened another request, and is deferred again."""
        before = len(self.requests)
        waiting = waiting or self.task.deferred()
        while not any(self.option in request["options"] for request in self.requests[before:]):
            waiting = self.resumed(waiting, self.task.event_of(waiting))
        return waiting

    def resumed(self, waiting: TaskDeferred, event: dict[str, Any]) -> TaskDeferred:
        """Resume the task, and return its next deferral."""
        with pytest.raises(TaskDeferred) as again:
            self.task.resume(waiting, event)
        return again.value

    def chosen(self, waiting: TaskDeferred, option: str, text: Any = None, at: str = "") -> TaskDeferred:
        """Let a user answer the open request."""
        event = chosen(option, text, at)
        if self.asks:
            event["params_input"][ASKED] = self.asks
        return self.resumed(waiting, event)

    @property
    def asks(self) -> str:
        """ID of the question in the last request, as Airflow's page returns it. Empty if it names none."""
        return str(self.requests[-1].get("params", {}).get(ASKED, {}).get("value", "")) if self.requests else ""

    def ended(self, waiting: TaskDeferred) -> Any:
        """Let the crew complete, unless it waits, and run the task to its end."""
        execution = self.crew.kickoffs[-1]
        if not execution.standing(self.crew.now()).waiting:
            self.crew.finish(execution.kickoff_id)
        return self.task.finish(waiting)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The bodies that the crew has received."""
        return [request.json for request in self.crew.requests.on("resume")]

    @property
    def kept(self) -> dict[str, Any]:
        return self.store.get(KEY)


def chosen(option: str, text: Any = None, at: str = "") -> dict[str, Any]:
    """Return the event with which Airflow resumes a task after an answer."""
    return {
        "chosen_options": [option],
        "params_input": {"text": text},
        "responded_by_user": {"id": "1", "name": "Ada"},
        "responded_at": at or f"{datetime.now(UTC)} {next(_times)}",
    }
