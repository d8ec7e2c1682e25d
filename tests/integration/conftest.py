from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from hostile import Hostile, hostile_service

from airflow_provider_crew.local import LocalCrewService, Scenario
from airflow_provider_crew.service.async_client import AsyncCrewClient
from airflow_provider_crew.service.client import CrewClient
from airflow_provider_crew.service.settings import ServiceSettings

TOKEN = "organization-token-4711"
INPUTS = {"topic": "harbours", "audience": "sailors"}


class AsyncCrew:
    """The asynchronous client behind the methods of the synchronous one, so that one suite proves both."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._runner = asyncio.Runner()
        try:
            self._client = self._runner.run(self._open(settings))
        except BaseException:
            self._runner.close()
            raise

    @staticmethod
    async def _open(settings: ServiceSettings) -> AsyncCrewClient:
        return AsyncCrewClient(settings)

    def inputs(self, **options: Any) -> Any:
        return self._runner.run(self._client.inputs(**options))

    def kickoff(self, *args: Any, **options: Any) -> Any:
        return self._runner.run(self._client.kickoff(*args, **options))

    def status(self, kickoff_id: str, **options: Any) -> Any:
        return self._runner.run(self._client.status(kickoff_id, **options))

    def idle(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


def let_pass(crew: CrewClient | AsyncCrew, seconds: float) -> None:
    """Let time pass where the connections of a client live."""
    if isinstance(crew, AsyncCrew):
        crew.idle(seconds)
    else:
        time.sleep(seconds)


class Connect:
    """Opens clients of one kind, and closes them after the test."""

    def __init__(self, kind: type[CrewClient | AsyncCrew]) -> None:
        self._kind = kind
        self._opened: list[CrewClient | AsyncCrew] = []

    def __call__(self, address: str, **settings: Any) -> Any:
        client = self._kind(ServiceSettings(address=address, **{"token": TOKEN, **settings}))
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.close()


@pytest.fixture(params=[CrewClient, AsyncCrew], ids=["sync", "async"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    opening = Connect(request.param)
    yield opening
    opening.close()


@pytest.fixture
def service() -> Iterator[LocalCrewService]:
    with LocalCrewService(Scenario().without_waiting(), token=TOKEN) as running:
        yield running


@pytest.fixture
def crew(connect: Connect, service: LocalCrewService) -> Any:
    return connect(service.url)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def certificates(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return the files of an authority's certificate, and of a certificate that it has issued, and its key."""
    folder = tmp_path_factory.mktemp("certificates")
    ca, certificate, key = folder / "ca.pem", folder / "certificate.pem", folder / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    issued = authority.issue_cert("127.0.0.1", "crew.test")
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return ca, certificate, key


@pytest.fixture
def tls_service(certificates: tuple[Path, Path, Path]) -> Iterator[LocalCrewService]:
    _, certificate, key = certificates
    with LocalCrewService(Scenario().without_waiting(), token=TOKEN, tls=(certificate, key)) as running:
        yield running


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with hostile_service() as running:
        yield running


@pytest.fixture
async def async_crew(hostile: Hostile) -> AsyncIterator[AsyncCrewClient]:
    async with AsyncCrewClient(ServiceSettings(address=hostile.url, token=TOKEN, request_timeout=1)) as client:
        yield client
