"""The synchronous client."""

import http.client
from collections.abc import Coroutine
from functools import partial
from typing import Any, Self, TypeVar, cast

import requests
import urllib3

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.deadline import Exchange, NotedTransport
from airflow_provider_crew.service.models import CrewInputs, Execution
from airflow_provider_crew.service.network import connect_timeout, proxy_for, tls_context, trusted_certificates
from airflow_provider_crew.service.payload import KickoffRequest
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.wire import MAX_ANSWER_BYTES, CrewCalls, Outcome, Request, too_large

T = TypeVar("T")

# What requests itself raises is an OSError.
_TRANSPORT_FAILURES = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)


class CrewClient:
    """Talks to one crew. Use it as a context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._calls = _BlockingCalls(settings)

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


class _BlockingCalls(CrewCalls):
    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(settings)
        tls_context(settings)  # certificates that cannot be used are refused here, and in words
        self.transport = NotedTransport(proxy_for(settings))

    async def _exchange(self, request: Request) -> Outcome:
        if request.starts_work:
            self.transport.close()
        exchange = Exchange(partial(self._send, request))
        try:
            return exchange.outcome(self.settings.request_timeout)
        except _TRANSPORT_FAILURES as error:
            return self._unreachable(request, error, sent=exchange.sent)

    def _send(self, request: Request) -> Outcome:
        # No session, which would follow redirects, keep cookies and read a .netrc.
        prepared = requests.Request(request.method, request.url, request.headers, data=request.body).prepare()
        prepared.url = request.url  # preparing has undone escapes that an odd kickoff id needs
        with self.transport.send(
            prepared,
            stream=True,
            timeout=(connect_timeout(self.settings), self.settings.request_timeout),
            verify=trusted_certificates(self.settings) or False,
            proxies=self.transport.proxies,
        ) as response:
            body = bytearray()
            for chunk in response.raw.stream(decode_content=False):
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    return too_large(request, response.status_code, MAX_ANSWER_BYTES)
            return Answer(response.status_code, response.headers, bytes(body), request.secrets)
