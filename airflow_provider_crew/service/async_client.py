"""The asynchronous client: the same methods and results as the synchronous one."""

from importlib import import_module
from typing import Self

from airflow_provider_crew.service.models import CrewInputs, Execution
from airflow_provider_crew.service.network import tls_context
from airflow_provider_crew.service.payload import KickoffRequest
from airflow_provider_crew.service.settings import ServiceSettings


class AsyncCrewClient:
    """
    Talks to one crew from one event loop. Use it as an asynchronous context manager, or close it.

    :param settings: the crew
    :param largest: the most that is read of an answer, in bytes, by one who has no use for more
    """

    def __init__(self, settings: ServiceSettings, *, largest: int | None = None) -> None:
        # Not above: whoever only names a client does not pay for what sends.
        from airflow_provider_crew.service.async_calls import AsyncCalls

        self.settings = settings
        self.largest = largest
        self._calls = AsyncCalls(settings, largest)

    async def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        return await self._calls.inputs()

    async def kickoff(self, request: KickoffRequest) -> str:
        """
        Send a kickoff, and return its kickoff id.

        Where it cannot be known whether it started an execution, UncertainKickoff is raised.
        """
        return await self._calls.kickoff(request)

    async def status(self, kickoff_id: str) -> Execution:
        """Ask how an execution is doing."""
        return await self._calls.status(kickoff_id)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._calls.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the client."""
        await self.close()


def load(settings: ServiceSettings) -> None:
    """Load what a client needs. That takes long enough to hold up an event loop, so it is done in a thread."""
    import_module("airflow_provider_crew.service.async_calls")
    tls_context(settings)
