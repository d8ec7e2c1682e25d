"""
The Crew tab and the Crews page never say less than is known, in a run of each kind, watched every second.

Each look of a page at Airflow has to show all that the task knew when the look began, as the crew's own record of
requests proves. A row of the Crews page may be two looks late. No rule depends on the speed of the machine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_provider_crew.answers.people import APPROVE
from airflow_provider_crew.local import LocalCrewService
from dev.chromium import EXECUTABLE, Chromium, Page
from dev.rest import ApiError, seconds_since_epoch
from tests.airflow_runs import Run, eventually
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch and answers need Airflow 3.3."),
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
]

CREWS = {
    "full_pool": "default",
    "answered": "answering",
    "approved": "answering",
    "timed_out": "slow",
    "failed": "ending",
    "batch": "default",
}
ASKED = ("answered", "approved")
RESPONSE_TIMEOUT = 12
# Longer than the tab waits between two looks.
DELIVERY = 6
ROWS, PILOT = 5, 2
LIMIT = re.compile(r"(?:answer within|If you do nothing\s+[Ii]n|stops waiting in) ((?:\d+[dhms] ?)+)")
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


NEVER = float("inf")


@dataclass
class Shown:
    """
    What is shown of a task.

    :param at: Times right before and right after it was read.
    :param began: When the look at Airflow began that found it.
    :param listed: When the page began to read the list that it shows.
    :param polled_at: When the crew was last polled, according to it.
    :param current: Tasks at which it shows the crew.
    :param place: Where the crew failed.
    :param limits: What the page says happens if nobody answers.
    """

    at: tuple[float, float]
    where: str
    text: str
    began: float
    listed: float = 0
    polled_at: float = 0
    current: list[str] = field(default_factory=list)
    buttons: list[str] = field(default_factory=list)
    place: str = ""
    limits: str = ""

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0]


@dataclass
class Times:
    """When something happened to a task. What has not happened yet is never."""

    asked: float = NEVER
    """The crew's question had arrived."""
    opened: float = NEVER
    """A request for the crew's question was open."""
    answering: float = NEVER
    """A user is about to answer, or Airflow."""
    answered: float = NEVER
    queued: float = NEVER
    """Its trigger had fired, and no worker was free."""
    released: float = NEVER
    ended: float = NEVER


@dataclass
class Record:
    """What the crew knows of a task."""

    crew: LocalCrewService
    executions: list[Any]
    times: Times

    def asked_at(self, number: int = 0) -> float:
        """Return when the crew was first polled for an execution, whose ID is stored by then."""
        return min(self._polls(number), default=NEVER)

    def started_at(self, number: int) -> float:
        return self.executions[number].started_at if number < len(self.executions) else NEVER

    def ended(self, until: float) -> int:
        return sum(each.standing(until).over for each in self.executions)

    def finished(self, polled_at: float) -> set[str]:
        """Return the names of the tasks that were finished at the last poll."""
        polls = [at for at in self._polls(0) if at <= polled_at]
        return {task.name for task in self.executions[0].standing(max(polls)).tasks} if polls else set()

    def _polls(self, number: int) -> list[float]:
        ids = [each.kickoff_id for each in self.executions[number : number + 1]]
        return [it.received_at for it in self.crew.requests.on("status") if any(id_ in it.path for id_ in ids)]


def hides_the_task(_: str, shown: Shown, record: Record) -> bool:
    """Whether it has no row. It leaves the page when it succeeds."""
    return record.asked_at() < shown.listed and shown.at[1] < record.times.ended and not shown.text


def hides_the_execution(task: str, shown: Shown, record: Record) -> bool:
    if shown.began < record.asked_at() or (shown.where == "page" and not shown.text):
        return False
    names_it = shown.where == "page" or task == "batch" or record.executions[0].kickoff_id in shown.text
    is_unknown = shown.title in {"…", "Not started yet", "Starting", "Starting again"}
    return not names_it or is_unknown or "No execution is known" in shown.text


def ends_too_early(_: str, shown: Shown, record: Record) -> bool:
    """Whether it says that an execution has ended which is running."""
    return shown.title in {"Completed", "Failed"} and record.ended(shown.at[1]) < len(record.executions)


def hides_the_question(task: str, shown: Shown, record: Record) -> bool:
    is_asked = record.times.asked < shown.began and shown.at[1] < record.times.answering
    return task in ASKED and is_asked and shown.title != "Waiting for human input"


def asks_again(task: str, shown: Shown, record: Record) -> bool:
    """Whether it asks for an answer that was given."""
    asks = shown.buttons or "human input" in shown.title or "Answer in" in shown.text
    return task in ASKED and record.times.answered < shown.began and bool(asks)


def shows_a_later_limit(task: str, shown: Shown, record: Record) -> bool:
    """Whether it says that the task stops waiting, although Airflow approves the draft before."""
    is_open = record.times.opened < shown.began and shown.at[1] < record.times.answering
    is_hidden = is_open and "approves the draft" not in (shown.limits if shown.where == "page" else shown.text)
    return task == "approved" and (is_hidden or any(limit > RESPONSE_TIMEOUT for limit in limits(shown.text)))


def limits(text: str) -> list[int]:
    """Return the seconds until something happens if nobody answers."""
    times = (re.findall(r"(\d+)([dhms])", found) for found in LIMIT.findall(text))
    return [sum(int(count) * UNITS[unit] for count, unit in each) for each in times]


def names_a_finished_task(task: str, shown: Shown, record: Record) -> bool:
    """Whether the crew is shown at a task, or has failed in one, that was finished at the last poll."""
    finished = record.finished(shown.polled_at) if task != "batch" else set()
    place = "" if shown.place.lower().startswith("after") else shown.place
    return any(name in shown.current or name in place for name in finished)


def hides_the_pilot(task: str, shown: Shown, record: Record) -> bool:
    told = re.search(rf"Pilot: (\d) of {PILOT} rows ended; {ROWS - PILOT} wait for it", shown.text)
    if task != "batch" or not shown.text or (not told and shown.began < record.asked_at()):
        return "Pilot:" in shown.text and not told
    if shown.at[1] < record.started_at(PILOT):
        return not told or int(told[1]) > record.ended(shown.at[1])
    return bool(told) and record.asked_at(PILOT) < min(shown.began, shown.polled_at)


def hides_the_wait_for_a_worker(task: str, shown: Shown, record: Record) -> bool:
    is_queued = record.times.queued < shown.began and shown.at[1] < record.times.released
    return task == "full_pool" and is_queued and "waits for a worker" not in shown.text


RULES: list[Callable[[str, Shown, Record], bool]] = [
    hides_the_task,
    hides_the_execution,
    ends_too_early,
    hides_the_question,
    asks_again,
    shows_a_later_limit,
    names_a_finished_task,
    hides_the_pilot,
    hides_the_wait_for_a_worker,
]


@pytest.fixture
def page(airflow) -> Iterator[Page]:
    """Return the Crews page, which shows the tabs of a run below its rows."""
    airflow.api.wait_for_dag("watched")
    with Chromium() as browser:
        opened = browser.page()
        opened.resize(1400, 5000)  # each row is in view
        token = requests.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"]
        opened.log_in(airflow.url, token)
        script = Path(__file__).with_name("watched.js").read_text()
        opened.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        opened.open(f"{airflow.url}/plugin/crews?dag=watched")
        opened.wait_for(
            "globalThis.watchRun && document.querySelector('.crew-page')?.innerText.includes('No crew')"
        )
        yield opened


class Story:
    """A run that is watched, and what happens to it."""

    def __init__(self, run: Run, crews: dict[str, LocalCrewService], meet_in: Path) -> None:
        self.run, self.crews, self._meet_in = run, crews, meet_in
        self.times = {task: Times() for task in CREWS}

    def record(self, task: str) -> Record:
        crew = self.crews[CREWS[task]]
        own = [it for it in self.run.kickoffs(crew) if it.meta["airflow"]["task_id"] == task]
        return Record(crew, own, self.times[task])

    def go_on(self, now: dict[str, list[Shown]]) -> bool:
        """Answer a question, and free a slot, once they were shown. Return whether all tasks have ended."""
        found = self.run.airflow.api.task_instances("watched", self.run.run_id)
        tasks = {ti["task_id"]: ti for ti in found if ti["task_id"] in CREWS}
        for task in ASKED:
            if self.times[task].asked == NEVER and "question" in self._found(task, "crew_question"):
                self.times[task].asked = time.time()
        for request in self.run.open_requests():
            times = self.times[request["task_instance"]["task_id"]]
            times.opened = min(times.opened, time.time())
        self._answer(now["answered"])
        self._note_the_approval()
        times, is_queued = self.times["full_pool"], tasks["full_pool"]["state"] in {"scheduled", "queued"}
        if is_queued and self.record("full_pool").ended(time.time()):
            times.queued = min(times.queued, time.time())
        are_seen = all(max(shown.began, shown.listed) > times.queued for shown in now["full_pool"])
        if times.released == NEVER and are_seen:
            times.released = time.time()
            (self._meet_in / "let go").touch()
        for task, ti in tasks.items():
            if ti["state"] == "success":
                self.times[task].ended = seconds_since_epoch(ti["end_date"])
        return all(ti["state"] in {"success", "failed"} for ti in tasks.values())

    def _found(self, task: str, key: str) -> Any:
        """Return an XCom. Empty if there is none yet."""
        with suppress(ApiError):
            return self.run.xcom(task, key)
        return {}

    def _answer(self, now: list[Shown]) -> None:
        times = self.times["answered"]
        is_seen = times.answering == NEVER and all(max(shown.began, shown.listed) > times.opened for shown in now)
        if is_seen and self.run.may_be_answered("answered"):
            times.answering = time.time()
            self.run.respond("answered", APPROVE)
            times.answered = time.time()

    def _note_the_approval(self) -> None:
        """Take note of the answer that Airflow gives itself."""
        times, record = self.times["approved"], self.record("approved")
        if times.opened < NEVER:
            times.answering = self.run.stored("approved")["crew_answer"]["answer_by"]
        ids = {each.kickoff_id for each in record.executions}
        sent = [it for it in record.crew.requests.on("resume") if it.json["executionId"] in ids]
        times.answered = sent[0].received_at if sent else NEVER


def moment(page: Page) -> dict[str, list[Shown]]:
    """Return what is shown now, in the tab of each task and in its row."""
    before = time.time()
    found = page.evaluate(f"shownNow({[*CREWS]})")
    at = (before, time.time())
    return {task: [Shown(at=at, **each) for each in both] for task, both in found.items()}


def test_pages_never_say_less_than_is_known(airflow, start, crews, page, tmp_path):
    airflow.api.post("pools", {"name": "one_slot", "slots": 1, "include_deferred": False, "description": ""})
    crews["answering"].faults.hang(seconds=DELIVERY, on="resume", times=len(ASKED))
    story = Story(start("watched", meet_in=str(tmp_path)), crews, tmp_path)
    page.evaluate(f"watchRun({{ run: {story.run.run_id!r}, tasks: {[*CREWS]} }})")
    moments: list[dict[str, list[Shown]]] = []

    def watch() -> bool:
        moments.append(moment(page))
        return story.go_on(moments[-1])

    eventually(watch, pause=0.7)
    ended = time.time()
    eventually(lambda: watch() and all(tab.began > ended for tab, _ in moments[-1].values()), pause=0.7)

    records = {task: story.record(task) for task in CREWS}
    wrong = [
        f"{task}, {shown.where}, {shown.at[0] - moments[0][task][0].at[0]:.0f} s: {rule.__name__}: {shown}"
        for each in moments
        for task, both in each.items()
        for shown in both
        for rule in RULES
        if rule(task, shown, records[task])
    ]
    assert not wrong, "\n".join(wrong)
    ends = dict.fromkeys(CREWS, "Completed") | {"timed_out": "Stopped waiting", "failed": "Failed"}
    assert {task: tab.title for task, (tab, _) in moments[-1].items()} == ends
