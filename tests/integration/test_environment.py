"""What the environment of a task says about the network: both clients obey it alike, and give it no token."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from airflow_provider_crew.client.errors import CrewError, InvalidSettings, Unreachable
from airflow_provider_crew.local import LocalCrewService
from tests.integration.clients import KICKOFF, TOKEN
from tests.integration.hostile import Hostile, answer, hostile_service
from tests.integration.proxy import Proxy, running_proxy

PASSWORD = "proxy-password-2718"
CREDENTIALS = f"somebody:{PASSWORD}"


@pytest.fixture
def tls_proxy(tls_service: LocalCrewService) -> Iterator[Proxy]:
    with running_proxy(tls_service.host, tls_service.port) as running:
        yield running


@pytest.fixture
def proxy(service: LocalCrewService) -> Iterator[Proxy]:
    with running_proxy(service.host, service.port) as running:
        yield running


@pytest.fixture
def asked_for_credentials() -> Iterator[Hostile]:
    with hostile_service() as running:
        running.says = [answer(b"{}", b'Proxy-Authenticate: Basic realm="x"', status=b"407 Who")]
        yield running


class TestNetrc:
    @pytest.fixture(params=["named", ".netrc", "_netrc"])
    def netrc(self, request, tmp_path, monkeypatch):
        path = tmp_path / request.param
        path.write_text("machine 127.0.0.1 login a password from-netrc\ndefault login b password from-netrc\n")
        path.chmod(0o600)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("NETRC", raising=False)
        if request.param == "named":
            monkeypatch.setenv("NETRC", str(path))

    @pytest.mark.usefixtures("netrc")
    def test_replaces_no_token(self, crew, service):
        crew.inputs()
        crew.status(crew.kickoff(KICKOFF))

        assert [request.header("Authorization") for request in service.requests] == [f"Bearer {TOKEN}"] * 3

    @pytest.mark.usefixtures("netrc")
    def test_gives_a_proxy_no_credentials(self, connect, service, proxy):
        connect(service.url, proxy=f"http://{proxy.address}").inputs()

        assert proxy.credentials == [""]


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_tunnel_is_sent_credentials_without_token(connect, tls_proxy, certificates, monkeypatch, caplog, variable):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(variable, f"http://{CREDENTIALS}@{tls_proxy.address}")
    crew = connect("https://crew.test", verify=str(certificates[0]))

    crew.kickoff(KICKOFF)
    crew.inputs()

    assert set(tls_proxy.credentials) == {CREDENTIALS}
    assert all(asked.startswith("CONNECT crew.test:443 ") for asked in tls_proxy.asked)
    assert TOKEN not in "".join(tls_proxy.heads)
    assert PASSWORD not in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("variable", "excepted"),
    [
        ("no_proxy", "crew.invalid"),
        ("NO_PROXY", ".invalid"),
        ("no_proxy", "*"),
        ("NO_PROXY", "x, crew.invalid:8443"),
    ],
)
def test_no_proxy_is_obeyed(connect, tls_proxy, monkeypatch, variable, excepted):
    monkeypatch.setenv("https_proxy", f"http://{tls_proxy.address}")
    monkeypatch.setenv(variable, excepted)

    with pytest.raises(Unreachable):
        connect("https://crew.invalid:8443").inputs()

    assert not tls_proxy.asked


def test_proxy_of_connection_comes_first(connect, tls_proxy, certificates, asked_for_credentials, monkeypatch):
    monkeypatch.setenv("https_proxy", asked_for_credentials.url)
    monkeypatch.setenv("no_proxy", "*")

    connect("https://crew.test", verify=str(certificates[0]), proxy=f"http://{tls_proxy.address}").inputs()

    assert tls_proxy.asked
    assert asked_for_credentials.connections == 0


@pytest.mark.parametrize("address", ["https://crew.test", "http://crew.test"])
@pytest.mark.parametrize("call", ["inputs", "kickoff"])
def test_rejecting_proxy_is_named_without_password(
    connect, asked_for_credentials, caplog, address, call, monkeypatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("airflow_provider_crew.client.api._wait", lambda _: 0.0)
    proxy = asked_for_credentials.url.replace("http://", f"http://{CREDENTIALS}@")
    crew = connect(address, proxy=proxy, allow_http=True)

    with pytest.raises(CrewError, match="407") as caught:
        {"inputs": crew.inputs, "kickoff": lambda: crew.kickoff(KICKOFF)}[call]()

    assert PASSWORD not in str(caught.value) + repr(vars(caught.value)) + caplog.text
    if address.startswith("https"):
        assert TOKEN.encode() not in b"".join(asked_for_credentials.requests)


def test_plain_http_through_proxy_needs_allow_http(connect, proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    with pytest.raises(InvalidSettings, match="allow_http"):
        connect("http://crew.test")

    connect("http://crew.test", allow_http=True).inputs()

    assert f"Authorization: Bearer {TOKEN}" in proxy.heads[0]
