"""The synchronous client."""

from collections.abc import Coroutine
from typing import Any, Self, TypeVar, cast

from airflow_provider_crew.service.models import CrewInputs, Execution
from airflow_provider_crew.service.payload import KickoffRequest
from airflow_provider_crew.service.settings import ServiceSettings

T = TypeVar("T")


class CrewClient:
    """Talks to one crew. Use it as a context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        # Not above: whoever only names a client does not pay for what sends.
        from airflow_provider_crew.service.blocking_calls import BlockingCalls

        self.settings = settings
        self._calls = BlockingCalls(settings)

    def inputs(self) -> CrewInputs:
        """Ask which inputs the crew takes."""
        return _end_of(self._calls.inputs())

    def kickoff(self, request: KickoffRequest) -> str:
        """
        Send a kickoff, and return its kickoff id.

        Where it cannot be known whether it started an execution, UncertainKickoff is raised.
        """
        return _end_of(self._calls.kickoff(request))

    def status(self, kickoff_id: str) -> Execution:
        """Ask how an execution is doing."""
        return _end_of(self._calls.status(kickoff_id))

    def close(self) -> None:
        """Close the kept connections."""
        self._calls.transport.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the client."""
        self.close()


def _end_of(call: Coroutine[Any, Any, T]) -> T:
    """Run a call that blocks, and so never waits for an event loop."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("a blocking call waits for an event loop")
