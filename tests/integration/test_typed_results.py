"""Structured output: the result has the type of output_type, or the task fails and keeps the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from airflow_provider_crew.client.errors import Cost, InvalidOutput
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.operators import run, run_deferred
from tests.integration.tasks import INPUTS, Task

pytest_plugins = ["tests.integration.task_fixtures"]

FITS = '{"title": "Ferries"}'
TYPED = {"title": "Ferries", "pages": 1}
MISFIT = '{"title": "Ferries", "pages": "many", "__id__": 7}'


class Report(BaseModel):
    title: str
    pages: int = 1


HERE = f"{__name__}.Report"


def writing(output: str, **habits: Any) -> Scenario:
    return Scenario(tasks=(ScenarioTask(name="writing_task", output=output, **habits),), inputs=())


def decorated(**options: Any) -> Any:
    crew: Any = crew_task(task_id="crew", poll_interval=0.02, deferrable=True, **options)
    return crew(lambda: INPUTS)().operator


every_operator = pytest.mark.parametrize("operator", [run, run_deferred, decorated])


@contextmanager
def misfit(kind: type[BaseException] = CrewTaskFailed, *, fields: tuple[str, ...] = ("pages",)) -> Iterator[Any]:
    """Expect an end because these fields of the output do not have their type; none if it cannot be checked."""
    with pytest.raises(kind) as caught:
        yield caught
    failure = getattr(caught.value, "failure", caught.value)
    assert isinstance(failure, InvalidOutput)
    assert failure.cost is Cost.ENDED
    assert tuple(each.partition(":")[0] for each in failure.misfits) == fields


@every_operator
@pytest.mark.parametrize("output_type", [Report, HERE])
def test_operator_returns_output_as_output_type(live_crew, store, operator, output_type):
    live_crew.scenario = writing(f"Here it is: {FITS}. Enjoy.", seconds=0.1)
    task = Task(lambda: operator(output_type=output_type), store=store)

    result = task.run()

    assert (result["output"], result["output_json"]) == (f"Here it is: {FITS}. Enjoy.", TYPED)
    assert "crew_result" not in task.ti.xcoms


def test_reserved_keys_are_checked_as_sent_and_then_renamed(live_crew):
    live_crew.scenario = writing('{"__id__": 7}')

    assert Task(lambda: run(output_type=dict[str, int])).run()["output_json"] == {"__id___": 7}


def test_misfit_error_and_log_hide_the_output(live_crew, task_log):
    live_crew.scenario = writing('{"title": ["a secret"], "pages": "another secret"}')

    task = Task(lambda: run(output_type=Report, log_output=False, do_xcom_push=False))

    with misfit(fields=("title", "pages")) as caught:
        task.run()

    assert "crew_result" not in task.ti.xcoms
    assert "secret" not in str(caught.value)
    assert "secret" not in task_log.text
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(("on_invalid_output", "error"), [("fail", CrewTaskFailed), ("retry", InvalidOutput)])
def test_misfit_survives_a_broken_store_and_xcom(live_crew, store, task_log, on_invalid_output, error):
    live_crew.scenario = writing(MISFIT, seconds=0.2)
    task = Task(
        lambda: run(output_type=Report, on_invalid_output=on_invalid_output),
        store=store,
        retries=1,
        refused_xcoms=frozenset({"crew_result"}),
    )
    live_crew.at_look(1, lambda: setattr(store, "breaks_at", lambda _: True))

    with misfit(error):
        task.run()

    assert "the XCom backend is full" in task_log.warnings
    assert "the API does not answer" in task_log.warnings
    store.breaks_at = lambda _: False
    with misfit(error):  # the record says that the execution runs; the service says that it has completed
        task.run()
    assert len(live_crew.kickoffs) == 1


def test_killed_check_is_repeated_by_the_retry(live_crew, store, monkeypatch):
    live_crew.scenario = writing(FITS)
    task = Task(lambda: run(output_type=Report), store=store, retries=1)
    with monkeypatch.context() as killed:
        killed.setattr("airflow_provider_crew.task.result.fitted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            task.run()

    assert (store.kickoff["end"], store.kickoff["delivered"]) == ("completed", False)
    assert task.run()["output_json"] == TYPED
    assert len(live_crew.kickoffs) == 1


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@every_operator
def test_without_a_type_a_json_block_is_parsed(live_crew, operator):
    live_crew.scenario = writing(f"Here it is:\n```json\n{FITS}\n```\nEnjoy.")

    assert Task(operator).run()["output_json"] == {"title": "Ferries"}
