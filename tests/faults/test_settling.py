"""The response to the kickoff is lost, and the crew calls Airflow (`settle_kickoffs`)."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from airflow_provider_crew.local.scenario import Delivery
from tests.airflow_runs import eventually
from tests.faults.harm import killed
from tests.faults.rows import COMPLETED, COMPLETED_IN_ATTEMPT_2, LONG, RUN, Ends, paid_again, row
from tests.faults.scenes import Code
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="This Airflow keeps no kickoff record.")

UNCERTAIN = Ends("failed", "nothing", "running")


def calling(*, within: float = 40, **how: Any) -> dict[str, Any]:
    """Return the options of a row whose crew calls like this. A later attempt waits for ``scene.now("retry")``."""
    scenario = LONG.model_copy(update={"started_webhook": Delivery(**how)})
    return {"scenario": scenario, "pre_execute": Code(f"settles({within})")}


def lose_response(scene) -> None:
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()


def heard(scene) -> dict[str, Any]:
    """Wait until Airflow has what the crew has called."""
    task = f"dags/{scene.dag_id}/dagRuns/{scene.run.run_id}/taskInstances/{scene.task_id}"

    def found() -> dict[str, Any] | None:
        entries = scene.airflow.api.get(f"{task}/state-store?map_index=-1")
        items = next(each for each in entries.values() if isinstance(each, list))
        return next((each for each in items if each["key"].startswith("crew_heard_")), None)

    there: dict[str, Any] = eventually(found, pause=1.0)
    return there


@row(COMPLETED, ways=(*RUN, "kickoff"), core=True, retries=2, **calling())
def test_started_crew_calls(scene):
    """The connection is reset after an execution started, and the crew calls."""
    lose_response(scene)
    scene.looked() if scene.way != "kickoff" else scene.wait_for("success")
    scene.finish()


@row(COMPLETED, retries=2, **calling(times=2, nested="payload"))
def test_started_crew_calls_twice_in_another_form(scene):
    """The crew calls twice, and its fields are nested."""
    lose_response(scene)
    scene.looked()
    scene.finish()


@row(COMPLETED, retries=2, **calling(delay=60, within=120))
def test_started_crew_calls_after_a_minute(scene):
    """The crew calls after a minute."""
    lose_response(scene)
    scene.looked()
    scene.finish()


@row(UNCERTAIN, retries=2, **calling(times=0, within=10))
def test_started_crew_never_calls(scene):
    """The crew never calls."""
    lose_response(scene)


@row(UNCERTAIN, retries=2, **calling(wrong_address=True, within=10))
def test_started_crew_calls_a_forged_address(scene):
    """A call comes to an address with a wrong signature."""
    lose_response(scene)


@row(COMPLETED_IN_ATTEMPT_2, core=True, forgotten={"deferred": paid_again()}, **calling(delay=25, within=5))
def test_started_crew_calls_after_the_task_has_failed(scene):
    """The crew calls after the task has failed, and a user clears the task."""
    lose_response(scene)
    scene.wait_for("failed")
    heard(scene)
    scene.clear("failed")
    scene.now("retry")
    if scene.forgets:
        scene.execution(2)
        scene.finish(2)
    scene.finish()


@row(COMPLETED_IN_ATTEMPT_2, ways=RUN, core=True, retries=2, **calling())
def test_worker_killed_before_the_response_and_crew_calls(scene):
    """The worker is killed before the response, and the crew calls."""
    scene.start_without_an_answer()
    scene.kill(with_supervisor=True)
    scene.now("retry")
    scene.looked()
    scene.finish()


@row(
    UNCERTAIN, retries=0, execution_timeout=Code("datetime.timedelta(seconds=25)"), **calling(times=0, within=300)
)
def test_execution_timeout_while_a_call_is_awaited(scene):
    """`execution_timeout` passes while the task waits for a call."""
    lose_response(scene)


@row(COMPLETED_IN_ATTEMPT_2, forgotten={"deferred": paid_again()}, **calling(delay=20, within=300))
def test_worker_shuts_down_while_a_call_is_awaited(scene):
    """The worker shuts down while the task waits for a call, which comes later. A user clears the task."""
    scene.crew.faults.reset(on="kickoff", after_taken=True)
    scene.start()
    scene.execution()
    scene.kill(number=signal.SIGTERM)
    scene.wait_for("failed")
    heard(scene)
    scene.clear("failed")
    scene.now("retry")
    if scene.forgets:
        scene.finish(2)
    scene.finish()


@row(paid_again(), retries=1, on_uncertain_kickoff="retry", **calling(delay=60, within=5))
def test_first_attempt_is_called_during_the_second(scene):
    """With `on_uncertain_kickoff="retry"`, the crew of the first attempt calls during the second one."""
    lose_response(scene)
    scene.now("retry")
    scene.execution(2)
    scene.looked_after(60)
    scene.finish(1)
    scene.finish(2)


@row(
    COMPLETED_IN_ATTEMPT_2,
    retries=2,
    retry_delay=Code("datetime.timedelta(minutes=2)"),
    harm=killed("api-server"),
    why="Airflow ends a task after three failed heartbeats.",
    **calling(delay=20, within=600),
)
def test_receiver_is_away_when_the_crew_starts(scene):
    """The API server is away when the crew calls. The crew calls again at its end."""
    lose_response(scene)
    scene.now("retry")
    scene.execution()
    process = scene.process()
    with scene.harmed():
        eventually(lambda: not process.is_running() or process.status() == "zombie", pause=1.0)
        time.sleep(30)
    scene.finish()


@row(Ends("success", "the result", "completed", kickoffs=200), batch=200, max_active=20, **calling())
def test_rows_settle_themselves(scene):
    """Twenty of the responses to the kickoffs of a batch are lost, and the crews call."""
    scene.crew.faults.reset(on="kickoff", after_taken=True, times=20)
    scene.start()
