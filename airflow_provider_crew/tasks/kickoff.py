"""Starting an execution once, whatever happens to the task: the one place that kicks off."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol, TypeVar

import tenacity
from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, TaskDeferred

from airflow_provider_crew.compat import CLEARING, was_changed_from_outside
from airflow_provider_crew.hooks.connection import load_secret
from airflow_provider_crew.operators.arguments import OnUncertainKickoff, ValidateInputs
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionUnknown,
    InvalidOutput,
    UncertainKickoff,
)
from airflow_provider_crew.service.options import KickoffOptions
from airflow_provider_crew.service.payload import KickoffRequest
from airflow_provider_crew.service.repeating import repeating
from airflow_provider_crew.service.wire import IT_IS_NOT_KNOWN
from airflow_provider_crew.tasks.check import check_inputs
from airflow_provider_crew.tasks.earlier import earlier_execution
from airflow_provider_crew.tasks.ends import PASSING, CrewTaskFailed, not_retried
from airflow_provider_crew.tasks.memory import HOW_TO_GIVE_UP, KickoffMemory
from airflow_provider_crew.tasks.running import RunningTask
from airflow_provider_crew.tasks.signals import InterruptionsHeldOff
from airflow_provider_crew.tasks.xcom import KICKOFF_ID, RETURN_VALUE

T = TypeVar("T")

_NOTHING_STARTED = (
    "before the crew was kicked off. This try has started nothing. A retry of this task, or clearing it, goes on."
)
_LEFT_TO_A_RETRY = " The crew was not kicked off. A retry of this task, or clearing it, does so."
_LEFT_TO_PEOPLE = " The crew was not kicked off, and a retry would not help: mend this, and clear the task."


class KickoffArguments(Protocol):
    """What an operator that kicks off was given, rendered; besides, under the same names, all KickoffOptions."""

    meta: Mapping[str, Any] | None
    webhook_conn_id: str | None
    validate_inputs: ValidateInputs
    on_uncertain_kickoff: OnUncertainKickoff
    reattach: bool
    forget_after: float | None
    do_xcom_push: bool


class Kickoff:
    """
    The one kickoff that the tries of a task share, as far as Airflow lets them know of each other.

    From Airflow 3.3 on a retry goes on with the execution of the try before. ``resumed``: this process goes on
    after a deferral, so that the crew was kicked off before it.
    """

    def __init__(self, task: RunningTask, given: KickoffArguments, *, resumed: bool = False) -> None:
        self._task = task
        self._given = given
        self._resumed = resumed
        self._on_its_way = False
        self.memory = task.memory = self._recalled()
        if resumed:
            self._recall_name()
        if self.memory.lasts:
            task.waits_again = f"A retry of this task, or {CLEARING}, goes on with it. "

    def execution(self, inputs: Callable[[], Any]) -> str:
        """
        Kick off, or find the execution of an earlier try that this one goes on with; return its kickoff id.

        A try that goes on with an execution does not ask for inputs.
        """
        task, given = self._task, self._given
        twice = given.on_uncertain_kickoff == "retry"
        try:
            task.leave_link()
            earlier = earlier_execution(task, self.memory, chooses_twice=twice, forget_after=given.forget_after)
            if earlier:
                self._recall_name()
            kickoff_id = task.execution = earlier or self._kick_off(inputs)
        except KeyboardInterrupt:
            task.end()
            raise
        except CrewError as error:
            self._give_up(error)
        task.leave(KICKOFF_ID, kickoff_id, what=f"Execution {kickoff_id}: its id")
        task.leave_link(kickoff_id)
        return kickoff_id

    def secure(self, value: T) -> T:
        """
        Return what the task is about to return.

        Where tries do not know of each other it is stored right here, in the shelter: failing later would cost a
        second execution.
        """
        ti = self._task.ti
        if not self.memory.lasts and ti.max_tries and self._given.do_xcom_push:
            ti.xcom_push(key=RETURN_VALUE, value=value)
        return value

    @contextmanager
    def shelter(self) -> Iterator[None]:
        """Let nothing that ends the task after its kickoff lead to a retry that would start another."""
        task = self._task
        try:
            yield
        except (TaskDeferred, CrewTaskFailed, ExecutionFailed, InvalidOutput, UncertainKickoff):
            raise
        except BaseException as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            if self._on_its_way and task.execution is None:
                told = f"The task was ended by {what} while its kickoff was under way. {IT_IS_NOT_KNOWN}"
                self._give_up_uncertain(UncertainKickoff(told))
            kicked_off = self._resumed or task.execution is not None
            if isinstance(error, AirflowTaskTimeout) and not kicked_off:
                told = f"execution_timeout was over {_NOTHING_STARTED}{self._going_on()}"
                raise AirflowTaskTimeout(told) from None
            if not kicked_off or self.memory.lasts or was_changed_from_outside(task.ti):
                raise
            told = f"Execution {task.execution or 'of this task'}: the task was ended by {what}."
            raise CrewTaskFailed(CrewError(told), not_retried(task.execution)) from error

    def _kick_off(self, inputs: Callable[[], Any]) -> str:
        request = self._request(inputs())
        self._task.name.render()  # with what the function that returned them has set in its context
        check_inputs(self._task, request, self._given.validate_inputs)
        self._warn_of_retries()
        with InterruptionsHeldOff(self.memory.note_again) as held:

            def pause(seconds: float) -> None:
                """Wait, open to interruptions, before a kickoff that was certainly not taken is sent again."""
                with held.let_through():
                    time.sleep(seconds)

            policy = tenacity.Retrying(**repeating("POST /kickoff", only_if_not_taken=True), sleep=pause)
            kickoff_id: str = policy(self._send, request)
            # Known to the task before anything may interrupt it.
            self._task.execution = kickoff_id
            self.memory.note_answer(kickoff_id)
        self._task.metrics.kickoff("started")
        return kickoff_id

    def _recall_name(self) -> None:
        if self.memory.last:
            self._task.name.recall(self.memory.last.name)

    def _request(self, inputs: Any) -> KickoffRequest:
        given = self._given
        options = {name: getattr(given, name) for name in KickoffOptions.__annotations__}
        options["meta"] = self._origin() if given.meta is None else given.meta
        secret = load_secret(given.webhook_conn_id) if given.webhook_conn_id else None
        return KickoffRequest.of(inputs, webhook_secret=secret, **options)

    def _send(self, request: KickoffRequest) -> str:
        """Send once, and remember before that it is sent, and after it what came of it."""
        task, memory = self._task, self.memory
        if task.is_told_to_end:
            raise AirflowException(f"The task was to end {_NOTHING_STARTED}")
        try:
            memory.note_sending(task.hook.connection.settings.address, task.name.text)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is sent
            told = f"Airflow did not take note of the kickoff to come: the task ends {_NOTHING_STARTED} {error}"
            raise AirflowException(told) from None
        self._on_its_way = True
        task.log.info(
            "The crew is being kicked off. If this log says nothing further of that, it is not known whether "
            "that started an execution: one can be found in the crew's dashboard %s.",
            self._mark(),
        )
        try:
            kickoff_id = task.hook.get_conn().kickoff(request)
        except UncertainKickoff:
            raise
        except CrewError:
            self._on_its_way = False
            memory.forget_sending()
            raise
        task.log.info("Execution %s: kicked off", kickoff_id)
        return kickoff_id

    def _going_on(self) -> str:
        """Name the execution of an earlier try that may be running."""
        running = self.memory.going_on
        return f" Execution {running} of an earlier try goes on, as far as is known." if running else ""

    def _origin(self) -> dict[str, Any]:
        """Say where the kickoff comes from: as the service lists no executions, it is how a lost one is found."""
        names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
        return {"airflow": {name: getattr(self._task.ti, name) for name in names}}

    def _mark(self) -> str:
        """Say by what an execution of this task can be told from others."""
        if self._given.meta is not None:
            return "by the meta of this task"
        names = {name: value for name, value in self._origin()["airflow"].items() if name != "try_number"}
        return f"by its meta, {json.dumps(names)}"

    def _warn_of_retries(self) -> None:
        if self.memory.lasts or not self._task.ti.max_tries:
            return
        self._task.log.warning(
            "This task has retries, and its tries do not know of each other (%s). If it dies after the kickoff, a "
            "retry starts, and pays for, another execution. CrewKickoffOperator with retries=0, and then "
            "CrewExecutionSensor with retries, rules that out.",
            "Airflow can remember a kickoff from 3.3 on" if self._given.reattach else "reattach=False",
        )

    def _give_up(self, failure: CrewError) -> NoReturn:
        if isinstance(failure, UncertainKickoff):
            self._give_up_uncertain(failure)
        self._task.metrics.kickoff("not_taken")
        if isinstance(failure, PASSING):
            raise failure.advising(_LEFT_TO_A_RETRY) from None
        if isinstance(failure, ExecutionUnknown):
            raise CrewTaskFailed(failure, f" {HOW_TO_GIVE_UP}") from None
        if running := self._going_on():
            raise CrewTaskFailed(failure, f"{running} Mend this; {CLEARING} waits for it.") from None
        raise CrewTaskFailed(failure, _LEFT_TO_PEOPLE) from None

    def _give_up_uncertain(self, error: UncertainKickoff) -> NoReturn:
        self._task.metrics.kickoff("uncertain")
        if self._given.on_uncertain_kickoff == "retry":
            raise error from None
        is_reported = not self._task.is_told_to_end and self.memory.note_report()
        then = "kicks off anew" if is_reported else "says this once more, and then kicks off anew"
        advice = f" There it can be found {self._mark()}. The task is not retried; clearing it {then}."
        raise CrewTaskFailed(error, advice) from None

    def _recalled(self) -> KickoffMemory:
        """Recall what earlier tries have left. Where Airflow does not tell, nothing may be sent."""
        task = self._task
        try:
            return KickoffMemory(task.context, wanted=self._given.reattach)
        except Exception as error:  # noqa: BLE001 - whatever it is
            if not self._resumed:
                raise AirflowException(
                    "Airflow does not tell whether an earlier try has kicked off, so that this one does not. A "
                    f"retry of this task, or clearing it, asks again. {error}"
                ) from None
            task.log.warning("What this task remembers of its kickoff cannot be read: %s", error)
            return KickoffMemory(task.context, wanted=False)
