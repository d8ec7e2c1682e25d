"""Synchronous client, based on requests. A hook imports it at its first call, because the import is slow."""

import errno
import http.client
import logging
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from airflow_provider_crew.client.api import (
    CrewApi,
    Done,
    Flow,
    KickoffRequest,
    Outcome,
    Request,
    advance,
    most_bytes,
    received,
)
from airflow_provider_crew.client.models import CrewInputs, Execution
from airflow_provider_crew.client.settings import (
    ServiceSettings,
    connect_timeout,
    proxy_for,
    root_cause,
    tls_context,
    trusted_certificates,
)

T = TypeVar("T")

# The exceptions of requests are subclasses of OSError.
_TRANSPORT_FAILURES = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)
_CHUNK = 65536

_this_thread = threading.local()
# urllib3 logs malformed headers, in which a service may have repeated the token.
logging.getLogger("urllib3.connection").addFilter(lambda _: not getattr(_this_thread, "exchanges", False))


class CrewClient:
    """Client for one crew. Use it as a context manager, or close it."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._api = CrewApi(settings)
        tls_context(settings)  # rejects unreadable certificates
        self._verify = trusted_certificates(settings) or False
        self._open_transport()

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
        self._transport.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the client."""
        self.close()

    def _open_transport(self) -> None:
        self._transport = _Transport(proxy_for(self.settings))
        self._process = os.getpid()

    def _run(self, flow: Flow[T]) -> T:
        try:
            step = advance(flow, None)
            while not isinstance(step, Done):
                step = advance(flow, self._exchange(step))
        finally:
            flow.close()
        return cast("T", step.value)

    def _exchange(self, request: Request) -> Outcome:
        """Connect, then send the request once. Only a failure to connect proves that nothing was sent."""
        if os.getpid() != self._process:
            self._open_transport()  # a forked process would read its parent's answers
        if request.starts_work:
            self.close()  # a kept connection that the peer has closed looks like a lost answer
        until, sent = time.monotonic() + self.settings.request_timeout, False
        # An earlier timeout was raised by a signal handler of the caller.
        earliest_timeout = time.monotonic() + connect_timeout(self.settings)
        _this_thread.exchanges = True
        try:
            with self._transport.connection(request, connect_timeout(self.settings), self._verify) as connection:
                sent = True
                return self._send(request, connection, until)
        except _TRANSPORT_FAILURES as error:
            cause = root_cause(error)
            if type(cause) is TimeoutError and cause.errno is None and time.monotonic() < earliest_timeout:
                raise cause from None
            # Drop the traceback, which holds the token.
            return self._api.unreachable(request, error.with_traceback(None), sent=sent)
        finally:
            _this_thread.exchanges = False

    def _send(self, request: Request, connection: Any, until: float) -> Outcome:
        connection.timeout = self.settings.request_timeout
        connection.sock.settimeout(connection.timeout)
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):  # it may have answered already
            connection.request(
                request.method,
                self._transport.target(request),
                request.body,
                {**request.headers, **self._transport.forwarding_headers(request)},
                preload_content=False,
                decode_content=False,
            )
        response = connection.getresponse()
        most = most_bytes(response.status)
        body = bytearray()
        while chunk := response.read1(_CHUNK, decode_content=False):
            body += chunk
            if len(body) > most:
                connection.close()
                break
            if time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "the answer is incomplete")
        return received(request, response.status, response.headers, bytes(body), most)


class _Transport(HTTPAdapter):
    """Connections kept by requests: through a proxy, with TLS, and known to be open."""

    def __init__(self, proxy: str | None) -> None:
        super().__init__()
        self._proxies = {"http": proxy, "https": proxy} if proxy else {}

    @contextmanager
    def connection(self, request: Request, seconds: float, verify: str | bool) -> Iterator[Any]:  # noqa: FBT001
        """Provide an open connection and keep it unless the block fails. Nothing is sent before that."""
        prepared = requests.Request(request.method, request.url).prepare()
        pool: Any = self.get_connection_with_tls_context(prepared, verify, proxies=self._proxies)
        # Verify an https proxy in front of an http crew as well; requests would do so for https crews only.
        self.cert_verify(pool, "https:", verify, None)  # type: ignore[no-untyped-call,unused-ignore]
        connection = pool._get_conn()  # noqa: SLF001 - urllib3 has no public way to connect before a request
        try:
            if connection.is_closed:
                connection.timeout = seconds
                if self._proxies and request.url.startswith("https:"):
                    pool._prepare_proxy(connection)  # noqa: SLF001 - sends CONNECT
                else:
                    connection.connect()
            yield connection
        except BaseException:
            connection.close()
            raise
        pool._put_conn(connection)  # noqa: SLF001

    def target(self, request: Request) -> str:
        """Return the request target: the path, or the full URL for a forwarding proxy."""
        if self._forwards(request):
            return request.url
        return request.url[len(urlsplit(request.url)._replace(path="", query="").geturl()) :]

    def forwarding_headers(self, request: Request) -> dict[str, str]:
        """Return the proxy's credentials if it forwards requests. A tunneling proxy receives them with CONNECT."""
        return self.proxy_headers(self._proxies["http"]) if self._forwards(request) else {}

    def _forwards(self, request: Request) -> bool:
        return bool(self._proxies) and request.url.startswith("http:")
