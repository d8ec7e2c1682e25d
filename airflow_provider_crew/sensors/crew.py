"""The sensor: waits for an execution that was kicked off elsewhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseSensorOperator, PokeReturnValue, conf

from airflow_provider_crew.client.options import LONGEST_INTERVAL, MAX_OUTAGE, TIMEOUT
from airflow_provider_crew.operators.base import CrewTask, checked_output_type, seconds, seconds_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.durable.wait import Sense
    from airflow_provider_crew.hooks.connection import TokenType


class CrewExecutionSensor(CrewTask, BaseSensorOperator):
    """
    Wait until an execution has completed, and return its result.

    A failed execution ends the task without a retry, since it stays failed; so do a token that is not accepted, an
    unknown execution and a time-out. An outage of the service beyond max_outage is retried.

    :param kickoff_id: the id that a kickoff returned (templated)
    :param crew_conn_id: the connection to the crew (templated)
    :param token_type: ``organization`` or ``user``; by default what the connection says, or the only token it has
    :param deferrable: wait in the triggerer; by default what ``[operators] default_deferrable`` says. Without it,
        ``mode`` says how the worker waits.
    :param poke_interval: seconds between two polls; None: 5 to 60, the more the longer the execution has run
    :param timeout: seconds after which to stop waiting; the execution goes on
    :param max_outage: seconds without a usable answer after which to stop waiting; None: go on until timeout
    :param human_input: the crew may wait for a person's answer, until timeout if need be. The service may say of
        a crew that waits that it does not know it.
    :param log_output: show in the log what the crew has put out, unless ``[crew] log_output`` forbids it
    :param output_type: what the output has to be: a pydantic model, any type that pydantic can check JSON data by,
        or the import path of one. When it is not, the task fails without a retry.
    """

    template_fields = ("kickoff_id", "crew_conn_id")
    ui_color = "#d6e9e3"

    def __init__(  # noqa: PLR0913 - what a user sets by name
        self,
        *,
        kickoff_id: str | XComArg,
        crew_conn_id: str = "crew_default",
        token_type: TokenType | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        human_input: bool = False,
        log_output: bool = True,
        output_type: object = None,
        **kwargs: Any,
    ) -> None:
        self.poll_interval = seconds_or_none(self, poke_interval, "poke_interval")
        timeout = seconds(self, timeout, "timeout", at_least=0)
        super().__init__(poke_interval=self.poll_interval or LONGEST_INTERVAL, timeout=timeout, **kwargs)
        self.kickoff_id = kickoff_id
        self.crew_conn_id = crew_conn_id
        self.token_type = token_type
        self.deferrable = deferrable
        self.human_input: bool | None = human_input
        self.log_output = log_output
        self.output_type = checked_output_type(self, output_type)
        # Who wants a sensor to go on silently after a failed poll wants no outage to end it.
        self.max_outage = None if self.silent_fail else seconds_or_none(self, max_outage, "max_outage")

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait, and return the result."""
        sense = self._sense(context)
        return sense.result() if self.deferrable or not self.reschedule else sense.result_or_reschedule()

    def poke(self, context: Context) -> PokeReturnValue:
        """Poll once."""
        result = self._sense(context).poke()
        return PokeReturnValue(is_done=result is not None, xcom_value=result)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """
        Resume after a deferral, also without an event.

        Not through the base class: that replaces what a skipped or timed out sensor has to say.
        """
        next_kwargs = dict(next_kwargs or {})
        return self._sense(context, next_kwargs).resume(next_method, next_kwargs)

    @property
    def time_limit(self) -> timedelta | None:
        """The execution_timeout, but for a sensor that is given it anew at every poke."""
        return super().time_limit if self.deferrable or not self.reschedule else None

    def _sense(self, context: Context, next_kwargs: Mapping[str, Any] | None = None) -> Sense:
        from airflow_provider_crew.durable.outcome import end_sensor
        from airflow_provider_crew.durable.task import is_nothing
        from airflow_provider_crew.durable.wait import Sense
        from airflow_provider_crew.triggers.events import read_event

        task = self._begin(context, next_kwargs)
        give_up = partial(end_sensor, task, soft_fail=self.soft_fail, never_fail=self.never_fail)
        kickoff_id: Any = self.kickoff_id
        if is_nothing(kickoff_id) and (end := read_event((next_kwargs or {}).get("event"))):
            kickoff_id = end.kickoff_id  # the task that kicked off may have been cleared since the deferral
        return Sense(task, self, kickoff_id, give_up)
