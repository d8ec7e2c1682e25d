"""What tests of a kickoff's way begin with. A module has one server, and one pair of authorities."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trustme

from tests.integration.hostile import tls_with
from tests.integration.sent_server import SentServer, Trust, sent_server


@pytest.fixture(scope="module")
def server() -> Iterator[SentServer]:
    with sent_server() as running:
        yield running


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    authority, stranger = trustme.CA(), trustme.CA()
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    names = ("127.0.0.1", "::1", "crew.test")
    return Trust(str(path), *(tls_with(each.issue_cert(*names)) for each in (authority, stranger)))
