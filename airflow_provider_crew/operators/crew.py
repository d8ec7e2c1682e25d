"""The operators: one that kicks a crew off, and one that also waits for its result."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT, KickoffOptions
from airflow_provider_crew.compat import take_time_limit
from airflow_provider_crew.operators.base import (
    FORGET_AFTER,
    CrewTask,
    check_choices,
    checked_output_type,
    seconds,
    seconds_or_none,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.client.options import OnInvalidOutput, OnUncertainKickoff, ValidateInputs
    from airflow_provider_crew.durable.kickoff import Kickoff, KickoffArguments
    from airflow_provider_crew.durable.run import CrewRun
    from airflow_provider_crew.hooks.connection import TokenType


class _KickoffTask(CrewTask):
    template_fields = ("inputs", "crew_conn_id", "webhook_conn_id", *KickoffOptions.__annotations__)
    template_fields_renderers: ClassVar[dict[str, str]] = {"inputs": "json", "meta": "json", "webhooks": "json"}
    ui_color = "#e4e0f3"

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render what a kickoff needs; of a mapped task, too, Airflow has it done here."""
        try:
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        except Exception as error:
            if parent is not self:
                raise
            self._cannot_render(error, context, jinja_env)

    def _cannot_render(self, error: Exception, context: Context, jinja_env: Any) -> None:  # noqa: ARG002
        """Tell what that means for the money, as of whatever else ends a task before its kickoff."""
        self._kickoff(context).cannot_render(error)

    def _kickoff(self, context: Context) -> Kickoff:
        from airflow_provider_crew.durable.kickoff import Kickoff

        return Kickoff(self._begin(context), cast("KickoffArguments", self))


class CrewKickoffOperator(_KickoffTask):
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
        restore_from_state_id: str | XComArg | None = None,
        validate_inputs: ValidateInputs = True,
        on_uncertain_kickoff: OnUncertainKickoff = "fail",
        reattach: bool = True,
        forget_after: timedelta | float | None = FORGET_AFTER,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choices(self, validate_inputs, on_uncertain_kickoff)
        if self.multiple_outputs:  # Airflow finds it out after the kickoff
            raise ValueError(f"{self.operator_name}: multiple_outputs splits a mapping, and a kickoff id is none.")
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
        self.forget_after = seconds_or_none(self, forget_after, "forget_after", at_least=0)

    def execute(self, context: Context) -> str:
        """Kick off."""
        kickoff = self._kickoff(context)
        with kickoff.shelter():
            return kickoff.secure(kickoff.execution(lambda: self.inputs))


class CrewRunOperator(_KickoffTask):
    """
    Kick a crew off, wait for it, and return its result.

    A failed crew is retried as the task's ``retries`` say, with a new kickoff. A retry after anything else goes on
    with the same execution (from Airflow 3.3), or there is none.

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
    :param deferrable: wait in the triggerer, without holding a worker; by default what
        ``[operators] default_deferrable`` says
    :param poll_interval: seconds between two polls; None: 5 to 60, the more the longer the execution has run
    :param timeout: seconds after which a try stops waiting; the execution goes on
    :param max_outage: seconds without a usable answer after which a try stops waiting; None: go on until timeout
    :param human_input: the crew may wait for a person's answer, until timeout if need be; by default whether
        ``human_input_webhook_url`` is set
    :param log_output: show in the log what the crew has put out, unless ``[crew] log_output`` forbids it
    :param output_type: what the output has to be: a pydantic model, any type that pydantic can check JSON data by,
        or the import path of one
    :param on_invalid_output: ``fail`` when the output is not of that type, without a retry: a Clear checks the
        same result again (from Airflow 3.3); or ``retry`` to let Airflow retry, which kicks off, and pays, again
    """

    _not_rendered: Exception | None = None

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
        restore_from_state_id: str | XComArg | None = None,
        validate_inputs: ValidateInputs = True,
        on_uncertain_kickoff: OnUncertainKickoff = "fail",
        reattach: bool = True,
        forget_after: timedelta | float | None = FORGET_AFTER,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        human_input: bool | None = None,
        log_output: bool = True,
        output_type: object = None,
        on_invalid_output: OnInvalidOutput = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choices(self, validate_inputs, on_uncertain_kickoff, on_invalid_output)
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
        self.forget_after = seconds_or_none(self, forget_after, "forget_after", at_least=0)
        self.deferrable = deferrable
        self.poll_interval = seconds_or_none(self, poll_interval, "poll_interval")
        self.timeout = seconds(self, timeout, "timeout")
        self.max_outage = seconds_or_none(self, max_outage, "max_outage")
        self.human_input = human_input
        self.log_output = log_output
        self.output_type = checked_output_type(self, output_type)
        self.on_invalid_output = on_invalid_output

    def execute(self, context: Context) -> dict[str, Any]:
        """Kick off and wait."""
        return self._run(context).result()

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral, also without an event."""
        next_kwargs = dict(next_kwargs or {})
        return self._run(context, next_kwargs).resume(next_method, next_kwargs)

    def kickoff_inputs(self, context: Context) -> Any:  # noqa: ARG002 - the decorator needs it
        """Return what to kick off with. A try that goes on with an execution does not ask."""
        return self.inputs

    def pre_execute(self, context: Context) -> None:
        """Keep the time limit from Airflow where it would not let the task say anything."""
        self._time_limit = take_time_limit(self)
        super().pre_execute(context)

    def _run(self, context: Context, next_kwargs: Mapping[str, Any] | None = None) -> CrewRun:
        from airflow_provider_crew.durable.run import CrewRun

        if self.human_input is None:
            # Also if it renders to nothing now: the execution that a retry reattaches to may have it.
            was_set = (self._templates or {}).get("human_input_webhook_url")
            self.human_input = bool(self.human_input_webhook_url or was_set)
        return CrewRun(self._begin(context, next_kwargs), self, partial(self._inputs, context))

    def _inputs(self, context: Context) -> Any:
        """Return what to kick off with, which nobody may be sent as a template."""
        if self._not_rendered:
            raise self._not_rendered
        return self.kickoff_inputs(context)

    def _cannot_render(self, error: Exception, context: Context, jinja_env: Any) -> None:
        """
        Wait all the same, after a deferral.

        Airflow renders again then, perhaps in vain: what the inputs were made of may be gone. Waiting needs the
        connection alone.
        """
        from airflow_provider_crew.client.text import warn
        from airflow_provider_crew.durable.record import kickoff_id_left_by

        known = kickoff_id_left_by(context["ti"])
        if known is None:
            super()._cannot_render(error, context, jinja_env)
        self._not_rendered = error
        warn(
            self.log,
            f"Templates cannot be rendered again, and waiting for execution {known} does not need them: {error}",
        )
        with suppress(Exception):  # else a poll says that there is no such connection; a result needs none
            self.crew_conn_id = self.render_template(self.crew_conn_id, context, jinja_env)
