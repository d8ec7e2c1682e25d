"""The Crew tab of a task instance and the Crews page, in a real Airflow and a real Chromium."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import requests

from dev.chromium import EXECUTABLE, Chromium, Page
from dev.loopback import HOST, free_port
from dev.rest import ApiError
from tests.airflow_runs import DASHBOARD as CREWS_PAGE
from tests.airflow_runs import Run, eventually
from tests.supported import AIRFLOW
from tests.system.crew_tab_contents import (
    DASHBOARD,
    END,
    EVENT,
    FINISHED,
    KICKOFF_ID,
    REPORT,
    batch_progress,
    hostile,
    hostile_batch,
    hostile_progress,
    progress,
    result,
)

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium")

TAB = "document.querySelector('.crew-tab')"
SCREEN = (1400, 1000)
STAYING = ("running", "paused", "hostile_running", "batch", "hostile_batch")


@pytest.fixture(scope="module")
def run(airflow, start, crews) -> Iterator[Run]:
    started = start(
        "crew_tab",
        finished=FINISHED,
        kicked_off={"kickoff_id": KICKOFF_ID, "return_value": KICKOFF_ID},
        hostile=hostile(),
        failed={"kickoff_id": KICKOFF_ID, "crew_progress": progress(state="failed", end=END)},
        running={"crew_progress": progress()},
        paused={"crew_progress": progress(state="paused", doing="", since=time.time() - 3 * 3600)},
        hostile_running={"crew_progress": hostile_progress()},
        batch={"crew_progress": batch_progress()},
        hostile_batch={"crew_progress": hostile_batch()},
        mapped_0={"return_value": result(output="The first")},
        mapped_1={"return_value": result(output="The second")},
    )

    def is_settled() -> bool:
        found = airflow.api.task_instances("crew_tab", started.run_id)
        left = {ti["state"] for ti in found if ti["task_id"] not in STAYING}
        is_mapped = any(ti["map_index"] == 1 for ti in found)
        return (
            is_mapped
            and left <= {"success", "failed", "deferred"}
            and all(pushed(started, task) for task in STAYING)
        )

    eventually(is_settled)
    yield started
    for task in STAYING:
        started.mark(task, "success")
    crews["slow"].finish(started.xcom("deferred", "kickoff_id"))
    started.wait()


def pushed(run: Run, task: str) -> bool:
    return bool(run.airflow.api.get(f"{run.path(task)}/xcomEntries")["xcom_entries"])


def tell(run: Run, task: str, value: dict[str, Any]) -> None:
    """Leave another progress for a task, as its trigger would."""
    run.airflow.api.patch(f"{run.path(task)}/xcomEntries/crew_progress", {"value": value, "map_index": -1})


@pytest.fixture(scope="module")
def kept_page(airflow) -> Iterator[Page]:
    """Keep one page for all tests: each new one would load the whole of Airflow's."""
    with Chromium() as browser:
        opened = browser.page()
        opened.resize(*SCREEN)
        log_in(opened, airflow.url)
        yield opened


@pytest.fixture
def page(kept_page) -> Iterator[Page]:
    kept_page.forget()
    yield kept_page
    assert kept_page.dialogs == []
    assert [error for error in kept_page.errors if "crew-tab" in error] == []


def log_in(page: Page, url: str, user: dict[str, str] | None = None) -> None:
    """Be a user in this page, and nobody else any more: by default the admin that everybody is."""
    address = f"{url}/auth/token"
    answer = requests.post(address, json=user, timeout=30) if user else requests.get(address, timeout=30)
    assert answer.ok, answer.text
    page.call("Network.clearBrowserCookies")
    page.log_in(url, answer.json()["access_token"])


@pytest.fixture
def shown(page, run):
    """Show the tab of a task, and return what it says."""

    def show(task: str, index: int = -1, url: str = run.airflow.url) -> str:
        mapped = "" if index < 0 else f"/mapped/{index}"
        page.open(f"{url}/dags/crew_tab/runs/{quote(run.run_id)}/tasks/{task}{mapped}/plugin/crew")
        page.wait_for(f"{TAB} && !{TAB}.innerText.includes('Loading')")
        return says(page)

    return show


def says(page: Page) -> str:
    return page.evaluate(f"{TAB}.innerText")


def all_of(page: Page, selector: str, what: str = "innerText") -> list[str]:
    return page.evaluate(f"[...{TAB}.querySelectorAll({selector!r})].map((each) => each.{what})")


def test_finished_crew_shows_tasks_output_usage_and_links(shown, page):
    said = shown("finished")

    assert said.startswith("Completed\n")
    assert all_of(page, ".crew-name") == ["research_task", "fact_check", "writing_task"]
    assert all_of(page, ".crew-id code") == [KICKOFF_ID]
    assert all_of(page, "h3, th") == ["Electric ferries, for harbour masters", "Port", "Power", "Ready"]
    assert "total tokens\n3,410" in said
    assert said.index("Electric ferries") < said.index("research_task")
    assert all_of(page, "a", "href")[:2] == [DASHBOARD, "https://ports.example/news?id=7&lang=en"]
    assert set(all_of(page, "a", "rel")) == {"noopener noreferrer"}


def test_output_has_three_views_and_unfolds_by_keyboard(shown, page):
    assert "Notes on" not in shown("finished")
    views = f"{TAB}.querySelectorAll('.crew-views button')"
    page.evaluate(f"{views}[1].click()")
    page.wait_for(f"{TAB}.querySelector('.crew-json')")
    assert all(each in says(page) for each in ("headlines: 2 items", '1: "4 MW"'))
    page.evaluate(f"{views}[2].click()")
    page.wait_for(f"{TAB}.querySelector('.crew-output > pre')")
    assert all_of(page, ".crew-output > pre", "textContent") == [REPORT]

    page.evaluate(f"{TAB}.querySelector('.crew-id button').focus()")
    page.press("Enter")
    page.wait_for(f"{TAB}.querySelector('.crew-id [role=status]').textContent === 'Copied'")
    # The views of the output, its links and its table come before the tasks.
    for _ in range(20):
        page.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.press("Enter")
    page.wait_for(f"{TAB}.querySelector('.crew-row li')?.innerText === 'Notes on ferries'")


# Before Airflow 3.3, an XCom that is changed from outside keeps its time.
told_from_outside = pytest.mark.skipif(AIRFLOW < (3, 3), reason="the tab reads what has another time")


@told_from_outside
def test_running_crew_shows_its_progress_and_changes(shown, page, run):
    said = shown("running")
    assert said.startswith("Running\n")
    assert "1 of 3 tasks done" in said
    assert all_of(page, ".crew-row-coming .crew-name") == ["Task 3"]
    assert all_of(page, "[aria-current=step] .crew-name") == ["writing_task"]
    before = all_of(page, ".crew-clock")
    page.wait_for(f"{TAB}.querySelector('.crew-clock').innerText !== {before[0]!r}")

    tell(run, "running", progress(completed=2, current_task="checking_task", doing="task 3 of 3, checking_task"))
    page.wait_for(f"{TAB}.innerText.includes('2 of 3 tasks done')")
    assert all_of(page, "[aria-current=step] .crew-name") == ["checking_task"]


@told_from_outside
def test_cleared_task_shows_the_next_attempt(shown, page, run):
    def has_begun_again() -> bool:
        try:
            left = run.xcom("running", "crew_progress")
        except ApiError:  # there is none yet
            return False
        return left["completed"] == progress()["completed"]

    shown("running")
    tell(run, "running", progress(completed=0))
    run.mark("running", "success")
    page.wait_for(f"{TAB}.innerText.startsWith('Stopped waiting')")

    run.clear("running")
    eventually(has_begun_again)
    tell(run, "running", progress(completed=2, doing="task 3 of 3"))
    page.wait_for(f"{TAB}.innerText.startsWith('Running') && {TAB}.innerText.includes('2 of 3 tasks done')")
    page.evaluate(f"[...{TAB}.querySelectorAll('summary')].at(-1).click()")
    page.wait_for(f"{TAB}.querySelectorAll('.crew-attempts tbody tr').length === 2")


def test_each_task_shows_its_own_execution(shown, page, run):
    assert shown("deferred").startswith("Running\n")
    kickoff_id = run.xcom("deferred", "kickoff_id")
    assert all_of(page, ".crew-id code") == [kickoff_id]
    assert all_of(page, ".crew-header a", "href") == [CREWS_PAGE.format(kickoff_id=kickoff_id)]

    said = shown("kicked_off")
    assert said.startswith("Started\n")
    assert KICKOFF_ID in said
    assert "The first" in shown("mapped", 0)
    assert "The second" in shown("mapped", 1)


def test_tab_is_for_tasks_of_crews_only(page, run):
    page.open(f"{run.airflow.url}/dags/crew_tab/runs/{quote(run.run_id)}/tasks/plain/plugin/crew")

    if AIRFLOW < (3, 4):
        page.wait_for(f"{TAB}?.innerText === 'This tab is for tasks that run a crew.'")
    else:
        page.wait_for("document.body.innerText.includes('Audit Log')")
        assert page.evaluate(
            "[...document.querySelectorAll('a')].every((link) => !link.href.endsWith('plugin/crew'))"
        )


HARMFUL = "script, img, svg, iframe, object, embed, style, link, meta, base, form, input, video, math, noscript"


@pytest.fixture
def harmless(page) -> Iterator[None]:
    """Notice what the attacks on a page have run, drawn or reached."""
    noted = "globalThis.crewGotIn = (...args) => (globalThis.crewsDoing ??= []).push(args)"
    page.call("Page.addScriptToEvaluateOnNewDocument", source=noted)
    yield
    assert page.evaluate("globalThis.crewsDoing ?? []") == []
    assert all_of(page, HARMFUL, "outerHTML") == []
    assert {urlsplit(each).scheme for each in all_of(page, "a", "href")} <= {"http", "https"}
    names = page.evaluate(f"[...{TAB}.querySelectorAll('*')].flatMap((each) => each.getAttributeNames())")
    assert [name for name in names if name.startswith("on")] == []
    reached = [url for url in page.requests if not url.startswith("data:")]
    assert {urlsplit(url.removeprefix("blob:")).hostname for url in reached} == {HOST}


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize("task", ["hostile", "hostile_running", "hostile_batch"])
def test_hostile_output_is_shown_and_never_run(shown, page, task):
    said = shown(task)
    # All that can be unfolded, and each kind of event that a mouse makes.
    page.evaluate(f"{TAB}.querySelectorAll('summary, .crew-cut button').forEach((each) => each.click())")
    time.sleep(1)
    page.evaluate(
        f"{TAB}.querySelectorAll('*').forEach((each) =>"
        " ['mouseover', 'mouseenter', 'focus'].forEach((name) => each.dispatchEvent(new Event(name))))"
    )
    time.sleep(1)

    assert "<script>crewGotIn(1)</script>" in said


@pytest.fixture
def others_airflow(page, airflow, tmp_path) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Have the same tasks behind an address with a path, and be one of its users, who have different rights."""
    from tests.system import viewers

    def log_in_as(name: str) -> None:
        log_in(page, url, {"username": name, "password": viewers.PASSWORDS[name]})

    def answers() -> bool:
        with suppress(requests.RequestException):
            return requests.get(f"{url}/api/v2/version", timeout=5).ok
        return False

    port = free_port()
    url = f"http://{HOST}:{port}/air/flow"
    settings = {"AIRFLOW__API__PORT": str(port), "AIRFLOW__API__BASE_URL": url}
    process = airflow.start_another("api-server", settings | viewers.settings(tmp_path / "passwords.json"))
    eventually(answers)
    yield url, log_in_as
    process.stop()
    log_in(page, airflow.url)


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
    for task, text in {"paused": "Waiting for human input", "running": "of 3", "batch": "of 1,000 rows"}.items():
        open_page(page, url, task, text)
    failed = open_page(page, url, "failed", EVENT)
    assert failed.startswith("Failed")
    height = f"{row('failed')}.offsetHeight"
    before = page.evaluate(height)
    page.evaluate(f"{row('failed')}.querySelector('button').click()")
    page.wait_for(f"{row('failed')}?.innerText.includes('Billed') && {height} > {before}")

    page.evaluate(f"{row('failed')}.querySelector('a').click()")
    page.wait_for(f"!{PAGE} && {TAB}?.innerText.includes({EVENT!r})")
    page.evaluate("history.back()")
    page.wait_for(f"{row('failed')}?.innerText.includes({EVENT!r})")


@pytest.mark.nightly
def test_filters_of_the_crews_page_are_in_its_address(page, run):
    page.open(f"{run.airflow.url}/plugin/crews?dag=crew_tab&state=failed")
    page.wait_for(row("failed"))
    assert page.evaluate(f"Boolean({row('running')})") is False

    page.evaluate(
        f"[...{PAGE}.querySelectorAll('button')].find((each) => each.innerText.includes('Completed')).click()"
    )
    page.wait_for("location.search === '?dag=crew_tab&state=completed'")
    page.evaluate("history.back()")
    page.wait_for(f"location.search === '?dag=crew_tab&state=failed' && {row('failed')}")
    page.evaluate("history.forward()")
    if AIRFLOW >= (3, 3):  # before, the page knows a task of a crew by its progress, and this one has pushed none
        page.wait_for(row("finished"))


def test_failed_task_is_cleared_by_a_user_with_the_right(shown, page, run, others_airflow):
    url, log_in_as = others_airflow

    def open_row() -> None:
        open_page(page, url, "failed", EVENT)
        page.evaluate(f"{row('failed')}.querySelector('button').click()")
        page.wait_for(f"{row('failed')}?.querySelector('.crew-clear')")

    places = [(TAB, lambda: shown("failed", url=url)), (f"({row('failed')})", open_row)]
    for tries, (place, show) in enumerate(places, 1):
        press = f"{place}.querySelector('.crew-danger, .crew-clear button').click()"
        log_in_as("reader")
        show()
        page.evaluate(press)
        page.wait_for(f"{place}.innerText.includes('no permission to clear')")
        assert run.task("failed")["try_number"] == tries

        log_in_as("admin")
        show()
        page.evaluate(press)
        page.wait_for(f"{place}.innerText.includes('Clear 1 task')")
        page.evaluate(press)
        page.wait_for(f"{place}?.innerText.includes('Cleared 1 task') ?? true")
        run.wait_for("failed", "failed", tries=tries + 1)


def test_user_without_xcom_access_sees_nothing_of_a_crew(shown, page, others_airflow):
    url, log_in_as = others_airflow
    log_in_as("admin")
    assert shown("finished", url=url).startswith("Completed\n")

    log_in_as("viewer")
    assert "XCom" in shown("finished", url=url)
    assert KICKOFF_ID not in page.evaluate("document.body.innerText")
    page.open(f"{url}/plugin/crews")
    page.wait_for(f"{PAGE}?.innerText.includes('You have no permission')")
