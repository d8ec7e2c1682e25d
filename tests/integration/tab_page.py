"""Page in a Chromium with the modules of the Crew tab, and with a small stand-in for React."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_crew.plugins
from dev.chromium import EXECUTABLE, Chromium, Page
from tests.integration.receivers import serving

TAB = Path(airflow_provider_crew.plugins.__file__).with_name("tab")

REACT = Path(__file__).with_name("tab_page.js").read_text()


class Modules(SimpleHTTPRequestHandler):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given, directory=TAB)


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Chromium, str]]:
    """Return a browser, which takes a second to start, and the address of the modules."""
    if EXECUTABLE is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with serving(Modules) as url, Chromium() as browser:
        yield browser, url


@pytest.fixture(scope="module")
def page(chromium: tuple[Chromium, str]) -> Iterator[Page]:
    """Return an empty page that can import the modules."""
    browser, url = chromium
    opened = browser.page()
    opened.open(f"{url}/crew.svg")
    opened.wait_for("document.documentElement?.tagName === 'svg'")
    opened.evaluate(REACT)
    yield opened
    opened.close()
