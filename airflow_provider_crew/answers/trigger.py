"""Trigger of a task whose crew is answered from Airflow."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async

from airflow_provider_crew.api_server import read_own_xcom
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

        end = asyncio.create_task(wait)
        try:
            while self.task_instance and self.known_question is not None and not end.done():
                is_new = await self._is_asked()
                if is_new or (self.asked and self.answer_by and time.time() >= self.answer_by):
                    self.asked = not is_new  # the receiver has deleted the request that was open
                    raise HumanInputNeeded("The crew waits for human input.", kickoff_id=self.kickoff_id)
                await asyncio.wait({end}, timeout=timing.QUESTION_LOOK)
            return await end
        finally:
            end.cancel()

    async def _is_asked(self) -> bool:
        from airflow_provider_crew.answers.question import QUESTION, question_in

        with suppress(Exception):  # the next look may succeed
            question = question_in(await sync_to_async(read_own_xcom)(self.task_instance, QUESTION))
            return question is not None and question.task_id != self.known_question
        return False
