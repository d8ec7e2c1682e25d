"""Both clients behind one interface, and what is sent with them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from airflow_provider_crew.service.async_client import AsyncCrewClient
from airflow_provider_crew.service.client import CrewClient
from airflow_provider_crew.service.settings import ServiceSettings

TOKEN = "organization-token-4711"
INPUTS = {"topic": "harbours", "audience": "sailors"}


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
        return self._runner.run(self._client.status(kickoff_id, **options))

    def idle(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


def let_pass(crew: CrewClient | AsyncCrew, seconds: float) -> None:
    """Let time pass where the connections of a client live."""
    if isinstance(crew, AsyncCrew):
        crew.idle(seconds)
    else:
        time.sleep(seconds)


class Connect:
    """Opens clients of one kind, and closes them after the test."""

    def __init__(self, kind: type[CrewClient | AsyncCrew]) -> None:
        self._kind = kind
        self._opened: list[CrewClient | AsyncCrew] = []

    def __call__(self, address: str, **settings: Any) -> Any:
        client = self._kind(ServiceSettings(address=address, **{"token": TOKEN, **settings}))
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.close()
