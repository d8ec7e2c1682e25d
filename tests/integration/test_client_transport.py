"""What both clients put on the wire: requests, deadlines, repeated calls, certificates and proxies."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta

import pytest
import requests
import trustme

from airflow_provider_crew.client import poll, settings
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import (
    InvalidKickoffId,
    InvalidSettings,
    ServiceError,
    UncertainKickoff,
    Unreachable,
)
from airflow_provider_crew.client.payload import KickoffRequest
from airflow_provider_crew.client.settings import ServiceSettings
from tests.integration.clients import INPUTS, KICKOFF, TOKEN, AsyncCrew, kick_off
from tests.integration.hostile import CALLS, Talk, answer, completed, hostile_service, tls_with

RUNNING = answer(b'{"status": "running"}')
# Only polls are asynchronous.
sync_only = pytest.mark.parametrize("connect", [CrewClient], indirect=True, ids=["sync"])


def test_requests_have_token_body_and_connection(crew, service):
    crew.inputs()
    crew.inputs()
    kickoff_id = crew.kickoff(
        KickoffRequest.of(INPUTS, meta={"run": 7}, crew_webhook_url="https://hooks.example/end")
    )
    crew.status(kickoff_id)

    inputs, again, kickoff, status = service.requests
    assert inputs.client == again.client != kickoff.client
    assert [(sent.method, sent.path, sent.query) for sent in service.requests] == [
        ("GET", "/inputs", ""),
        ("GET", "/inputs", ""),
        ("POST", "/kickoff", ""),
        ("GET", f"/status/{kickoff_id}", ""),
    ]
    for sent in service.requests:
        names = [name for name, _ in sent.headers]
        assert names.count("authorization") == 1
        assert sent.header("Authorization") == f"Bearer {TOKEN}"
        assert sent.header("Accept") == "application/json"
        assert sent.header("User-Agent").startswith("airflow-provider-crew/")
    assert kickoff.header("Content-Type") == "application/json"
    assert kickoff.json == {"inputs": INPUTS, "meta": {"run": 7}, "crewWebhookUrl": "https://hooks.example/end"}
    assert inputs.body == status.body == b""


TRICKS = [
    *("größe", "a/b", "..", "../kickoff", "a b ", "50%25", "what?#now", "7@home", "..%2fkickoff", "..;/admin"),
    *("http://evil.example/x", "\\\\evil.example\\x", ":80@evil.example", "a HTTP/1.1\r\nHost: evil.example"),
    *("a\x00b", "\u2028\u2029\x85", "\uff0f\uff0e\uff0e", "{{ 7 * 7 }}", "k" * 201),
]


@pytest.mark.parametrize("trick", TRICKS)
def test_malicious_kickoff_id_is_uncertain_and_shown(connect, hostile, trick):
    hostile.keeps = True
    crew = connect(hostile.url)

    for status in (b"200 OK", b"400 Bad Request"):
        hostile.says = [answer(json.dumps({"kickoff_id": trick}).encode(), status=status)]
        with pytest.raises(UncertainKickoff, match=re.escape(repr(trick)[:50])) as caught:
            crew.kickoff(KICKOFF)
        assert caught.value.kickoff_id == ""
    with pytest.raises(InvalidKickoffId):
        crew.status(trick)
    assert len(hostile.requests) == 2


def test_any_valid_kickoff_id_is_sent_as_it_is(connect, hostile):
    hostile.says, hostile.keeps = [RUNNING], True

    connect(f"{hostile.url}/teams/my%20crew").status("Run_7:a..b-c.")

    assert hostile.lines == ["GET /teams/my%20crew/status/Run_7:a..b-c. HTTP/1.1"]


class TestDeadline:
    """request_timeout bounds the whole exchange, however the bytes trickle in."""

    # Complete later than that after the headers; a busy machine makes that later still.
    @pytest.mark.parametrize(("part", "pause"), [("all", 0.015), ("body", 0.1)])
    def test_ends_answer_that_drips(self, connect, service, part, pause):
        crew = connect(service.url, request_timeout=1)
        service.faults.drip(pause=pause, part=part, on="status")
        began = time.monotonic()

        with pytest.raises(Unreachable) as caught:
            crew.status("some-id")

        assert time.monotonic() - began > 0.9
        assert (caught.value.sent, caught.value.timed_out) == (True, True)

    @sync_only
    def test_reads_answer_that_comes_at_the_last_moment(self, connect, hostile, monkeypatch):
        clock, passed = time.monotonic, [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock() + passed[0])

        def answer_late() -> Iterator[bytes]:
            passed[0] += 61  # a second to connect, and a minute for the crew
            yield answer(b'{"kickoff_id": "k-1"}')

        hostile.says = [answer_late]

        assert connect(hostile.url).kickoff(KICKOFF) == "k-1"

    @sync_only
    def test_large_request_has_more_time_than_connecting(self, connect, hostile, monkeypatch):
        monkeypatch.setattr(ServiceSettings, "connect_timeout", 1.0)
        kickoff = KickoffRequest.of({"topic": "x" * 30_000_000})

        def read_slowly(talk: Talk) -> None:
            left = len(kickoff.body)
            while left > 0:
                left -= len(talk.layer.recv(65536))
                time.sleep(0.005)
            talk.layer.sendall(answer(b'{"kickoff_id": "k-1"}'))

        hostile.steps = [read_slowly]

        assert connect(hostile.url).kickoff(kickoff) == "k-1"

    def test_ends_connect_that_is_not_accepted(self, connect):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
            for _ in range(4):
                sock = waiting.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(full.getsockname())
            crew = connect(f"http://127.0.0.1:{full.getsockname()[1]}", request_timeout=1)

            with pytest.raises(Unreachable) as caught:
                crew.status("some-id")

        assert (caught.value.sent, caught.value.timed_out) == (False, True)


def test_calls_survive_a_closed_kept_connection(crew, service):
    kickoff_id = crew.kickoff(KICKOFF)
    for call in (crew.inputs, lambda: crew.status(kickoff_id), lambda: crew.kickoff(KICKOFF)):
        crew.inputs()
        crew.status(kickoff_id)
        service.faults.refuse()  # closes the kept connection as well
        service.faults.clear()

        assert call()

    assert len(service.kickoffs) == len(service.requests.on("kickoff")) == 2


def test_error_that_caller_handles_proves_nothing(crew, service, tls_service):
    """Python chains the error that a caller is handling, such as one of a closed port or of a certificate."""
    service.faults.reset(times=99)

    for url in ("http://127.0.0.1:1", tls_service.url):
        try:
            requests.get(url, timeout=5)
        except requests.ConnectionError:  # a task that turns to a crew because another service is down
            with pytest.raises(UncertainKickoff):
                kick_off(crew)
            with pytest.raises(Unreachable) as caught:
                crew.status("some-id")
            assert not caught.value.tls_failed

    assert len(service.requests.on("kickoff")) == 2


def echo(talk: Talk) -> None:
    """Answer each question on a connection with the ID that it asks after."""
    while head := talk.read_request():
        asked = head.split(b" ", 2)[1].rpartition(b"/")[2]
        talk.layer.sendall(answer(completed(asked.decode())))


def test_client_used_before_fork_opens_a_connection_of_its_own(hostile):
    hostile.steps = [echo]
    with closing(CrewClient(ServiceSettings(address=hostile.url, token=TOKEN, request_timeout=60))) as crew:
        assert crew.status("before").output == "before"
        with warnings.catch_warnings():
            # There are threads, which the child leaves alone.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            code = 1
            try:
                code = int(crew.status("child").output != "child")
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert crew.status("after").output == "after"
    assert hostile.connections == 2


class TestCertificates:
    """Servers that cannot prove to be the crew are sent nothing."""

    @pytest.mark.parametrize(
        "issued",
        [
            lambda known: known.issue_cert("crew.example"),
            lambda known: known.issue_cert("127.0.0.1", not_after=datetime.now(UTC) - timedelta(days=1)),
            lambda _: trustme.CA().issue_cert("127.0.0.1"),
        ],
        ids=["another host", "expired", "unknown authority"],
    )
    @pytest.mark.parametrize("call", CALLS)
    def test_untrusted_certificate_ends_call_at_once(self, connect, authority, certificates, issued, call, caplog):
        with hostile_service(tls_with(issued(authority))) as service, pytest.raises(Unreachable) as caught:
            CALLS[call](connect(service.url, verify=str(certificates[0])))

        assert (caught.value.sent, caught.value.tls_failed) == (False, True)
        assert service.connections == 1
        assert not service.requests
        assert not caplog.records

    @pytest.mark.parametrize("name", ["tls_service", "service"])
    def test_certificates_are_loaded_once_and_only_for_tls(
        self, connect, certificates, request, monkeypatch, name
    ):
        running = request.getfixturevalue(name)
        settings._context_of.cache_clear()
        loaded, load = [], ssl.SSLContext.load_verify_locations

        def counts(context, *files, **options):
            loaded.append(files)
            return load(context, *files, **options)

        monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", counts)
        crew = connect(running.url, verify=str(certificates[0]))
        crew.status(kick_off(crew))  # each on a connection of its own
        assert len(loaded) == (name == "tls_service")

    @pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
    def test_certificates_of_the_environment_are_trusted(
        self, connect, tls_service, certificates, tmp_path, monkeypatch
    ):
        url = tls_service.url
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates[0]))  # which only one of the clients would read
        with pytest.raises(Unreachable):
            connect(url).status("some-id")
        assert not tls_service.requests
        assert connect(url, verify=False).inputs()

        command = ["openssl", "x509", "-subject_hash", "-noout", "-in", str(certificates[0])]
        name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        (tmp_path / f"{name}.0").write_bytes(certificates[0].read_bytes())
        for trusted in (certificates[0], tmp_path):
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
            assert connect(url).inputs()

    @pytest.mark.parametrize(
        "verify", [__file__, "/nowhere/ca.pem", "\0", "MIIB" * 2000, TOKEN], ids=lambda text: repr(text[-9:])
    )
    def test_file_without_certificates_is_rejected(self, connect, monkeypatch, verify):
        with pytest.raises(InvalidSettings, match="verify") as caught:
            connect("https://crew.test", verify=verify)
        assert verify[:100] not in str(caught.value) + repr(vars(caught.value))
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", verify.replace("\0", "x"))
        with pytest.raises(InvalidSettings, match="REQUESTS_CA_BUNDLE"):
            connect("https://crew.test")


@pytest.mark.parametrize("connect", [AsyncCrew], indirect=True, ids=["async"])
def test_repeated_response_is_read_once(connect, hostile, monkeypatch):
    monkeypatch.setattr(poll, "_KEPT", 1)
    failed = answer(b'{"status": "running"}', status=b"500 Internal Server Error")
    hostile.says = [RUNNING, RUNNING, failed, RUNNING]
    crew = connect(hostile.url)

    first = crew.status("a")
    assert crew.status("a") is first
    with pytest.raises(ServiceError):
        crew.status("a")
    assert crew.status("b").kickoff_id == "b"
    assert crew.status("a") is not first  # only so many are kept


class TestEnvironment:
    """Both clients read the same variables, and no .netrc."""

    def test_proxy_of_the_environment_is_used(self, connect, hostile, monkeypatch):
        hostile.says = [RUNNING]
        monkeypatch.setenv("ALL_PROXY", hostile.url)

        connect("http://crew.test", allow_http=True).status("some-id")

        assert hostile.lines == ["GET http://crew.test/status/some-id HTTP/1.1"]

    @pytest.mark.parametrize("password", ["p4ssword-4711", "p€ssword-4711"])
    def test_unusable_proxy_is_named_without_its_password(self, connect, password):
        crew = connect("http://crew.test", allow_http=True, proxy=f"http://user:{password}@127.0.0.1:1")

        with pytest.raises(Unreachable) as caught:
            crew.status("some-id")

        assert ("127.0.0.1:1" in caught.value.event) is password.isascii()
        assert "ssword-4711" not in str(caught.value)

    @pytest.mark.parametrize("name", ["named", ".netrc", "_netrc"])
    def test_netrc_replaces_no_token_and_gives_no_credentials(
        self, connect, service, hostile, tmp_path, monkeypatch, name
    ):
        path = tmp_path / name
        path.write_text("machine 127.0.0.1 login a password from-netrc\ndefault login b password from-netrc\n")
        path.chmod(0o600)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("NETRC", raising=False)
        if name == "named":
            monkeypatch.setenv("NETRC", str(path))
        hostile.says = [RUNNING]

        crew = connect(service.url)
        crew.status(crew.kickoff(KICKOFF))
        connect("http://crew.test", allow_http=True, proxy=hostile.url).status("some-id")

        assert [request.header("Authorization") for request in service.requests] == [f"Bearer {TOKEN}"] * 2
        assert b"proxy-authorization" not in hostile.requests[0].lower()
