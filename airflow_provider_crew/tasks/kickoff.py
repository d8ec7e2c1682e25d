"""Starting an execution once, whatever happens to the task: the one place that kicks off."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn, Protocol, TypeVar

import tenacity
from airflow.providers.common.compat.sdk import AirflowSkipException, AirflowTaskTimeout, TaskDeferred
from jinja2 import TemplateError, TemplateNotFound

from airflow_provider_crew.compat import was_changed_from_outside, was_rescheduled
from airflow_provider_crew.operators.arguments import OnUncertainKickoff, ValidateInputs
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionUnknown,
    InvalidInputs,
    InvalidOutput,
    InvalidSettings,
    UncertainKickoff,
    execution,
)
from airflow_provider_crew.service.options import KickoffOptions
from airflow_provider_crew.service.payload import KickoffRequest
from airflow_provider_crew.service.repeating import repeating
from airflow_provider_crew.tasks import messages
from airflow_provider_crew.tasks.budget import count_kickoff
from airflow_provider_crew.tasks.check import check_inputs
from airflow_provider_crew.tasks.decide import Decision, KickoffRecord, decide
from airflow_provider_crew.tasks.earlier import earlier_execution
from airflow_provider_crew.tasks.ends import (
    PASSING,
    CrewTaskError,
    CrewTaskFailed,
    CrewTaskTimeout,
    E,
    EndedTask,
    give_up,
    meaning,
    tell,
)
from airflow_provider_crew.tasks.fingerprint import fingerprint
from airflow_provider_crew.tasks.memory import KickoffMemory
from airflow_provider_crew.tasks.options import check_option
from airflow_provider_crew.tasks.running import RunningTask
from airflow_provider_crew.tasks.signals import InterruptionsHeldOff
from airflow_provider_crew.tasks.xcom import KICKOFF_ID, RETURN_VALUE

T = TypeVar("T")

# Logged already by whoever raised it.
_TOLD = (CrewError, EndedTask)


_SENDING = (
    "Sending the kickoff. If this is the last line of the log, an execution may have started: check the crew's "
    "dashboard for run %s, task %s."
)


class KickoffArguments(Protocol):
    """What an operator that kicks off was given, rendered; besides, under the same names, all KickoffOptions."""

    inputs: Any
    meta: Mapping[str, Any] | None
    restore_from_state_id: Any
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
            task.waits_again = messages.RETRY_GOES_ON.next

    def execution(self, inputs: Callable[[], Any], *, check: Callable[[], object] = lambda: None) -> str:
        """
        Kick off, or find the execution of an earlier try that this one goes on with; return its kickoff id.

        A try that goes on with an execution asks for inputs only if it could be the execution of another row.
        ``check`` is called before a kickoff.
        """
        task, given, inputs = self._task, self._given, cache(inputs)
        twice = given.on_uncertain_kickoff == "retry"
        try:
            task.leave_link()
            earlier = earlier_execution(
                task,
                self.memory,
                chooses_twice=twice,
                forget_after=given.forget_after,
                fingerprint=lambda required: self._fingerprint(inputs, required=required),
            )
            if earlier:
                self._recall_name()
            kickoff_id = task.execution = earlier or self._kick_off(inputs, check)
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
            if self._on_its_way and task.execution is None:
                words = {"kind": type(error).__name__, "why": _in_words(error)}
                self._give_up_uncertain(UncertainKickoff.saying(messages.ENDED_WHILE_SENT, words))
            kicked_off = self._resumed or task.execution is not None
            if isinstance(error, AirflowTaskTimeout) and not kicked_off:
                give_up(task, CrewTaskTimeout(self._with_earlier(CrewError.saying(messages.TIME_WAS_OVER_BEFORE))))
            ended = self._ended_by(error, kicked_off=kicked_off)
            if not isinstance(error, (*_TOLD, AirflowSkipException, KeyboardInterrupt, SystemExit)):
                tell(task, ended)
            if not kicked_off or self.memory.lasts or was_changed_from_outside(task.ti):
                raise
            raise CrewTaskFailed(ended.but(also=messages.NOT_RETRIED.also)) from error

    def cannot_render(self, error: Exception) -> NoReturn:
        """
        Fail without a retry where only people can mend a template.

        Other errors are left to the task's retries, as is a file that is not there at the moment. So is any error
        where an earlier try has left something: a retry that can render goes on with it.
        """
        passes = not isinstance(error, TemplateError) or isinstance(error, TemplateNotFound)
        with self.shelter():
            if not passes and self._is_the_first_kickoff():
                self._give_up(CrewError.saying(messages.NOT_RENDERED, {"why": _in_words(error)}))
            raise error

    def _is_the_first_kickoff(self) -> bool:
        """Whether this try, as far as is known, would kick off, and no other has left anything to go on with."""
        memory, ti = self.memory, self._task.ti
        if not memory.lasts:
            return bool(ti.try_number <= 1 and not was_rescheduled(ti))
        decision = decide(memory.last, cleared=memory.was_cleared)
        return decision in {Decision.KICK_OFF, Decision.KICK_OFF_AFTER_END}

    def _fingerprint(self, inputs: Callable[[], Any], *, required: bool) -> str | None:
        """
        Return the fingerprint of the inputs of this try, or None if it is not known.

        A decorated function is called only if it is required. Inputs that are no JSON are no earlier inputs.
        """
        state = self._given.restore_from_state_id
        if required:
            try:
                return fingerprint(inputs(), state)
            except InvalidInputs:
                return ""
        try:
            return fingerprint(inputs(), state) if isinstance(self._given.inputs, Mapping) else None
        except Exception:  # noqa: BLE001 - only a warning depends on it
            return None

    def _kick_off(self, inputs: Callable[[], Any], check: Callable[[], object]) -> str:
        self._check_options()
        check()
        request = self._request(inputs())
        self._task.name.render()  # with what the function that returned them has set in its context
        check_inputs(self._task, request, self._given.validate_inputs)
        count_kickoff(self._task, self._origin()["airflow"])
        self._warn_of_retries()
        with InterruptionsHeldOff(self.memory.note_again) as held:

            def pause(seconds: float) -> None:
                """Wait, open to interruptions, before a kickoff that was certainly not taken is sent again."""
                with held.let_through():
                    time.sleep(seconds)

            policy = tenacity.Retrying(**repeating("POST /kickoff", only_if_not_taken=True), sleep=pause)
            kickoff_id: str = policy(
                self._send, request, fingerprint(request.inputs, self._given.restore_from_state_id)
            )
            # Known to the task before anything may interrupt it.
            self._task.execution = kickoff_id
            self.memory.note_answer(kickoff_id)
        self._task.metrics.kickoff("started")
        return kickoff_id

    def _check_options(self) -> None:
        """Reject options that render to nothing, before the inputs are asked for and anything is sent."""
        self._task.check_connection()
        templates = self._task.templates
        for name in KickoffOptions.__annotations__:
            check_option(InvalidInputs, name, getattr(self._given, name), templates.get(name))
        name = "webhook_conn_id"
        check_option(InvalidSettings, name, self._given.webhook_conn_id, templates.get(name))

    def _recall_name(self) -> None:
        if self.memory.last:
            self._task.name.recall(self.memory.last.name)

    def _request(self, inputs: Any) -> KickoffRequest:
        given = self._given
        options = {name: getattr(given, name) for name in KickoffOptions.__annotations__}
        options["meta"] = self._origin() if given.meta is None else given.meta
        return KickoffRequest.of(inputs, webhook_secret=self._secret(), **options)

    def _secret(self) -> str | None:
        from airflow_provider_crew.hooks.connection import load_secret

        return load_secret(self._given.webhook_conn_id) if self._given.webhook_conn_id else None

    def _send(self, request: KickoffRequest, digest: str) -> str:
        """Send once, and remember before that it is sent, and after it what came of it."""
        task, memory = self._task, self.memory
        if task.is_told_to_end:
            give_up(task, CrewTaskError(self._with_earlier(CrewError.saying(messages.TOLD_TO_END_BEFORE))))
        try:
            memory.note_sending(task.hook.connection.settings.address, task.name.text, digest)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is sent
            failure = CrewError.saying(messages.NO_NOTE, {"why": _in_words(error)})
            give_up(task, CrewTaskError(self._with_earlier(failure)))
        self._on_its_way = True
        # A process that is killed from here on cannot say more: this line has to be enough.
        task.log.info(_SENDING, *self._whose())
        try:
            kickoff_id = task.hook.get_conn().kickoff(request)
        except UncertainKickoff:
            raise
        except CrewError:
            self._on_its_way = False
            memory.forget_sending()
            raise
        return kickoff_id

    def _with_earlier(self, failure: E) -> E:
        """Say what is known of the executions of earlier tries, of a failure before the kickoff of this one."""
        task, memory, running = self._task, self.memory, self.memory.going_on
        if running and memory.has_given_up:
            return meaning(failure, messages.EARLIER_IS_GIVEN_UP, running=running)
        if running:
            return meaning(failure, messages.EARLIER_GOES_ON, running=running).but(kickoff_id=running)
        last = memory.last
        if last and last.end and self._decides_on(last) is Decision.REATTACH:
            return meaning(failure, messages.EARLIER_IS_KEPT, running=last.kickoff_id)
        chooses_twice = self._given.on_uncertain_kickoff == "retry" and task.ti.try_number > 1
        is_forgotten = not memory.lasts and (chooses_twice or memory.may_follow_a_clear)
        is_uncertain = last and not last.end
        return meaning(failure, messages.EARLIER_IS_UNCERTAIN) if is_forgotten or is_uncertain else failure

    def _decides_on(self, record: KickoffRecord) -> Decision:
        """Return what this try does about a record, without asking the service."""
        memory = self.memory
        other = memory.has_other_inputs
        is_mapped = other and self._task.ti.map_index >= 0
        return decide(record, cleared=memory.was_cleared, is_mapped=is_mapped, other_inputs=other)

    def _origin(self) -> dict[str, Any]:
        """Say where the kickoff comes from: as the service lists no executions, it is how a lost one is found."""
        names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
        return {"airflow": {name: getattr(self._task.ti, name) for name in names}}

    def _whose(self) -> tuple[str, str]:
        """Name the run and the task, as the meta of the kickoff does."""
        ti = self._task.ti
        return ti.run_id, f"{ti.task_id} {ti.map_index}" if ti.map_index >= 0 else ti.task_id

    def _mark(self) -> str:
        """Say how to recognise this task's execution in the dashboard."""
        if self._given.meta is not None:
            return "by the meta of this task"
        names = {name: value for name, value in self._origin()["airflow"].items() if name != "try_number"}
        return f"by its meta, {json.dumps(names)}"

    def _warn_of_retries(self) -> None:
        if self.memory.lasts or not self._task.ti.max_tries:
            return
        why = "Airflow can remember a kickoff from 3.3 on" if self._given.reattach else "reattach=False"
        self._task.warn(
            f"This task has retries, and its tries do not know of each other ({why}). If it dies after the "
            "kickoff, a retry starts, and pays for, another execution. CrewKickoffOperator with retries=0, and "
            "then CrewExecutionSensor with retries, rules that out."
        )

    def _give_up(self, failure: CrewError) -> NoReturn:
        task, memory = self._task, self.memory
        if isinstance(failure, UncertainKickoff):
            self._give_up_uncertain(failure)
        task.metrics.kickoff("not_taken")
        if isinstance(failure, PASSING):
            give_up(task, self._with_earlier(meaning(failure, messages.A_RETRY_KICKS_OFF)))
        if isinstance(failure, ExecutionUnknown):
            give_up(task, CrewTaskFailed(meaning(failure, messages.UNKNOWN_BEFORE)))
        waits = memory.going_on and not memory.has_given_up
        end = messages.CLEARING_WAITS if waits else messages.PEOPLE_MEND_THIS
        give_up(task, CrewTaskFailed(self._with_earlier(meaning(failure, end))))

    def _give_up_uncertain(self, error: UncertainKickoff) -> NoReturn:
        task = self._task
        task.metrics.kickoff("uncertain")
        if self._given.on_uncertain_kickoff == "retry":
            give_up(task, meaning(error, messages.CHOSEN_TWICE))
        is_reported = not task.is_told_to_end and self.memory.note_report()
        then = "kicks off anew" if is_reported else "says this once more, and then kicks off anew"
        give_up(task, CrewTaskFailed(meaning(error, messages.UNCERTAIN, mark=self._mark(), then=then)))

    def _ended_by(self, error: BaseException, *, kicked_off: bool) -> CrewError:
        """Say what is known where something else than a crew has ended the task."""
        words = {"kind": type(error).__name__, "why": _in_words(error)}
        if not kicked_off:
            return self._with_earlier(CrewError.saying(messages.ENDED_BEFORE, words))
        task = self._task
        kickoff_id = task.execution or ""
        following = messages.NOT_RETRIED.next.format(id=kickoff_id) if not self.memory.lasts else task.waits_again
        words |= {"execution": execution(kickoff_id) if kickoff_id else "Its execution", "next": following}
        return task.about_its_execution(messages.ENDED_AFTER, words)

    def _recalled(self) -> KickoffMemory:
        """Recall what earlier tries have left. Where Airflow does not tell, nothing may be sent."""
        task = self._task
        try:
            return KickoffMemory(task.context, wanted=self._given.reattach)
        except Exception as error:  # noqa: BLE001 - whatever it is
            if not self._resumed:
                failure = CrewError.saying(messages.NO_MEMORY, {"why": _in_words(error)})
                give_up(task, CrewTaskError(failure))
            task.warn(f"What this task remembers of its kickoff cannot be read: {error}")
            return KickoffMemory(task.context, wanted=False)


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
