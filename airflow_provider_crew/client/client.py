"""Synchronous client, based on requests. A hook imports it at its first call, because the import is slow."""

import errno
import logging
import os
import ssl
import sys
import threading
import time
from typing import Any, Self, TypeVar

import requests
import urllib3
from requests.adapters import HTTPAdapter

from airflow_provider_crew.client.api import CrewApi, Flow, KickoffRequest, Outcome, Request
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution, Failed
from airflow_provider_crew.client.settings import (
    ServiceSettings,
    detach,
    is_caused_by,
    proxy_for,
    tls_context,
    trusted_certificates,
)

T = TypeVar("T")

# Only these prove that nothing was sent. A ProxyError does not: urllib3 raises it for a lost answer as well.
_NOT_CONNECTED = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    ssl.SSLCertVerificationError,
)
_CHUNK = 65536

_this_thread = threading.local()
# urllib3 logs malformed headers, in which a service may have repeated the token.
logging.getLogger("urllib3.connection").addFilter(lambda _: not getattr(_this_thread, "sends", False))


class _Adapter(HTTPAdapter):
    """Adapter that verifies an https proxy in front of an http crew as well. That of requests would trust any."""

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:  # noqa: ARG002
        """Verify every certificate, whatever the scheme of the crew's address."""
        super().cert_verify(conn, "https:", verify, cert)  # type: ignore[no-untyped-call,unused-ignore]


class CrewClient:
    """Client for one crew. Use it as a context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._api = CrewApi(settings)
        tls_context(settings)  # rejects unreadable certificates
        self._verify = trusted_certificates(settings) or False
        if not self._verify:  # turned off in the connection; each poll would warn
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._connect()

    def inputs(self) -> CrewInputs:
        """Return the inputs that the crew takes."""
        return self._run(self._api.inputs())

    def kickoff(self, request: KickoffRequest) -> str:
        """Send a kickoff once and return its kickoff ID. Raise UncertainKickoff if its outcome is unknown."""
        return self._run(self._api.kickoff(request))

    def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution."""
        return self._run(self._api.status(kickoff_id))

    def cancel(self, kickoff_id: str) -> Completed | Failed:
        """Stop an execution and return its end. Raise NotCancelled unless its status confirms one."""
        return self._run(self._api.cancel(kickoff_id))

    def close(self) -> None:
        """Close the kept connections."""
        self._adapter.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the client."""
        self.close()

    def _connect(self) -> None:
        self._adapter = _Adapter()
        self._process = os.getpid()

    def _run(self, flow: Flow[T]) -> T:
        outcome: Any = None
        try:
            while True:
                outcome = self._exchange(flow.send(outcome))
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            flow.close()

    def _exchange(self, request: Request) -> Outcome:
        """Send the request once. Any failure counts as sent, unless it proves that no connection was open."""
        if os.getpid() != self._process:
            self._connect()  # a forked process would read its parent's answers
        if request.starts_work:
            self.close()  # a kept connection that the peer has closed looks like a lost answer
        handled = sys.exception()
        _this_thread.sends = True
        try:
            return self._send(request)
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:  # those of requests are OSErrors
            detach(error, handled)
            # Drop the traceback, which holds the token.
            sent = not is_caused_by(error, *_NOT_CONNECTED)
            return self._api.unreachable(request, error.with_traceback(None), sent=sent)
        finally:
            _this_thread.sends = False

    def _send(self, request: Request) -> Outcome:
        prepared = requests.Request(request.method, request.url, request.headers, data=request.body).prepare()
        prepared.url = request.url  # requests would undo escapes that an unusual kickoff ID needs
        proxy, until = proxy_for(self.settings), time.monotonic() + self.settings.request_timeout
        with self._adapter.send(
            prepared,
            stream=True,
            timeout=(self.settings.connect_timeout, self.settings.request_timeout),
            verify=self._verify,
            proxies={"http": proxy, "https": proxy} if proxy else None,
        ) as response:
            most = self._api.max_bytes(response.status_code)
            body = bytearray()
            while len(body) <= most and (chunk := response.raw.read1(_CHUNK, decode_content=False)):
                body += chunk
                if time.monotonic() > until:
                    raise TimeoutError(errno.ETIMEDOUT, "the answer is incomplete")
            return self._api.received(request, response.status_code, response.headers, bytes(body))
