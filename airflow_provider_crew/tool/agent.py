"""
A crew as a tool of Airflow's agents, by the contract for managed agents of ``apache-airflow-providers-common-ai``.

The contract is experimental. It was tested with 1.0.0 and 1.1.0rc1.

Two of its consumers could pay twice. The toolset asks the model to try again after ``ManagedAgentRejected``. A
failover group calls its next member after any other ``Exception``, including ``ManagedAgentInvocationError``. So
while an execution may be running, the error is a ``BaseException``. Neither handles it, and it ends the task.
"""

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from airflow.providers.common.ai.exceptions import ManagedAgentInvocationError, ManagedAgentRejected
from airflow.providers.common.ai.managed_agents.base import (
    BaseManagedAgentHook,
    BoundManagedAgent,
    ManagedAgentCapabilities,
    ManagedAgentRef,
    ManagedAgentRequest,
    ManagedAgentResponse,
    ManagedAgentUsage,
)
from airflow.providers.common.compat.sdk import get_current_context
from airflow.sdk.exceptions import AirflowTaskTerminated

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.options import TIMEOUT
from airflow_provider_crew.client.progress import PROGRESS, begun
from airflow_provider_crew.exceptions import CrewTaskFailed, EndedTask, OtherInputs
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task.attempt import Attempt, unread
from airflow_provider_crew.task.earlier import poll_recorded
from airflow_provider_crew.task.output import TaskProgress
from airflow_provider_crew.task.record import CALLS, KEY, Store, fingerprint
from airflow_provider_crew.task.task import Options, Task
from airflow_provider_crew.task.verdict import UNREPORTED, verdict

_ENDED = frozenset({"completed", "failed", "stopped"})


class CrewToolFailed(EndedTask, AirflowTaskTerminated):
    """Fails the agent's task without a retry, because an execution may be running."""


class CrewToolInterrupted(EndedTask):
    """Ends the agent's task. A retry that calls the crew with the same inputs waits for the same execution."""


class CrewAgentHook(CrewHook, BaseManagedAgentHook):
    """
    Crew as a managed agent. A call starts one execution (billed) and waits for it.

    It needs a running task on Airflow 3.3 or later, which keeps a kickoff record for each call.

    :param prompt_input: Input of the crew that gets the model's prompt. ``vendor_options`` of the toolset are the
        other inputs.
    """

    agent_platform: ClassVar[str] = "crewai"

    def __init__(self, crew_conn_id: str = "crew_default", *, prompt_input: str = "topic") -> None:
        super().__init__(crew_conn_id)
        self.prompt_input = prompt_input

    def agent(self, agent: str = "") -> BoundManagedAgent:
        """Return the crew as an agent. ``agent`` is its name, by default the connection ID."""
        return BoundManagedAgent(self, agent or self.crew_conn_id)

    def resolve_agent(self, agent: str) -> ManagedAgentRef:
        """Return the reference of the crew."""
        return ManagedAgentRef(self.agent_platform, agent)

    def get_agent_capabilities(self, agent: str) -> ManagedAgentCapabilities:  # noqa: ARG002 - the contract
        """Return what a crew can do."""
        return ManagedAgentCapabilities(structured_output=True, usage=True, trace=True)

    def invoke_agent(self, agent: str, request: ManagedAgentRequest) -> ManagedAgentResponse:  # noqa: ARG002
        """Run the crew once, or wait for the execution of an earlier attempt, and return the result."""
        inputs = request.vendor_options | {self.prompt_input: request.prompt}
        if request.prompt is None or request.session_id or self.prompt_input in request.vendor_options:
            why = f"A crew takes one prompt as input {self.prompt_input!r}, and no messages or session."
            raise ManagedAgentInvocationError(why)
        context: Any = get_current_context()
        if context.get("task_state_store") is None:
            raise ManagedAgentInvocationError("A crew as a tool needs a task on Airflow 3.3 or later.")
        options = Options(
            crew_conn_id=self.crew_conn_id,
            do_xcom_push=False,
            execution_timeout=context["task"].execution_timeout,
            compute_inputs=lambda: inputs,
            inputs=inputs,
            timeout=request.timeout or TIMEOUT,
        )
        call = Attempt(_task_of_call(options, context, self.log), is_tool=True)
        call.task.is_told_to_end = partial(_is_told_to_end, call)
        try:
            with _taking:
                _calls.setdefault(call.task.ti.id, []).append(call.output.progress)
                _take_record(call)
            # An alert knows by its progress that the task has called a crew.
            call.output.push(PROGRESS, begun("", time.time()), what="The progress")
            call.output.progress.deferring(call.reattach() or call.kick_off())
            result = call.result()
            call.record.save_completion()  # the agent may go on for minutes
            call.record.save_delivery_on_success(context["task"])
        except BaseException as error:  # noqa: BLE001 - every end goes through Attempt.end()
            end = _for_agents(call.end(error), call)
            _show_most_urgent(call, is_open=isinstance(end, CrewToolFailed | CrewToolInterrupted))
            raise end from None
        _show_most_urgent(call, is_open=False)
        usage = result["usage"] or {}
        tokens = ManagedAgentUsage(usage.get("prompt_tokens"), usage.get("completion_tokens"))
        text, structured = result["output"], result["output_json"]
        return ManagedAgentResponse(text, result, structured, usage=tokens, trace_ref=call.kickoff_id)


_taking = threading.Lock()
_taken: dict[Any, set[int]] = {}
"""Numbers of the records that belong to calls of this attempt, by task instance."""
_calls: dict[Any, list[TaskProgress]] = {}
"""Progress of all calls of this attempt, by task instance."""
_called: dict[Any, list[tuple[str, str]]] = {}
"""Connection and fingerprint of all calls of this attempt, by task instance."""
_failed: set[Any] = set()
"""Task instances that a call has ended."""


def _is_told_to_end(call: Attempt) -> bool:
    """Whether Airflow is ending the agent's task. A call that has no execution also ends with a parallel one."""
    has_none = call.facts.phase in {"before", "sending"} and not call.record.running
    is_told = getattr(call.task.context["task"], "is_told_to_end", False)
    return is_told or (has_none and call.task.ti.id in _failed)


def _show_most_urgent(call: Attempt, *, is_open: bool) -> None:
    """Show all calls, which share one progress, as what costs most if the task fails now."""
    with _taking:
        calls = _calls[call.task.ti.id]
        if is_open:
            _failed.add(call.task.ti.id)
        for progress in calls if is_open else ():
            progress.is_left_to_trigger = True  # the end is not replaced by what the others poll
        if len(calls) > 1:
            _most_urgent(calls).repeat()


def _most_urgent(calls: Sequence[TaskProgress]) -> TaskProgress:
    return min(reversed(calls), key=lambda progress: progress.cost.rank)


def _with_cost_of_task(failure: errors.CrewError, call: Attempt) -> errors.CrewError:
    """Return a failure with the cost of another call of the task, if that is more urgent."""
    other = _most_urgent(_calls[call.task.ti.id])
    if other.cost.rank >= failure.cost.rank:
        return failure
    which = f", execution {other.last['kickoff_id']}" if other.last.get("kickoff_id") else ""
    event = f"{failure.event} The cost is that of another call of this task{which}."
    next_step = failure.next_step if other.cost is errors.Cost.ENDED else UNREPORTED
    return failure.replace(event, cost=other.cost, next_step=next_step)


def _task_of_call(options: Options, context: Any, log: Any) -> Task:
    """Return the agent's task, as a call of the crew needs it."""
    task, own = context["task"], context["task"].on_kill

    def on_kill() -> None:
        task.is_told_to_end = True
        own()

    task.on_kill = on_kill
    call = Task(options, context, log)
    call.began -= time.time() - call.started_at  # execution_timeout counts from the start of the task
    return call


def _take_record(call: Attempt) -> None:
    """
    Take the record of an earlier call with the same inputs, or a new one.

    Each call within an attempt of an agent's task has a kickoff record of its own. After a retry, a call waits for
    the execution of an earlier one with the same inputs. It starts no execution while another one may be running.
    A record of another crew counts only if that crew got the same inputs after this one, as a standby does.
    """
    task = call.task
    store, taken = Store(task.context["task_state_store"]), _taken.setdefault(task.ti.id, set())
    conn_id, digest = task.options.crew_conn_id, fingerprint(task.options.inputs, None)
    called = _called.setdefault(task.ti.id, [])
    before = [other for other, given in called if given == digest and other != conn_id]
    called.append((conn_id, digest))
    call.record.is_unreadable = True  # execution_timeout may pass meanwhile
    try:
        calls = store.get(CALLS) or []
    except Exception as error:  # noqa: BLE001 - a store may raise anything
        raise unread(error) from None
    call.record.is_unreadable = False
    failed, elsewhere, others = list[int](), list[int](), list[int]()
    for number, names in enumerate(calls):
        if number in taken or conn_id not in names or (last := _open(call, number)) is None:
            continue
        is_own, is_equal = names[0] == conn_id, last.fingerprint == digest
        if is_own and is_equal and last.end not in {"failed", "rejected"}:
            taken.add(number)
            return
        # A call that has failed comes last, because an equal one may be running.
        group = (failed if is_own else elsewhere) if is_equal else others
        group.append(number)
    for number in elsewhere + ([] if failed else others):
        _reject_unless_ended(call, _open(call, number), calls[number][0], digest)
    if not failed:
        failed = [len(calls)]
        store.set(CALLS, [*calls, [conn_id, *before]])
    taken.add(failed[0])
    _open(call, failed[0])


def _open(call: Attempt, number: int) -> Any:
    """Make a record that of this call, and return what it says."""
    call.record.key = f"{KEY}_{number}"
    call.recall()
    return call.record.last


def _reject_unless_ended(call: Attempt, last: Any, conn_id: str, digest: str) -> None:
    """Raise if the execution of another call, of an earlier attempt, may be running or has this call's result."""
    is_over = call.record.was_cleared and (last.delivered if last.kickoff_id else last.reported)
    if conn_id != call.task.options.crew_conn_id:  # in a failover group, it is the next member's
        if last.fingerprint == digest and last.end in {None, "completed"} and not is_over:
            raise ManagedAgentInvocationError(f"An earlier attempt has sent these inputs to {conn_id!r}.")
    elif last.end is not None:
        return
    elif last.kickoff_id is None and not is_over:
        event = "An earlier attempt sent a kickoff with other inputs, so an execution may have started."
        raise errors.UncertainKickoff(event)
    elif last.kickoff_id and poll_recorded(call.record, call.output, call.waiting.status)[0] not in _ENDED:
        event = "The execution of an earlier attempt has other inputs, and may be running."
        raise OtherInputs(event, kickoff_id=last.kickoff_id)


def _for_agents(end: BaseException, call: Attempt) -> BaseException:
    """Return the exception for the caller of a crew, which may call an agent again after some of them."""
    failure: BaseException = end.failure if isinstance(end, EndedTask) else end
    if not isinstance(failure, errors.CrewError):
        own = verdict(failure, call.facts).failure
        passes = not isinstance(failure, Exception) or isinstance(failure, ManagedAgentInvocationError)
        if passes or own.cost is errors.Cost.NONE:
            return end
        failure = own
    shown = _with_cost_of_task(failure, call)
    is_final, end = isinstance(end, CrewTaskFailed), type(end)(shown) if isinstance(end, EndedTask) else shown
    match failure:
        case (
            errors.Rejected(cost=errors.Cost.NONE, blames_inputs=True)
            | errors.InvalidInputs(cost=errors.Cost.NONE)
        ):
            end = ManagedAgentRejected(str(shown))
        case errors.CrewError(cost=errors.Cost.NONE) if is_final:
            end = ManagedAgentInvocationError(str(shown))
        case errors.CrewError() if (
            failure.cost is not errors.Cost.NONE and type(failure) is not errors.ExecutionFailed
        ):
            end = CrewToolFailed(shown) if is_final else CrewToolInterrupted(shown)
    return end
