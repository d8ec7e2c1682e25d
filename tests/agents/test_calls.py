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
from tests.integration import tasks
from tests.integration.pages import blocks
from tests.integration.tasks import TOKEN, TaskInstance, TaskStateStore

pytest_plugins = ["tests.integration.task_fixtures"]

STANDBY = "AIRFLOW_CONN_CREW_STANDBY"
QUICK, SLOW, FAILING = (
    each.model_copy(update={"dialect": "deployed", "inputs": ()})
    for each in (tasks.QUICK, tasks.SLOW, tasks.FAILING)
)
FAST: dict[str, Any] = {"timeout": 0.3}


class AgentTask:
    """A task that calls agents, attempt after attempt. ``context`` is that of the attempt that runs now."""

    def __init__(self, mocker: Any) -> None:
        self.mocker = mocker
        self.store = TaskStateStore()
        dag_run = SimpleNamespace(clear_number=0)
        self.context: Any = {"dag_run": dag_run, "task_state_store": self.store}
        self.ti = TaskInstance(try_number=0, max_tries=3)
        self.begin()

    def breaks(self, method: str) -> None:
        """Raise what nothing expects, as a full disk does."""
        self.mocker.patch.object(Stop, method, side_effect=OSError("the disk is full"))

    def begin(self, *, cleared: bool = False) -> None:
        """Begin the next attempt, in another process."""
        agent._taken.clear()
        agent._failed.clear()
        self.ti = TaskInstance(try_number=self.ti.try_number + 1, max_tries=self.ti.max_tries + cleared)
        self.task = SimpleNamespace(on_kill=lambda: None, execution_timeout=None, on_success_callback=None)
        self.context |= {"ti": self.ti, "task": self.task}


@pytest.fixture(autouse=True)
def task(mocker):
    task = AgentTask(mocker)
    with set_current_context(task.context):
        yield task


@pytest.fixture
def crew(live_crew):
    live_crew.scenario = QUICK
    return live_crew


@pytest.fixture
def standby(monkeypatch):
    with LocalCrewService(QUICK, token=TOKEN) as running:
        monkeypatch.setenv(STANDBY, running.connection_uri)
        yield running


@pytest.fixture
def group():
    """The crew and its standby, as they are by default: any exception goes on to the next member."""
    return FailoverManagedAgentClient([CrewAgentHook().agent(), CrewAgentHook("crew_standby").agent()])


def ask(prompt: str = "ferries", client: Any = None, **options: Any) -> Any:
    return (client or CrewAgentHook().agent()).invoke(ManagedAgentRequest(prompt=prompt, **options))


def ask_in_vain(crew: Any, client: Any = None) -> None:
    """Call a crew, until the time of the call is over and its execution is left running."""
    crew.scenario = SLOW
    with pytest.raises(CrewToolInterrupted):
        ask(client=client, **FAST)


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
    ("given", "has_store"),
    [
        ({"messages": [{"role": "user", "content": "ferries"}]}, True),
        ({"prompt": "ferries", "vendor_options": {"topic": "trains"}}, True),
        ({"prompt": "ferries"}, False),
    ],
    ids=["messages", "another prompt", "no store"],
)
def test_call_that_is_impossible_sends_nothing(crew, task, given, has_store):
    task.context["task_state_store"] = task.store if has_store else None
    with pytest.raises(ManagedAgentInvocationError):
        CrewAgentHook().agent().invoke(ManagedAgentRequest(**given))

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


def answers(status: int) -> Any:
    return lambda crew, _: crew.faults.answer(status, on="kickoff", times=2, after_taken=status == 502)


def plays(scenario: Any) -> Any:
    return lambda crew, _: setattr(crew, "scenario", scenario)


def loses_the_first_record(_: Any, task: AgentTask) -> None:
    writes = iter([True])
    task.store.breaks_at = lambda what: what == "set" and next(writes, False)


def breaks_at_the_first_poll(crew: Any, task: AgentTask) -> None:
    crew.scenario = SLOW
    task.breaks("sleep")


def is_ended_by_airflow(crew: Any, task: AgentTask) -> None:
    crew.after = lambda request: task.task.on_kill() if request.operation == "inputs" else None


@pytest.mark.parametrize(
    ("spoil", "started", "error", "cost"),
    [
        *((answers(status), [0, 1], None, "") for status in (401, 403, 404, 405)),
        (plays(FAILING), [1, 1], None, ""),
        (loses_the_first_record, [0, 1], None, ""),
        (answers(422), [0, 0], ManagedAgentRejected, "none"),
        (answers(502), [1, 0], CrewToolFailed, "unknown"),
        (plays(SLOW), [1, 0], CrewToolInterrupted, "running"),
        (breaks_at_the_first_poll, [1, 0], CrewToolInterrupted, "running"),
        (is_ended_by_airflow, [0, 0], CrewTaskError, "none"),
    ],
)
def test_standby_is_called_if_the_first_certainly_failed(crew, standby, group, task, spoil, started, error, cost):
    spoil(crew, task)
    with pytest.raises(error) if error else nullcontext() as caught:
        ask(client=group, timeout=FAST["timeout"] if error is CrewToolInterrupted else None)

    assert kickoffs(crew, standby) == started
    if error:
        assert getattr(caught.value, "cost", "none") == cost
        assert cost != "running" or caught.value.kickoff_id == crew.kickoffs[0].kickoff_id


def cannot_be_read(task: AgentTask) -> None:
    reads = iter([True])
    task.store.breaks_at = lambda _: next(reads, False)


@pytest.mark.parametrize(
    ("spoil", "cost"), [(lambda task: task.breaks("interruptibly"), "running"), (cannot_be_read, "unknown")]
)
def test_retry_that_cannot_reattach_starts_no_standby(crew, standby, group, task, spoil, cost):
    ask_in_vain(crew)
    task.begin()
    spoil(task)
    with pytest.raises(CrewToolInterrupted) as caught:
        ask(client=group)

    assert kickoffs(crew, standby) == [1, 0]
    assert caught.value.cost == cost
    assert cost == "unknown" or caught.value.kickoff_id == crew.kickoffs[0].kickoff_id


@pytest.mark.parametrize(
    ("status", "error", "sent"), [(502, CrewToolFailed, (1, 1)), (422, UnexpectedModelBehavior, (0, 2))]
)
def test_model_repeats_only_what_has_started_nothing(crew, task, status, error, sent):
    answers(status)(crew, task)
    toolset = ManagedAgentToolset(CrewAgentHook().agent(), tool_name="research")
    with pytest.raises(error):
        Agent(TestModel(), toolsets=[toolset]).run_sync("Ask the crew.")

    assert (len(crew.kickoffs), crew.calls.count("kickoff")) == sent


# Later attempts.


def test_parallel_equal_calls_are_executions_of_their_own(crew, task):
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(ask().trace_ref)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    task.begin()

    assert {ask().trace_ref for _ in range(3)} == {*said} == {kickoff.kickoff_id for kickoff in crew.kickoffs}
    assert kickoffs(crew) == [3]


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
    ask_in_vain(crew)
    task.begin()
    with pytest.raises(CrewToolFailed) as caught:
        ask("ships")
    assert isinstance(caught.value.failure, OtherInputs)
    assert kickoffs(crew) == [1]

    crew.finish(crew.kickoffs[0].kickoff_id)
    task.begin()
    crew.scenario = QUICK
    ask("ships")
    assert kickoffs(crew) == [2]


def test_completed_call_does_not_stop_another_after_a_kill(crew, task):
    ask()
    task.begin()  # the process was killed while the agent went on
    crew.forget(crew.kickoffs[0].kickoff_id)
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
        crew.scenario = FAILING
    else:
        crew.faults.answer(401, on="kickoff")
    if is_running:
        ask_in_vain(standby, group)
        standby.finish(standby.kickoffs[0].kickoff_id)
    else:
        ask(client=group)
    task.begin()
    crew.scenario = QUICK

    assert ask(client=group).trace_ref == standby.kickoffs[0].kickoff_id
    assert kickoffs(crew, standby) == [int(has_failed), 1]


@pytest.mark.parametrize("has_ended", [True, False])
def test_retry_calls_another_tool_though_a_first_has_equal_inputs(crew, standby, task, has_ended):
    other = CrewAgentHook("crew_standby").agent()
    if has_ended:
        ask()
    else:
        ask_in_vain(crew)
    task.begin()
    second = ask(client=other)
    crew.finish(crew.kickoffs[0].kickoff_id)
    first = ask()
    task.begin()

    assert (ask(client=other).trace_ref, ask().trace_ref) == (second.trace_ref, first.trace_ref)
    assert kickoffs(crew, standby) == [1, 1]


def test_call_waits_for_the_running_one_of_two_equal_calls(crew, task):
    crew.scenario = FAILING
    with pytest.raises(errors.ExecutionFailed):
        ask()
    ask_in_vain(crew)
    task.begin()
    crew.finish(crew.kickoffs[1].kickoff_id)

    assert ask(timeout=5.0).trace_ref == crew.kickoffs[1].kickoff_id
    assert kickoffs(crew) == [2]


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
    crew.scenario = SLOW
    running = threading.Thread(target=ask)
    running.start()
    eventually(lambda: crew.calls.count("status"))
    crew.scenario = QUICK
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


def test_alert_knows_of_a_call_before_its_kickoff(crew, task):
    known = []
    crew.at_kickoff = lambda: known.append(crew.xcoms.progress[-1]["kickoff_id"])

    ask()
    ask("submarines")

    assert known == ["", ""]
    assert crew.xcoms.progress[-1]["kickoff_id"] == crew.kickoffs[1].kickoff_id
    task.task.on_kill()

    assert task.task.is_told_to_end
    assert kickoffs(crew) == [2]
