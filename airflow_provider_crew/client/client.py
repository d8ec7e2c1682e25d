"""Synchronous client, based on urllib3. A hook imports it at its first call, because the import is slow."""

import errno
import http.client
import logging
import os
import ssl
import threading
import time
from contextlib import suppress
from typing import Any, Self, TypeVar

import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from airflow_provider_crew.client.api import CrewApi, Flow, KickoffRequest, Outcome, Request
from airflow_provider_crew.client.models import CrewInputs, Execution
from airflow_provider_crew.client.settings import NotConnected, ServiceSettings, causes_of, proxy_for, tls_context

T = TypeVar("T")

_TRANSPORT_FAILURES = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError, NotConnected)
_CHUNK = 65536

# Settings of the client whose request this thread is sending.
_sending = threading.local()
# urllib3 logs malformed headers, in which a service may have repeated the token.
logging.getLogger("urllib3.connection").addFilter(lambda _: not getattr(_sending, "settings", None))


class CrewClient:
    """Client for one crew. Use it as a context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._api = CrewApi(settings)
        self._open_pools()

    def inputs(self) -> CrewInputs:
        """Return the inputs that the crew takes."""
        return self._run(self._api.inputs())

    def kickoff(self, request: KickoffRequest) -> str:
        """Send a kickoff once and return its kickoff ID. Raise UncertainKickoff if its outcome is unknown."""
        return self._run(self._api.kickoff(request))

    def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution."""
        return self._run(self._api.status(kickoff_id))

    def close(self) -> None:
        """Close the kept connections."""
        self._pools.clear()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the client."""
        self.close()

    def _open_pools(self) -> None:
        tls = tls_context(self.settings)
        options: dict[str, Any] = {"maxsize": 10, "ssl_context": tls, "cert_reqs": None if tls else "CERT_NONE"}
        if proxy := proxy_for(self.settings):
            credentials = HTTPAdapter().proxy_headers(proxy)
            self._pools: urllib3.PoolManager = urllib3.ProxyManager(
                proxy, proxy_headers=credentials, proxy_ssl_context=tls, **options
            )
        else:
            self._pools = urllib3.PoolManager(**options)
        self._pools.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
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
            self._open_pools()  # a forked process would read its parent's answers
        if request.starts_work:
            self.close()  # a kept connection that the peer has closed looks like a lost answer
        # An earlier timeout was raised by a signal handler of the caller.
        earliest_timeout = time.monotonic() + self.settings.connect_timeout
        _sending.settings = self.settings
        try:
            return self._send(request)
        except _TRANSPORT_FAILURES as error:
            cause = causes_of(error)[-1]
            if type(cause) is TimeoutError and cause.errno is None and time.monotonic() < earliest_timeout:
                raise cause from None
            # Drop the traceback, which holds the token.
            return self._api.unreachable(request, error.with_traceback(None))
        finally:
            _sending.settings = None

    def _send(self, request: Request) -> Outcome:
        seconds = self.settings.request_timeout
        until = time.monotonic() + seconds
        with self._pools.urlopen(
            request.method,
            request.url,
            body=request.body,
            headers=request.headers,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=self.settings.connect_timeout, read=seconds),
            preload_content=False,
            decode_content=False,
        ) as response:
            most = self._api.max_bytes(response.status)
            body = bytearray()
            while len(body) <= most and (chunk := response.read1(_CHUNK, decode_content=False)):
                body += chunk
                if time.monotonic() > until:
                    raise TimeoutError(errno.ETIMEDOUT, "the answer is incomplete")
            return self._api.received(request, response.status, response.headers, bytes(body))


class _Connection(HTTPConnection):
    """Connection that distinguishes a failure to connect, directly or through a proxy, from later failures."""

    def connect(self) -> None:
        """Connect, with the connect timeout. From then on, the timeout of requests applies."""
        try:
            super().connect()
        except _TRANSPORT_FAILURES as error:
            raise NotConnected from error
        self.sock.settimeout(_sending.settings.request_timeout)

    def request(self, *args: Any, **options: Any) -> None:
        """Send the request. The service may answer and close the connection before it has read the whole body."""
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            super().request(*args, **options)


class _TLSConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TLSConnection
