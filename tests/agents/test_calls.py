"""Calls of a crew through the contract for managed agents, with common-ai's toolset and failover group."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.common.ai")

from airflow.providers.common.ai.exceptions import ManagedAgentInvocationError, ManagedAgentRejected
from airflow.providers.common.ai.managed_agents import FailoverManagedAgentClient, ManagedAgentRequest
from airflow.providers.common.ai.operators.agent import AgentOperator
from airflow.providers.common.ai.toolsets import ManagedAgentToolset
from airflow.sdk.execution_time.context import set_current_context
from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models.test import TestModel

from airflow_provider_crew.client import errors
from airflow_provider_crew.exceptions import CrewTaskError, OtherInputs
from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.tool import agent
from airflow_provider_crew.tool.agent import CrewAgentHook, CrewToolFailed, CrewToolInterrupted
from tests.airflow_runs import eventually
from tests.integration.pages import blocks
from tests.integration.tasks import FAILING, QUICK, SLOW, TOKEN, TaskInstance, TaskStateStore

pytest_plugins = ["tests.integration.task_fixtures"]

STANDBY = "AIRFLOW_CONN_CREW_STANDBY"
LIVE = {"dialect": "deployed", "inputs": ()}
FAST: dict[str, Any] = {"timeout": 0.3}


class AgentTask:
    """A task that calls agents, attempt after attempt. ``context`` is that of the attempt that runs now."""

    def __init__(self) -> None:
        self.store = TaskStateStore()
        dag_run = SimpleNamespace(clear_number=0)
        self.context: Any = {"dag_run": dag_run, "task_state_store": self.store}
        self.ti = TaskInstance(try_number=0, max_tries=3)
        self.begin()

    def begin(self, *, cleared: bool = False) -> None:
        """Begin the next attempt, in another process."""
        agent._taken.clear()
        agent._failed.clear()
        self.ti = TaskInstance(try_number=self.ti.try_number + 1, max_tries=self.ti.max_tries + cleared)
        self.task = SimpleNamespace(on_kill=lambda: None, execution_timeout=None, on_success_callback=None)
        self.context |= {"ti": self.ti, "task": self.task}


@pytest.fixture(autouse=True)
def task():
    task = AgentTask()
    with set_current_context(task.context):
        yield task


@pytest.fixture
def crew(live_crew):
    live_crew.scenario = QUICK.model_copy(update=LIVE)
    return live_crew


@pytest.fixture
def standby(monkeypatch):
    with LocalCrewService(QUICK.model_copy(update=LIVE), token=TOKEN) as running:
        monkeypatch.setenv(STANDBY, running.connection_uri)
        yield running


@pytest.fixture
def group():
    """The crew and its standby, as they are by default: any exception goes on to the next member."""
    return FailoverManagedAgentClient([CrewAgentHook().agent(), CrewAgentHook("crew_standby").agent()])


def ask(prompt: str = "ferries", client: Any = None, **options: Any) -> Any:
    return (client or CrewAgentHook().agent()).invoke(ManagedAgentRequest(prompt=prompt, **options))


def kickoffs(*crews: Any) -> list[int]:
    return [len(crew.kickoffs) for crew in crews]


def test_prompt_becomes_an_input_and_the_result_text(crew):
    hook = CrewAgentHook(prompt_input="question")
    response = ask(client=hook.agent(), vendor_options={"audience": "sailors"})

    (kickoff,) = crew.kickoffs
    assert kickoff.inputs == {"question": "ferries", "audience": "sailors"}
    assert response.text == response.raw["output"]
    assert response.trace_ref == kickoff.kickoff_id
    assert response.usage.input_tokens == QUICK.usage["prompt_tokens"]
    assert response.usage.output_tokens == QUICK.usage["completion_tokens"]


def test_identity_needs_no_request_and_no_connection():
    client = CrewAgentHook("crew_missing").agent()

    assert (client.ref.platform, client.ref.name) == ("crewai", "crew_missing")
    assert client.capabilities.usage
    assert not client.capabilities.sessions


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": "ferries"}]},
        {"prompt": "ferries", "vendor_options": {"topic": "trains"}},
    ],
    ids=["messages", "another prompt"],
)
def test_request_that_a_crew_cannot_take_sends_nothing(crew, request_):
    with pytest.raises(ManagedAgentInvocationError):
        CrewAgentHook().agent().invoke(ManagedAgentRequest(**request_))

    assert crew.calls == []


def test_call_without_a_store_sends_nothing(crew, task):
    task.context["task_state_store"] = None
    with pytest.raises(ManagedAgentInvocationError):
        ask()

    assert crew.calls == []


def test_blocks_of_the_page_are_run(crew):
    agent, toolset, group = blocks("docs/use-as-a-tool.md", "python")
    names = {
        each.__name__: each
        for each in (AgentOperator, CrewAgentHook, FailoverManagedAgentClient, ManagedAgentToolset)
    }
    exec(agent, names)  # noqa: S102 - the page's own
    exec(toolset, names)  # noqa: S102
    result = Agent(TestModel(), toolsets=[names["research"]]).run_sync("Ask the crew.")

    assert QUICK.tasks[-1].output[:10] in result.output
    assert not names["research"].replayable
    assert [each.inputs.keys() for each in crew.kickoffs] == [{"question", "audience"}]
    assert [member.agent for member in eval(group, names).members] == ["crew_default", "crew_standby"]  # noqa: S307


# What a failover group and the toolset do with each failure. An uncertain kickoff must reach neither.


@pytest.mark.parametrize("status", [401, 403, 404, 405, None])
def test_first_that_certainly_fails_lets_the_second_answer(crew, standby, group, status):
    if status:
        crew.faults.answer(status, on="kickoff")
    else:
        crew.scenario = FAILING.model_copy(update=LIVE)
    ask(client=group)

    assert kickoffs(crew, standby) == [0 if status else 1, 1]


@pytest.mark.parametrize(
    ("status", "started", "error", "cost"),
    [
        (422, 0, ManagedAgentRejected, "none"),
        (502, 1, CrewToolFailed, "unknown"),
        (None, 1, CrewToolInterrupted, "running"),
    ],
)
def test_first_that_may_run_or_rejects_the_inputs_is_the_last(crew, standby, group, status, started, error, cost):
    crew.scenario = SLOW.model_copy(update=LIVE)
    if status:
        crew.faults.answer(status, on="kickoff", after_taken=bool(started))
    with pytest.raises(error) as caught:
        ask(client=group, **FAST)

    assert kickoffs(crew, standby) == [started, 0]
    assert getattr(caught.value, "cost", "none") == cost


def test_error_of_airflow_during_the_wait_starts_no_second(crew, standby, group, mocker):
    crew.scenario = SLOW.model_copy(update=LIVE)
    mocker.patch.object(Stop, "sleep", side_effect=OSError("the disk is full"))
    with pytest.raises(CrewToolInterrupted) as caught:
        ask(client=group)

    assert kickoffs(crew, standby) == [1, 0]
    assert caught.value.kickoff_id == crew.kickoffs[0].kickoff_id


def test_error_before_a_retry_reattaches_starts_no_second(crew, standby, group, task, mocker):
    crew.scenario = SLOW.model_copy(update=LIVE)
    with pytest.raises(CrewToolInterrupted):
        ask(**FAST)
    task.begin()
    mocker.patch.object(Stop, "interruptibly", side_effect=OSError("Too many open files"))
    with pytest.raises(CrewToolInterrupted) as caught:
        ask(client=group)

    assert kickoffs(crew, standby) == [1, 0]
    assert (caught.value.cost, caught.value.kickoff_id) == (errors.Cost.RUNNING, crew.kickoffs[0].kickoff_id)


def test_uncertain_kickoff_is_not_repeated_by_the_model(crew):
    crew.faults.answer(502, on="kickoff", after_taken=True)
    toolset = ManagedAgentToolset(CrewAgentHook().agent(), tool_name="research", max_retries=3)
    with pytest.raises(CrewToolFailed):
        Agent(TestModel(), toolsets=[toolset]).run_sync("Ask the crew.")

    assert kickoffs(crew) == [1]


def test_rejected_inputs_are_repeated_by_the_model_only(crew):
    crew.faults.answer(422, on="kickoff", times=2)
    toolset = ManagedAgentToolset(CrewAgentHook().agent(), tool_name="research")
    with pytest.raises(UnexpectedModelBehavior):
        Agent(TestModel(), toolsets=[toolset]).run_sync("Ask the crew.")

    assert kickoffs(crew) == [0]
    assert crew.calls.count("kickoff") == 2


# Later attempts.


def test_second_call_of_one_attempt_is_another_execution(crew, task):
    first, second = ask(), ask()
    task.begin()
    again = [ask().trace_ref, ask().trace_ref]

    assert again == [first.trace_ref, second.trace_ref]
    assert kickoffs(crew) == [2]


def test_deliveries_of_all_calls_are_recorded_at_once(crew, task, monkeypatch):
    looks: list[Any] = []
    own: list[str] = []

    def has_succeeded(ti: Any) -> bool:
        looks.append(ti)
        return True

    monkeypatch.setattr("airflow_provider_crew.api_server.has_succeeded", has_succeeded)
    task.task.on_success_callback = lambda _: own.append("called")
    for prompt in ("ferries", "ships", "trains"):
        ask(prompt)
    for callback in task.task.on_success_callback:
        callback(task.context)

    assert looks == [task.ti]
    assert [task.store.get(f"crew_kickoff_{number}")["delivered"] for number in range(3)] == [True] * 3
    assert own == ["called"]
    assert kickoffs(crew) == [3]


def test_retry_with_another_prompt_starts_none_meanwhile(crew, task):
    crew.scenario = SLOW.model_copy(update=LIVE)
    with pytest.raises(CrewToolInterrupted):
        ask(**FAST)
    task.begin()
    with pytest.raises(CrewToolFailed) as caught:
        ask("ships")
    assert isinstance(caught.value.failure, OtherInputs)
    assert kickoffs(crew) == [1]

    crew.finish(crew.kickoffs[0].kickoff_id)
    task.begin()
    crew.scenario = QUICK.model_copy(update=LIVE)
    ask("ships")
    assert kickoffs(crew) == [2]


@pytest.mark.parametrize("prompt", ["ferries", "ships"])
@pytest.mark.parametrize("cleared", [False, True])
def test_uncertain_kickoff_is_reported_before_another_is_sent(crew, task, prompt, cleared):
    crew.faults.answer(502, on="kickoff", after_taken=True)
    with pytest.raises(CrewToolFailed):
        ask()
    record = task.store.get("crew_kickoff_0")
    task.store.set("crew_kickoff_0", record | {"reported": False})  # as a killed process leaves it
    task.begin(cleared=cleared)
    with pytest.raises(CrewToolFailed):
        ask(prompt)
    assert kickoffs(crew) == [1]

    task.begin(cleared=True)
    ask(prompt)
    assert kickoffs(crew) == [2]


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("has_failed", [True, False])
def test_retry_returns_to_the_standby_though_the_first_is_back(crew, standby, group, task, has_failed, is_running):
    if has_failed:
        crew.scenario = FAILING.model_copy(update=LIVE)
    else:
        crew.faults.answer(401, on="kickoff")
    if is_running:
        standby.scenario = SLOW.model_copy(update=LIVE)
        with pytest.raises(CrewToolInterrupted):
            ask(client=group, **FAST)
        standby.finish(standby.kickoffs[0].kickoff_id)
    else:
        ask(client=group)
    task.begin()
    crew.scenario = QUICK.model_copy(update=LIVE)

    assert ask(client=group).trace_ref == standby.kickoffs[0].kickoff_id
    assert kickoffs(crew, standby) == [int(has_failed), 1]


@pytest.mark.parametrize("has_ended", [True, False])
def test_retry_calls_another_tool_though_a_first_has_equal_inputs(crew, standby, task, has_ended):
    other = CrewAgentHook("crew_standby").agent()
    if not has_ended:
        crew.scenario = SLOW.model_copy(update=LIVE)
    with nullcontext() if has_ended else pytest.raises(CrewToolInterrupted):
        ask(**FAST)
    task.begin()
    second = ask(client=other)
    crew.finish(crew.kickoffs[0].kickoff_id)
    first = ask()
    task.begin()

    assert (ask(client=other).trace_ref, ask().trace_ref) == (second.trace_ref, first.trace_ref)
    assert kickoffs(crew, standby) == [1, 1]


def test_calls_that_are_unreadable_start_no_standby(crew, standby, group, task):
    crew.scenario = SLOW.model_copy(update=LIVE)
    with pytest.raises(CrewToolInterrupted):
        ask(**FAST)
    task.begin()
    reads = iter([True])
    task.store.breaks_at = lambda _: next(reads, False)
    with pytest.raises(CrewToolInterrupted) as caught:
        ask(client=group)

    assert caught.value.cost is errors.Cost.UNKNOWN
    assert kickoffs(crew, standby) == [1, 0]


def test_standby_answers_if_airflow_refuses_the_first_record(crew, standby, group, task):
    writes = iter([True])
    task.store.breaks_at = lambda what: what == "set" and next(writes, False)
    ask(client=group)

    assert kickoffs(crew, standby) == [0, 1]


def test_call_waits_for_the_running_one_of_two_equal_calls(crew, task):
    crew.scenario = FAILING.model_copy(update=LIVE)
    with pytest.raises(errors.ExecutionFailed):
        ask()
    crew.scenario = SLOW.model_copy(update=LIVE)
    with pytest.raises(CrewToolInterrupted):
        ask(**FAST)
    task.begin()
    crew.finish(crew.kickoffs[1].kickoff_id)

    assert ask(timeout=5.0).trace_ref == crew.kickoffs[1].kickoff_id
    assert kickoffs(crew) == [2]


def test_parallel_calls_have_records_of_their_own(crew, task):
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(ask().trace_ref)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(said) == sorted(kickoff.kickoff_id for kickoff in crew.kickoffs)
    assert len(set(said)) == 3
    assert [task.store.get(f"crew_kickoff_{number}")["kickoff_id"] is not None for number in range(3)] == [
        True
    ] * 3


@pytest.mark.parametrize(
    ("fault", "error", "cost"),
    [
        ({}, None, errors.Cost.RUNNING),
        ({"status": 502, "after_taken": True}, CrewToolFailed, errors.Cost.UNKNOWN),
        ({"status": 401}, ManagedAgentInvocationError, errors.Cost.RUNNING),
    ],
    ids=["completes", "is uncertain", "is rejected"],
)
def test_cost_of_two_parallel_calls_is_the_most_urgent(crew, fault, error, cost):
    crew.scenario = SLOW.model_copy(update=LIVE)
    running = threading.Thread(target=ask)
    running.start()
    eventually(lambda: crew.calls.count("status"))
    crew.scenario = QUICK.model_copy(update=LIVE)
    if fault:
        crew.faults.answer(on="kickoff", **fault)
    with pytest.raises(error) if error else nullcontext() as caught:
        ask("ships")
    shown = crew.xcoms.progress[-1]
    crew.finish(crew.kickoffs[0].kickoff_id)
    running.join()

    assert error is None or cost.sentence in str(caught.value)
    if cost is errors.Cost.UNKNOWN:
        assert crew.xcoms.progress[-1]["end"]["cost"] == "unknown"
    else:
        assert (shown["state"], shown["kickoff_id"]) == ("running", crew.kickoffs[0].kickoff_id)


@pytest.mark.parametrize("status", [401, 422, 429])
def test_failure_has_the_cost_of_an_earlier_call(crew, status):
    first = ask()
    crew.faults.answer(status, on="kickoff", times=99)
    with pytest.raises((ManagedAgentInvocationError, ManagedAgentRejected, errors.CrewError)) as caught:
        ask("ships")

    assert errors.Cost.ENDED.sentence in str(caught.value)
    assert crew.xcoms.progress[-1]["kickoff_id"] == first.trace_ref
    assert kickoffs(crew) == [1]


def test_call_sends_nothing_once_a_parallel_one_has_ended_the_task(crew, standby):
    standby.faults.answer(502, on="kickoff", after_taken=True)
    ends: list[BaseException] = []

    def fail_beside(request: Any) -> None:
        if request.operation == "inputs":
            with pytest.raises(CrewToolFailed) as caught:
                ask(client=CrewAgentHook("crew_standby").agent())
            ends.append(caught.value)

    crew.after = fail_beside
    with pytest.raises(CrewTaskError):
        ask("ships")

    assert len(ends) == 1
    assert kickoffs(crew, standby) == [0, 1]


def test_standby_is_sent_nothing_once_airflow_ends_the_task(crew, standby, group, task):
    crew.after = lambda request: task.task.on_kill() if request.operation == "inputs" else None
    with pytest.raises(CrewTaskError):
        ask(client=group)

    assert kickoffs(crew, standby) == [0, 0]


def test_alert_knows_of_a_call_before_its_kickoff(crew):
    known = []
    crew.at_kickoff = lambda: known.append(crew.xcoms.progress[-1]["kickoff_id"])

    ask()
    ask("submarines")

    assert known == ["", ""]
    assert crew.xcoms.progress[-1]["kickoff_id"] == crew.kickoffs[1].kickoff_id


def test_alert_knows_of_an_agent_that_airflow_ends(crew, task):
    ask()

    task.task.on_kill()

    assert task.task.is_told_to_end
    assert len(crew.kickoffs) == 1
