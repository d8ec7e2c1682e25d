"""
The engine that plays a scenario.

The status of an execution is computed from its tasks, from past calls and their times, and from the current
time. Nothing runs in the background, so thousands of executions cost nothing, and a test can move the clock.
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
    """A person's answer to the work of a task, and its time in seconds after the start."""

    task: int
    at: float
    approved: bool = True


@dataclass
class ScriptedExecution(Execution):
    """An execution that follows its scenario."""

    answers: tuple[Answered, ...] = ()
    finished_at: float | None = None
    revoked_at: float | None = None

    def standing(self, now: float) -> Standing:
        """Return the status of the execution at this time."""
        at = self._unrevoked(now)
        if self.revoked_at is not None and now >= self.revoked_at:
            since = self.revoked_at - self.started_at
            then = self._unrevoked(self.revoked_at)
            at = replace(then, over=True, error=REVOKED, waiting=False, revoked=True, since=since)
        return self._told(at)

    def answer(self, now: float, *, approved: bool, feedback: str) -> None:  # noqa: ARG002 - unused here
        """Continue with the next task, or do the work again."""
        answered = Answered(self.standing(now).done, now - self.started_at, approved)
        # Replaced instead of changed, because another thread may be reading the old tuple.
        self.answers = (*self.answers, answered)

    def finish(self, now: float) -> None:
        """End the way the scenario ends, without waiting for human input."""
        if self.finished_at is None:
            self.finished_at = now

    def revoke(self, now: float) -> None:
        """Revoke the execution, once."""
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
        """Add the texts, which are slow to render and do not affect the timing."""
        scenario = self.scenario
        tasks = scenario.tasks
        done = tuple(self._done(task) for task in tasks[: at.done])
        at = replace(at, total=len(tasks), tasks=done, error=at.error and self._text(at.error))
        if not at.over:
            current = tasks[at.done]
            at = replace(at, current=current.name, agent=current.agent)
            return self._asking(at, current) if at.waiting else at
        output = self._text(scenario.final_output())
        told = _json_object(output) if scenario.result_json is None else scenario.result_json
        return replace(at, output=output, json=told, usage=scenario.usage or None)

    def _asking(self, at: Standing, task: ScenarioTask) -> Standing:
        # The same wait always has the same ID.
        question = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.kickoff_id} {at.since}")
        return replace(at, draft=self._text(task.output), question=f"{question}")

    def _done(self, task: ScenarioTask) -> DoneTask:
        return DoneTask(task.name, task.agent, self._text(task.description), self._text(task.output), task.seconds)

    def _text(self, template: str) -> str:
        # Convert values other than text as deployments do, or so that JSON stays valid.
        return filled(template, self.inputs, text=str if self.scenario.dialect == "deployed" else json.dumps)


class Scripted:
    """The engine itself. It has no state, because each execution knows its scenario."""

    def received(
        self, scenario: Scenario, given: dict[str, JsonValue], earlier: Execution | None
    ) -> dict[str, JsonValue]:
        """Return the crew's inputs. A flow adds them to a state, an earlier one or an empty one."""
        return scenario.received(given, earlier.inputs if earlier else None)

    def begin(self, kickoff: Kickoff) -> Execution:
        """Start an execution of the scenario."""
        scenario = kickoff.scenario.for_inputs(kickoff.inputs)
        return ScriptedExecution(**{**vars(kickoff), "scenario": scenario, "statuses": list(scenario.statuses)})


def standing(tasks: Sequence[ScenarioTask], elapsed: float, answers: Sequence[Answered] = ()) -> Standing:
    """Return the status after this many seconds. A task without seconds is completed by the first poll."""
    begin = worked = waited = 0.0
    for done, task in enumerate(tasks):
        approved, heard = False, None
        while not approved:
            end = begin + task.seconds
            if elapsed < end:
                return Standing(done, over=False, seconds=elapsed - waited, since=begin)
            worked += task.seconds
            if task.error is not None:
                return Standing(done, over=True, seconds=worked, error=task.error, since=end)
            later = (each for each in answers if each.task == done and each.at >= end and each is not heard)
            heard = next(later, None)
            begin = heard.at if heard else end + task.patience
            if elapsed < begin:
                return Standing(done, over=False, seconds=worked, waiting=True, since=end)
            waited += begin - end
            approved = heard is None or heard.approved
    return Standing(len(tasks), over=True, seconds=worked, since=begin)


def filled(template: str, inputs: Mapping[str, JsonValue], text: Callable[[JsonValue], str] = json.dumps) -> str:
    """Fill the inputs into a template. Any other brace stays as it is."""

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
