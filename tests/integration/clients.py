"""Clients of both kinds, and what is sent with them."""

from __future__ import annotations

from typing import Any

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.settings import ServiceSettings
from tests.async_crew import AsyncCrew

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
