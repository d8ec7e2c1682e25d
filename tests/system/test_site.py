"""The documentation site, as ``make docs`` builds it, in a real Chromium and without a server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from urllib.parse import quote_plus, urlsplit

import pytest

from airflow_provider_crew.exceptions import (
    BudgetSpent,
    ExecutionFailed,
    InvalidOutput,
    InvalidOutputType,
    UncertainKickoff,
)
from dev.chromium import EXECUTABLE, Chromium, Page
from tests.airflow_runs import ROOT
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
    pytest.mark.skipif(AIRFLOW[:2] != (3, 3), reason="the site is the same on every Airflow"),
    pytest.mark.timeout(600),
]

SITE = ROOT / "docs/_build/html"
DESKTOP, PHONE = (1400, 1000), (390, 844)

FIRST_HITS = {
    "retry safely": "retries",
    "clear": "retries",
    "pass a result on": "use-the-result",
    "alert": "monitoring",
    "budget": "limits",
    "Helm": "deployment",
    "human in the loop": "human-input",
    "webhooks": "webhooks",
    "cost of polling": "timeouts",
    "pytest": "testing",
    "migrate": "migrating",
    "structured output": "structured-output",
}


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


def test_index_redirects_to_the_first_page(page):
    page.open((SITE / "index.html").as_uri())

    page.wait_for("document.querySelector('h1')?.innerText.startsWith('airflow-provider-crew')")


def first_hit(page: Page, query: str) -> str:
    show(page, "search.html", f"?q={quote_plus(query)}")
    page.wait_for("document.querySelectorAll('#search-results li a').length > 0")
    return urlsplit(page.evaluate("document.querySelector('#search-results li a').href")).path


@pytest.mark.parametrize("word", ["max_outage", "UncertainKickoff", "kickoff_records_in_variables"])
def test_search_works_without_a_server(page, word):
    assert first_hit(page, word)
    assert page.errors == []


@pytest.mark.parametrize(("question", "expected"), FIRST_HITS.items())
def test_search_finds_the_expected_page_first(page, question, expected):
    assert first_hit(page, question) == f"{SITE}/docs/{expected}.html"


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

    assert len(names) > 40
    assert wider == []
    assert {url for url in page.requests if not url.startswith(("file:", "data:"))} == set()
    assert page.errors == []


SHOWN = """[...document.querySelectorAll("#errors-and-troubleshooting tbody tr")]
    .filter((row) => row.offsetParent).map((row) => row.cells[0].innerText)"""


@pytest.fixture
def errors_page(page: Page) -> Page:
    show(page, "docs/errors.html")
    return page


def paste(page: Page, log: str) -> list[str]:
    """Type a text into the finder, and return the first cells of the rows that are shown."""
    page.evaluate("const box = document.querySelector('textarea'); box.select(); box.focus(); 1")
    page.call("Input.insertText", text=log)
    shown: list[str] = page.evaluate(SHOWN)
    return shown


def result(page: Page) -> str:
    shown: str = page.evaluate("document.querySelector('output[aria-live=polite]').innerText")
    return shown


RAISED = [
    ExecutionFailed("Execution 7 failed: out of credit.", next_step="Fix it.", kickoff_id="7"),
    InvalidOutputType("No such module."),
    InvalidOutput("title: Field required"),
    UncertainKickoff("No answer in time."),
    BudgetSpent("No more today."),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_finder_shows_the_class_and_the_cost_of_an_error(errors_page, error):
    assert paste(errors_page, str(error)) == [error.cost.value, type(error).__name__]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("[2026-11-23 03:14:15] INFO - Reattached to execution 57a13a6e, started by attempt 1.", "Reattached"),
        ("WARNING - Execution 57a13a6e: No Usable Answer for 60s", "no usable answer"),
        ("Connection 'crew_default' is unreadable in the triggerer", "Connection"),
        ("ModuleNotFoundError: No module named 'airflow_provider_crew'", "No module"),
        ("Sending the kickoff. If nothing follows, look for meta", "Sending the kickoff."),
    ],
)
def test_finder_shows_the_row_of_a_log_line(errors_page, line, row):
    (shown,) = paste(errors_page, line)
    assert shown.startswith(row)


def test_finder_ignores_a_kickoff_that_more_lines_follow(errors_page):
    log = f"Sending the kickoff.\nStarted execution 7.\nCrewTaskFailed: {RAISED[0]}"

    assert paste(errors_page, log) == ["ended", "ExecutionFailed", "CrewTaskFailed"]
    assert result(errors_page).startswith("3 ")


def test_finder_without_a_match_points_to_the_search(errors_page):
    assert paste(errors_page, "Task exited with return code 1, connection refused") == []
    assert result(errors_page).startswith("No row")
    assert urlsplit(errors_page.evaluate("document.querySelector('output a').href")).path == f"{SITE}/search.html"


def test_finder_shows_all_rows_after_a_reset(errors_page):
    everything = errors_page.evaluate(SHOWN)
    paste(errors_page, str(RAISED[0]))
    errors_page.press("Tab")
    errors_page.press("Enter")

    assert errors_page.evaluate(SHOWN) == everything
    assert result(errors_page) == ""
    assert errors_page.errors == []


def test_code_has_plain_quotation_marks(page):
    show(page, "docs/timeouts.html")

    assert not {"\u201c", "\u201d"} & {*page.evaluate("document.body.innerText")}
