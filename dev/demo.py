"""
Run a crew from a DAG, on a real Airflow and a crew service on this machine, and watch both.

The crew recites a script, or is a real one: ``python -m dev.run demo PROJECT INTERPRETER``.
"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.projects.engine import Project
from dev.progress import on_terminal, stage
from dev.target import TargetError, checkout_airflow, connection_to, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dev.rest import AirflowApi

SCENARIO = Path(__file__).with_suffix(".toml")
_DAG = "crew_in_one_task"
_TASK = "report"
_CONF = {"topic": "electric ferries", "audience": "harbour masters"}
_PAUSE = 0.5
_PATIENCE = 180
_MARGIN = "    "
_OF_THE_CREW = ("Execution ", "Started execution ", "Reattached to execution ")

_OVER = {"success", "failed", "up_for_retry", "upstream_failed", "skipped"}
_MEANING = {
    None: "not scheduled yet",
    "running": "running in a worker",
    "deferred": "deferred, no worker held",
}
_WIDEST = max(map(len, _MEANING.values()))


@dataclass(frozen=True)
class Look:
    """How the task is, as Airflow tells it, and how the crew is, as its service tells it."""

    state: str | None
    crew: str
    done: int
    total: int | None
    """How many tasks the crew has, once it says so."""

    @property
    def task(self) -> str:
        """The state of the task, with what that means."""
        return _MEANING.get(self.state) or str(self.state)


_NEXT = """\
Try next:
    make airflow                            # such an Airflow, to look around in
    make demo CREW=example_crews/briefing   # a real crew, which needs no key
    .venv/bin/python -m airflow_provider_crew.local
                                            # a crew for DAGs of your own"""


def main(*project: str) -> None:
    """Run the demo."""
    with _crew(*project) as service:
        print(f"A crew listens at {service.url}: the connection crew_default.")
        began = time.time()
        airflow = checkout_airflow({"AIRFLOW_CONN_CREW_DEFAULT": json.dumps(connection_to(service))})
        with opened(airflow):
            service.airflow_url = airflow.url
            api = airflow.api
            with stage("Waiting for Airflow to read the DAG"):
                api.wait_for_dag(_DAG, parsed_after=began)
            _give_up_old_runs(api)
            run_id = api.trigger(_DAG, _CONF)
            print(f"\nThe DAG {_DAG} was triggered with\n{_CONF}.\n")
            _show(_looks(api, run_id, service))
            _tell_end(api, run_id)
    print(f"\n{_NEXT}")


@contextmanager
def _crew(*project: str) -> Iterator[LocalCrewService]:
    service = LocalCrewService(project=_project(*project)) if project else LocalCrewService(SCENARIO)
    with stage("Starting the crew"):
        service.start()
    try:
        yield service
    finally:
        with stage("Stopping the crew"):
            service.stop()


def _project(crew: str, python: str) -> Project:
    # A demo tells nobody that it runs.
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    return Project(crew, python=python)


def _give_up_old_runs(api: AirflowApi) -> None:
    """End what an interrupted demo left: it would be taken up again, and kick off at this demo's crew."""
    for old in api.get(f"dags/{_DAG}/dagRuns", state=["queued", "running"])["dag_runs"]:
        api.patch(f"dags/{_DAG}/dagRuns/{old['dag_run_id']}", {"state": "failed"})


def _looks(api: AirflowApi, run_id: str, service: LocalCrewService) -> Iterator[Look]:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        look = _look(api, run_id, service)
        yield look
        if look.state in _OVER:
            return
        time.sleep(_PAUSE)
    raise TargetError(f"The task {_TASK} was not over after {_PATIENCE} s.")


def _look(api: AirflowApi, run_id: str, service: LocalCrewService) -> Look:
    (task,) = api.task_instances(_DAG, run_id)
    if not service.kickoffs:
        return Look(task["state"], "not kicked off yet", 0, None)
    crew = service.kickoffs[0].standing(time.time())
    at = f"at {crew.current}" if crew.current else "between two tasks" if crew.done else "beginning"
    return Look(task["state"], "done" if crew.over else at, crew.done, crew.total)


def _show(looks: Iterator[Look]) -> None:
    if on_terminal():
        _show_bar(looks)
    else:
        _show_lines(looks)


def _show_bar(looks: Iterator[Look]) -> None:
    columns = (
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn(f"task [bold]{{task.fields[task_state]:{_WIDEST}}}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[crew]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=None, task_state="", crew="")
        for look in looks:
            progress.update(bar, total=look.total, completed=look.done, task_state=look.task, crew=look.crew)


def _show_lines(looks: Iterator[Look]) -> None:
    began, last = time.monotonic(), None
    for look in looks:
        if look != last:
            at = time.monotonic() - began
            print(f"{at:5.1f} s  crew {look.done}/{look.total or '?'}, {look.crew}; task {look.task}")
        last = look


def _tell_end(api: AirflowApi, run_id: str) -> None:
    said = [line for event in api.log_events(_DAG, run_id, _TASK) for line in _told_of_the_crew(event)]
    log = _indented("\n".join(said))
    state = api.task_instances(_DAG, run_id)[0]["state"]
    if state != "success":
        raise TargetError(f"The task {_TASK} ended as {state}. From its log:\n\n{log}")
    result = api.xcom(_DAG, run_id, _TASK)
    print(f"\nFrom the task's log:\n\n{log}\n")
    print(f"The task's XCom: {len(result['tasks'])} tasks, and this output:\n")
    print(_indented(result["output"]))


def _indented(text: str) -> str:
    """Indent, and break what is wider than the terminal."""
    if not on_terminal():
        return textwrap.indent(text, _MARGIN)
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, initial_indent=_MARGIN, subsequent_indent=f"{_MARGIN}  ")
        for line in text.splitlines()
    )


def _told_of_the_crew(event: dict[str, Any]) -> list[str]:
    """Leave out what Airflow says about itself."""
    own = [event["event"]] if event["event"].startswith(_OF_THE_CREW) else []
    return own + [f"{error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail", ())]
