"""
Span of an execution that has ended, for the tracer that Airflow has configured. Imported only if there is one.

A crew reads no ``traceparent``, but CrewAI keys its own spans by the kickoff ID. So the attribute
``crewai.execution_uuid`` joins the trace of a DAG run with the crew's. No attribute holds an input or an output.

Names follow OpenTelemetry's GenAI conventions. The connection ID replaces the crew's name, which is unknown.
"""

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from airflow_provider_crew.client.errors import Cost, CrewError

# Attributes of token counts, by the crew's names for them.
_USAGE = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_prompt_tokens": "gen_ai.usage.cache_read.input_tokens",
}


def record_execution(  # noqa: PLR0913 - the facts of a span
    task: Any,
    kickoff_id: str,
    took: float | None,
    usage: Mapping[str, Any] | None,
    error: CrewError | None,
    *,
    last: Any,
    seen: Mapping[str, Any],
    row: int | None,
) -> None:
    """
    Record an execution from its kickoff to its end, below Airflow's span for this process of the task.

    :param took: Seconds, as the crew reports them.
    :param error: Error of the task. ``None`` if the execution has completed.
    :param last: Kickoff record of the execution. ``None`` for a sensor.
    :param seen: Progress of the execution, as ``crew_progress`` has it.
    :param row: Index of the row of a batch.
    """
    ti = task.ti
    ended_at = seen.get("polled_at") or time.time()
    started_at = min(last.kicked_off_at if last else seen.get("started_at", ended_at), ended_at - (took or 0.0))
    tracer, common, name = trace.get_tracer(__name__), _common(ti, kickoff_id), task.options.crew_conn_id
    # Version 0.1.0 of the conventions renamed the first name to the second. Tools read either.
    names = dict.fromkeys(("gen_ai.workflow.name", "gen_ai.agent.name", "crew.conn_id"), name)
    about = {"gen_ai.operation.name": "invoke_workflow", "crew.cost": Cost.ENDED.value, **names}
    about |= {_USAGE[name]: count for name, count in (usage or {}).items() if name in _USAGE}
    about |= {} if row is None else {"crew.row": row}
    span = tracer.start_span(
        f"invoke_workflow {name}",
        kind=SpanKind.CLIENT,
        attributes=common | about,
        start_time=_nanoseconds(started_at),
    )
    if error:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(StatusCode.ERROR, type(error).__name__)
    below = trace.set_span_in_context(span)
    for step in seen.get("steps", ()):
        about = {"gen_ai.operation.name": "invoke_agent", "crew.task": step["task_id"]}
        about |= {"gen_ai.agent.name": step["agent"]} if step["agent"] else {}
        start = _nanoseconds(step["started_at"])
        child = tracer.start_span(
            " ".join(filter(None, ("invoke_agent", step["agent"]))),
            below,
            attributes=common | about,
            start_time=start,
        )
        child.end(_nanoseconds(step["ended_at"] or ended_at))
    span.end(_nanoseconds(ended_at))


def _common(ti: Any, kickoff_id: str) -> dict[str, Any]:
    return {
        "crewai.execution_uuid": kickoff_id,
        "gen_ai.provider.name": "crewai",
        "airflow.dag_id": ti.dag_id,
        "airflow.task_id": ti.task_id,
        "airflow.dag_run.run_id": ti.run_id,
        "airflow.task_instance.try_number": ti.try_number,
        "airflow.task_instance.map_index": -1 if ti.map_index is None else ti.map_index,
        "airflow.task_instance.id": str(ti.id),
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
