"""Operators that start an execution of a crew: one returns the kickoff ID, the other waits for the result."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.client.options import MAX_OUTAGE, TIMEOUT, OnInvalidOutput, OnResponseTimeout
from airflow_provider_crew.operators.base import KickoffTask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider_crew.batch.operator import CrewBatchOperator
    from airflow_provider_crew.task.attempt import Attempt

__all__ = ["CrewBatchOperator", "CrewKickoffOperator", "CrewRunOperator"]


class CrewKickoffOperator(KickoffTask):
    """
    Start an execution of a crew and return its kickoff ID, for a CrewExecutionSensor to wait for.

    Each execution is billed. The operator sends a kickoff again only if the first one certainly started nothing.
    If a kickoff is uncertain, the task fails without a retry.

    :param inputs: Inputs of the crew, a mapping of names to JSON values. (templated)
    :param crew_conn_id: Connection to the crew. (templated)
    :param meta: Object passed to the crew. ``None`` passes the DAG ID, run ID, task ID, map index and attempt
        number of the task, and ``{}`` passes nothing. (templated)
    :param task_webhook_url: URL that the crew calls after each task of the crew. (templated)
    :param step_webhook_url: URL that the crew calls after each step of an agent. (templated)
    :param crew_webhook_url: URL that the crew calls when the execution ends. (templated)
    :param human_input_webhook_url: URL that the crew calls when the crew waits for human input. (templated)
    :param webhooks: Object with the ``events`` that the crew sends, and the ``url`` it sends them to.
        (templated)
    :param webhook_conn_id: Connection whose password the crew sends with these events and to
        ``human_input_webhook_url``, as a bearer token. (templated)
    :param restore_from_state_id: Kickoff ID of an earlier execution of a flow, whose state is the initial state of
        the new one. (templated)
    :param validate_inputs: Whether to compare the inputs with the crew's list of inputs before the kickoff.
        Missing and misspelled inputs are errors, and other differences are logged as warnings.
    :param durable: Whether a retry reattaches to the execution of an earlier attempt. If False, it starts another,
        even while that one is running. Needs Airflow 3.3 or later.
    :param cancel_on_kill: Whether to cancel the execution if someone marks the task as failed, success or
        skipped, or dagrun_timeout or fail_fast stops it. ``None`` uses the connection's setting, which defaults
        to False.
    :param cancel_on_timeout: Whether to cancel the execution if ``timeout`` or execution_timeout ends the wait.
        ``None`` uses the connection's setting, which defaults to False.
    """

    ui_color = "#e4e0f3"

    def __init__(  # noqa: PLR0913 - keyword arguments for the DAG author
        self,
        *,
        inputs: Mapping[str, Any] | XComArg,
        crew_conn_id: str = "crew_default",
        meta: Mapping[str, Any] | None = None,
        task_webhook_url: str | None = None,
        step_webhook_url: str | None = None,
        crew_webhook_url: str | None = None,
        human_input_webhook_url: str | None = None,
        webhooks: Mapping[str, Any] | None = None,
        webhook_conn_id: str | None = None,
        restore_from_state_id: str | XComArg | None = None,
        validate_inputs: bool = True,
        durable: bool = True,
        cancel_on_kill: bool | None = None,
        cancel_on_timeout: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.multiple_outputs:  # Airflow raises after the kickoff
            raise ValueError(f"{self.operator_name}: multiple_outputs needs a mapping, not a kickoff ID.")
        self._set_arguments(locals())

    def _steps(self, attempt: Attempt) -> Any:
        return attempt.reattach() or attempt.kick_off()


class CrewRunOperator(KickoffTask):
    """
    Start an execution of a crew, wait for it, and return its result.

    If the execution fails, each of the task's ``retries`` starts a new one. If the wait ends for any other reason,
    a retry reattaches to the same execution (Airflow 3.3 and later), or the task fails without a retry.

    Takes the arguments of CrewKickoffOperator and the following:

    :param deferrable: Whether to wait in the triggerer instead of a worker. By default
        ``[operators] default_deferrable``.
    :param poll_interval: Seconds between two polls. ``None`` polls every 5 to 60 seconds, less often the longer
        the execution has run.
    :param timeout: Seconds after which an attempt stops waiting. The execution continues. Default: 24 hours.
    :param max_outage: Seconds the crew may be unreachable before an attempt stops waiting. ``None`` disables
        the limit. Default: 10 minutes.
    :param human_input: Whether the crew may wait for human input. If True, the task keeps waiting until
        ``timeout`` even while the execution is unknown to the crew. ``None`` means True if
        ``human_input_webhook_url`` is set.
    :param log_output: Whether to log the crew's output. ``[crew] log_output`` can disable this for all tasks.
    :param output_type: Type that the output must match: a pydantic model, any other type that pydantic can
        validate JSON data with, or the import path of either.
    :param on_invalid_output: Reaction if the output does not match ``output_type``. ``fail`` fails the task
        without a retry. Clearing the task then checks the same result again (Airflow 3.3 and later). ``retry``
        lets Airflow retry, which starts another billed execution.
    :param answer_in_airflow: Whether users answer the crew in Airflow, instead of in its dashboard.
        Experimental. Needs Airflow 3.3 or later, ``deferrable=True``, ``[crew] events_url`` and
        ``[crew] webhook_conn_id``. Without one of them, the task only shows that its crew waits.
    :param response_timeout: Seconds that users have to answer. ``None`` disables the limit.
    :param on_response_timeout: Reaction if no user answers within ``response_timeout``. ``leave`` closes the
        request, and the task keeps waiting for an answer in the crew's dashboard. ``approve`` approves the draft.
        ``send_back`` makes the crew do its task again, at most once per execution.
    :param assigned_users: Users who may answer, as ``{"id": ..., "name": ...}``. By default, every user with
        the right to edit Required Actions.
    :param notifiers: Notifiers to call for each question.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments for the DAG author
        self,
        *,
        inputs: Mapping[str, Any] | XComArg,
        crew_conn_id: str = "crew_default",
        meta: Mapping[str, Any] | None = None,
        task_webhook_url: str | None = None,
        step_webhook_url: str | None = None,
        crew_webhook_url: str | None = None,
        human_input_webhook_url: str | None = None,
        webhooks: Mapping[str, Any] | None = None,
        webhook_conn_id: str | None = None,
        restore_from_state_id: str | XComArg | None = None,
        validate_inputs: bool = True,
        durable: bool = True,
        cancel_on_kill: bool | None = None,
        cancel_on_timeout: bool | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: timedelta | float | None = None,
        timeout: timedelta | float = TIMEOUT,
        max_outage: timedelta | float | None = MAX_OUTAGE,
        human_input: bool | None = None,
        log_output: bool = True,
        output_type: object = None,
        on_invalid_output: OnInvalidOutput = "fail",
        answer_in_airflow: bool = False,
        response_timeout: timedelta | float | None = None,
        on_response_timeout: OnResponseTimeout = "leave",
        assigned_users: Sequence[Mapping[str, str]] = (),
        notifiers: Sequence[Callable[[Context], object]] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if answer_in_airflow and human_input_webhook_url is not None:
            raise ValueError(f"{self.operator_name}: answer_in_airflow sets human_input_webhook_url itself.")
        self._set_arguments(locals())
        # A retry may reattach to an execution that has the webhook, even if it renders to nothing then.
        may_ask = answer_in_airflow or human_input_webhook_url is not None
        self.human_input = may_ask if human_input is None else human_input
        if answer_in_airflow:
            self._attempt_class = "airflow_provider_crew.answers.people:AnsweringAttempt"

    def _steps(self, attempt: Attempt) -> Any:
        attempt.resume() or attempt.reattach() or attempt.kick_off()
        return attempt.result()


def __getattr__(name: str) -> Any:
    """Return CrewBatchOperator, so that DAGs import it from here. Others need not load it."""
    if name != "CrewBatchOperator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name("airflow_provider_crew.batch.operator:CrewBatchOperator")
