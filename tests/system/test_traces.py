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
TASKS = ["worker", "deferred", "failed", "sensor", *(["retried"] if has("Retries reattach") else [])]
ROWS = ["ferries", "buoys"] if has("Retries reattach") else []


@pytest.fixture(scope="module")
def run(start):
    run = start("traces")
    run.wait()
    return run


@pytest.fixture(scope="module")
def traced(run, collector):
    """The spans of the run, once the last process has sent its own."""
    wanted = len(TASKS) + len(["mapped 0", "mapped 1"]) + len(ROWS)

    def all_sent():
        spans = collector.of("traces", run.run_id)
        parents = [span.parent_id for span in spans if span.name.startswith(EXECUTION)]
        return len(parents) >= wanted and {*parents} <= {span.span_id for span in spans} and spans

    return eventually(all_sent)


def executions(traced, task_id):
    return [
        span
        for span in traced
        if span.name.startswith(EXECUTION) and span.attributes["airflow.task_id"] == task_id
    ]


@pytest.mark.parametrize("task_id", TASKS)
def test_execution_is_one_span_below_its_task(traced, run, task_id):
    (span,) = executions(traced, task_id)

    workers = {each.span_id: each for each in traced if each.name == f"worker.{task_id}"}
    assert span.parent_id in workers
    assert span.trace_id == workers[span.parent_id].trace_id
    known = run.xcom("kickoff") if task_id == "sensor" else run.xcom(task_id, "kickoff_id")
    assert span.attributes["crewai.execution_uuid"] == known


def test_rows_of_a_mapped_task_have_a_span_each(traced):
    spans = executions(traced, "mapped")

    assert sorted(span.attributes["airflow.task_instance.map_index"] for span in spans) == [0, 1]
    assert len({span.attributes["crewai.execution_uuid"] for span in spans}) == 2


def test_kickoff_task_has_no_span_of_its_execution(traced):
    assert executions(traced, "kickoff") == []


@pytest.mark.skipif(not ROWS, reason="before Airflow 3.3 there are no batches")
def test_rows_of_a_batch_have_a_span_each(traced):
    spans = executions(traced, "batch")

    assert len({span.attributes["crewai.execution_uuid"] for span in spans}) == len(spans) == len(ROWS)
    assert {span.parent_id for span in spans} <= {span.span_id for span in traced if span.name == "worker.batch"}


def test_whole_run_is_one_trace(traced):
    assert len({span.trace_id for span in traced}) == 1


@pytest.mark.parametrize("task_id", ["worker", "deferred"])
def test_span_lasts_as_long_as_the_execution(traced, task_id):
    (span,) = executions(traced, task_id)

    assert span.end - span.start >= 2  # as long as its two tasks


def test_failed_execution_is_an_error(traced):
    (span,) = executions(traced, "failed")

    assert span.is_error
    assert span.attributes["error.type"] == "ExecutionFailed"


@pytest.mark.skipif(not has("Retries reattach"), reason="before Airflow 3.3 a try knows nothing of another")
def test_retry_that_reattached_says_so(traced):
    (span,) = executions(traced, "retried")

    assert span.attributes["airflow.task_instance.try_number"] == 2
    assert span.events == ["resumable_job.resume_decision"]
