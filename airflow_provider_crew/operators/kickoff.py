"""What both operators share: starting an execution once, whatever happens to the task."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, cast, get_args

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferred,
)

from airflow_provider_crew.compat import CLEARING, IS_AIRFLOW_2
from airflow_provider_crew.defaults import FORGET_AFTER, seconds
from airflow_provider_crew.hooks.check import ValidateInputs
from airflow_provider_crew.operators.earlier import IT_IS_NOT_KNOWN, EarlierKickoff
from airflow_provider_crew.operators.memory import HOW_TO_GIVE_UP, KickoffMemory
from airflow_provider_crew.service.errors import (
    CrewError,
    ExecutionFailed,
    ExecutionUnknown,
    UncertainKickoff,
)
from airflow_provider_crew.signals import interruptions_held_off
from airflow_provider_crew.waiting import PASSING, CrewTask, CrewTaskFailed
from airflow_provider_crew.xcom import KICKOFF_ID, RETURN_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.service.payload import KickoffOptions
    from airflow_provider_crew.signals import HeldOff

OnUncertainKickoff = Literal["fail", "retry"]

_LEFT_TO_A_RETRY = "The crew was not kicked off. A retry of this task, or clearing it, does so."
_LEFT_TO_PEOPLE = " The crew was not kicked off, and a retry would not help: mend this, and clear the task."


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
        "human_input_webhook_url",
        "webhooks",
        "webhook_conn_id",
        "restore_from_state_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"inputs": "json", "meta": "json", "webhooks": "json"}
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
        human_input_webhook_url: str | None = None,
        webhooks: Mapping[str, Any] | None = None,
        webhook_conn_id: str | None = None,
        restore_from_state_id: Any = None,
        validate_inputs: ValidateInputs = True,
        on_uncertain_kickoff: OnUncertainKickoff = "fail",
        reattach: bool = True,
        forget_after: timedelta | float | None = FORGET_AFTER,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Were it found out by Airflow, that would be after the kickoff.
        if self.multiple_outputs and not self.waits:
            raise ValueError("multiple_outputs splits a mapping, and a kickoff id is none.")
        if on_uncertain_kickoff not in get_args(OnUncertainKickoff):
            raise ValueError("on_uncertain_kickoff must be 'fail' or 'retry'.")
        if validate_inputs not in get_args(ValidateInputs):
            raise ValueError("validate_inputs must be True, False or 'strict'.")
        self.inputs = inputs
        self.crew_conn_id = crew_conn_id
        self.token_type = token_type
        self.meta = meta
        self.task_webhook_url = task_webhook_url
        self.step_webhook_url = step_webhook_url
        self.crew_webhook_url = crew_webhook_url
        self.human_input_webhook_url = human_input_webhook_url
        self.webhooks = webhooks
        self.webhook_conn_id = webhook_conn_id
        self.restore_from_state_id = restore_from_state_id
        self.validate_inputs = validate_inputs
        self.on_uncertain_kickoff = on_uncertain_kickoff
        self.reattach = reattach
        self.forget_after = None if forget_after is None else seconds(forget_after, "forget_after", at_least=0)
        if not IS_AIRFLOW_2:
            self.on_success_callback = [*self.on_success_callback, _given]
        self._memory: KickoffMemory | None = None
        self._on_its_way = False
        self._killed = False

    @abstractmethod
    def given(self, memory: KickoffMemory) -> None:
        """Remember that Airflow has what the task returned."""

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
        if self._memory:
            self._memory.keep_again()
        super().on_kill()

    def waits_again(self) -> str:
        """Say so where tries know of each other."""
        return (
            f"A retry of this task, or {CLEARING}, goes on with it. "
            if self._memory and self._memory.lasts
            else ""
        )

    def kicked_off(self, context: Context, memory: KickoffMemory) -> str:
        """Kick off, or find the execution of an earlier try that this one goes on with; return its kickoff id."""
        try:
            self.leave_link(context)
            kickoff_id = EarlierKickoff(self, context, memory).execution() or self._kick_off(context, memory)
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
        if isinstance(failure, ExecutionUnknown):
            raise CrewTaskFailed(failure, f" {HOW_TO_GIVE_UP}")
        raise CrewTaskFailed(failure, memory.what_goes_on() or _LEFT_TO_PEOPLE)

    def _give_up_uncertain(self, error: UncertainKickoff, context: Context) -> NoReturn:
        self.metrics(context).kickoff("uncertain")
        if self.on_uncertain_kickoff == "retry":
            raise error
        is_told = not self._killed and (self._memory is None or self._memory.told())
        then = (
            "clearing it kicks off anew" if is_told else "clearing it says this once more, and then kicks off anew"
        )
        raise CrewTaskFailed(
            error, f" There it can be found {self._mark(context)}. The task is not retried; {then}."
        )

    def _mark(self, context: Context) -> str:
        """Say by what an execution of this task can be told from others."""
        if self.meta is not None:
            return "by the meta of this task"
        names = {name: value for name, value in self._origin(context)["airflow"].items() if name != "try_number"}
        return f"by its meta, {json.dumps(names)}"

    def _kick_off(self, context: Context, memory: KickoffMemory) -> str:
        request = self.hook.kickoff_request(
            self.kickoff_inputs(context), webhook_conn_id=self.webhook_conn_id, **self._options(context)
        )
        self.hook.check_request(request, validate=self.validate_inputs)
        self._warn_of_retries(context, memory)
        with interruptions_held_off(memory.keep_again) as held:
            self._send_off(memory)
            self.log.info(
                "The crew is being kicked off. If this log says nothing further of that, it is not known whether "
                "that started an execution: one can be found in the crew's dashboard %s.",
                self._mark(context),
            )
            try:
                kickoff_id = self.hook.send(request, sleep=partial(self._pause, held, memory))
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
            memory.sending(self.hook.connection.settings.address)
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
        return {
            "meta": self._origin(context) if self.meta is None else self.meta,
            "task_webhook_url": self.task_webhook_url,
            "step_webhook_url": self.step_webhook_url,
            "crew_webhook_url": self.crew_webhook_url,
            "human_input_webhook_url": self.human_input_webhook_url,
            "webhooks": self.webhooks,
            "restore_from_state_id": self.restore_from_state_id,
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
            context["ti"].xcom_push(key=RETURN_VALUE, value=value)
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


def _given(context: Context) -> None:
    """Take note, as late as possible, that Airflow has what the task returned."""
    task = cast("KickoffTask", context["task"])
    if (memory := task.memory(context)).outcome_counts:
        task.given(memory)


def _was_changed_from_outside(ti: Any) -> bool:
    """
    Whether somebody has marked or cleared the task, on Airflow 2, where that ends it with an exception.

    What was chosen there has to stay.
    """
    return hasattr(ti, "current_state") and ti.current_state() != "running"
