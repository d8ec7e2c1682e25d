"""Airflow's statistics that fail; what they are told is tested where an Airflow tells it to a server."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import Stats
from tasks import INPUTS, QUICK, Task

from airflow_provider_crew.operators.crew import CrewRunOperator

pytest_plugins = ["task_fixtures"]


def test_statistics_that_fail_cost_nothing_but_a_warning(live_crew, store, task_log, mocker):
    live_crew.scenario = QUICK
    for name in ("incr", "timing"):
        mocker.patch.object(Stats, name, side_effect=OSError("no buffer space available"))
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS), store=store)

    result = task.run()

    assert result["kickoff_id"] == store.kickoff["kickoff_id"]
    assert len(live_crew.kickoffs) == 1
    assert "Airflow's statistics do not take" in task_log.text
