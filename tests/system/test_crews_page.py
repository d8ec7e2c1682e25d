"""The Crews page, in a real Airflow and a real Chromium, with the tasks of the Crew tab in a run of its own."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import pytest

from dev.chromium import EXECUTABLE, Page
from tests.airflow_runs import eventually
from tests.supported import AIRFLOW
from tests.system.crew_tab_contents import END, progress
from tests.system.test_crew_tab import HARMFUL, TAB, all_of, elsewhere, mark, pushed
from tests.system.test_crew_tab import be as be  # noqa: PLC0414 - fixtures
from tests.system.test_crew_tab import browser as browser  # noqa: PLC0414
from tests.system.test_crew_tab import kept_page as kept_page  # noqa: PLC0414
from tests.system.test_crew_tab import others_airflow as others_airflow  # noqa: PLC0414
from tests.system.test_crew_tab import page as page  # noqa: PLC0414
from tests.system.test_crew_tab import run as run  # noqa: PLC0414

pytestmark = [
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
]

PAGE = "document.querySelector('.crew-page')"


def row(task: str) -> str:
    """Return an expression for the row of a task on the Crews page."""
    link = f"each.querySelector('a')?.href.includes('/{task}/plugin/crew')"
    return f"[...{PAGE}?.querySelectorAll('.crew-list > li') ?? []].find((each) => {link})"


def open_page(page: Page, url: str, task: str, text: str) -> str:
    """Open the Crews page, scroll to the row of a task, and return its text once it has been read."""
    page.open(f"{url}/plugin/crews")
    # The rows above become higher as they are read, so this scrolls again.
    page.wait_for(f"({row(task)}?.scrollIntoView(), {row(task)}?.innerText.includes({text!r}))")
    return str(page.evaluate(f"{row(task)}.innerText"))


def test_crews_page_shows_what_waits_failed_and_runs(page, run):
    url = run.airflow.url
    assert "Waiting for human input" in open_page(page, url, "paused", "Waiting")
    assert "task 2 of 3, writing_task" in open_page(page, url, "running", "task 2")
    assert "403 of 1,000 rows have ended" in open_page(page, url, "batch", "rows")
    failed = open_page(page, url, "failed", "Cost")
    assert all(each in failed for each in ("Failed", END["event"], "Billed"))

    page.evaluate(f"{row('failed')}.querySelector('a').click()")
    page.wait_for(f"!{PAGE} && {TAB}?.innerText.includes({END['event']!r})")


@pytest.mark.nightly
def test_crews_page_finds_the_task_of_a_real_crew(page, run):
    said = open_page(page, run.airflow.url, "deferred", "of 2")

    assert said.startswith("Running\n")


@pytest.mark.nightly
def test_tab_and_page_replace_each_other_without_a_reload(page, run):
    def go(address: str) -> None:
        page.evaluate(f"history.pushState({{}}, '', {address!r}); dispatchEvent(new PopStateEvent('popstate'))")

    tab, crews = f"/dags/crew_tab/runs/{quote(run.run_id)}/tasks/running/plugin/crew", "/plugin/crews"
    for first, second in ((tab, crews), (crews, tab)):
        page.open(f"{run.airflow.url}{first}")
        for address in (first, second, first, second):
            page.wait_for(
                f"Boolean({PAGE}) === {str(address == crews).lower()} && {TAB}?.innerText.includes('Running')"
            )
            go(second if address == first else first)


@pytest.mark.nightly
def test_filters_of_the_crews_page_are_in_its_address(page, run):
    page.open(f"{run.airflow.url}/plugin/crews?dag=crew_tab&state=failed")
    page.wait_for(row("failed"))
    assert page.evaluate(f"Boolean({row('running')})") is False

    page.evaluate(
        f"[...{PAGE}.querySelectorAll('button')].find((each) => each.innerText.includes('Completed')).click()"
    )
    page.wait_for("location.search === '?dag=crew_tab&state=completed'")
    if AIRFLOW >= (3, 3):  # before, the page knows a task of a crew by its progress, and this one has pushed none
        page.wait_for(row("finished"))


@pytest.mark.nightly
@pytest.mark.parametrize("task", ["hostile_running", "hostile_batch"])
def test_hostile_texts_on_the_crews_page_are_never_run(page, run, task):
    page.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="globalThis.crewGotIn = (...args) => (globalThis.crewsDoing ??= []).push(args)",
    )
    open_page(page, run.airflow.url, task, "Running")

    assert page.evaluate("globalThis.crewsDoing ?? []") == []
    assert all_of(page, HARMFUL, "outerHTML") == []
    assert elsewhere(page) == []


def test_reader_of_one_dag_sees_its_crews_only(page, start, be, others_airflow):
    other = start("crew_tab_other", running={"crew_progress": progress()})
    eventually(lambda: pushed(other, "running"))
    be("reader")
    page.open(f"{others_airflow}/plugin/crews")
    page.wait_for(row("running"))

    assert {urlsplit(each).path.split("/")[4] for each in all_of(page, ".crew-list a", "href")} == {
        "crew_tab_other"
    }
    be("admin")
    page.open(f"{others_airflow}/plugin/crews")
    page.wait_for(f"{PAGE}?.innerText.includes('crew_tab · ') && {PAGE}.innerText.includes('crew_tab_other · ')")
    mark(other, "running", "success")
    other.wait()


@pytest.mark.nightly
def test_user_without_xcom_access_sees_why_the_page_is_empty(page, be, others_airflow):
    be("viewer")
    page.open(f"{others_airflow}/plugin/crews")

    page.wait_for(f"{PAGE}?.innerText.includes('You have no permission')")
