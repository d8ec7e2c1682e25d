"""The operators: one that kicks a crew off, and one that also waits for its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowTaskTimeout, conf

from airflow_provider_crew.compat import CLEARING, IS_AIRFLOW_2
from airflow_provider_crew.defaults import MAX_OUTAGE, TIMEOUT, seconds
from airflow_provider_crew.operators.kickoff import KickoffTask
from airflow_provider_crew.operators.memory import HOW_TO_GIVE_UP, KickoffMemory
from airflow_provider_crew.service.errors import (
    ExecutionFailed,
    ExecutionUnknown,
    InvalidKickoffId,
    WaitedTooLong,
)
from airflow_provider_crew.waiting import PASSING, CrewTaskFailed, CutShort, Origin, WaitingTask
from airflow_provider_crew.xcom import left_in_xcom

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_crew.service.errors import CrewError


_SAME_AGAIN = f"{CLEARING[0].upper()}{CLEARING[1:]} goes on waiting for the same execution."
_GIVE_UP_UNKNOWN = f" The task is not retried. {_SAME_AGAIN} {HOW_TO_GIVE_UP}"


class _TimeLimit:
    """
    The execution_timeout, kept from Airflow 2, whoever sets it.

    It would end a task that resumes too late before that could say, or do, anything: by a retry.
    """

    def __set__(self, task: CrewRunOperator, limit: timedelta | None) -> None:
        task._time_limit = limit  # noqa: SLF001 - it is a part of that class

    def __get__(self, task: CrewRunOperator | None, owner: type) -> None:
        return None


class CrewKickoffOperator(KickoffTask):
    """
    Kick a crew off and return the kickoff id, for a CrewExecutionSensor to wait for.

    Each kickoff costs money, so it is sent again by itself only when the crew certainly did not take it. When it
    cannot be known whether it did, the task fails without a retry.

    :param inputs: what the crew works on, names and JSON values (templated)
    :param crew_conn_id: the connection to the crew (templated)
    :param token_type: ``organization`` or ``user``; by default what the connection says, or the only token it has
    :param meta: any object, passed to the crew (templated); by default it says which task of which run kicked
        off, and ``{}`` sends none
    :param task_webhook_url: called by the service after each task of the crew (templated)
    :param step_webhook_url: called after each step of an agent (templated)
    :param crew_webhook_url: called at the end (templated)
    :param human_input_webhook_url: called when a task of the crew waits for a person (templated)
    :param webhooks: which ``events`` the service sends to which ``url`` (templated)
    :param webhook_conn_id: the connection whose password the service sends with them (templated)
    :param restore_from_state_id: the kickoff id of an earlier run of a flow, with whose state to begin (templated)
    :param validate_inputs: compare the inputs with what the crew lists before anything is paid for; ``strict``
        refuses what else would be a warning
    :param on_uncertain_kickoff: ``fail``, or ``retry`` to let Airflow retry, which may run the crew twice
    :param reattach: go on with the execution of an earlier try (from Airflow 3.3)
    :param forget_after: seconds after which a Clear gives up an execution that the service does not know, and
        kicks off anew: until then it may be waiting for a person. None: never
    """

    def given(self, memory: KickoffMemory) -> None:
        """Remember that Airflow has the kickoff id."""
        memory.given()

    def execute(self, context: Context) -> str:
        """Kick off."""
        with self.sheltered(context):
            memory = self.memory(context)
            kickoff_id: str = self.secured(self.kicked_off(context, memory), context, memory)
            return kickoff_id


class CrewRunOperator(KickoffTask, WaitingTask):
    """
    Kick a crew off, wait for it, and return its result.

    Takes what CrewKickoffOperator takes. A failed crew is retried as the task's ``retries`` say, with a new
    kickoff. A retry after anything else goes on with the same execution (from Airflow 3.3), or there is none.

    :param deferrable: wait in the triggerer, without holding a worker; by default what
        ``[operators] default_deferrable`` says
    :param poll_interval: seconds between two looks; None: 5 to 60, the more the longer the execution has run
    :param timeout: seconds after which a try stops waiting; the execution goes on
    :param max_outage: seconds without a usable answer after which a try stops waiting; None: go on until timeout
    :param human_input: the crew may wait for a person's answer, until timeout if need be; by default whether
        ``human_input_webhook_url`` is set
    """

    waits = True
    _not_rendered: Exception | None = None
    _time_limit: timedelta | None = None
    if IS_AIRFLOW_2:
        execution_timeout = _TimeLimit()

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        human_input: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.poll_interval = None if poll_interval is None else seconds(poll_interval, "poll_interval")
        self.timeout = seconds(timeout, "timeout")
        self.max_outage = None if max_outage is None else seconds(max_outage, "max_outage")
        self.human_input = human_input

    def given(self, memory: KickoffMemory) -> None:
        """Remember that Airflow has the result: it stores it after all else, and what is large may fail there."""
        memory.ended("returned", self.execution)

    def execute(self, context: Context) -> dict[str, Any]:
        """Kick off and wait."""
        if self._not_rendered:
            raise self._not_rendered
        with self.sheltered(context):
            memory = self.memory(context)
            kickoff_id = self.kicked_off(context, memory)
            return self.wait_for(kickoff_id, context, _origin_of(memory))

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """
        Render what a kickoff needs; of a mapped task, too, Airflow has it done here.

        It does so again after a deferral, perhaps in vain: what the inputs were made of may be gone. Waiting needs
        the connection alone.
        """
        try:
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        except Exception as error:
            self.execution = left_in_xcom(context["ti"]) if parent is self else None
            if self.execution is None:
                raise
            self._not_rendered = error
            told = (
                "Execution %s: the task's templates cannot be rendered again, and waiting does not need them: %s"
            )
            self.log.warning(told, self.execution, error)
            with self.sheltered(context, resumed=True):
                self.crew_conn_id = self.render_template(self.crew_conn_id, context, jinja_env)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral: the crew was kicked off, and what came of it counts more than a memory."""
        try:
            self.memory(context)
        except Exception as error:  # noqa: BLE001
            self.log.warning("What this task remembers of its kickoff cannot be read: %s", error)
            self._memory = KickoffMemory(context, wanted=False)
        with self.sheltered(context, resumed=True):
            self._remember_what_the_store_refused(context)
            return super().resume_execution(next_method, next_kwargs, context)

    def _remember_what_the_store_refused(self, context: Context) -> None:
        memory = self.memory(context)
        if memory.last and memory.last.kickoff_id is None and (known := left_in_xcom(context["ti"])):
            memory.found(known)

    def wait_on(self, context: Context) -> dict[str, Any]:
        """Wait for the execution that was kicked off."""
        kickoff_id, memory = self.execution_waited_for(context), self.memory(context)
        memory.adopted()
        return self.wait_for(kickoff_id, context, _origin_of(memory))

    @property
    def waits_for_people(self) -> bool:
        """What was said; or whether somebody is told when the crew waits for a person."""
        return bool(self.human_input_webhook_url) if self.human_input is None else self.human_input

    @property
    def time_limit(self) -> timedelta | None:
        """The execution_timeout, which Airflow 2 is kept from enforcing."""
        return self._time_limit if IS_AIRFLOW_2 else self.execution_timeout

    def execution_waited_for(self, context: Context) -> str:
        """Return the kickoff id that this try has left in XCom, or that the task remembers."""
        found = left_in_xcom(context["ti"])
        if found is None and (last := self.memory(context).last):
            found = last.kickoff_id
        if found is None:
            raise CrewTaskFailed(InvalidKickoffId("The kickoff id of this task is not known any more."))
        return str(found)

    def finish(self, result: dict[str, Any], context: Context) -> dict[str, Any]:
        """Return the result."""
        finished: dict[str, Any] = self.secured(super().finish(result, context), context, self.memory(context))
        return finished

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Remember the end, as late as possible: until it is returned, a result is wanted even after a Clear."""
        super().post_execute(context, result)
        self.memory(context).ended("completed", self.execution)

    def give_up(self, error: CrewError, context: Context) -> NoReturn:
        """Leave a failed crew to the task's retries, and other ends only where a retry starts nothing anew."""
        memory = self.memory(context)
        if isinstance(error, ExecutionFailed):
            memory.ended("failed", self.execution)
            raise error from None
        if not memory.lasts:
            raise CrewTaskFailed(error, self.not_retried()) from None
        if isinstance(error, ExecutionUnknown):
            self._give_up_unknown(error, memory)
        if not isinstance(error, (*PASSING, WaitedTooLong)):
            raise CrewTaskFailed(error, f" {_SAME_AGAIN}") from None
        error.args = (f"{error} A retry of this task, or {CLEARING}, goes on waiting for the same execution.",)
        raise AirflowTaskTimeout(str(error)) if isinstance(error, CutShort) else error from None

    def _give_up_unknown(self, error: ExecutionUnknown, memory: KickoffMemory) -> NoReturn:
        if error.has_completed:
            memory.ended("returned", self.execution)  # as much of it as there is to be had
            raise CrewTaskFailed(error, " The task is not retried; clearing it kicks off anew.") from None
        raise CrewTaskFailed(error, "" if error.elsewhere else _GIVE_UP_UNKNOWN) from None


def _origin_of(memory: KickoffMemory) -> Origin:
    last = memory.last
    return Origin(last.kicked_off_at, exists=True, address=last.address) if last else Origin(exists=True)
