"""Wait for one execution: poll, pause, and defer."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_crew import versions
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.models import Execution
from airflow_provider_crew.client.options import MAX_OUTAGE
from airflow_provider_crew.client.watch import Step, WatchRules, WatchState
from airflow_provider_crew.client.wording import result_out_of_reach
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.task.output import Output
from airflow_provider_crew.task.record import Record
from airflow_provider_crew.task.stop import Stop
from airflow_provider_crew.task.task import Options, Task
from airflow_provider_crew.task.verdict import Facts, if_lost_without_record, while_waiting
from airflow_provider_crew.triggers.events import DEFERRAL, WatchEnd

if TYPE_CHECKING:
    from airflow_provider_crew.hooks.polling import Poller

# Seconds after the deadline at which Airflow resumes a task that no triggerer has resumed.
BACKSTOP = 60.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """
    Beginning of a wait, or its continuation after a deferral.

    :param memory: State of the watch to continue, as plain data.
    :param deadline: Time at which to stop waiting. ``None`` begins the time.
    :param question: ID of the crew's question that the open request under Required Actions shows. Empty if it
        only shows that the crew waits. ``None``: no request is open.
    :param asks: Whether the task may open one later.
    :param rules: Other rules of the watch.
    """

    memory: Any = None
    deadline: float | None = None
    question: str | None = None
    asks: bool = True
    rules: Mapping[str, Any] = field(default_factory=dict)


class Wait:
    """
    Wait of one attempt.

    :param facts: Name the execution, once it is known.
    """

    continued_as = ""
    """Another ID of the execution, from the crew's response to an answer."""
    address = ""
    """Address at which a poll of this attempt first returned a status."""

    def __init__(self, task: Task, facts: Facts, record: Record, output: Output, stop: Stop) -> None:
        self.task = task
        self.facts = facts
        self.record = record
        self.output = output
        self.stop = stop
        self.new_trigger: Callable[..., Any] | None = None
        self.chosen: list[str] = []
        """Choices of users under Required Actions, for the next request."""
        self.unanswered: Callable[[], Mapping[str, Any]] = dict
        """Returns what Airflow does if no user answers in time, for the Crew tab."""
        output.progress.if_lost = self.if_lost

    @property
    def kickoff_id(self) -> str:
        """Execution of this attempt."""
        return self.facts.kickoff_id

    def to_end(self, plan: Plan) -> dict[str, Any]:
        """Return the result of the execution, or defer until there is one."""
        if self.record.last and self.record.last.end == "completed":
            return self.read(WatchEnd(kickoff_id=self.kickoff_id, completed=True))
        rules = self.rules(plan.deadline or self.task.deadline(), **plan.rules)
        # Defer only after the execution was found or the grace period is over: a new triggerer does not know.
        grace = 0.0 if rules.exists or rules.human_input else timing.NOT_FOUND_GRACE
        defers_at = time.time() + grace
        poller = self.poller(rules, WatchState.recalled(plan.memory))
        while not (step := poller.poll()).completed:
            memory = poller.watch.memory
            if poller.watch.has_response:
                self.address = self.address or self.task.hook.connection.settings.address
            self.note_seen(memory)
            self.heed()
            if self.task.options.deferrable and (memory.seen or time.time() >= defers_at):
                asks = plan.asks and plan.question is None and may_ask(self.task)
                rules = replace(rules, stops_for_input=asks)
                raise self.deferral(rules, memory.handed_over(), question=plan.question)
            self.pause(poller, step)
        return step.completed.result()

    def read(self, event: WatchEnd, **changes: Any) -> dict[str, Any]:
        """Poll for a result that the trigger did not return, despite a short outage or a passed deadline."""
        options = self.task.options
        deadline = max(event.deadline, time.time() + (options.max_outage or options.timeout))
        rules = self.rules(deadline, exists=True, **changes)
        if event.completed:
            self.note_completion()
            self.record.save_completion()  # reading may take minutes
            # A completed execution needs no human input, so the outage limit always ends this before the deadline.
            outage = options.max_outage or MAX_OUTAGE
            rules = replace(rules, human_input=False, max_outage=outage, deadline=deadline + outage)
        poller = self.poller(rules)
        if memory := WatchState.recalled(event.memory):
            memory.seen = False  # an unknown execution has the grace period of a new one
            poller.watch.memory = memory
        try:
            while not (step := poller.poll()).completed:
                self.pause(poller, step)
        except errors.ExecutionUnknown as error:
            if error.elsewhere or not event.completed:
                raise
            raise result_out_of_reach(self.kickoff_id, error.lasted) from None
        return step.completed.result()

    def once(self, lost: errors.WatchError, rules: WatchRules) -> dict[str, Any]:
        """Poll once, because no triggerer polls any longer. Raise an error if the execution is running."""
        poller = self.poller(rules, WatchState(self.task.started_at))
        if completed := poller.poll().completed:
            return completed.result()
        raise lost

    def rules(self, deadline: float, **changes: Any) -> WatchRules:
        """Return the rules for polling the execution."""
        options = self.task.options
        own: dict[str, Any] = {"human_input": bool(options.human_input), "continued_as": self.continued_as}
        known: dict[str, Any] = {"deadline": deadline, "limit": self.task.limit}
        known |= polling(options) | own | self.origin()
        return WatchRules(**known | changes)

    def origin(self) -> dict[str, Any]:
        """Return the facts about the kickoff, as fields of WatchRules."""
        last = self.record.last
        return {"exists": True} | ({"kicked_off_at": last.kicked_off_at, "address": last.address} if last else {})

    def note_seen(self, memory: WatchState) -> None:
        """Handle the state of the watch after a poll."""

    def note_completion(self) -> None:
        """Take note that the execution has completed, for later errors and for the next attempt."""
        self.record.note_completion(self.kickoff_id)
        self.facts.phase = "ended"

    def poller(self, rules: WatchRules, memory: WatchState | None = None) -> "Poller":
        """Return a poller of the execution. A connection that is missing from the start ends the wait."""
        from airflow_provider_crew.hooks.polling import Poller

        if not (memory and memory.seen):  # a missing connection is not an outage of the crew
            with suppress(errors.InvalidSettings):  # the watch reads the connection again for a while
                self.task.hook.get_conn()
        progress = self.output.progress
        progress.is_left_to_trigger = self.task.options.deferrable
        progress.choices = self.shown()["choices"]
        poller = Poller(self.task.hook, self.kickoff_id, rules, memory, progress.saw)
        poller.subject, poller.call = "Crew", partial(self.stop.interruptibly, heed=self.heed)
        return poller

    def status(self, kickoff_id: str) -> Execution:
        """Return the status of an execution, unless Airflow ends the task meanwhile."""
        self.task.hook.get_conn()  # asks Airflow, so it must not be interrupted
        return self.stop.interruptibly(self.task.hook.status, kickoff_id, self.heed)

    def heed(self) -> None:
        """Raise if Airflow has ended the task and ``cancel_on_kill`` applies."""
        self.facts.next = self.record.next
        self.stop.heed(self.facts, self.record.running)

    def shown(self) -> dict[str, dict[str, str]]:
        """Return the sentences for the Crew tab about a task that waits."""
        facts, cancels_at_timeout = self.facts, self.task.cancels_on("timeout")
        facts.next = self.record.next
        shown = while_waiting(facts, cancels=self.cancels(), cancels_at_timeout=cancels_at_timeout)
        shown["choices"] |= self.unanswered()
        return shown

    def if_lost(self) -> dict[str, Any]:
        """Return the sentences for the Crew tab and alerts about a task that leaves no report."""
        is_found = self.record.is_shared and not self.facts.is_tool  # an agent may call with other inputs
        found = self.record.stored.get("if_lost") if is_found else None
        return found or if_lost_without_record(self.facts)

    def cancels(self) -> bool:
        """Whether the worker, or the trigger of a deferred task, cancels the execution of a marked task."""
        return mark_cancels(self.task)

    def pause(self, poller: "Poller", step: Step) -> None:
        """Sleep until the next poll, and look at times whether Airflow is ending the task."""
        poller.pause(step, sleep=partial(self.stop.sleep, heed=self.heed))

    def deferral(self, rules: WatchRules, memory: Any, *, question: str | None) -> TaskDeferred:
        """
        Return the deferral.

        :param memory: State of the watch, as plain data.
        :param question: What the open request asks. ``None`` if there is no request.
        """
        from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

        asked, last = question is not None, self.record.last
        # A user's answer resumes the task without an event of the trigger.
        carried = {"deadline": rules.deadline, "memory": memory, "question": question} if asked else {}
        shown = self.shown() | {"if_lost": self.if_lost()}
        self.output.progress.choices = shown["choices"]
        self.output.progress.deferring(self.kickoff_id)
        deferral = deferred(
            self.output,
            partial(self.new_trigger or CrewExecutionTrigger, self.kickoff_id),
            {"chosen": self.chosen, "try_number": self.task.ti.try_number, "address": self.address, **carried}
            | {"record": asdict(last) if last and self.record.is_shared else None},
            cancels=self.cancels(),
            deadline=rules.deadline,
            rules=asdict(replace(rules, address=rules.address or self.address)),
            memory=memory,
            asked=asked,
            shown=shown,
        )
        self.heed()
        return deferral


def deferred(
    output: Output,
    new_trigger: Callable[..., Any],
    carried: Mapping[str, Any],
    *,
    cancels: bool,
    deadline: float,
    **about: Any,
) -> TaskDeferred:
    """
    Return a deferral. Before raising it, look whether Airflow is ending the task.

    :param about: Arguments of the kind of trigger.
    """
    options, now = output.task.options, time.time()
    if cancels:
        output.push(DEFERRAL, now, what="The time of the deferral, which cancel_on_kill needs,")
    return TaskDeferred(
        trigger=new_trigger(
            crew_conn_id=options.crew_conn_id,
            webhook_conn_id=options.webhook_conn_id,
            cancel_on_kill=cancels,
            deferred_at=now,
            **about,
        ),
        method_name="execute_complete",
        kwargs={"cancels_on_kill": cancels, **carried},
        timeout=timedelta(seconds=max(deadline - now, 0.0) + BACKSTOP),
    )


def note_end_of_deferral(output: Output, next_kwargs: Mapping[str, Any]) -> None:
    """Record that no trigger polls any longer, so that no mark cancels the execution from here on."""
    # A failed trigger leaves no kwargs of the task.
    if next_kwargs.get("cancels_on_kill") or "error" in next_kwargs:
        output.push(DEFERRAL, None, what="The end of the deferral")


def mark_cancels(task: Task) -> bool:
    """Whether the worker, or the trigger of a deferred task, cancels the executions of a marked task."""
    # In a task loop, Airflow tells the state of the latest iteration, which may not be this one.
    may_cancel = "loop" not in task.context and (versions.HAS_STORE or not task.options.deferrable)
    return may_cancel and task.cancels_on("kill")


def polling(options: Options) -> dict[str, Any]:
    """Return the rules for polling that an author can set."""
    return {"poll_interval": options.poll_interval, "max_outage": options.max_outage}


def trigger_failed(task: Task, next_kwargs: Mapping[str, Any], what: str, **about: Any) -> errors.LostContact:
    """Log why the trigger failed, and return the error for what no triggerer polls any longer."""
    if traceback := next_kwargs.get("traceback"):
        task.log.error("The trigger failed:\n%s", "".join(traceback))
    why = str(next_kwargs.get("error", "its event cannot be read")).rstrip(".")
    event = f"The triggerer no longer polls {what}: {why}. See the triggerer's log."
    return errors.LostContact(event, **about)


def may_ask(task: Task) -> bool:
    """Whether a deferred task asks a user under Required Actions when its crew waits for human input."""
    return versions.HAS_STORE and is_on("required_actions", task.log)
