"""Page in a Chromium with the modules of the Crew tab, and with a small stand-in for React."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_crew.plugins
from dev.chromium import EXECUTABLE, Chromium, Page
from dev.loopback import HOST

TAB = Path(airflow_provider_crew.plugins.__file__).with_name("tab")

REACT = Path(__file__).with_name("tab_page.js").read_text()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer((HOST, 0), partial(Handler, directory=folder)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Return an empty page that can import the modules."""
    if EXECUTABLE is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with served(TAB) as url, Chromium() as browser:
        opened = browser.page()
        opened.open(f"{url}/crew.svg")
        opened.wait_for("document.documentElement?.tagName === 'svg'")
        opened.evaluate(REACT)
        yield opened
