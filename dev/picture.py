"""Run crews in a real Airflow, and take the pictures of README and docs: ``make picture``."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import requests

from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask, When
from dev.chromium import Chromium, Page
from dev.demo import SCENARIO
from dev.stack import AirflowStack
from dev.target import connection_to

if TYPE_CHECKING:
    from dev.rest import AirflowApi

_DOCS = Path(__file__).parents[1] / "docs"
_TASK = "report"
_TAB = "document.querySelector('.crew-tab')"
_WIDE, _WIDE_LOG, _NARROW, _HIGH, _LOW = 1200, 1440, 560, 900, 240

_DAGS = """
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG
from airflow_provider_crew.operators.crew import CrewBatchOperator, CrewRunOperator

INPUTS = {"topic": "electric ferries", "audience": "harbour masters"}
DEFERRED = {"deferrable": True, "poll_interval": 1}
IN_THE_WORKER = {"retries": 1, "retry_delay": timedelta(seconds=1), "poll_interval": 1}

for name, arguments in {
    "weekly_brief": DEFERRED,
    "failing_brief": DEFERRED,
    "waiting_brief": DEFERRED | {"human_input": True},
    "answered_brief": DEFERRED | {"answer_in_airflow": True},
    "killed_brief": IN_THE_WORKER,
}.items():
    with DAG(name, schedule=None):
        CrewRunOperator(task_id="report", inputs=INPUTS, crew_conn_id=name, **arguments)

with DAG("many_briefs", schedule=None):
    topics = [INPUTS | {"topic": f"port {number}"} for number in range(3)]
    CrewRunOperator.partial(task_id="report", crew_conn_id="failing_brief", **DEFERRED).expand(inputs=topics)

with DAG("all_briefs", schedule=None):
    rows = [INPUTS | {"topic": f"port {number % 30}"} for number in range(120)]
    where = f"{Path(__file__).parents[1].as_uri()}/rows"
    batch = {"result_path": where, "max_failed": "20%", "max_active": 6}
    CrewBatchOperator(task_id="report", inputs=rows, crew_conn_id="all_briefs", **batch, **DEFERRED)
"""


def main() -> None:
    """Take all pictures."""
    home = Path(tempfile.mkdtemp(prefix="airflow-pictures-"))
    (home / "dags").mkdir()
    (home / "dags/briefs.py").write_text(_DAGS)
    scenario = Scenario.load(SCENARIO)
    # The page asks Airflow every few seconds, and has to find the second task at work.
    research, writing, last = scenario.tasks
    first = research, writing.model_copy(update={"seconds": 12})
    scenario = scenario.model_copy(update={"tasks": (*first, last)})
    failing = last.model_copy(update={"error": "The model's provider returned 402: out of credit"})
    waiting = last.model_copy(update={"human_input": True})
    longer = tuple(task.model_copy(update={"seconds": 7}) for task in scenario.tasks)
    crews = {
        "weekly_brief": scenario,
        "failing_brief": scenario.model_copy(update={"tasks": (*first, failing)}),
        "waiting_brief": scenario.model_copy(update={"tasks": (*first, waiting)}),
        "answered_brief": scenario.model_copy(update={"tasks": (waiting,)}),
        "killed_brief": scenario.model_copy(update={"tasks": longer}),
        "all_briefs": _with_failed_rows(scenario, failing),
    }
    services = {name: LocalCrewService(crew, call_webhooks=True) for name, crew in crews.items()}
    for service in services.values():
        service.start()
    environment = {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection_to(service)) for name, service in services.items()
    }
    try:
        with AirflowStack(home, home / "dags", environment) as airflow, Chromium() as browser:
            for service in services.values():
                service.airflow_url = airflow.url
            _take(airflow, browser, services)
    finally:
        for service in services.values():
            service.stop()
        shutil.rmtree(home, ignore_errors=True)


def _take(airflow: AirflowStack, browser: Chromium, services: dict[str, LocalCrewService]) -> None:
    for dag_id in (*services, "many_briefs"):
        airflow.api.wait_for_dag(dag_id)
    page = browser.page()
    token = requests.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"]
    page.log_in(airflow.url, token)
    # The first page loads the whole of Airflow's.
    warm_up = _start(airflow, "weekly_brief")
    page.resize(_WIDE, _HIGH)
    page.open(warm_up.tab)
    page.wait_for(_TAB)

    done = _start(airflow, "weekly_brief")
    page.open(done.tab)
    page.wait_for(f"{_TAB}?.innerText.includes('1 of 3 tasks done')")
    _save_tab(page, "crew-tab-running.png")
    failed, waiting = _start(airflow, "failing_brief"), _start(airflow, "waiting_brief")
    many = _start(airflow, "many_briefs")
    answered = _start(airflow, "answered_brief")
    airflow.api.wait_for("weekly_brief", done.run_id, timeout=180)
    page.open(done.tab)
    page.wait_for("document.querySelector('.crew-output')")
    _save_tab(page, "crew-tab.png")

    airflow.api.wait_for("failing_brief", failed.run_id, timeout=180)
    page.open(failed.tab)
    page.wait_for(f"{_TAB}?.innerText.includes('out of credit')")
    _save_tab(page, "crew-tab-failed.png")
    page.resize(_WIDE_LOG, _HIGH)  # its longest line names the execution
    page.open(failed.task)
    page.wait_for("document.body?.innerText.includes('Error: ExecutionFailed')")
    end = page.evaluate(
        "document.evaluate('//*[text()[contains(., \"Error: ExecutionFailed\")]]', document.body, null, 9, null)"
        ".singleNodeValue.getBoundingClientRect().bottom"
    )
    # Without the traceback, which shows paths of this machine.
    page.save_picture(
        _DOCS / "failed-log.png", clip={"x": 364, "y": 320, "width": _WIDE_LOG - 364, "height": end - 320}
    )
    page.resize(_WIDE, _HIGH)

    page.open(waiting.tab)
    page.wait_for(f"{_TAB}?.innerText.includes('human input')")
    _save_tab(page, "crew-tab-waiting.png")
    waiting.wait_until_asked()
    page.open(f"{airflow.url}/required_actions")
    page.wait_for("document.body?.innerText.includes('report')")
    page.save_picture(_DOCS / "required-actions.png", clip={"x": 64, "y": 70, "width": _WIDE - 64, "height": 170})
    _save_request(page, answered)
    page.open(answered.tab)
    page.wait_for(f"{_TAB}?.querySelector('.crew-form')")
    _save_tab(page, "crew-tab-question.png")
    airflow.api.wait_for("many_briefs", many.run_id, timeout=180)
    page.open(_start(airflow, "all_briefs").tab)
    page.wait_for(f"{_TAB}?.innerText.includes('402') && {_TAB}?.innerText.includes('time left')")
    _save_tab(page, "crew-tab-batch.png")
    _start(airflow, "weekly_brief")
    page.open(f"{airflow.url}/plugin/crews")
    shown = "['task 2 of 3', 'out of credit', 'Clearing starts', 'rows ended']"
    page.wait_for(f"{shown}.every((each) => {_TAB}?.innerText.includes(each))")
    _save_tab(page, "crews-page.png")

    _save_story(airflow, browser, services["killed_brief"], page)


@dataclass(frozen=True)
class _Run:
    """One run of one of the DAGs."""

    api: AirflowApi
    url: str
    dag_id: str
    run_id: str

    @property
    def task(self) -> str:
        """The page of its task."""
        return f"{self.url}/dags/{self.dag_id}/runs/{quote(self.run_id)}/tasks/{_TASK}"

    @property
    def tab(self) -> str:
        """The page of its Crew tab."""
        return f"{self.task}/plugin/crew"

    def wait_until_asked(self) -> None:
        """Wait until the task has a request under Required Actions."""
        until = time.monotonic() + 120
        while not self.api.get(f"dags/{self.dag_id}/dagRuns/{self.run_id}/hitlDetails")["hitl_details"]:
            if time.monotonic() > until:
                raise TimeoutError("The task has not asked under Required Actions.")
            time.sleep(1)

    def instance(self) -> dict[str, object]:
        """Return the task instance."""
        (found,) = self.api.task_instances(self.dag_id, self.run_id)
        return found


def _with_failed_rows(scenario: Scenario, failing: ScenarioTask) -> Scenario:
    """Return a crew that fails for some of its inputs."""
    quick = tuple(task.model_copy(update={"seconds": 2}) for task in scenario.tasks)
    failed = (*quick[:2], failing.model_copy(update={"seconds": 1}))
    when = tuple(When(topic=f"port {number}", tasks=failed) for number in (7, 19))
    return scenario.model_copy(update={"tasks": quick, "when": when})


def _start(airflow: AirflowStack, dag_id: str) -> _Run:
    return _Run(airflow.api, airflow.url, dag_id, airflow.api.trigger(dag_id))


def _save_tab(page: Page, name: str) -> None:
    """Save the tab alone, without Airflow's navigation."""
    page.resize(_WIDE, 2 * _HIGH)  # so that nothing of it is scrolled away
    page.save_picture(_DOCS / name, clip=_box(page))
    page.resize(_WIDE, _HIGH)


def _save_request(page: Page, run: _Run) -> None:
    """Save a request that answers the crew, without the task around it."""
    run.wait_until_asked()
    page.resize(_WIDE, 2 * _HIGH)
    page.open(f"{run.task}/required_actions")
    # The draft is drawn after the form.
    page.wait_for("document.querySelector('textarea') && document.body.innerText.includes('| ')")
    top, bottom = page.evaluate(
        "[document.evaluate('//*[text()[contains(., \"The crew wrote\")]]', document.body, null, 9, null)"
        ".singleNodeValue.getBoundingClientRect().top,"
        " document.querySelector('textarea').getBoundingClientRect().bottom]"
    )
    clip = {"x": 316, "y": top - 50, "width": _WIDE - 316, "height": bottom - top + 150}
    page.save_picture(_DOCS / "answer-in-airflow.png", clip=clip)
    page.resize(_WIDE, _HIGH)


def _box(page: Page) -> dict[str, float]:
    box: dict[str, float] = page.evaluate(
        f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({_TAB}.getBoundingClientRect())"
    )
    return box


def _save_story(airflow: AirflowStack, browser: Chromium, service: LocalCrewService, tab: Page) -> None:
    """Save the story of a killed worker in three frames: Airflow on the left, the local server on the right."""
    crew, canvas = browser.page(), browser.page()
    crew.resize(_NARROW, _LOW)
    tab.resize(_WIDE - _NARROW + 200, _HIGH)
    frames: list[str] = []
    run = _start(airflow, "killed_brief")
    executions = service.url.replace("http://", f"http://crew:{service.scenario.token}@")

    def frame(caption: str, mark: str = "") -> None:
        crew.open(f"{executions}/local/")
        crew.wait_for("document.readyState === 'complete'")
        left, right = _shot(tab, _box(tab) | {"height": _LOW}), _shot(crew)
        frames.append(_FRAME.format(caption=caption, mark=mark, left=left, right=right))

    tab.open(run.tab)
    tab.wait_for(f"{_TAB}?.innerText.includes('Task 2 of 3')")
    frame("1. A task runs a crew. Its progress shows up in the Crew tab.")
    os.kill(int(str(run.instance()["pid"])), signal.SIGKILL)
    time.sleep(1)
    frame("2. The worker is killed with SIGKILL, and the crew keeps working.", mark="<b>Worker killed</b>")
    airflow.api.wait_for("killed_brief", run.run_id, timeout=180)
    tab.open(run.tab)
    tab.wait_for("document.querySelector('.crew-output')")
    (kickoff,) = service.kickoffs
    frame(f"3. The retry has reattached: two attempts, one kickoff, one bill. Execution {kickoff.kickoff_id[:8]}…")

    canvas.resize(_WIDE, len(frames) * (_LOW + 112))
    shown = _CANVAS + "".join(frames)
    canvas.open(f"data:text/html;base64,{base64.b64encode(shown.encode()).decode()}")
    canvas.wait_for(
        f"document.images.length === {2 * len(frames)} && "
        "[...document.images].every((image) => image.complete && image.naturalWidth)"
    )
    canvas.save_picture(_DOCS / "killed-worker.png")


_CANVAS = """
<meta charset="utf-8">
<style>
  body { margin: 0; font: 600 20px system-ui, sans-serif; background: #fff; color: #111; }
  p { margin: 0; padding: 14px 16px; background: #eef3f8; }
  section { display: flex; align-items: flex-start; gap: 12px; padding: 12px; }
  figure { margin: 0; flex: 1 1 50%; border: 1px solid #ccd; }
  figcaption { padding: 6px 10px; font-size: 14px; background: #f6f6f9; }
  b { float: right; padding: 0 8px; border-radius: 4px; background: #b3261e; color: #fff; }
  figure:has(b) { border-color: #b3261e; outline: 2px solid #b3261e; }
  img { width: 100%; display: block; }
</style>
"""
_FRAME = """
<p>{caption}</p>
<section>
  <figure><figcaption>Airflow: the task's Crew tab {mark}</figcaption>
    <img src="data:image/png;base64,{left}"></figure>
  <figure><figcaption>Local server: all executions</figcaption><img src="data:image/png;base64,{right}"></figure>
</section>
"""


def _shot(page: Page, clip: dict[str, float] | None = None) -> str:
    part = {"clip": clip | {"scale": 1}} if clip else {}
    shown: str = page.call("Page.captureScreenshot", format="png", **part)["data"]
    return shown


if __name__ == "__main__":
    main()
