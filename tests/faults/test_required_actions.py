"""A deferred task asks under Required Actions while its crew waits for human input."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING
from dev.rest import ApiError
from tests.airflow_runs import eventually
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, Ends, paid_again, row
from tests.faults.test_people import ASKS
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A deferred task cannot ask before Airflow 3.3.")

INPUT: dict[str, Any] = {"scenario": ASKS, "human_input": True}


def requests(scene) -> list[dict[str, Any]]:
    """Return the requests of the task that a user can answer now."""
    found = scene.airflow.api.get(
        f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/hitlDetails", response_received=False
    )
    return list(found["hitl_details"])


def asked(scene) -> None:
    """Start, and return when the task has asked and is deferred again."""
    scene.start()
    eventually(lambda: requests(scene), pause=1.0)
    eventually(lambda: scene.run.may_be_answered(scene.task_id), pause=1.0)


def choose(scene, option: str) -> None:
    """Answer the request."""
    task = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/taskInstances/{scene.task_id}/-1"
    scene.airflow.api.patch(f"{task}/hitlDetails", {"chosen_options": [option], "params_input": {}})


@row(COMPLETED, core=True, **INPUT)
def test_required_action_is_answered(scene):
    """A user answers the crew and chooses Answered."""
    asked(scene)
    scene.crew.approve(scene.execution())
    choose(scene, HAS_ANSWERED)
    scene.finish()


@row(COMPLETED, **INPUT)
def test_required_action_is_answered_twice(scene):
    """Two users answer the same request."""
    asked(scene)
    scene.crew.approve(scene.execution())
    choose(scene, HAS_ANSWERED)
    with pytest.raises(ApiError, match="409"):
        choose(scene, STOP_WAITING)
    scene.finish()


@row(COMPLETED, **INPUT)
def test_required_action_is_answered_too_early(scene):
    """A user chooses Answered, but the crew still waits."""
    asked(scene)
    choose(scene, HAS_ANSWERED)
    eventually(lambda: not requests(scene), pause=1.0)
    eventually(lambda: requests(scene), pause=1.0)
    scene.crew.approve(scene.execution())
    scene.finish()


@row(Ends("failed", "only the kickoff ID", "running"), retries=2, **INPUT)
def test_required_action_stops_the_wait(scene):
    """A user chooses Stop waiting."""
    asked(scene)
    choose(scene, STOP_WAITING)


@row(COMPLETED, **INPUT)
def test_required_action_is_closed_by_the_trigger(scene):
    """The crew continues, and nobody answers under Required Actions."""
    asked(scene)
    scene.crew.approve(scene.execution())
    eventually(lambda: not requests(scene), pause=1.0)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, forgotten={"deferred": paid_again()}, **INPUT)
def test_required_action_and_a_clear(scene):
    """The task is cleared while it asks under Required Actions."""
    asked(scene)
    scene.run.clear(scene.task_id)
    scene.looked()
    scene.crew.approve(scene.execution())
    scene.finish()


@row(COMPLETED, alone=True, **INPUT)
def test_required_action_and_a_new_triggerer(scene):
    """The triggerer is killed while a task asks under Required Actions."""
    asked(scene)
    triggerer = scene.airflow.processes["triggerer"]
    triggerer.kill()
    triggerer.start()
    scene.looked()
    scene.crew.approve(scene.execution())
    choose(scene, HAS_ANSWERED)
    scene.finish()


@row(COMPLETED, **INPUT)
def test_required_action_is_answered_while_the_trigger_fires(scene):
    """The crew completes at the moment at which a user answers."""
    asked(scene)
    scene.crew.approve(scene.execution())
    scene.finish()
    choose(scene, HAS_ANSWERED)
