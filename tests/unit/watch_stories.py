"""A watch of one execution for the unit tests, fed with outcomes at given times."""

from __future__ import annotations

import json
import logging
from typing import Any

from airflow_provider_crew.client.errors import CallError, InvalidSettings, Unreachable
from airflow_provider_crew.client.models import Completed, Progress, Running
from airflow_provider_crew.client.watch import Step, Watch, WatchRules, WatchState
from tests.unit.crew_builders import KICKOFF_ID, NOW

DOWN = Unreachable("The crew did not answer.")
SUCCESS = Completed(status="completed", kickoff_id=KICKOFF_ID, output="text", execution_time=4210.0)


def running(
    task: str | None = None,
    done: int | None = None,
    *,
    total: int | None = 3,
    word: str = "running",
    **fields: Any,
) -> Running:
    unit = fields.pop("unit", "task")
    progress = None if done is None else Progress(completed=done, total=total, unit=unit)
    return Running(
        status="running", kickoff_id=KICKOFF_ID, word=word, current_task=task, progress=progress, **fields
    )


# A story leaves out most polls, so hours may lie between two of them.
SKIPS_POLLS = 7 * 24 * 3600.0

RESEARCH, WRITING = running("research_task", 0), running("writing_task", 1)


class Story:
    """
    Watch of one execution, fed with outcomes at given times.

    :param carried: Whether each poll is in a process of its own.
    """

    def __init__(
        self,
        *,
        carried: bool = False,
        dice: float = 0.5,
        timeout: float = 24 * 3600.0,
        request_timeout: float = SKIPS_POLLS,
        memory: WatchState | None = None,
        **rules: Any,
    ) -> None:
        self.time = 0.0
        self.looks = 0
        self._carried, self._dice, self._request_timeout = carried, dice, request_timeout
        self._rules = WatchRules(deadline=NOW + timeout, **{"poll_interval": 10.0} | rules)
        self.watch = self._new(memory)

    def _new(self, memory: WatchState | None) -> Watch:
        watch = Watch(
            KICKOFF_ID, self._rules, clock=lambda: NOW + self.time, random=lambda: self._dice, memory=memory
        )
        watch.request_timeout = self._request_timeout
        return watch

    def next_process(self) -> None:
        """Carry the watch to another process, if each poll has its own."""
        if self._carried:
            kept = json.loads(json.dumps(self.watch.memory.carried(), allow_nan=False))
            self.watch = self._new(WatchState.recalled(kept))

    def see(self, outcome: Any, *, at: float | None = None, after: float = 0.0) -> Step:
        self.time = (self.time if at is None else at) + after
        self.looks += 1
        self.next_process()
        return (
            self.watch.on_error(outcome)
            if isinstance(outcome, CallError | InvalidSettings)
            else self.watch.on_status(outcome)
        )

    def see_until_the_end(self, outcome: Any) -> Step:
        """Poll as often as the steps ask for, until one of them ends the watch."""
        while True:
            step = self.see(outcome)
            if step.error or step.completed:
                return step
            assert step.poll_again_in > 0
            self.time += step.poll_again_in


def logged(watch: Watch) -> list[str]:
    """
    Return the beginning of each log line about a poll, or ``warning``.

    The lines of one warning count once, because their number depends on the wording.
    """
    carried: list[str] = []
    for level, line in watch.lines:
        assert len(line) <= 300 or level == logging.WARNING
        text = "warning" if level == logging.WARNING else line.partition(".")[0][:60]
        carried += [] if carried[-1:] == [text] == ["warning"] else [text]
    return carried
