"""Clients of both kinds, and what is sent with them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.poll import CrewPolls
from airflow_provider_crew.client.settings import ServiceSettings

TOKEN = "organization-token-4711"
INPUTS = {"topic": "harbours", "audience": "sailors"}
KICKOFF = KickoffRequest.of(INPUTS)


def kick_off(crew: CrewClient | AsyncCrew, **options: Any) -> str:
    """Kick off as the hook does: what was certainly not taken is sent again."""
    return resend(lambda: crew.kickoff(KICKOFF), only_if_not_started=True, **options)


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
