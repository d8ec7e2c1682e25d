"""Clients of both kinds that send a kickoff as the hook does, and what comes of it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tenacity

from airflow_provider_crew.client.api import retry_policy
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import Cost, CrewError, RateLimited, UncertainKickoff
from airflow_provider_crew.client.settings import ServiceSettings
from tests.async_crew import AsyncCrew
from tests.integration.clients import KICKOFF

NOT_SENT, UNCERTAIN, STARTED, LIMITED = "not sent", "uncertain", "started", "limited"


class DrainedCrew(AsyncCrew):
    """An asynchronous client whose event loop goes on until its connections are closed, as that of a triggerer."""

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.run(self._drain())
        self._runner.close()

    @staticmethod
    async def _drain() -> None:
        loop: Any = asyncio.get_running_loop()
        # One entry is the loop's own.
        until = time.monotonic() + 2
        while len(loop._selector.get_map()) > 1 and time.monotonic() < until:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.001)


CLIENTS: dict[str, Any] = {"sync": CrewClient, "async": DrainedCrew}


class Trust(NamedTuple):
    """Certificates: the file of the authority to trust, what it has issued, and what another has."""

    authority: str
    known: ssl.SSLContext
    unknown: ssl.SSLContext


class Sent(NamedTuple):
    """What came of a kickoff that is sent as the hook does."""

    outcome: str
    error: CrewError | None
    pauses: list[float]


def send(kind: Callable[[ServiceSettings], Any], settings: ServiceSettings) -> Sent:
    pauses: list[float] = []
    policy = tenacity.Retrying(**retry_policy(only_if_not_started=True), sleep=pauses.append)
    crew = kind(settings)
    try:
        assert policy(crew.kickoff, KICKOFF) == "k-1"
    except UncertainKickoff as error:
        assert error.cost is Cost.UNKNOWN  # noqa: PT017 - an outcome among others
        return Sent(UNCERTAIN, error, pauses)
    except CrewError as error:
        assert error.cost is Cost.NONE  # noqa: PT017 - an outcome among others
        return Sent(LIMITED if isinstance(error, RateLimited) else NOT_SENT, error, pauses)
    finally:
        crew.close()
    return Sent(STARTED, None, pauses)
