"""Spans of executions, as a tracer gets them. tests/system/test_features.py has one as a collector does."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from airflow_provider_crew.local import ScenarioTask
from tests.integration.operators import in_every_way
from tests.integration.tasks import SLOW, poked, skip_where_pokes_forget

pytest_plugins = ["tests.integration.task_fixtures"]

WORKING = SLOW.model_copy(
    update={
        "dialect": "deployed",
        "tasks": (ScenarioTask(name="writing_task", agent="Writer", seconds=3600, output="secret briefing"),),
    }
)


def named(exporter: InMemorySpanExporter, name: str) -> list[Any]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


@in_every_way
def test_completed_execution_is_one_span_with_its_task_below(live_crew, exporter, store, kind, options):
    live_crew.scenario = WORKING
    task = kind(live_crew, store=store, **options)
    skip_where_pokes_forget(options)
    live_crew.at_look(2, lambda: live_crew.finish(live_crew.ids[0]))
    with trace.get_tracer("airflow").start_as_current_span("worker.crew") as above:
        result = poked(task)

    (span,) = named(exporter, "invoke_workflow crew_default")
    assert dict(span.attributes) == {
        "crewai.execution_uuid": result["kickoff_id"],
        "gen_ai.provider.name": "crewai",
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "crew_default",
        "gen_ai.agent.name": "crew_default",
        "gen_ai.usage.input_tokens": WORKING.usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": WORKING.usage["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": WORKING.usage["cached_prompt_tokens"],
        "airflow.dag_id": "research",
        "airflow.task_id": "crew",
        "airflow.dag_run.run_id": "manual__2026-01-01",
        "airflow.task_instance.try_number": 1,
        "airflow.task_instance.map_index": -1,
        "airflow.task_instance.id": str(task.ti.id),
        "crew.conn_id": "crew_default",
        "crew.cost": "ended",
    }
    assert span.parent.span_id == above.get_span_context().span_id
    assert span.status.status_code is StatusCode.UNSET
    polls = [request.received_at * 1e9 for request in live_crew.requests.on("status")]
    assert span.start_time <= polls[0] <= polls[-1] <= span.end_time
    (below,) = named(exporter, "invoke_agent Writer")
    about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Writer", "crew.task": "writing_task"}
    assert dict(below.attributes).items() >= about.items()
    assert below.parent.span_id == span.get_span_context().span_id
    assert span.start_time <= below.start_time <= below.end_time == span.end_time
    told = "".join(each.to_json() for each in exporter.get_finished_spans())
    assert not [word for word in ("secret", "harbours", "sailors") if word in told]
