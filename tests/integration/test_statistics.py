"""Metrics that fail; tests/system/test_metrics.py covers the metrics that a StatsD server receives."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import Stats

from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.operators.crew import CrewRunOperator
from tests.integration.tasks import INPUTS, QUICK, Task

pytest_plugins = ["tests.integration.task_fixtures"]


@pytest.mark.parametrize("inputs", [{"topic": "ferries"}, "nothing of the kind"], ids=["missing", "unusable"])
def test_kickoff_rejected_before_sending_is_counted(live_crew, mocker, inputs):
    counted = mocker.patch.object(Stats, "incr")

    with pytest.raises(CrewTaskFailed):
        Task(lambda: CrewRunOperator(task_id="crew", inputs=inputs)).run()

    assert [call.args[0] for call in counted.call_args_list] == ["crew.kickoff.not_taken"]
    assert not live_crew.kickoffs


def test_failing_metrics_are_a_warning(live_crew, store, task_log, mocker):
    live_crew.scenario = QUICK
    for name in ("incr", "timing"):
        mocker.patch.object(Stats, name, side_effect=OSError("no buffer space available"))
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS), store=store)

    result = task.run()

    assert result["kickoff_id"] == store.kickoff["kickoff_id"]
    assert len(live_crew.kickoffs) == 1
    assert "no buffer space available" in task_log.warnings
