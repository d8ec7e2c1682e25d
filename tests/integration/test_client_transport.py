"""Deadlines, broken connections, certificates and proxies, over real sockets and in both clients."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from airflow_provider_crew.client.errors import (
    Cost,
    InvalidSettings,
    Refused,
    TransientError,
    Unreachable,
    UnreadableAnswer,
)
from tests.integration.clients import KICKOFF, TOKEN
from tests.integration.proxy import Proxy, running_proxy


class TestDeadline:
    """request_timeout bounds the whole exchange, however the bytes trickle in."""

    # Complete after three seconds at the earliest; a busy machine makes that later.
    @pytest.mark.parametrize(("part", "pause"), [("all", 0.02), ("body", 0.1)])
    def test_ends_answer_that_drips(self, connect, service, part, pause):
        crew = connect(service.url, request_timeout=1)
        service.faults.drip(pause=pause, part=part, on="inputs")
        began = time.monotonic()

        with pytest.raises(Unreachable) as caught:
            crew.inputs()

        assert time.monotonic() - began > 0.9
        assert caught.value.sent is True
        assert caught.value.timed_out is True

    def test_ends_answer_that_drips_over_tls(self, connect, tls_service, certificates):
        crew = connect(tls_service.url, request_timeout=1, verify=str(certificates[0]))
        tls_service.faults.drip(pause=0.02, on="inputs")
        began = time.monotonic()

        with pytest.raises(Unreachable) as caught:
            crew.inputs()

        assert time.monotonic() - began > 0.9
        assert caught.value.timed_out is True

    def test_ends_answer_that_never_comes_on_kept_connection(self, connect, service):
        crew = connect(service.url, request_timeout=0.5)
        crew.inputs()
        service.faults.hang(on="status")

        with pytest.raises(Unreachable) as caught:
            crew.status("some-id")

        assert caught.value.sent is True
        assert caught.value.timed_out is True

    def test_allows_slow_answer_within_it(self, connect, service):
        crew = connect(service.url, request_timeout=10)
        service.faults.drip(pause=0.005, on="inputs")

        assert crew.inputs().names == ("topic", "audience")

    def test_ends_connect_that_is_not_accepted(self, connect):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            waiting = [socket.socket() for _ in range(4)]
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(full.getsockname())
            crew = connect(f"http://127.0.0.1:{full.getsockname()[1]}", request_timeout=1)

            with pytest.raises(Unreachable) as caught:
                crew.kickoff(KICKOFF)

            assert caught.value.sent is False
            assert caught.value.timed_out is True
            for sock in waiting:
                sock.close()

    def test_leaves_client_usable(self, connect, service):
        crew = connect(service.url, request_timeout=2)
        service.faults.hang(on="inputs")

        with pytest.raises(Unreachable):
            crew.inputs()

        assert crew.inputs().names == ("topic", "audience")


class TestBrokenConnections:
    def test_unknown_host_name_is_unreachable(self, connect):
        with pytest.raises(Unreachable, match=r"no-such-crew\.invalid:443") as caught:
            connect("https://no-such-crew.invalid").kickoff(KICKOFF)

        assert caught.value.sent is False
        assert caught.value.trusted is True
        assert caught.value.cost is Cost.NONE

    def test_reset_after_sending_is_unreachable(self, crew, service):
        service.faults.reset(on="status", times=2)  # aiohttp by itself repeats a read that was cut off, once

        with pytest.raises(Unreachable) as caught:
            crew.status("some-id")

        assert caught.value.sent is True
        assert caught.value.timed_out is False

    @pytest.mark.parametrize(
        "data",
        [b"SSH-2.0-OpenSSH_9\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n{}", b"\x00" * 1000],
        ids=["another protocol", "nothing", "bad length", "zeros"],
    )
    def test_answer_that_is_not_http_is_transient(self, crew, service, data):
        service.faults.raw(data, on="status", times=2)

        with pytest.raises(TransientError):
            crew.status("some-id")

    def test_answer_cut_off_in_its_body_is_unreachable(self, crew, service):
        kickoff_id = crew.kickoff(KICKOFF)
        service.faults.truncate(incomplete=True, on="status")

        with pytest.raises(Unreachable) as caught:
            crew.status(kickoff_id)

        assert caught.value.sent is True

    def test_read_survives_closed_kept_connection(self, crew, service):
        crew.inputs()
        service.faults.refuse()  # closes the kept connection as well
        service.faults.clear()

        assert crew.inputs().names == ("topic", "audience")

    def test_kickoff_survives_closed_kept_connection(self, crew, service):
        crew.inputs()
        service.faults.refuse()
        service.faults.clear()

        crew.kickoff(KICKOFF)

        assert len(service.kickoffs) == 1
        assert len(service.requests.on("kickoff")) == 1


class TestCertificates:
    def test_file_of_authorities_is_used(self, connect, tls_service, certificates):
        assert connect(tls_service.url, verify=str(certificates[0])).kickoff(KICKOFF)

    def test_https_to_plain_http_is_unreachable(self, connect, service):
        with pytest.raises(Unreachable) as caught:
            connect(service.url.replace("http://", "https://")).inputs()

        assert caught.value.trusted is True
        assert not service.requests


class TestProxy:
    @pytest.fixture
    def proxy(self, service) -> Iterator[Proxy]:
        with running_proxy(service.host, service.port) as running:
            yield running

    @pytest.fixture
    def tls_proxy(self, tls_service) -> Iterator[Proxy]:
        with running_proxy(tls_service.host, tls_service.port) as running:
            yield running

    def test_from_settings_is_used_with_its_credentials(self, connect, service, proxy):
        crew = connect(service.url, proxy=f"http://user:proxy-password@{proxy.address}")

        crew.inputs()
        crew.kickoff(KICKOFF)

        assert proxy.asked == [f"GET {service.url}/inputs HTTP/1.1", f"POST {service.url}/kickoff HTTP/1.1"]
        assert proxy.credentials == ["user:proxy-password"] * 2
        assert "proxy-password" not in str([request.headers for request in service.requests])
        assert len(service.kickoffs) == 1

    @pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
    def test_from_environment_is_used(self, connect, proxy, monkeypatch, variable):
        monkeypatch.setenv(variable, f"http://{proxy.address}")

        connect("http://crew.test", allow_http=True).inputs()

        assert proxy.asked == ["GET http://crew.test/inputs HTTP/1.1"]

    def test_from_environment_is_bypassed_for_loopback(self, connect, service, proxy, monkeypatch):
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")

        connect(service.url).inputs()

        assert not proxy.asked

    def test_tunnels_to_crew_over_tls(self, connect, tls_proxy, tls_service, certificates, monkeypatch):
        monkeypatch.setenv("https_proxy", tls_proxy.address)  # without a scheme, as many write it
        crew = connect("https://crew.test", verify=str(certificates[0]))

        crew.kickoff(KICKOFF)

        assert [asked.rpartition(" ")[0] for asked in tls_proxy.asked] == ["CONNECT crew.test:443"]
        assert len(tls_service.kickoffs) == 1
        assert TOKEN not in "".join(tls_proxy.heads)

    def test_out_of_reach_leaves_kickoff_unsent(self, connect, service):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        crew = connect(service.url, proxy=f"http://user:proxy-password@127.0.0.1:{port}")

        with pytest.raises(Unreachable) as caught:
            crew.kickoff(KICKOFF)

        assert caught.value.sent is False
        assert "proxy-password" not in str(caught.value)

    def test_password_beyond_latin_1_is_unreachable(self, connect, service, proxy):
        crew = connect(service.url, proxy=f"http://user:p€ssword-4711@{proxy.address}")

        with pytest.raises(Unreachable) as caught:
            crew.inputs()

        assert "ssword-4711" not in str(caught.value)

    def test_of_socks_kind_in_environment_is_rejected(self, connect, monkeypatch):
        monkeypatch.setenv("all_proxy", "socks5://user:proxy-password@127.0.0.1:1080")

        with pytest.raises(InvalidSettings, match="SOCKS") as caught:
            connect("https://crew.test").inputs()

        assert "proxy-password" not in str(caught.value)


class TestOddAnswers:
    def test_redirect_to_invalid_address_is_rejection(self, crew, service):
        service.faults.answer(302, headers={"location": "http://[bad/"}, on="kickoff")

        with pytest.raises(Refused, match=r"http://\[bad/") as caught:
            crew.kickoff(KICKOFF)

        assert caught.value.http_status == 302

    def test_long_header_is_read(self, crew, service):
        header = {"content-security-policy": "x" * 20_000}
        service.faults.answer(200, body={"kickoff_id": "k-1"}, headers=header, on="kickoff")

        assert crew.kickoff(KICKOFF) == "k-1"

    def test_backslashes_are_read_in_linear_time(self, connect, service):
        crew = connect(service.url, token="-_-token-that-begins-oddly", request_timeout=30)
        service.faults.answer(200, body="\\" * 1_000_000, on="status")
        began = time.thread_time()

        with pytest.raises(UnreadableAnswer):
            crew.status("some-id")

        assert time.thread_time() - began < 5


class TestCertificatesThatCannotBeUsed:
    def test_file_without_certificates_is_rejected(self, connect, tmp_path):
        path = tmp_path / "ca.pem"
        path.write_text("no certificate")

        with pytest.raises(InvalidSettings, match="verify") as caught:
            connect("https://crew.test", verify=str(path))
        assert str(path) not in str(caught.value)

    @pytest.mark.parametrize("verify", ["/nowhere/ca.pem", "\0", "MIIB" * 2000], ids=["absent", "NUL", "no path"])
    def test_path_without_file_is_rejected(self, connect, verify):
        with pytest.raises(InvalidSettings, match="verify") as caught:
            connect("https://crew.test", verify=verify)
        assert verify[:100] not in str(caught.value)

    def test_token_in_verify_is_not_shown(self, connect):
        with pytest.raises(InvalidSettings) as caught:
            connect("https://crew.test", verify=TOKEN)
        assert TOKEN not in str(caught.value) + repr(vars(caught.value))

    def test_missing_file_in_environment_is_rejected(self, connect, monkeypatch):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/ca.pem")

        with pytest.raises(InvalidSettings, match="REQUESTS_CA_BUNDLE"):
            connect("https://crew.test")

    def test_folder_is_used(self, connect, tls_service, certificates, tmp_path, monkeypatch):
        name = subprocess.run(
            ["openssl", "x509", "-subject_hash", "-noout", "-in", certificates[0]],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        (tmp_path / f"{name}.0").write_bytes(certificates[0].read_bytes())
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))

        assert connect(tls_service.url).inputs()


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_dripping_proxy_ends_at_deadline(connect):
    connect.needs_one_deadline()
    said = b""

    def drip(listener: socket.socket) -> None:
        nonlocal said
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(4096)
            for byte in ESTABLISHED:
                connection.sendall(bytes([byte]))
                said += bytes([byte])
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        crew = connect(
            "https://crew.test", proxy=f"http://127.0.0.1:{listener.getsockname()[1]}", request_timeout=1
        )

        with pytest.raises(Unreachable):
            crew.inputs()

        thread.join()
        assert 0 < len(said) < len(ESTABLISHED), "the client had gone before all was said"
