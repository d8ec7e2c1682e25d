"""Options that render to nothing in runs of Airflow itself: XComs and mapped tasks."""

from __future__ import annotations

import json
import re

import pytest

from tests.integration.played import python

# Each task kicks off with its own name as the topic.
DAG = """
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, task

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor


def kickoff(name, **options):
    return CrewKickoffOperator(task_id=name, inputs=inputs(name), meta={}, **options)


def inputs(name):
    return {"topic": name, "audience": "sailors"}


def rows(name, *values):
    return [{"inputs": inputs(name), "restore_from_state_id": value} for value in values]


with DAG("empty", schedule=None, start_date=datetime(2026, 1, 1)) as dag:

    @task
    def nothing():
        return None

    @task
    def states():
        return ["4711", None]

    @task
    def state():
        return "4711"

    @task.crew(task_id="decorated", restore_from_state_id=nothing())
    def decorated():
        return inputs("decorated")

    none, some, one = nothing(), states(), state()
    decorated()
    template = "{{ ti.xcom_pull('nothing') }}"
    kickoff("text", restore_from_state_id=template) << none
    kickoff("xcom", restore_from_state_id=none)
    kickoff("some", restore_from_state_id=one)
    kickoff("none", restore_from_state_id=None)
    mapped = CrewKickoffOperator.partial
    mapped(task_id="over_xcom", inputs=inputs("over_xcom"), meta={}).expand(restore_from_state_id=some)
    mapped(task_id="over_list", inputs=inputs("over_list"), meta={}).expand(
        restore_from_state_id=["4712", None, template, "None"]
    ) << none
    mapped(task_id="over_rows", meta={}).expand_kwargs(rows("over_rows", "4713", None, none))
    mapped(task_id="partial", restore_from_state_id=none, meta={}).expand(inputs=[inputs("partial")])
    mapped(task_id="partial_text", restore_from_state_id=template, meta={}).expand(
        inputs=[inputs("partial_text")]
    ) << none
    CrewExecutionSensor(task_id="sensor", kickoff_id=none)
    CrewExecutionSensor.partial(task_id="sensors").expand(kickoff_id=[template]) << none

if __name__ == "__main__":
    import json

    run = dag.test()
    ends = {f"{ti.task_id} {ti.map_index}": str(ti.state) for ti in run.get_task_instances()}
    print("", "ENDS " + json.dumps(ends), sep="\\n", flush=True)
"""


@pytest.mark.timeout(600)
def test_task_with_an_empty_option_sends_nothing(service, home):
    file = home / "dags" / "empty.py"
    file.write_text(DAG)

    said = python(home, str(file), AIRFLOW_CONN_CREW_DEFAULT=service.connection_uri)

    ends = json.loads(re.findall(r"^ENDS (.*)$", said, re.MULTILINE)[0])
    sent = sorted(((kickoff.inputs["topic"], kickoff.restored_from) for kickoff in service.kickoffs), key=str)
    assert sent == [
        ("none", None),
        ("over_list", "4712"),
        ("over_list", None),
        ("over_rows", "4713"),
        ("over_rows", None),
        ("over_xcom", "4711"),
        ("some", "4711"),
    ]
    failed = {name for name, state in ends.items() if "failed" in state}
    assert failed == {
        "decorated -1",
        "text -1",
        "xcom -1",
        "over_xcom 1",
        "over_list 2",
        "over_list 3",
        "over_rows 2",
        "partial 0",
        "partial_text 0",
        "sensor -1",
        "sensors 0",
    }
