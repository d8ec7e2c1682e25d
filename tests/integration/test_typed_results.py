"""What a result has: structured output, the inputs of a decorated function, and numbers of any size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from pydantic import BaseModel

from airflow_provider_crew.client.errors import Cost, InvalidInputs, InvalidOutput, WaitedTooLong
from airflow_provider_crew.client.watch import WatchState
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.local import Scenario, ScenarioTask
from tests.integration.operators import run, run_deferred, run_task
from tests.integration.tasks import INPUTS, SLOW, Task

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


def test_log_names_the_xcom_of_an_output_that_does_not_match(live_crew, task_log):
    live_crew.scenario = writing('{"title": "Ferries", "pages": "many"}')
    task = Task(lambda: run(output_type=Report, log_output=False))

    with misfit():
        task.run()

    assert "crew_result" in task.ti.xcoms
    assert "crew_result" in task_log.text


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
        killed.setattr("airflow_provider_crew.task.result.fitted", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            task.run()

    assert (store.kickoff["end"], store.kickoff["delivered"]) == ("completed", False)
    assert task.run()["output_json"] == TYPED
    assert len(live_crew.kickoffs) == 1


@every_operator
def test_without_a_type_a_json_block_is_parsed(live_crew, operator):
    live_crew.scenario = writing(f"Here it is:\n```json\n{FITS}\n```\nEnjoy.")

    assert Task(operator).run()["output_json"] == {"title": "Ferries"}


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def briefed(calls) -> Any:
    def brief(day: str, ti: Any = None) -> dict[str, Any]:
        calls.append(day)
        return {"topic": f"{{{{ news }}}} of {day}", "audience": ti.task_id}

    crew: Any = crew_task
    return lambda **options: crew(task_id="crew", poll_interval=0.02, **options)(brief)("monday").operator


def test_decorated_function_is_called_once_for_the_inputs(live_crew, briefed, calls, store):
    operator = briefed()
    result = Task(lambda: operator, store=store).run()

    assert calls == ["monday"]
    assert live_crew.kickoffs[0].inputs == {"topic": "{{ news }} of monday", "audience": "crew"}
    assert result["output"].startswith("Briefing: {{ news }} of monday")
    # Airflow shows them as the rendered template.
    assert operator.inputs == live_crew.kickoffs[0].inputs
    assert operator.overwrite_rtif_after_execution


@pytest.mark.parametrize("deferrable", [False, True])
def test_decorated_function_is_not_called_to_reattach(live_crew, briefed, calls, store, deferrable):
    live_crew.scenario = SLOW
    started = Task(lambda: briefed(timeout=0.2, deferrable=deferrable), store=store, retries=1)
    with pytest.raises(WaitedTooLong):
        started.run()
    live_crew.finish(live_crew.ids[0])

    assert started.run()["kickoff_id"] == live_crew.ids[0]
    assert calls == ["monday"]


def test_decorated_function_without_inputs_sends_no_request(live_crew):
    crew: Any = crew_task(task_id="crew")
    started = Task(lambda: crew(lambda: "harbours")().operator)

    with pytest.raises(CrewTaskFailed, match="inputs") as caught:
        started.run()

    assert isinstance(caught.value.failure, InvalidInputs)
    assert live_crew.calls == []


def test_decorated_task_has_no_multiple_outputs():
    def brief() -> dict[str, str]:
        return {}

    crew: Any = crew_task(task_id="crew")(brief)
    assert crew().operator.multiple_outputs is False


WIDE = [2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64, 10**400, 1e300, 1e309, -(2**64)]


@pytest.mark.parametrize("number", WIDE, ids=lambda number: f"{number:.3e}" if number < 1e308 else "huge")
@pytest.mark.parametrize("total", [{}, {"total": 0, "total_tasks": 0}], ids=["steps", "tasks"])
def test_wide_counter_stops_no_deferral(live_crew, total, number):
    progress = dict.fromkeys({"completed", "completed_tasks", "current", *total}, number)
    told = {"state": "STARTED", "status": "running", "progress": progress, "current_task": number}
    told |= {"last_executed_task": {"task_id": "a", "output": number, "execution_time": number}}
    told |= {"usage_metrics": {"total_tokens": number}, "execution_time": number}
    done = {"state": "SUCCESS", "result": "Done.", "usage_metrics": told["usage_metrics"]}
    live_crew.scenario = SLOW.model_copy(update={"statuses": (told, told, done)})
    task = run_task(live_crew, deferrable=True)

    waiting = task.deferred()
    stored = waiting.trigger.serialize()[1]
    event = task.event_of(waiting)
    result = task.resume(waiting, event)

    assert WatchState.recalled(stored["memory"]) is not None
    assert result["output"] == "Done."
    # A task tells its supervisor all of it in this format, which has no wider integers.
    assert msgspec.msgpack.encode([waiting.kwargs, stored, event, result, task.ti.xcoms, live_crew.xcoms.progress])
