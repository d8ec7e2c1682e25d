"""Synchronous client, based on requests. A hook imports it at its first call, because the import is slow."""

import errno
import io
import logging
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from airflow_provider_crew.client.api import (
    CrewApi,
    Request,
    Response,
    after_kickoff,
    most_bytes,
    unknown_at_all_paths,
    unreachable,
)
from airflow_provider_crew.client.errors import CallError, Cost, NotCancelled, TransientError
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution, Failed, read_inputs
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.settings import ServiceSettings, detach, is_caused_by

log = logging.getLogger(__name__)

# Only these prove that nothing was sent. A ProxyError does not: urllib3 raises it for a lost response as well.
_NOT_CONNECTED = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    ssl.SSLCertVerificationError,
)
_CHUNK = 65536
# How often to ask a crew to stop an execution.
_MOST_REQUESTS = 3

_this_thread = threading.local()
# urllib3 logs malformed headers, in which a crew may have repeated the token.
logging.getLogger("urllib3.connection").addFilter(lambda _: not getattr(_this_thread, "sends", False))


class _Adapter(HTTPAdapter):
    """
    Adapter with one TLS context for the crew and an https proxy.

    That of requests would load the certificates again, and would trust any proxy in front of an http crew.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Pass the context to connections without a proxy."""
        super().init_poolmanager(*args, **kwargs, ssl_context=self._tls)

    def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
        """Pass the context to connections through a proxy, and to that of the proxy."""
        return super().proxy_manager_for(proxy, **kwargs, ssl_context=self._tls, proxy_ssl_context=self._tls)

    def cert_verify(self, *_: Any) -> None:
        """Add no certificates to those of the context."""


class CrewClient:
    """
    Client for one crew.

    :param settings: Address and token of the crew.
    :param secrets: Secrets to mask in messages besides the token, such as that of the crew's webhooks.
    """

    def __init__(self, settings: ServiceSettings, secrets: Iterable[str] = ()) -> None:
        self.settings = settings
        self._api = CrewApi(settings, secrets)
        if not settings.verify:  # turned off in the connection; each poll would warn
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._connect()

    def inputs(self) -> CrewInputs:
        """Return the inputs that the crew takes."""
        return self._send(self._api.inputs()).read(read_inputs)

    def kickoff(self, kickoff: KickoffRequest) -> str:
        """Send a kickoff once and return its kickoff ID. Raise UncertainKickoff if its outcome is unknown."""
        response = None
        self.close()  # a kept connection that the peer has closed looks like a lost response
        try:
            response = self._send(self._api.kickoff(kickoff))
            kickoff_id = response.kickoff_id()
        except CallError as error:
            raise after_kickoff(error, response) from None
        except BaseException:
            log.warning("Interrupted while the kickoff was being sent: an execution may have started.")
            raise
        # Log the ID before returning it: a cancelled caller never receives it, and the execution is billed.
        log.info("Started execution %s.", kickoff_id)
        return kickoff_id

    def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution, from whichever of the two paths the crew has."""
        failures = []
        for path in self._api.status_paths:
            response = self._send(self._api.status(kickoff_id, path))
            if not response.is_missing:
                execution = response.execution()
                self._api.status_paths = (path,)
                return execution
            failures.append(response.not_found())
        raise unknown_at_all_paths(failures)

    def cancel(self, kickoff_id: str) -> Completed | Failed:
        """Stop an execution and return its end. Raise NotCancelled unless its status confirms one."""
        cost = Cost.RUNNING
        try:
            response = self._send(self._api.stop(kickoff_id))
            failure = None if response.is_success else response.error()
        except CallError as error:
            failure = error
        try:
            execution = self.status(kickoff_id)
            if isinstance(execution, Completed | Failed):
                return execution
        except CallError as error:
            failure, cost = error, Cost.UNKNOWN
        verdict = "was not cancelled" if cost is Cost.RUNNING else "may have been cancelled"
        why = failure.event if failure else "The crew accepted the request, but has not ended the execution yet."
        passes = failure is None or isinstance(failure, TransientError)
        raise NotCancelled(f"The execution {verdict}. {why}", cost=cost, kickoff_id=kickoff_id, passes=passes)

    def answer(self, kickoff_id: str, answer: bytes) -> str:
        """
        Send an answer once, and return another kickoff ID under which the execution continues, if there is one.

        Only the execution's next status shows the effect: a deployed crew also accepts answers to false IDs.
        """
        self.close()  # a kept connection that the peer has closed looks like a lost response
        response = self._send(self._api.answer(kickoff_id, answer))
        if not response.is_success:
            raise response.error()
        return response.named_execution

    def close(self) -> None:
        """Close the kept connections."""
        self._adapter.close()

    def _connect(self) -> None:
        self._adapter = _Adapter(self._api.tls)
        self._process = os.getpid()

    def _send(self, request: Request) -> Response:
        """Send the request once. Any failure counts as sent, unless it proves that no connection was open."""
        if os.getpid() != self._process:
            self._connect()  # a forked process would read its parent's responses
        handled = sys.exception()
        _this_thread.sends = True
        try:
            return self._exchange(request)
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:  # those of requests are OSErrors
            detach(error, handled)
            sent = not is_caused_by(error, *_NOT_CONNECTED)
            failure = unreachable(request, self._api, error, sent=sent)
        finally:
            _this_thread.sends = False
        raise failure  # outside the except clause: a chained traceback would show the token

    def _exchange(self, request: Request) -> Response:
        # A stream is sent in pieces. urllib3 limits the time of each, or of all bytes, by that of connecting.
        given = io.BytesIO(request.body) if request.body else None
        prepared = requests.Request(request.method, request.url, request.headers, data=given).prepare()
        with self._adapter.send(
            prepared,
            stream=True,
            timeout=(self.settings.connect_timeout, self.settings.request_timeout),
            verify=bool(self.settings.verify),
            proxies=self._api.proxies,
        ) as response:
            most = most_bytes(response.status_code)
            body = bytearray()
            # Counted from here: a response that comes at the last moment may have the ID of a billed execution.
            until = time.monotonic() + self.settings.request_timeout
            # Some gateways compress although the request forbids it.
            while len(body) <= most and (chunk := response.raw.read1(_CHUNK, decode_content=True)):
                body += chunk
                if time.monotonic() > until:
                    raise TimeoutError(errno.ETIMEDOUT, "the response is incomplete")
            return Response.received(request, response.status_code, response.headers, bytes(body), most)


class Cancelling:
    """
    Requests to cancel one execution. Ask as long as that may help, with a pause before each further request.

    :param continued_as: Another ID of the execution. Both are stopped, and the execution has ended if both have.
    """

    is_open = False
    """Whether asking again may help."""
    may_follow = False
    """Whether the crew may have taken a request, so that it may end the execution late."""

    def __init__(self, kickoff_id: str, continued_as: str = "") -> None:
        self._kickoff_id = kickoff_id
        self._running = [name for name in (kickoff_id, continued_as) if name]
        self._ends: dict[str, Completed | Failed] = {}
        self._requests = 0
        self._taken: NotCancelled | None = None

    def ask(self, cancel: Callable[[str], Completed | Failed]) -> Completed | Failed:
        """Ask once, and return the end. Raise NotCancelled if there is none."""
        failures, self.is_open = dict[str, NotCancelled](), False
        for name in self._running:
            try:
                self._ends[name] = cancel(name)
            except NotCancelled as error:
                failures[name] = error
        self._running, self._requests = [*failures], self._requests + 1
        passing = next((error for error in failures.values() if error.passes), None)
        self.is_open = passing is not None and self._requests < _MOST_REQUESTS
        if failures:
            failure = min(failures.values(), key=lambda error: error.cost is not Cost.RUNNING)
            # A crew may reject a second request.
            failure, self._taken = self._taken if self._taken and failure.is_refused else failure, passing
            self.may_follow = not failure.is_refused
            raise failure
        ends = (end for end in self._ends.values() if isinstance(end, Completed))
        return next(ends, self._ends[self._kickoff_id]).model_copy(update={"kickoff_id": self._kickoff_id})
