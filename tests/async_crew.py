"""The asynchronous client for tests that are not."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow_provider_crew.client.async_client import AsyncCrewClient
from airflow_provider_crew.client.settings import ServiceSettings


class AsyncCrew:
    """The asynchronous client behind the methods of the synchronous one, so that one suite proves both."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._runner = asyncio.Runner()
        try:
            self._client = self._runner.run(self._open(settings))
        except BaseException:
            self._runner.close()
            raise

    @staticmethod
    async def _open(settings: ServiceSettings) -> AsyncCrewClient:
        return AsyncCrewClient(settings)

    def inputs(self, **options: Any) -> Any:
        return self._runner.run(self._client.inputs(**options))

    def kickoff(self, *args: Any, **options: Any) -> Any:
        return self._runner.run(self._client.kickoff(*args, **options))

    def status(self, kickoff_id: str, **options: Any) -> Any:
        asked: Any = self._client.status(kickoff_id, **options)
        return self._runner.run(asked)

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()
