"""The asynchronous polls for tests that are not asynchronous."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.poll import CrewPolls
from airflow_provider_crew.client.settings import ServiceSettings


class AsyncCrew:
    """The synchronous client with asynchronous polls, so that one suite proves both."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._client = CrewClient(settings)
        self.inputs, self.kickoff, self.answer = self._client.inputs, self._client.kickoff, self._client.answer
        self._polls = CrewPolls(settings)
        self._runner = asyncio.Runner()

    def status(self, kickoff_id: str, **options: Any) -> Any:
        return self._runner.run(self._polls.status(kickoff_id, deadline=time.time() + 3600, **options))

    def close(self) -> None:
        self._client.close()
        self._runner.close()
