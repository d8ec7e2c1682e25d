"""Sensor that waits for an execution started elsewhere."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseSensorOperator, conf

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT
from airflow_provider_crew.operators.base import CrewTask, KickoffTask, seconds, seconds_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.task.sensor import SensorAttempt


class CrewExecutionSensor(CrewTask, BaseSensorOperator):
    """
    Wait until an execution completes and return its result.

    The task fails without a retry if the execution failed, if it is unknown to the crew, if the crew rejects the
    token, or at the timeout. Airflow retries the task after an outage longer than ``max_outage``.

    :param kickoff_id: Kickoff ID of the execution, as returned by a kickoff task. (templated)
    :param crew_conn_id: Connection to the crew. (templated)
    :param deferrable: Whether to wait in the triggerer instead of a worker. By default
        ``[operators] default_deferrable``. If False, ``mode`` selects how the worker waits.
    :param poke_interval: Seconds between two polls. ``None`` polls every 5 to 60 seconds, less often the longer
        the execution has run.
    :param timeout: Seconds after which the sensor stops waiting. The execution continues. Default: 24 hours.
    :param max_outage: Seconds the crew may be unreachable before the sensor stops waiting. ``None`` disables
        the limit. Default: 10 minutes.
    :param human_input: Whether the crew may wait for human input. If True, the sensor keeps waiting until
        ``timeout`` even while the execution is unknown to the crew.
    :param log_output: Whether to log the crew's output. ``[crew] log_output`` can disable this for all tasks.
    :param output_type: Type that the output must match: a pydantic model, any other type that pydantic can
        validate JSON data with, or the import path of either. If the output does not match, the task fails
        without a retry.
    :param cancel_on_kill: Whether to cancel the execution if someone marks the task as failed, success or
        skipped, or dagrun_timeout or fail_fast stops it. ``None`` uses the connection's setting, which defaults
        to False.
    :param cancel_on_timeout: Whether to cancel the execution if ``timeout`` or execution_timeout ends the wait.
        ``None`` uses the connection's setting, which defaults to False.
    """

    kickoff_id: Any
    deferrable: bool
    template_fields = ("crew_conn_id", "kickoff_id")
    ui_color = "#d6e9e3"
    checks = CrewTask.checks | {"poke_interval": seconds_or_none, "timeout": partial(seconds, at_least=0)}

    def __init__(  # noqa: PLR0913 - keyword arguments for the DAG author
        self,
        *,
        kickoff_id: str | XComArg,
        crew_conn_id: str = "crew_default",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        human_input: bool = False,
        log_output: bool = True,
        output_type: object = None,
        cancel_on_kill: bool | None = None,
        cancel_on_timeout: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_arguments(locals())
        self.poll_interval: float | None = self.poke_interval
        interval = self.poll_interval or timing.LONGEST_INTERVAL
        super().__init__(poke_interval=interval, timeout=self.timeout, **kwargs)

    def _steps(self, attempt: SensorAttempt) -> Any:
        if self._render_error and attempt.next_kwargs is None:
            raise self._render_error
        attempt.find()
        is_rescheduled = self.reschedule and not self.deferrable
        return attempt.poll_or_reschedule() if is_rescheduled else attempt.result()

    def _new_attempt(self, context: Context, next_kwargs: Mapping[str, Any] | None) -> SensorAttempt:
        from airflow_provider_crew.task.sensor import SensorAttempt

        kickoff, conn_id = getattr(self.given.get("kickoff_id"), "operator", None), self.given["crew_conn_id"]
        # In mode reschedule, the limit starts again at each poke.
        limit = None if self.reschedule and not self.deferrable else self.execution_timeout
        return SensorAttempt(
            self._task(context, execution_timeout=limit),
            given_id=self.kickoff_id,
            is_issued=isinstance(kickoff, KickoffTask) and kickoff.crew_conn_id == conn_id,
            skips="never_fail" if self.never_fail else "soft_fail" if self.soft_fail else "",
            next_kwargs=next_kwargs,
        )
