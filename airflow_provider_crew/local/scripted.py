"""
The engine that recites a scenario.

Where an execution stands follows from its tasks, from what was done to it and when, and from the time. Nothing
runs in the background, so thousands cost nothing and a test can move the clock.
"""

import json
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from airflow_provider_crew.local.executions import REVOKED, DoneTask, Execution, Kickoff, Standing
from airflow_provider_crew.local.scenario import Scenario, ScenarioTask

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Answered:
    """What a person said to the work of a task, and how many seconds after the start."""

    task: int
    at: float
    approved: bool = True


@dataclass
class ScriptedExecution(Execution):
    """An execution that goes as its scenario says."""

    answers: tuple[Answered, ...] = ()
    finished_at: float | None = None
    revoked_at: float | None = None

    def standing(self, now: float) -> Standing:
        """Tell where the execution stands at this time."""
        at = self._unrevoked(now)
        if self.revoked_at is not None and now >= self.revoked_at:
            since = self.revoked_at - self.started_at
            then = self._unrevoked(self.revoked_at)
            at = replace(then, over=True, error=REVOKED, waiting=False, revoked=True, since=since)
        return self._told(at)

    def answer(self, now: float, *, approved: bool, feedback: str) -> None:  # noqa: ARG002 - nobody reads it here
        """Go on with the next task, or do the work again."""
        answered = Answered(self.standing(now).done, now - self.started_at, approved)
        # Replaced, since another thread may be looking at the old ones.
        self.answers = (*self.answers, answered)

    def finish(self, now: float) -> None:
        """Be over the way the scenario ends, without waiting for people."""
        if self.finished_at is None:
            self.finished_at = now

    def revoke(self, now: float) -> None:
        """Be revoked, once."""
        if self.revoked_at is None:
            self.revoked_at = now

    def _unrevoked(self, now: float) -> Standing:
        if self.finished_at is None or now < self.finished_at:
            return self._unhurried(now)
        then = self._unhurried(self.finished_at)
        if then.over:
            return then
        return replace(self._unhurried(math.inf), since=self.finished_at - self.started_at)

    def _unhurried(self, now: float) -> Standing:
        return standing(self.scenario.tasks, now - self.started_at, self.answers)

    def _told(self, at: Standing) -> Standing:
        """Add the texts, which take time and no part in what happens when."""
        scenario = self.scenario
        tasks = scenario.tasks
        at = replace(at, total=len(tasks), tasks=tuple(self._done(task) for task in tasks[: at.done]))
        if not at.over:
            current = tasks[at.done]
            at = replace(at, current=current.name, agent=current.agent)
            return self._asking(at, current) if at.waiting else at
        output = self._text(scenario.final_output())
        told = _json_object(output) if scenario.result_json is None else scenario.result_json
        return replace(at, output=output, json=told, usage=scenario.usage or None)

    def _asking(self, at: Standing, task: ScenarioTask) -> Standing:
        # The same wait has the same id whenever it is looked at.
        question = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.kickoff_id} {at.since}")
        return replace(at, draft=self._text(task.output), question=f"{question}")

    def _done(self, task: ScenarioTask) -> DoneTask:
        return DoneTask(task.name, task.agent, self._text(task.description), self._text(task.output), task.seconds)

    def _text(self, template: str) -> str:
        # What is no text is put into one as deployments do it, or so that JSON stays JSON.
        return filled(template, self.inputs, text=str if self.scenario.dialect == "deployed" else json.dumps)


class Scripted:
    """The engine itself, which has nothing of its own: each execution knows the scenario that it plays."""

    def received(
        self, scenario: Scenario, given: dict[str, JsonValue], earlier: Execution | None
    ) -> dict[str, JsonValue]:
        """Return what becomes of the inputs. A flow puts them on top of a state, an earlier one or empty."""
        return scenario.received(given, earlier.inputs if earlier else None)

    def begin(self, kickoff: Kickoff) -> Execution:
        """Begin the story."""
        return ScriptedExecution(**{**vars(kickoff), "statuses": list(kickoff.scenario.statuses)})


def standing(tasks: Sequence[ScenarioTask], elapsed: float, answers: Sequence[Answered] = ()) -> Standing:
    """Tell how far the tasks are after so many seconds. A task without seconds is done at the first poll."""
    begin = worked = waited = 0.0
    for done, task in enumerate(tasks):
        approved = False
        while not approved:
            end = begin + task.seconds
            if elapsed < end:
                return Standing(done, over=False, seconds=elapsed - waited, since=begin)
            worked += task.seconds
            if task.error is not None:
                return Standing(done, over=True, seconds=worked, error=task.error, since=end)
            heard = next((each for each in answers if each.task == done and each.at >= end), None)
            begin = heard.at if heard else end + task.patience
            if elapsed < begin:
                return Standing(done, over=False, seconds=worked, waiting=True, since=end)
            waited += begin - end
            approved = heard is None or heard.approved
    return Standing(len(tasks), over=True, seconds=worked, since=begin)


def filled(template: str, inputs: Mapping[str, JsonValue], text: Callable[[JsonValue], str] = json.dumps) -> str:
    """Put the inputs into a template; what is not an input stays as it is written."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in inputs:
            return match[0]
        given = inputs[name]
        return given if isinstance(given, str) else text(given)

    return _PLACEHOLDER.sub(value, template)


def _json_object(output: str) -> JsonValue:
    try:
        found: JsonValue = json.loads(output)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
