"""Trigger of a task whose crew is answered from Airflow."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from airflow_provider_crew.api_server import XCOMS, in_thread, read_own_xcom
from airflow_provider_crew.client import timing
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger


class AnswerTrigger(CrewExecutionTrigger):
    """
    Watch one execution, and fire when the crew asks a question.

    :param known_question: ID of the question that the task knows. Empty if there is none. ``None`` reports none.
    :param answer_by: Time at which an open request is closed. ``None`` leaves it open.
    """

    stored = f"{CrewExecutionTrigger.stored} known_question answer_by"

    def __init__(self, *args: Any, known_question: str | None, answer_by: float | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known_question = known_question
        self.answer_by = answer_by

    async def end_of(self, wait: Coroutine[Any, Any, Any]) -> Any:
        """Return what ends the wait. Raise HumanInputNeeded for a new question, or without a timely answer."""
        from airflow_provider_crew.client.errors import HumanInputNeeded

        if not self.task_instance or self.known_question is None:
            return await wait
        end, asking = asyncio.create_task(wait), asyncio.create_task(self._question())
        try:
            while not end.done():
                if asking.done() or (self.asked and self.answer_by and time.time() >= self.answer_by):
                    self.asked = not asking.done()  # the receiver has deleted the request that was open
                    self.closes_as = self.shown["closed"]["late"]
                    raise HumanInputNeeded("The crew waits for human input.", kickoff_id=self.kickoff_id)
                pause = timing.QUESTION_LOOK
                await asyncio.wait({end, asking}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            return await end
        finally:
            end.cancel()
            asking.cancel()

    async def _question(self) -> None:
        """Return when there is a new question. A look may hang, so only one runs at once."""
        from airflow_provider_crew.answers.question import QUESTION, Question

        while True:
            with suppress(Exception):  # the next look may succeed
                look = in_thread(XCOMS, read_own_xcom, self.task_instance, QUESTION, is_limited=False)
                question = Question.delivered(await look)
                if question and question.task_id != self.known_question:
                    return
            await asyncio.sleep(timing.QUESTION_LOOK)
