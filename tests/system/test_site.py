"""The documentation site, as ``make docs`` builds it, in a real Chromium and without a server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from airflow_provider_crew.exceptions import InvalidOutput, UncertainKickoff
from dev.chromium import EXECUTABLE, Chromium, Page
from tests.airflow_runs import ROOT
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
    pytest.mark.skipif(AIRFLOW[:2] != (3, 3), reason="the site is the same on every Airflow"),
]

SITE = ROOT / "docs/_build/html"
DESKTOP, PHONE = (1400, 1000), (390, 844)


def is_current() -> bool:
    built = SITE / "search.html"  # index.html is copied with its old time
    sources = [path for path in (ROOT / "docs").rglob("*.*") if "_build" not in path.parts]
    return built.exists() and built.stat().st_mtime > max(path.stat().st_mtime for path in sources)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if not is_current():
        subprocess.run(["make", "docs"], cwd=ROOT, check=True)  # noqa: S607 - whichever make is there
    with Chromium() as running:
        yield running


@pytest.fixture
def page(browser: Chromium) -> Iterator[Page]:
    shown = browser.page()
    shown.resize(*DESKTOP)
    yield shown
    shown.close()


def show(page: Page, name: str, query: str = "") -> None:
    url = f"{(SITE / name).as_uri()}{query}"
    page.open(url)
    page.wait_for(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")


@pytest.mark.nightly
def test_every_page_fits_its_screen_and_loads_nothing_from_elsewhere(page):
    names = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html") if path != SITE / "index.html")
    wider = []
    for name in names:
        for size in (DESKTOP, PHONE):
            page.resize(*size)
            show(page, name)
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                wider.append((name, size))

    assert len(names) > 30
    assert wider == []
    assert {url for url in page.requests if not url.startswith(("file:", "data:"))} == set()
    assert page.errors == []


SHOWN = """[...document.querySelectorAll("#errors-and-troubleshooting tbody tr")]
    .filter((row) => row.offsetParent).map((row) => row.cells[0].innerText)"""


RAISED = [InvalidOutput("title: Field required"), UncertainKickoff("No answer in time.")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *((str(error), [error.cost.value, type(error).__name__]) for error in RAISED),
        ("[2026-11-23 03:14:15] INFO - Reattached to execution 57a13a6e, started by attempt 1.", ["Reattached"]),
        ("WARNING - Execution 57a13a6e: no usable response. polling Continues for 10m", ["Polling continues"]),
        ("ModuleNotFoundError: No module named 'airflow_provider_crew'", ["No module"]),
    ],
)
def test_finder_shows_the_rows_of_a_text(page, text, shown):
    show(page, "docs/errors.html")
    page.evaluate("const box = document.querySelector('textarea'); box.select(); box.focus(); 1")
    page.call("Input.insertText", text=text)
    found = page.evaluate(SHOWN)

    assert len(found) == len(shown)
    assert all(row.startswith(start) for row, start in zip(found, shown, strict=True))
