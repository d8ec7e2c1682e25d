"""Token usage of an execution, and metrics, of which tests/system/test_metrics.py has those of StatsD."""

from __future__ import annotations

from collections import Counter

import pytest
from airflow.providers.common.compat.sdk import Stats
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_crew.client.errors import ExecutionFailed, ExecutionUnknown
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import ScenarioTask
from tests.integration.operators import in_every_way, run_task, sensor_task
from tests.integration.tasks import (
    FAILING,
    QUICK,
    SLOW,
    TaskInstance,
    poked,
    skip_where_pokes_forget,
)

pytest_plugins = ["tests.integration.task_fixtures"]

DEPLOYED = {"dialect": "deployed"}
USAGE = QUICK.usage
TOKENS = {"crew.tokens.prompt": 3100, "crew.tokens.completion": 1100, "crew.tokens.total": 4200}
TAKING_TIME = {"tasks": (ScenarioTask(name="writing_task", seconds=0.2, output="Done."),)}


@pytest.fixture
def counted(mocker) -> Counter[str]:
    counts: Counter[str] = Counter()
    mocker.patch.object(Stats, "incr", side_effect=lambda name, by=1, **_: counts.update({name: by}))
    return counts


def tokens(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name.startswith("crew.tokens.")}


@in_every_way
@pytest.mark.parametrize("scenario", [QUICK, SLOW.model_copy(update=TAKING_TIME)], ids=["at once", "later"])
def test_usage_of_a_completed_execution_is_returned_and_counted(live_crew, counted, kind, options, scenario):
    live_crew.scenario = scenario.model_copy(update=DEPLOYED)
    task = kind(live_crew, **options)

    result = poked(task)

    assert result["usage"] == USAGE
    assert task.ti.xcoms["usage"] == {"kickoff_id": result["kickoff_id"], "try_number": 1, **USAGE}
    assert tokens(counted) == TOKENS
    assert counted["crew.execution.completed"] == 1


@in_every_way
def test_usage_of_a_failed_execution_is_pushed_and_counted(live_crew, counted, kind, options):
    live_crew.scenario = FAILING.model_copy(update=DEPLOYED)
    task = kind(live_crew, **options)

    with pytest.raises((ExecutionFailed, CrewTaskFailed), match="out of credit"):
        poked(task)

    assert task.ti.xcoms["usage"] == {
        "kickoff_id": live_crew.kickoffs[0].kickoff_id,
        "try_number": 1,
        **USAGE,
    }
    assert tokens(counted) == TOKENS
    assert counted["crew.execution.failed"] == 1


@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_usage_is_none_if_the_service_reports_none(live_crew, counted, dialect):
    live_crew.scenario = QUICK.model_copy(update={"dialect": dialect, "usage": {}})

    task = run_task(live_crew)

    assert task.run()["usage"] is None
    assert "usage" not in task.ti.xcoms
    assert tokens(counted) == {}


def test_usage_of_an_invalid_output_is_pushed_and_counted_once(live_crew, counted, mocker):
    live_crew.scenario = QUICK.model_copy(update=DEPLOYED)
    task = run_task(live_crew, output_type=int)
    push = mocker.patch.object(TaskInstance, "xcom_push")

    with pytest.raises(CrewTaskFailed):
        task.run()
    assert [call.kwargs["key"] for call in push.call_args_list].count("usage") == 1
    assert tokens(counted) == TOKENS


def test_usage_that_is_no_number_is_left_out(live_crew, counted):
    live_crew.scenario = SLOW.model_copy(update=DEPLOYED)
    task = sensor_task(live_crew)
    usage = {"total_tokens": 7, "prompt_tokens": True, "completion_tokens": "many", "cost": 0.25, "by": {"a": 1}}
    live_crew.set_status(
        live_crew.kickoffs[0].kickoff_id, {"state": "SUCCESS", "result": "Done.", "usage_metrics": usage}
    )

    assert task.run()["usage"] == {"total_tokens": 7, "cost": 0.25}
    assert tokens(counted) == {"crew.tokens.total": 7}


@in_every_way
def test_execution_that_stays_unknown_is_counted(live_crew, store, counted, kind, options):
    skip_where_pokes_forget(options)
    live_crew.scenario = SLOW.model_copy(update=DEPLOYED)
    task = kind(live_crew, store=store, max_outage=0.05, **options)
    live_crew.at_look(1, lambda: live_crew.forget(live_crew.kickoffs[0].kickoff_id))

    with pytest.raises(CrewTaskFailed) as caught:
        poked(task)

    assert isinstance(caught.value.failure, ExecutionUnknown)
    assert counted["crew.execution.unknown"] == 1


RESERVED = {"__classname__": 1, "__id__": 2, "__var": 3, "kickoff_id": 4, "total_tokens": 2**64 - 1}
KEPT = {"__classname___": 1, "__id___": 2, "__var_": 3, "total_tokens": 2**64 - 1}


@in_every_way
@pytest.mark.parametrize("scenario", [QUICK, FAILING], ids=["completed", "failed"])
def test_usage_with_reserved_keys_is_storable(live_crew, kind, options, scenario):
    live_crew.scenario = scenario.model_copy(update=DEPLOYED | {"usage": RESERVED})
    task = kind(live_crew, **options)

    if scenario is QUICK:
        told = poked(task)["usage"]
        assert told == KEPT | {"kickoff_id": 4}
        assert XCom.serialize_value(told)
    else:
        with pytest.raises((ExecutionFailed, CrewTaskFailed)):
            poked(task)
    pushed = task.ti.xcoms["usage"]
    assert pushed == {**KEPT, "kickoff_id": live_crew.kickoffs[0].kickoff_id, "try_number": 1}
    assert XCom.serialize_value(pushed)


@pytest.mark.parametrize("inputs", [{"topic": "ferries"}, "nothing of the kind"], ids=["missing", "unusable"])
def test_kickoff_rejected_before_sending_is_counted(live_crew, counted, inputs):
    with pytest.raises(CrewTaskFailed):
        run_task(live_crew, inputs=inputs).run()

    assert counted == {"crew.kickoff.not_taken": 1, "resumable_job.fresh_submit": 1}
    assert not live_crew.kickoffs


def test_failing_metrics_are_a_warning(live_crew, store, task_log, mocker):
    for name in ("incr", "timing"):
        mocker.patch.object(Stats, name, side_effect=OSError("no buffer space available"))

    result = run_task(live_crew, store=store).run()

    assert result["kickoff_id"] == store.kickoff["kickoff_id"]
    assert len(live_crew.kickoffs) == 1
    assert "no buffer space available" in task_log.warnings
