"""A client that sends a kickoff as the hook does, and what comes of it."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import Cost, CrewError, RateLimited, UncertainKickoff
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import KICKOFF

NOT_SENT, UNCERTAIN, STARTED, LIMITED = "not sent", "uncertain", "started", "limited"


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


def send(settings: ServiceSettings) -> Sent:
    pauses: list[float] = []
    crew = CrewClient(settings)
    try:
        assert resend(lambda: crew.kickoff(KICKOFF), only_if_not_started=True, sleep=pauses.append) == "k-1"
    except UncertainKickoff as error:
        assert error.cost is Cost.UNKNOWN  # noqa: PT017 - an outcome among others
        return Sent(UNCERTAIN, error, pauses)
    except CrewError as error:
        assert error.cost is Cost.NONE  # noqa: PT017 - an outcome among others
        return Sent(LIMITED if isinstance(error, RateLimited) else NOT_SENT, error, pauses)
    finally:
        crew.close()
    return Sent(STARTED, None, pauses)
