"""What the integration tests begin with: a service over a real socket, and both clients."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.local import LocalCrewService, Scenario
from tests.integration.clients import TOKEN, AsyncCrew, Connect
from tests.integration.commands import Command
from tests.integration.hostile import Hostile, hostile_service
from tests.integration.local_client import Client
from tests.integration.played import python


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
        running.rejects_unknown_fields = True
        yield running


@pytest.fixture
def crew(connect: Connect, service: LocalCrewService) -> Any:
    return connect(service.url)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # what the command sets for its own process
    monkeypatch.setenv("COLUMNS", "80")
    return Command(capsys, monkeypatch)


class Clock:
    """Stands still until a test moves it."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def serve(clock: Clock) -> Iterator[Callable[..., Client]]:
    """Start local servers that read the test's clock; return a client of each."""
    with ExitStack() as stack:

        def start(scenario: Scenario | None = None, **settings: Any) -> Client:
            return Client(stack.enter_context(LocalCrewService(scenario, clock=clock, **settings)))

        yield start


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


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty database: to make it takes longer than most of what is run with it, so it is made once."""
    folder = tmp_path_factory.getbasetemp()
    # xdist gives each of its processes a folder in one that they share.
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    made = shared / "empty.db"
    with (shared / "empty.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            home = tmp_path_factory.mktemp("migrated")
            python(home, "-m", "airflow", "db", "migrate")
            (home / "airflow.db").rename(made)
    return made


@pytest.fixture
def home(database: Path, tmp_path: Path) -> Path:
    """Return a home with a database of its own and an empty dags folder."""
    (tmp_path / "dags").mkdir()
    shutil.copy(database, tmp_path / "airflow.db")
    return tmp_path
