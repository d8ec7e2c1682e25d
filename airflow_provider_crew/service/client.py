"""The synchronous client."""

from __future__ import annotations

import http.client
import logging
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, cast

import requests
import tenacity
import urllib3

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.deadline import DeadlineAdapter, Exchange
from airflow_provider_crew.service.network import (
    CHUNK,
    connect_timeout,
    is_trusted,
    proxy_for,
    reason_for,
    timed_out,
    tls_context,
    trusted_certificates,
)
from airflow_provider_crew.service.repeating import repeating
from airflow_provider_crew.service.wire import (
    INTERRUPTED_KICKOFF,
    MAX_ANSWER_BYTES,
    Conversation,
    CrewWire,
    Request,
    advance,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from airflow_provider_crew.service.errors import CallError
    from airflow_provider_crew.service.models import Completed, CrewInputs, Failed, Paused, Running
    from airflow_provider_crew.service.payload import KickoffRequest
    from airflow_provider_crew.service.settings import ServiceSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

_TRANSPORT_FAILURES = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)


class CrewClient:
    """Talks to one crew. Use it as a context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._wire = CrewWire(settings)
        tls_context(settings)  # certificates that cannot be used are refused here, and in words
        self._adapter = DeadlineAdapter(proxy_for(settings))

    def inputs(self, *, repeat: bool = True, wake_up_within: float = 0.0) -> CrewInputs:
        """
        Ask which inputs the crew takes; without ``repeat`` just once, for someone who looks on.

        A crew that may be waking up after a quiet period is given ``wake_up_within`` seconds.
        """
        if not repeat:
            return self._converse(self._wire.inputs())
        return self._repeated("GET /inputs", self._wire.inputs, wake_up_within=wake_up_within)

    def kickoff(self, request: KickoffRequest) -> str:
        """
        Send a kickoff once, and return its kickoff id.

        Where it cannot be known whether it started an execution, UncertainKickoff is raised.
        """
        return self._converse(self._wire.kickoff(request))

    def status(self, kickoff_id: str, *, repeat: bool = True) -> Running | Paused | Completed | Failed:
        """Ask how an execution is doing; without ``repeat`` just once, for a caller that polls again itself."""
        if not repeat:
            return self._converse(self._wire.status(kickoff_id))
        return self._repeated("GET status", lambda: self._wire.status(kickoff_id))

    def close(self) -> None:
        """Close the kept connections."""
        self._adapter.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def _repeated(
        self, call: str, conversation: Callable[[], Conversation[T]], *, wake_up_within: float = 0.0
    ) -> T:
        policy = tenacity.Retrying(**repeating(call, wake_up_within=wake_up_within))
        return policy(lambda: self._converse(conversation()))

    def _converse(self, conversation: Conversation[T]) -> T:
        request = next(conversation)
        while True:
            outcome = self._exchange(request)
            try:
                request = advance(conversation, outcome)
            except StopIteration as end:
                return cast("T", end.value)

    def _exchange(self, request: Request) -> Answer | CallError:
        running = Exchange(partial(self._send, request))
        try:
            return running.run(self.settings.request_timeout)
        except _TRANSPORT_FAILURES as error:
            # Returned, not raised from here: a traceback through the transport could show the token.
            reason = reason_for(error, connected=running.sent, settings=self.settings)
            return self._wire.unreachable(
                request, reason, sent=running.sent, trusted=is_trusted(error), timed_out=timed_out(error)
            )
        except BaseException:
            if request.starts_work and running.sent:
                log.warning(INTERRUPTED_KICKOFF)
            raise

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            # No compression, and none undone: a small answer could become one that does not fit into memory.
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {self.settings.token}",
            "User-Agent": self.settings.user_agent,
        }
        return headers if request.body is None else headers | {"Content-Type": "application/json"}

    def _send(self, request: Request) -> Answer | CallError:
        if not request.starts_work:
            return self._send_by(self._adapter, request)
        # A kept connection that the peer has closed ends in a reset, which looks like a lost answer.
        with closing(DeadlineAdapter(proxy_for(self.settings))) as fresh:
            return self._send_by(fresh, request)

    def _send_by(self, adapter: DeadlineAdapter, request: Request) -> Answer | CallError:
        # No session, which would follow redirects, keep cookies and read a .netrc.
        url = self.settings.address + request.path
        prepared = requests.Request(request.method, url, self._headers(request), data=request.body).prepare()
        prepared.url = url  # preparing has undone escapes that an odd kickoff id needs
        response = adapter.send(
            prepared,
            stream=True,
            timeout=(connect_timeout(self.settings), self.settings.request_timeout),
            verify=trusted_certificates(self.settings) or False,
            proxies=adapter.proxies,
        )
        with response:
            body = _read(response)
            if body is None:
                return self._wire.too_large(request, response.status_code)
            return Answer.received(
                response.status_code,
                response.headers,
                body,
                secrets=(self.settings.token, *request.secrets),
                now=time.time(),
            )


def _read(response: requests.Response) -> bytes | None:
    """Return the body as it came, None when it is over the limit."""
    body = bytearray()
    for chunk in response.raw.stream(CHUNK, decode_content=False):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            return None
    return bytes(body)
