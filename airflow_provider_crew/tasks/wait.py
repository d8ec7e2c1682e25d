"""How a task waits for an execution: in the triggerer or in the worker, with the same words for the same ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred

from airflow_provider_crew.compat import (
    RESUMED_WITHOUT_EVENT,
    TIME_TO_SAY_SO,
    is_event_of_an_earlier_try,
    trigger_timed_out,
)
from airflow_provider_crew.hooks.polling import Poller
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionUnknown,
    LostContact,
    WaitedTooLong,
    WatchBroken,
)
from airflow_provider_crew.service.limits import MAX_OUTAGE, NOT_FOUND_GRACE
from airflow_provider_crew.service.watch_state import WatchRules
from airflow_provider_crew.service.watch_words import result_out_of_reach
from airflow_provider_crew.tasks.ends import CutShort
from airflow_provider_crew.tasks.xcom import USAGE, without_reserved_keys
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_crew.service.watch import Watch
    from airflow_provider_crew.service.watch_state import WatchMemory
    from airflow_provider_crew.tasks.ends import Ends
    from airflow_provider_crew.tasks.running import RunningTask
    from airflow_provider_crew.tasks.seen import SeenBefore
    from airflow_provider_crew.triggers.events import WatchEnd

# Of what a short execution_timeout allows, this share is left for the end.
_LARGEST_SHARE = 0.1
# How long after the deadline Airflow resumes a task that no triggerer has resumed.
_BACKSTOP = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """
    How a task waits, as its author says.

    ``poll_interval``: seconds between two polls; None: what suits the age of the execution. ``max_outage``:
    seconds for which the service may give no usable answer; None: for as long as it takes. ``human_input``: the
    crew may wait for a person. ``time_limit`` ends every task of Airflow, and this one's wait.
    """

    deferrable: bool
    poll_interval: float | None
    timeout: float
    max_outage: float | None
    human_input: bool
    time_limit: timedelta | None

    @property
    def is_cut_short(self) -> bool:
        """Whether execution_timeout is over before the time to wait."""
        return self.time_limit is not None and self.time_limit.total_seconds() < self.timeout

    def deadline(self, started_at: float) -> float:
        """Return when to stop waiting, by the clock on the wall."""
        deadline = time.time() + self.timeout
        if self.time_limit is None:
            return deadline
        allowed = self.time_limit.total_seconds()
        return min(deadline, started_at + allowed - min(TIME_TO_SAY_SO, allowed * _LARGEST_SHARE))

    def rules(self, deadline: float, origin: Origin) -> WatchRules:
        """Return how an execution is watched."""
        return WatchRules(
            deadline=deadline,
            poll_interval=self.poll_interval,
            max_outage=self.max_outage,
            kicked_off_at=origin.kicked_off_at,
            exists=origin.exists,
            address=origin.address,
            human_input=self.human_input,
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """
    What is known of an execution besides its id.

    ``exists``: its id comes from the service itself, or was known to it. ``address`` is where it was kicked off.
    """

    kicked_off_at: float | None = None
    exists: bool = False
    address: str = ""


class Wait:
    """
    One task's wait for one execution.

    ``seen`` keeps for later tries that the service has known the execution, where that is not known already.
    """

    def __init__(
        self, task: RunningTask, patience: Patience, ends: Ends, *, seen: SeenBefore | None = None
    ) -> None:
        self._task = task
        self._patience = patience
        self._ends = ends
        self._seen = seen

    def result(self, kickoff_id: str, origin: Origin, carried: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the result of the execution, or defer until there is one.

        ``carried`` is what the task is given besides the event when it resumes.
        """
        patience = self._patience
        with self.ending(kickoff_id):
            rules = patience.rules(patience.deadline(self._started_at), origin)
            poller = self._poller(kickoff_id, rules)
            # Whether there is such an execution is seen here: another triggerer would not know.
            exists = origin.exists or patience.human_input
            defers_at = time.time() + (0.0 if exists else NOT_FOUND_GRACE)
            with self._task.metrics.polls_of(poller.watch):
                while not (step := poller.poll()).completed:
                    memory = poller.watch.memory
                    if self._seen:
                        self._seen.keep_that_it_exists(memory)
                    if patience.deferrable and (memory.seen or time.time() >= defers_at):
                        self._defer(kickoff_id, rules, memory, carried)
                    poller.pause(step)
        return self.finish(step.completed.result())

    def resume(self, end: WatchEnd) -> dict[str, Any]:
        """Resume with what the trigger has seen."""
        self._task.metrics.polls(end.polls)
        with self.ending(end.kickoff_id):
            if end.error:
                raise end.error
            result = end.result or self._read(end)
        return self.finish(result)

    def poll_after_all(self, kickoff_id: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Poll once when the trigger broke, or no triggerer was there in time."""
        task, patience = self._task, self._patience
        if traceback := told.get("traceback"):
            task.log.error("The trigger failed:\n%s", "".join(traceback))
        timed_out, why = trigger_timed_out(told), told.get("error", "what it told cannot be read")
        with self.ending(kickoff_id):
            if timed_out:
                task.log.warning("Execution %s: no triggerer has ended the wait in time.", kickoff_id)
            deadline = time.time() + (0.0 if timed_out else patience.timeout)
            poller = self._poller(kickoff_id, patience.rules(deadline, Origin(exists=True)))
            poller.watch.memory.started_at = self._started_at
            with task.metrics.polls_of(poller.watch):
                completed = poller.poll().completed
            if not completed:
                raise LostContact(
                    f"Execution {kickoff_id} is no longer watched by a triggerer: {why}. The triggerer's log says "
                    "more. The execution goes on and is paid for. Wait for it; do not kick off again.",
                    kickoff_id=kickoff_id,
                )
        return self.finish(completed.result())

    def poll_once(
        self, kickoff_id: str, rules: WatchRules, memory: WatchMemory | None, *, insist: bool
    ) -> tuple[dict[str, Any] | None, float, Watch]:
        """
        Return the result, if there is one by now, and when to poll again.

        ``insist``: poll on where only polling again soon can tell, for a process that leaves nothing to the next.
        """
        with self.ending(kickoff_id):
            poller = self._poller(kickoff_id, rules, memory)
            with self._task.metrics.polls_of(poller.watch):
                step = poller.poll()
                while insist and (step.renew_token or poller.watch.is_in_doubt):
                    poller.pause(step)
                    step = poller.poll()
        if step.completed:
            return self.finish(step.completed.result()), 0.0, poller.watch
        return None, step.poll_again_in, poller.watch

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result as the task's own, in a form that XCom takes."""
        self._task.metrics.completed(result.get("execution_time"))
        self._leave_usage(result.get("usage"), str(result.get("kickoff_id")))
        return {**result, "output_json": without_reserved_keys(result.get("output_json"))}

    @contextmanager
    def ending(self, kickoff_id: str) -> Iterator[None]:
        """Let the task end as it should where the block ends without a result."""
        task = self._task
        task.execution = kickoff_id
        try:
            yield
        except KeyboardInterrupt:
            task.end()
            raise
        except CrewError as error:
            end = error if kickoff_id in str(error) else _about(kickoff_id, error)
        except AirflowTaskTimeout:
            end = CutShort(
                f"Execution {kickoff_id} was still going when execution_timeout was over. It cannot be cancelled: "
                "it goes on and is paid for. Do not kick off again.",
                kickoff_id=kickoff_id,
            )
        else:
            return
        if isinstance(end, WaitedTooLong) and self._patience.is_cut_short:
            end = CutShort(str(end), kickoff_id=kickoff_id)
        task.metrics.gave_up(end)
        if isinstance(end, ExecutionFailed):
            self._leave_usage(end.usage, kickoff_id)
        self._ends.give_up(end)

    def _read(self, end: WatchEnd) -> dict[str, Any]:
        """Read what was too large for a trigger. Want of time or a hiccup of the service must not fail a task."""
        patience, now = self._patience, time.time()
        late = now + (patience.max_outage or patience.timeout)
        # The service knew it a moment ago, as after a kickoff.
        rules = patience.rules(max(end.deadline, late), Origin(kicked_off_at=now, exists=True))
        if end.completed:  # so that it waits for nobody
            rules = replace(rules, human_input=False, max_outage=patience.max_outage or MAX_OUTAGE)
        poller = self._poller(end.kickoff_id, rules)
        try:
            with self._task.metrics.polls_of(poller.watch):
                return poller.to_end().result()
        except ExecutionUnknown as error:
            if not end.completed:
                raise
            raise result_out_of_reach(end.kickoff_id, error.lasted) from None

    def _leave_usage(self, usage: Any, kickoff_id: str) -> None:
        """Leave what the execution has spent where it can be queried."""
        if not isinstance(usage, Mapping) or not usage:
            return
        task = self._task
        task.metrics.tokens(usage)
        spent = {"kickoff_id": kickoff_id, "try_number": task.ti.try_number, **usage}
        task.leave(USAGE, spent, what=f"Execution {kickoff_id}: its usage")

    def _poller(self, kickoff_id: str, rules: WatchRules, memory: WatchMemory | None = None) -> Poller:
        return Poller(self._task.hook, kickoff_id, rules, memory)

    @property
    def _started_at(self) -> float:
        started_at = self._task.ti.start_date  # which Airflow 2 does not set in dag.test()
        return started_at.timestamp() if started_at else time.time()

    def _defer(
        self, kickoff_id: str, rules: WatchRules, memory: WatchMemory, carried: Mapping[str, Any]
    ) -> NoReturn:
        task, now = self._task, time.time()
        raise TaskDeferred(
            trigger=CrewExecutionTrigger(
                kickoff_id,
                task.crew_conn_id,
                rules=rules.record(),
                token_type=task.token_type,
                deferred_at=now,
                memory=memory.handed_over(),
            ),
            method_name="execute_complete",
            kwargs={**carried, "try_number": task.ti.try_number},
            timeout=timedelta(seconds=max(rules.deadline - now, 0.0) + _BACKSTOP),
        )


class Resumed(Enum):
    """Why Airflow has resumed a task that had deferred."""

    BY_EVENT = auto()
    WITHOUT_EVENT = auto()
    """Its trigger has failed, or no triggerer was there in time."""
    BY_CLEAR = auto()
    """It was cleared in the very moment of its deferral."""
    AS_RETRY = auto()
    """It is told what an earlier try was."""


def how_resumed(next_method: str, told: dict[str, Any], ti: Any) -> Resumed:
    """Tell why; takes what this package itself has put there out of ``told``."""
    try_number = told.pop("try_number", ti.try_number)
    if next_method == RESUMED_WITHOUT_EVENT:
        return Resumed.WITHOUT_EVENT
    if "event" not in told:
        return Resumed.BY_CLEAR
    if is_event_of_an_earlier_try(try_number, ti, told["event"]):
        return Resumed.AS_RETRY
    return Resumed.BY_EVENT


def _about(kickoff_id: str, error: CrewError) -> CrewError:
    """Name the execution in an error that does not know of it, such as that of a connection."""
    return WatchBroken(
        f"Execution {kickoff_id} cannot be watched. {error} It may go on and is paid for. Mend this, and wait for "
        "it again; do not kick off again.",
        kickoff_id=kickoff_id,
    )
