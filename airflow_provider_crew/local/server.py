"""Local server as one object, for tests and for the command line."""

import ipaddress
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from airflow_provider_crew.local.callbacks import Callbacks
from airflow_provider_crew.local.crew import Crew
from airflow_provider_crew.local.faults.calls import Faults
from airflow_provider_crew.local.record import ReceivedRequest, Record
from airflow_provider_crew.local.scenario import Scenario
from airflow_provider_crew.local.scripted import Scripted
from airflow_provider_crew.local.unusable import Unusable
from airflow_provider_crew.local.wire.api import Api
from airflow_provider_crew.local.wire.browser import Browser
from airflow_provider_crew.local.wire.front import Front
from airflow_provider_crew.local.wire.gateway import Gateway
from airflow_provider_crew.local.wire.listener import Listener
from airflow_provider_crew.local.wire.page import SINGLE

if TYPE_CHECKING:
    from airflow_provider_crew.local.projects.engine import Project  # needed only with a project


class LocalCrewService(Crew):
    """
    Local server that runs in a thread until the end of the ``with`` block.

    ``scenario`` is a Scenario or the path of a scenario file. ``tls`` is a certificate file and its key file.
    ``on_request`` is called after every request, in the server's thread. With a ``project``, executions run a
    CrewAI project. With ``call_webhooks``, the webhooks of kickoffs are called; by default they are only recorded.
    ``log`` gets the log lines for these calls. ::

        with LocalCrewService(Scenario().without_waiting()) as service:
            service.faults.answer(503, retry_after=2, on="kickoff")
            ...
            assert len(service.kickoffs) == 1
    """

    def __init__(  # noqa: PLR0913 - tests set each of these by name
        self,
        scenario: Scenario | str | Path | None = None,
        *,
        project: "Project | None" = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        user_token: str | None = None,
        tls: tuple[str | Path, str | Path] | None = None,
        clock: Callable[[], float] = time.time,
        on_request: Callable[[ReceivedRequest], None] = lambda _: None,
        call_webhooks: bool = False,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        scenario = Scenario.load(scenario) if isinstance(scenario, (str, Path)) else scenario or Scenario()
        callbacks = Callbacks(clock, log) if call_webhooks else None
        super().__init__(scenario, project or Scripted(), clock, *([callbacks.follow] if callbacks else []))
        self._project = project
        self._callbacks = callbacks
        self.token = self._chosen("token", token, host)
        self.user_token = self._chosen("user_token", user_token, host)
        self.host = host
        self.port = port
        self.scheme = "https" if tls else "http"
        self.requests = Record()
        self.faults = Faults(clock, self._listen)
        self._gateway = Gateway(clock, scenario.cold_start)
        api = Api(self, Browser(self, host), pages_need_token=project is not None)
        front = Front(api, self.requests, self._gateway, self.faults, on_request)
        self._listener = Listener(front, (host, port), _tls_context(*tls) if tls else None, self._serving)

    @property
    def url(self) -> str:
        """URL of the crew."""
        return f"{self.scheme}://{self._url_host}:{self.port}"

    @property
    def dashboard_url(self) -> str:
        """URL of an execution's page, for the connection, with a placeholder for the kickoff ID."""
        return f"{self.url}{SINGLE}"

    @property
    def connection_uri(self) -> str:
        """Airflow connection to the local server, as a URI. Its path is the scheme."""
        token = quote(self.token, safe="")
        return f"crew://:{token}@{self._url_host}:{self.port}/{self.scheme}"

    @property
    def connection_json(self) -> str:
        """Airflow connection to the local server, as JSON."""
        return json.dumps(
            {
                "conn_type": "crew",
                "host": self._host_here,
                "port": self.port,
                "schema": self.scheme,
                "password": self.token,
            }
        )

    def fall_asleep(self, seconds: float) -> None:
        """Put the crew to sleep: from the next request on, a gateway returns 503 for this many seconds."""
        self._gateway.fall_asleep(seconds)

    def start(self) -> Self:
        """Start the server. Raise OSError if the port cannot be used."""
        self.port = self._listener.start()
        for fault in self.scenario.faults:
            self.faults.add(fault)
        return self

    def stop(self) -> None:
        """Stop the server, without waiting for responses in progress."""
        self._listener.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _chosen(self, name: str, given: str | None, host: str) -> str:
        """Return a token. The well-known default is safe only for a scripted crew on this machine."""
        if given or name in self.scenario.model_fields_set:
            return given or str(getattr(self.scenario, name))
        if name == "token" and not _is_here(host):
            raise Unusable(f"To listen on {host}, where others can reach it, the server needs a token of its own.")
        here_and_played = _is_here(host) and self._project is None
        return str(getattr(self.scenario, name)) if here_and_played else secrets.token_urlsafe(24)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._callbacks:
                await stack.enter_async_context(self._callbacks.calling())
            if self._project:
                self._project.on_load = self._describe
                await stack.enter_async_context(self._project.serving())
                self.remember(self._project.kept(self.scenario))
            yield

    def _describe(self) -> None:
        if self._project:
            self.scenario = self._project.described(self.scenario)

    @property
    def _url_host(self) -> str:
        return f"[{self._host_here}]" if ":" in self._host_here else self._host_here

    @property
    def _host_here(self) -> str:
        """Host at which this machine reaches the server, even if it listens on all addresses."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - replaces it

    def _listen(self, *, refuse: bool, seconds: float | None = None) -> None:
        if refuse:
            self._listener.refuse(seconds)
        else:
            self._listener.accept()


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
