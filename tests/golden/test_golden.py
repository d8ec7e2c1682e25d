"""
What each release has stored is read by today's code, which continues as if it had stored it itself.

If a format of a version that is not released changes, remove its set, and run ``make golden`` again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, TaskDeferred

from airflow_provider_crew import __version__
from airflow_provider_crew.answers.people import APPROVE
from airflow_provider_crew.answers.people import KEY as ANSWER
from airflow_provider_crew.answers.question import QUESTION
from airflow_provider_crew.batch.files import FACTS
from airflow_provider_crew.batch.results import FAILED, RESULTS
from airflow_provider_crew.client.progress import PROGRESS
from airflow_provider_crew.exceptions import InvalidResultPath
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.task.ask import REQUEST
from airflow_provider_crew.task.output import REASON
from airflow_provider_crew.task.record import BATCH, KEY, KICKOFF_ID
from airflow_provider_crew.task.result import RESULT, RETURN_VALUE, USAGE
from airflow_provider_crew.task.send import today
from airflow_provider_crew.triggers.events import DEFERRAL
from tests.golden.scenes import DECADE, SCENES, Scene, recorded, restored
from tests.integration.batches import newest
from tests.integration.tasks import SLOW, TOKEN, rebuilt
from tests.promises.attempts import Outcome
from tests.promises.harness import World
from tests.promises.kinds import Batch
from tests.supported import AIRFLOW

pytest_plugins = [
    "tests.integration.task_fixtures",
    "tests.integration.dialog_fixtures",
    "tests.integration.tab_page",
    "tests.promises.fixtures",
]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Airflow has a task state store from 3.3 on.")

SETS = Path(__file__).parent
# Formats that a version stores, and those that this code stores.
VERSIONS = [*sorted(path.name for path in SETS.iterdir() if path.name[0].isdigit()), "today"]

Read = Callable[..., dict[str, Any]]


@pytest.fixture(params=VERSIONS)
def read(request) -> Read:
    """Return what a version has stored in a scene. Names that differ from run to run have others in the files."""

    def read_set(name: str, record: Callable[[], dict[str, Any]], **differs: str) -> dict[str, Any]:
        into: Path | None = request.config.getoption("--golden-into")
        path = SETS / request.param / f"{name}.json"
        if request.param == "today":
            text = json.dumps(record(), indent=1)
            assert TOKEN not in text
            if not into:
                return json.loads(text)
            for known, value in differs.items():
                text = text.replace(value, f"<{known}>")
            path = into / path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        text = path.read_text()
        for known, value in differs.items():
            text = text.replace(f"<{known}>", value)
        return json.loads(text)

    return read_set


@pytest.fixture
def stored(read, world, ledger, name, tmp_path) -> dict[str, Any]:
    """What is stored in a scene."""
    scene = SCENES[name]
    return read(
        name, lambda: recorded(world, scene, ledger), crew=world.crew.url, today=today(), folder=f"{tmp_path}"
    )


@pytest.mark.parametrize("name", SCENES)
def test_next_process_continues_from_what_is_stored(world, ledger, name, stored):
    scene = SCENES[name]
    job = restored(world, scene, stored, ledger)
    deferral = {name: value for name, value in stored["deferral"].items() if name != "event"}

    outcome = job.task.attempt(deferral) if deferral else job.attempt()

    assert ("event" in deferral) is bool(deferral)  # without one, the task polls once by itself
    assert_continued(world, scene, stored, outcome)


def assert_continued(world: World, scene: Scene, stored: dict[str, Any], outcome: Outcome) -> None:
    assert type(getattr(outcome.error, "failure", outcome.error)) is (scene.error or type(None))
    assert len(world.crew.requests.on("kickoff")) == scene.kickoffs
    if scene.rows:
        assert {status: n for status, n in outcome.value["counts"].items() if n} == scene.rows
    elif not scene.error:
        assert (outcome.value["kickoff_id"] in stored["kickoff_ids"]) is not bool(scene.kickoffs)


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if "deferred" in name])
def test_task_continues_from_stored_event(world, ledger, name, stored):
    job = restored(world, SCENES[name], stored, ledger)

    assert "event" in stored["deferral"]
    assert_continued(world, SCENES[name], stored, job.task.attempt(stored["deferral"]))


@pytest.mark.parametrize("name", ["deferred_with_cancel"])
def test_mark_stops_stored_execution(world, ledger, name, stored):
    job = restored(world, SCENES[name], stored, ledger, SLOW)
    world.at("status", job.mark)
    deferral = {**stored["deferral"], "event": None}

    job.task.attempt(deferral)

    assert world.crew.stopped_ids == stored["kickoff_ids"]


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if scene.alert])
def test_alert_reads_what_is_stored(world, ledger, name, stored):
    """The process is lost: all that its DAG's alert has is stored."""
    job, sent = restored(world, SCENES[name], stored, ledger), list[str]()
    job.task.state = "failed"
    with DAG("research", schedule=None) as dag:
        job.operator(**job.options)

    CrewAlert(lambda *told: sent.extend(told))({"dag": dag, "run_id": "today", "reason": "task_failure"})

    subject, text = sent
    assert subject.startswith(f"[{SCENES[name].alert}]")
    if not SCENES[name].rows:
        assert stored["xcoms"].get("kickoff_id", "") in text


@pytest.mark.parametrize("name", SCENES)
def test_crew_tab_reads_what_is_stored(page, name, stored):
    scene = SCENES[name]
    state = "deferred" if stored["deferral"] else "failed" if scene.alert else "success"
    seen = {"state": state, "tryNumber": 1, "isSensor": False, "retryAt": None, **stored["xcoms"]}
    seen["record"] = stored["states"].get("crew_kickoff")

    shown = page.evaluate(f'import("/story.js").then(({{ story }}) => story({json.dumps(seen)}))')

    assert shown["title"] == scene.tab
    if not scene.rows and scene.alert != "unknown":
        assert shown["kickoffId"] == stored["kickoff_ids"][0]


@pytest.mark.parametrize("name", ["batch_ended"])
def test_stored_failed_rows_are_inputs_of_a_batch(world, ledger, name, stored):
    job = restored(world, SCENES[name], stored, ledger)
    other = Batch(world, inputs=str(newest(job.folder, "failed")))

    outcome = other.attempt()

    assert outcome.value["counts"]["success"] == len(world.crew.requests.on("kickoff")) == 1


@pytest.mark.parametrize("stored", ["folder", "entry"])
def test_batch_of_another_version_ends_without_a_retry(world, stored):
    job = Batch(world)
    if stored == "folder":
        job.folder.mkdir(exist_ok=True)
        (job.folder / "batch.json").write_text('{"schema_version": 1, "dag_id": "research"}')
    else:
        job.now.store.set(BATCH, {"address": world.crew.url, "max_tries": 2, "groups": [], "plan": "7"})

    outcome = job.attempt()

    assert isinstance(outcome.error.failure, InvalidResultPath)
    assert not outcome.is_retried
    assert not world.crew.requests.on("kickoff")


@pytest.fixture
def asked(dialog, read) -> TaskDeferred:
    """A task that has opened a request for a question, and is deferred, from what is stored."""

    def record() -> dict[str, Any]:
        waiting = dialog.asked()
        left = {"method": waiting.method_name, "kwargs": waiting.kwargs, "trigger": waiting.trigger.serialize()}
        (kickoff,) = dialog.crew.kickoffs
        states, xcoms = dialog.store.entries, dialog.questions.xcoms
        return {"kickoff_id": kickoff.kickoff_id, "states": states, "xcoms": xcoms, **left}

    dialog.task_with(timeout=DECADE)
    found = read("asked", record, crew=dialog.crew.url, receiver=dialog.questions.url)
    if not dialog.crew.kickoffs:
        dialog.crew.next_kickoff_id(found["kickoff_id"])
        dialog.crew.take({}, None, {})
    question = dialog.crew.kickoffs[0].standing(dialog.crew.now()).question
    found = json.loads(json.dumps(found).replace(found["states"]["crew_answer"]["task_id"], question))
    for key, value in found["states"].items():
        dialog.store.set(key, value)
    dialog.questions.xcoms.update(found["xcoms"])
    dialog.questions.arrived.add(question)
    dialog.task.ti.try_number = 1
    dialog.requests.clear()
    return TaskDeferred(trigger=rebuilt(*found["trigger"]), method_name=found["method"], kwargs=found["kwargs"])


def test_answer_goes_to_stored_question(dialog, asked):
    waiting = dialog.chosen(asked, APPROVE)

    (answer,) = dialog.answers
    (kickoff,) = dialog.crew.kickoffs
    assert (answer["executionId"], answer["taskId"]) == (kickoff.kickoff_id, dialog.kept["task_id"])
    assert dialog.ended(waiting)["kickoff_id"] == kickoff.kickoff_id


@pytest.mark.usefixtures("asked")
def test_next_attempt_watches_stored_request(dialog):
    waiting = dialog.task.deferred()

    assert waiting.trigger.asked
    assert dialog.requests == []
    assert len(dialog.crew.kickoffs) == 1


@pytest.mark.skipif(not (SETS / __version__).exists(), reason="make golden has not run for this version")
def test_set_of_this_version_has_every_kind_of_entry():
    stored = [json.loads(path.read_text()) for path in (SETS / __version__).iterdir()]
    names = {name for each in stored for name in (*each["xcoms"], *each["states"])}
    keys = {REASON if name.startswith(REASON) else name.partition("_0")[0] for name in names}
    files = {re.split("[-/]", name)[0] for each in stored for name in each.get("files", ())}

    xcoms = {RETURN_VALUE, KICKOFF_ID, USAGE, RESULT, DASHBOARD_KEY, PROGRESS, DEFERRAL, QUESTION}
    assert keys == xcoms | {KEY, BATCH, REQUEST, ANSWER, REASON, "crew_watch"}
    assert files == {"batch", FACTS, RESULTS, FAILED, "manifest"}
