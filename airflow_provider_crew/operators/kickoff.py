"""What both operators share: starting an execution once, whatever happens to the task."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, get_args

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from airflow_provider_crew.defaults import NOT_FOUND_GRACE
from airflow_provider_crew.operators.memory import KickoffMemory
from airflow_provider_crew.service.errors import (
    CallError,
    CrewError,
    ExecutionFailed,
    ExecutionNotFound,
    UncertainKickoff,
)
from airflow_provider_crew.signals import interruptions_held_off
from airflow_provider_crew.waiting import PASSING, CrewTask, CrewTaskFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.operators.memory import Kickoff
    from airflow_provider_crew.service.models import Completed, Failed, Running
    from airflow_provider_crew.service.payload import KickoffOptions
    from airflow_provider_crew.signals import HeldOff

OnUncertainKickoff = Literal["fail", "retry"]

IT_IS_NOT_KNOWN = (
    "It is not known whether that started an execution: the crew may be running, and paid for, without anybody "
    "watching it. Look into the crew's dashboard before starting it again."
)
_BEGUN_ANEW = (
    "This try has kicked off before. Airflow could not load its DAG when it was to resume, and has begun it anew, "
    "without the kickoff id. That execution goes on and is paid for: the log of this try may name its id, for a "
    "CrewExecutionSensor to wait for it. Else look into the crew's dashboard."
)
_LEFT_TO_A_RETRY = "The crew was not kicked off. A retry of this task, or clearing it, does so."
_LEFT_TO_PEOPLE = " The crew was not kicked off, and a retry would not help: mend this, and clear the task."
XCOM_RETURN_KEY = "return_value"
KICKOFF_ID = "kickoff_id"


class KickoffTask(CrewTask):
    """
    A task that kicks a crew off, once.

    Its tries share one execution as far as Airflow lets them know of each other: from 3.3 on a retry goes on with
    the execution of the try before.
    """

    waits = False
    """Whether the task is about the result: one that nobody was given yet is wanted even after a Clear."""

    template_fields: Sequence[str] = (
        "inputs",
        "crew_conn_id",
        "meta",
        "task_webhook_url",
        "step_webhook_url",
        "crew_webhook_url",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"inputs": "json", "meta": "json"}
    ui_color = "#e4e0f3"

    def __init__(  # noqa: PLR0913 - what a user sets by name
        self,
        *,
        inputs: Mapping[str, Any] | XComArg,
        crew_conn_id: str = "crew_default",
        token_type: TokenType | None = None,
        meta: Mapping[str, Any] | None = None,
        task_webhook_url: str | None = None,
        step_webhook_url: str | None = None,
        crew_webhook_url: str | None = None,
        validate_inputs: bool = True,
        on_uncertain_kickoff: OnUncertainKickoff = "fail",
        reattach: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Were it found out by Airflow, that would be after the kickoff.
        if self.multiple_outputs and not self.waits:
            raise ValueError("multiple_outputs splits a mapping, and a kickoff id is none.")
        if on_uncertain_kickoff not in get_args(OnUncertainKickoff):
            raise ValueError("on_uncertain_kickoff must be 'fail' or 'retry'.")
        self.inputs = inputs
        self.crew_conn_id = crew_conn_id
        self.token_type = token_type
        self.meta = meta
        self.task_webhook_url = task_webhook_url
        self.step_webhook_url = step_webhook_url
        self.crew_webhook_url = crew_webhook_url
        self.validate_inputs = validate_inputs
        self.on_uncertain_kickoff = on_uncertain_kickoff
        self.reattach = reattach
        self._memory: KickoffMemory | None = None
        self._on_its_way = False
        self._killed = False

    def kickoff_inputs(self, context: Context) -> Any:  # noqa: ARG002 - the decorator needs it
        """Return what to kick off with. A try that goes on with an execution does not ask."""
        return self.inputs

    def memory(self, context: Context) -> KickoffMemory:
        """Return what earlier tries have left, read once in the life of the process."""
        if self._memory is None:
            try:
                self._memory = KickoffMemory(context, wanted=self.reattach)
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be sent
                raise AirflowException(
                    "Airflow does not tell whether an earlier try has kicked off, so that this one does not. A "
                    f"retry of this task, or clearing it, asks again. {error}"
                ) from None
        return self._memory

    def on_kill(self) -> None:
        """Keep a task that is ended before it has kicked off from doing so: Airflow 3 lets it run on a while."""
        self._killed = True
        super().on_kill()

    def waits_again(self) -> str:
        """Say so where tries know of each other."""
        return (
            "A retry of this task, or clearing it, goes on with it. "
            if self._memory and self._memory.lasts
            else ""
        )

    def kicked_off(self, context: Context, memory: KickoffMemory) -> str:
        """Kick off, or find the execution of an earlier try that this one goes on with; return its kickoff id."""
        try:
            self.leave_link(context)
            kickoff_id = self._earlier_execution(context, memory) or self._kick_off(context, memory)
        except KeyboardInterrupt:
            self.on_kill()
            raise
        except CrewError as error:
            failure = error
        else:
            self._tell(kickoff_id, context)
            return kickoff_id
        if isinstance(failure, UncertainKickoff):
            self._give_up_uncertain(failure, context)
        self.metrics(context).kickoff("not_taken")
        if isinstance(failure, PASSING):
            failure.args = (f"{failure} {_LEFT_TO_A_RETRY}",)
            raise failure
        raise CrewTaskFailed(failure, memory.what_goes_on() or _LEFT_TO_PEOPLE)

    def _give_up_uncertain(self, error: UncertainKickoff, context: Context) -> NoReturn:
        self.metrics(context).kickoff("uncertain")
        if self.on_uncertain_kickoff == "retry":
            raise error
        raise CrewTaskFailed(
            error,
            f" There it can be found {self._mark(context)}. The task is not retried; clearing it kicks off anew.",
        )

    def _mark(self, context: Context) -> str:
        """Say by what an execution of this task can be told from others."""
        if self.meta is not None:
            return "by the meta of this task"
        names = {name: value for name, value in self._origin(context)["airflow"].items() if name != "try_number"}
        return f"by its meta, {json.dumps(names)}"

    def _earlier_execution(self, context: Context, memory: KickoffMemory) -> str | None:
        last = memory.last
        if last is None:
            if not memory.lasts and _was_begun_anew(context["ti"]):
                raise UncertainKickoff(_BEGUN_ANEW)
            return None
        if last.kickoff_id is None:
            self._face_lost_answer(memory)
            return None
        if not self._goes_on(last, last.kickoff_id, cleared=memory.was_cleared):
            self.log.info("Execution %s of an earlier try is over. The crew is kicked off anew.", last.kickoff_id)
            return None
        memory.adopted()
        self.execution = last.kickoff_id
        self.log.info(
            "Execution %s: kicked off by an earlier try, with the inputs of that try, and gone on with. Nothing "
            "is kicked off anew. To force that, clear the task again when it has ended, or set reattach=False.",
            last.kickoff_id,
        )
        return last.kickoff_id

    def _face_lost_answer(self, memory: KickoffMemory) -> None:
        """Decide about a kickoff that an earlier try has sent, and whose answer nobody has seen."""
        told = f"An earlier try sent a kickoff and ended before it knew the answer. {IT_IS_NOT_KNOWN}"
        if self.on_uncertain_kickoff == "fail" and not memory.was_cleared:
            raise UncertainKickoff(told)
        why = "because the task was cleared" if memory.was_cleared else "as on_uncertain_kickoff='retry' says"
        self.log.warning("%s It is kicked off anew, %s.", told, why)

    def _goes_on(self, last: Kickoff, kickoff_id: str, *, cleared: bool) -> bool:
        """Whether an earlier execution is still the one that is wanted: running, or with a result to be had."""
        if last.end:
            return last.end == "completed" or (last.end == "returned" and not cleared)
        try:
            execution = self._asked_for_a_while(kickoff_id, kicked_off_at=last.kicked_off_at)
        except ExecutionNotFound:
            return time.time() - last.kicked_off_at < NOT_FOUND_GRACE
        except CallError as error:
            self.log.warning("Execution %s: it is not known how it is doing. %s", kickoff_id, error)
            return True
        if execution.status == "completed":
            return self.waits or not cleared
        return execution.status == "running"

    def _asked_for_a_while(self, kickoff_id: str, *, kicked_off_at: float) -> Running | Completed | Failed:
        """Look again before believing that the crew has forgotten it: another of its machines may know it."""
        until = time.time() + NOT_FOUND_GRACE
        while True:
            try:
                return self.hook.status(kickoff_id)
            except ExecutionNotFound as error:
                now = time.time()
                if now - kicked_off_at < NOT_FOUND_GRACE or now >= until:
                    raise
                self.log.warning("Execution %s: it is asked for again, in case that passes. %s", kickoff_id, error)
            time.sleep(NOT_FOUND_GRACE / 3)

    def _kick_off(self, context: Context, memory: KickoffMemory) -> str:
        from airflow_provider_crew.service.payload import plain

        inputs = plain(self.kickoff_inputs(context), "inputs")
        options = self._options(context)
        self.hook.check(inputs, listed=self.validate_inputs, **options)
        self._warn_of_retries(context, memory)
        with interruptions_held_off() as held:
            self.hook.get_conn().pause = partial(self._pause, held, memory)
            self._send_off(memory)
            self.log.info(
                "The crew is being kicked off. If this log says nothing further of that, it is not known whether "
                "that started an execution: one can be found in the crew's dashboard %s.",
                self._mark(context),
            )
            try:
                kickoff_id = self.hook.kickoff(inputs, **options)
            except UncertainKickoff:
                raise
            except CrewError:
                self._not_taken(memory)
                raise
            self.execution = kickoff_id
            memory.answered(kickoff_id)
            self.metrics(context).kickoff("started")
        return kickoff_id

    def _send_off(self, memory: KickoffMemory) -> None:
        if self._killed:
            raise AirflowException(f"The task was to end {memory.before_kickoff()}")
        try:
            memory.sending()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is sent
            told = f"Airflow did not take note of the kickoff to come: the task ends {memory.before_kickoff()}"
            raise AirflowException(f"{told} {error}") from None
        self._on_its_way = True

    def _not_taken(self, memory: KickoffMemory) -> None:
        self._on_its_way = False
        memory.not_taken()

    def _pause(self, held: HeldOff, memory: KickoffMemory, seconds: float) -> None:
        """Wait, open to interruptions, before a kickoff that was certainly not taken is sent again."""
        self._not_taken(memory)
        with held.let_through():
            time.sleep(seconds)
        self._send_off(memory)

    def _options(self, context: Context) -> KickoffOptions:
        from airflow_provider_crew.service.payload import plain

        return {
            "meta": self._origin(context) if self.meta is None else plain(self.meta, "meta"),
            "task_webhook_url": self.task_webhook_url,
            "step_webhook_url": self.step_webhook_url,
            "crew_webhook_url": self.crew_webhook_url,
        }

    @staticmethod
    def _origin(context: Context) -> dict[str, Any]:
        """Say where the kickoff comes from: as the service lists no executions, it is how a lost one is found."""
        ti = context["ti"]
        names = ("dag_id", "run_id", "task_id", "map_index", "try_number")
        return {"airflow": {name: getattr(ti, name) for name in names}}

    def _warn_of_retries(self, context: Context, memory: KickoffMemory) -> None:
        if memory.lasts or not context["ti"].max_tries:
            return
        self.log.warning(
            "This task has retries, and its tries do not know of each other (%s). If its process dies after the "
            "kickoff, or Airflow fails it before or after the operator is asked, a retry starts, and pays for, "
            "another execution. CrewKickoffOperator with retries=0, followed by CrewExecutionSensor with retries, "
            "rules that out.",
            "reattach=False" if not self.reattach else "Airflow can remember a kickoff from 3.3 on",
        )

    def _tell(self, kickoff_id: str, context: Context) -> None:
        """Leave the kickoff id where people and other tasks find it; the execution runs, so this may not fail."""
        try:
            context["ti"].xcom_push(key=KICKOFF_ID, value=kickoff_id)
        except Exception as error:  # noqa: BLE001
            self.log.warning("Execution %s: its id could not be pushed to XCom: %s", kickoff_id, error)

    def secured(self, value: Any, context: Context, memory: KickoffMemory) -> Any:
        """
        Return what the task is about to return.

        Where tries do not know of each other it is stored right here: failing later would cost a second execution.
        """
        if memory.lasts or not context["ti"].max_tries or not self.do_xcom_push:
            return value
        try:
            context["ti"].xcom_push(key=XCOM_RETURN_KEY, value=value)
        except Exception as error:  # noqa: BLE001
            told = f"Execution {self.execution}: the result could not be stored in XCom: {error}"
        else:
            return value
        raise CrewTaskFailed(CrewError(told), self.not_retried())

    @contextmanager
    def sheltered(self, context: Context, *, resumed: bool = False) -> Iterator[None]:
        """Let nothing that ends the task after its kickoff lead to a retry that would start another."""
        try:
            yield
        except (TaskDeferred, AirflowFailException, ExecutionFailed, UncertainKickoff):
            raise
        except BaseException as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            if self._on_its_way and self.execution is None:
                told = f"The task was ended by {what} while its kickoff was under way. {IT_IS_NOT_KNOWN}"
                self._give_up_uncertain(UncertainKickoff(told), context)
            kicked_off = resumed or self.execution is not None
            if isinstance(error, AirflowTaskTimeout) and self._memory and not kicked_off:
                raise AirflowTaskTimeout(f"execution_timeout was over {self._memory.before_kickoff()}") from None
            if not kicked_off or self.memory(context).lasts or _was_changed_from_outside(context["ti"]):
                raise
            told = f"Execution {self.execution or 'of this task'}: the task was ended by {what}."
            raise CrewTaskFailed(CrewError(told), self.not_retried()) from error

    def not_retried(self) -> str:
        """Say why there is no retry where tries do not know of each other, and what to do instead."""
        return (
            " The task is not retried, since that would start another. Wait for this one with "
            f'CrewExecutionSensor(kickoff_id="{self.execution}").'
        )


def _was_changed_from_outside(ti: Any) -> bool:
    """
    Whether somebody has marked or cleared the task, on Airflow 2, where that ends it with an exception.

    What was chosen there has to stay.
    """
    return hasattr(ti, "current_state") and ti.current_state() != "running"


def _was_begun_anew(ti: Any) -> bool:
    """
    Whether this very try has kicked off before.

    Airflow 3.1 and 3.2 begin one anew that cannot be loaded when it is to resume: it was rescheduled then, and had
    left a kickoff id, which Airflow has deleted just now.
    """
    told: Any = getattr(ti, "_ti_context_from_server", None)
    return bool(told and told.task_reschedule_count and KICKOFF_ID in (told.xcom_keys_to_clear or ()))
