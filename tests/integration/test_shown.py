"""What a task shows besides its result: its log, links, asset events, token usage, metrics and spans."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from airflow.providers.common.compat.sdk import DAG, Asset, Stats
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.xcom import XCom
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from airflow_provider_crew.client.errors import ExecutionFailed
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.links.crew import DASHBOARD_KEY
from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.operators import both_ways, in_every_way, run, run_task
from tests.integration.tasks import CONNECTION, QUICK, SLOW, Task, TaskInstance, poked, skip_where_pokes_forget

pytest_plugins = ["tests.integration.task_fixtures"]

OUTPUT = "Mrs Petersen has gout"
TASKS = (
    ScenarioTask(name="research_task", agent="Researcher", output="Notes."),
    ScenarioTask(name="writing_task", agent="Writer", output=f"# Report\n\n{OUTPUT}."),
)
STORY = Scenario(tasks=TASKS, inputs=())


@in_every_way
def test_log_shows_each_task_and_the_output(live_crew, task_log, kind, options):
    live_crew.scenario = STORY
    result = poked(kind(live_crew, **options))

    log = task_log.text
    assert result["output"] == TASKS[1].output
    assert re.search("(?s)research_task.*Researcher.*writing_task.*Writer", log)
    assert f"| # Report\n|\n| {OUTPUT}.\n" in log
    assert log.index("::group::") < log.index("| # Report") < log.rindex("::endgroup::")


@in_every_way
@pytest.mark.parametrize("configured", [None, "False", "flase"])
def test_log_output_false_keeps_the_output_out_of_the_log(
    live_crew, task_log, monkeypatch, kind, options, configured
):
    live_crew.scenario = STORY.model_copy(update=DEPLOYED)
    if configured:
        monkeypatch.setenv("AIRFLOW__CREW__LOG_OUTPUT", configured)
    else:
        options = {**options, "log_output": False}

    assert OUTPUT in poked(kind(live_crew, **options))["output"]

    log = task_log.text
    assert live_crew.kickoffs[0].kickoff_id in log
    assert OUTPUT not in log
    assert "::group::" not in log


EVIL = "::endgroup::\n\x1b[31m[2026-01-01T00:00:00.000+0000] {a.py:1} INFO - ::group::forged\r::endgroup::\u2028x"


@in_every_way
def test_output_cannot_forge_log_lines(live_crew, task_log, kind, options):
    evil = (ScenarioTask(name=EVIL, agent=EVIL, output=EVIL),)
    live_crew.scenario = Scenario(tasks=evil, inputs=(), usage={EVIL: 1}, dialect="deployed")

    poked(kind(live_crew, **options))

    log = task_log.text
    assert log.count("::group::") == log.count("::endgroup::") > 0
    assert "::group::forged" not in log
    assert not any(line.startswith("[2026-01-01") for line in log.splitlines())
    assert "\x1b[31m[" not in log


@in_every_way
@pytest.mark.parametrize("refused", [frozenset(), frozenset({DASHBOARD_KEY})], ids=["kept", "refused"])
def test_link_points_to_the_execution(live_crew, task_log, monkeypatch, kind, options, refused):
    page = "https://app.example/runs/{kickoff_id}"
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?{urlencode({'dashboard_url': page})}")
    live_crew.next_kickoff_id("run:7.b")
    task = kind(live_crew, **options)
    task.ti.refused_xcoms = refused

    assert poked(task)["kickoff_id"] == "run:7.b"

    assert task.ti.xcoms.get(DASHBOARD_KEY) == (None if refused else "https://app.example/runs/run:7.b")
    assert ("the XCom backend is full" in task_log.text) is bool(refused)


class TaskWithOutlets(Task):
    """A task whose processes each have one context, with the events of its outlets."""

    def __init__(self, make: Callable[[], Any]) -> None:
        def begin_process() -> Any:
            ti: Any = self.ti
            dag = DAG("shown", schedule=None)
            ti.task = SimpleNamespace(dag=dag, retries=self.retries, template_ext=())
            outlets = {"outlets": [REPORT, "no asset", OTHER], "outlet_events": OutletEventAccessors()}
            self._of_process = {"dag": dag, **outlets}
            return make()

        super().__init__(begin_process)

    @property
    def context(self) -> Any:
        return super().context | self._of_process

    @property
    def told(self) -> list[dict[str, Any]]:
        """The extras of the events of both outlets."""
        return [self.context["outlet_events"][outlet].extra for outlet in (REPORT, OTHER)]

    def _ended(self, operator: Any, result: Any) -> Any:
        if operator._post_execute_hook:
            operator._post_execute_hook(self.context, result)
        return super()._ended(operator, result)


REPORT, OTHER = Asset("crew://reports/ferries"), Asset("crew://reports/harbours")


@both_ways
@pytest.mark.parametrize("dialect", ["documented", "deployed"])
def test_event_extra_has_execution_and_usage(live_crew, dialect, deferrable):
    def note(context: Any, result: Any = None) -> None:
        context["outlet_events"][OTHER].extra = {"words": len(result["output"].split()), "usage": "mine"}

    live_crew.scenario = QUICK.model_copy(update={"dialect": dialect})
    task = TaskWithOutlets(lambda: run(deferrable=deferrable, post_execute=note))

    result = task.run()

    told = {name: result[name] for name in ("kickoff_id", "usage", "execution_time")}
    assert task.told == [told, told | {"words": len(result["output"].split()), "usage": "mine"}]
    assert bool(result["usage"]) == ("usage" in task.ti.xcoms) == (dialect == "deployed")


DEPLOYED = {"dialect": "deployed"}
USAGE = QUICK.usage | {"__classname__": 1, "__id__": 2, "__var": 3, "kickoff_id": 4, "reasoning": 2**64 - 1}
KEPT = QUICK.usage | {"__classname___": 1, "__id___": 2, "__var_": 3, "reasoning": 2**64 - 1}
TOKENS = {"crew.tokens.prompt": 3100, "crew.tokens.completion": 1100, "crew.tokens.total": 4200}


def tokens(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name.startswith("crew.tokens.")}


@in_every_way
@pytest.mark.parametrize("error", [None, "out of credit"])
def test_usage_is_returned_pushed_and_counted(live_crew, counted, kind, options, error):
    works = ScenarioTask(name="writing_task", seconds=0.2, output="Done.", error=error)
    live_crew.scenario = Scenario(tasks=(works,), inputs=(), usage=USAGE, dialect="deployed")
    task = kind(live_crew, **options)

    if error:
        with pytest.raises((ExecutionFailed, CrewTaskFailed), match=error):
            poked(task)
    else:
        returned = poked(task)["usage"]
        assert returned == KEPT | {"kickoff_id": 4}
        assert XCom.serialize_value(returned)
    pushed = task.ti.xcoms["usage"]
    assert pushed == {**KEPT, "kickoff_id": live_crew.kickoffs[0].kickoff_id, "try_number": 1}
    assert XCom.serialize_value(pushed)
    assert tokens(counted) == TOKENS
    assert counted[f"crew.execution.{'failed' if error else 'completed'}"] == 1


def test_usage_of_an_invalid_output_is_pushed_and_counted_once(live_crew, counted, mocker):
    live_crew.scenario = QUICK.model_copy(update=DEPLOYED)
    task = run_task(live_crew, output_type=int)
    push = mocker.patch.object(TaskInstance, "xcom_push")

    with pytest.raises(CrewTaskFailed):
        task.run()
    assert [call.kwargs["key"] for call in push.call_args_list].count("usage") == 1
    assert tokens(counted) == TOKENS


@pytest.mark.usefixtures("exporter")
def test_failing_metrics_and_traces_are_warnings(live_crew, store, task_log, mocker):
    for name in ("incr", "timing"):
        mocker.patch.object(Stats, name, side_effect=OSError("no buffer space available"))
    mocker.patch("opentelemetry.trace.get_tracer", side_effect=OSError("the exporter is broken"))

    result = run_task(live_crew, store=store).run()

    assert result["kickoff_id"] == store.kickoff["kickoff_id"]
    assert len(live_crew.kickoffs) == 1
    assert "no buffer space available" in task_log.warnings
    assert "the exporter is broken" in task_log.warnings


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
