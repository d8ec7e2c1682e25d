"""Executions in the traces of a real Airflow, as a collector receives them."""

from __future__ import annotations

import pytest

from tests.airflow_runs import eventually
from tests.supported import AIRFLOW, has

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(AIRFLOW < (3, 2), reason="before 3.2, Airflow sets no tracer in a task's process"),
]
EXECUTION = "invoke_workflow "
TASKS = ["worker", "deferred", "sensor"]
ROWS = ["ferries", "buoys"] if has("Batches") else []


@pytest.fixture(scope="module")
def run(start):
    run = start("traces")
    run.wait()
    return run


@pytest.fixture(scope="module")
def traced(run, collector):
    """The spans of the run, once the last process has sent its own."""
    wanted = len(TASKS) + len(ROWS)

    def all_sent():
        spans = collector.of("traces", run.run_id)
        parents = [span.parent_id for span in spans if span.name.startswith(EXECUTION)]
        return len(parents) >= wanted and {*parents} <= {span.span_id for span in spans} and spans

    return eventually(all_sent)


def executions(traced, task_id):
    """Return the spans of executions below those of a task. Airflow's kickoff task has none."""
    workers = {span.span_id for span in traced if span.name == f"worker.{task_id}"}
    return [span for span in traced if span.name.startswith(EXECUTION) and span.parent_id in workers]


@pytest.mark.parametrize("task_id", TASKS)
def test_execution_is_one_span_below_its_task(traced, run, task_id):
    (span,) = executions(traced, task_id)

    known = run.xcom("kickoff") if task_id == "sensor" else run.xcom(task_id, "kickoff_id")
    assert (span.attributes["airflow.task_id"], span.attributes["crewai.execution_uuid"]) == (task_id, known)
    assert span.end - span.start >= 2 or task_id == "sensor"  # as long as its two tasks


def test_rows_of_a_batch_have_a_span_each(traced):
    rows = {span.attributes["crewai.execution_uuid"] for span in executions(traced, "batch")}

    assert len(rows) == len(executions(traced, "batch")) == len(ROWS)


def test_whole_run_is_one_trace(traced):
    assert len({span.trace_id for span in traced}) == 1
    assert sum(span.name.startswith(EXECUTION) for span in traced) == len(TASKS) + len(ROWS)
