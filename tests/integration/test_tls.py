"""Servers that cannot prove to be the crew are sent nothing."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from airflow_provider_crew.client.errors import Unreachable
from tests.integration.hostile import CALLS, Hostile, answer, hostile_service, tls_with

INPUTS_ANSWER = b'{"inputs": []}'


@pytest.fixture
def authority_file(certificates: tuple[Path, Path, Path]) -> str:
    return str(certificates[0])


@pytest.fixture
def serving() -> Iterator[Callable[[ssl.SSLContext], Hostile]]:
    with ExitStack() as running:

        def serve(context: ssl.SSLContext) -> Hostile:
            service = running.enter_context(hostile_service(context))
            service.says = [answer(INPUTS_ANSWER)]
            return service

        yield serve


def self_signed(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    asked = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    asked += ["-subj", "/CN=127.0.0.1"]
    asked += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *asked], check=True, capture_output=True)  # noqa: S607
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def yesterday() -> datetime:
    return datetime.now(UTC) - timedelta(days=1)


@pytest.mark.parametrize(
    "certificate",
    [
        lambda known, _: tls_with(known.issue_cert("crew.example")),
        lambda known, _: tls_with(known.issue_cert("127.0.0.1", not_after=yesterday())),
        lambda _, __: tls_with(trustme.CA().issue_cert("127.0.0.1")),
        lambda _, folder: self_signed(folder),
    ],
    ids=["another host", "expired", "unknown authority", "self-signed"],
)
@pytest.mark.parametrize("call", [*CALLS, "repeated inputs"])
def test_untrusted_certificate_ends_call_at_once(
    connect, serving, authority, authority_file, tmp_path, certificate, call, caplog
):
    service = serving(certificate(authority, tmp_path))
    crew = connect(service.url, verify=authority_file)

    with pytest.raises(Unreachable) as caught:
        CALLS.get(call, lambda crew: crew.inputs())(crew)

    assert (caught.value.sent, caught.value.trusted) == (False, False)
    assert service.connections == 1
    assert not service.requests
    assert not caplog.records


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_verification_is_on_by_default(connect, serving, authority):
    service = serving(tls_with(authority.issue_cert("127.0.0.1")))

    with pytest.raises(Unreachable):
        connect(service.url).inputs()

    assert not service.requests
    assert connect(service.url, verify=False).inputs()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_clients_trust_the_same_environment(connect, serving, authority, authority_file, monkeypatch, variable):
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, authority_file)
    service = serving(tls_with(authority.issue_cert("127.0.0.1")))
    crew = connect(service.url)

    if variable in {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}:
        assert crew.inputs()
    else:
        with pytest.raises(Unreachable) as caught:
            crew.inputs()
        assert caught.value.trusted is False


def test_environment_does_not_widen_trust_of_connection(
    connect, serving, authority, authority_file, monkeypatch, tmp_path
):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority_file)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    service = serving(tls_with(authority.issue_cert("127.0.0.1")))

    with pytest.raises(Unreachable) as caught:
        connect(service.url, verify=str(tmp_path / "other.pem")).inputs()

    assert caught.value.trusted is False
    assert not service.requests


def test_server_with_old_tls_alone_is_sent_nothing(connect, serving, authority, authority_file):
    context = tls_with(authority.issue_cert("127.0.0.1"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    service = serving(context)

    with pytest.raises(Unreachable) as caught:
        connect(service.url, verify=authority_file).inputs()

    assert caught.value.trusted is True
    assert not service.requests


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_untrusted_proxy_is_sent_nothing(connect, serving, authority_file, scheme):
    proxy = serving(tls_with(trustme.CA().issue_cert("127.0.0.1")))
    settings = {"proxy": f"https://user:proxy-password@127.0.0.1:{proxy.port}", "verify": authority_file}

    with pytest.raises(Unreachable) as caught:
        connect(f"{scheme}://crew.test", allow_http=True, **settings).inputs()

    assert (caught.value.sent, caught.value.trusted) == (False, False)
    assert not proxy.requests
