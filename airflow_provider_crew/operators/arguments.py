"""What the operators take besides what is theirs, and how it is checked when a DAG is parsed."""

import math
import re
from collections.abc import MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, get_args

from airflow.providers.common.compat.sdk import BaseOperator, XComArg

from airflow_provider_crew.service.options import KickoffOptions

OnUncertainKickoff = Literal["fail", "retry"]
ValidateInputs = Literal[True, False, "strict"]
OnInvalidOutput = Literal["fail", "retry"]

# How long a person may take to answer a crew, before a Clear may give the execution up.
FORGET_AFTER = 7 * 24 * 60 * 60.0
# Beyond it lie dates that neither Airflow nor its database can hold, which would be found out after the kickoff.
_LONGEST_TIME = 10 * 365 * 86_400.0
# Found in the place of a type: an example, a schema, a list of names.
_NO_TYPES = (int, float, bytes, dict, list, tuple, set, frozenset)
_BETWEEN_NAMES = re.compile(r"[.:]")


class TaskArguments(TypedDict, total=False):
    """What every operator of Airflow takes, spelled out so that type checkers find a misspelt argument."""

    task_id: str
    owner: str
    email: str | Sequence[str] | None
    email_on_retry: bool
    email_on_failure: bool
    retries: int | None
    retry_delay: timedelta | float
    retry_exponential_backoff: float
    max_retry_delay: timedelta | float | None
    retry_policy: Any
    start_date: datetime | None
    end_date: datetime | None
    depends_on_past: bool
    ignore_first_depends_on_past: bool
    wait_for_past_depends_before_skipping: bool
    wait_for_downstream: bool
    dag: Any
    params: MutableMapping[str, Any] | None
    default_args: dict[str, Any] | None
    priority_weight: int
    weight_rule: Any
    queue: str
    pool: str | None
    pool_slots: int
    sla: timedelta | None
    execution_timeout: timedelta | None
    on_execute_callback: Any
    on_failure_callback: Any
    on_success_callback: Any
    on_retry_callback: Any
    on_skipped_callback: Any
    pre_execute: Any
    post_execute: Any
    trigger_rule: str
    resources: dict[str, Any] | None
    run_as_user: str | None
    map_index_template: str | None
    max_active_tis_per_dag: int | None
    max_active_tis_per_dagrun: int | None
    executor: str | None
    executor_config: dict[str, Any] | None
    do_xcom_push: bool
    multiple_outputs: bool
    inlets: Any
    outlets: Any
    task_group: Any
    doc: str | None
    doc_md: str | None
    doc_json: str | None
    doc_yaml: str | None
    doc_rst: str | None
    task_display_name: str | None
    logger_name: str | None
    allow_nested_operators: bool
    render_template_as_native_obj: bool | None


class RunArguments(TaskArguments, KickoffOptions, total=False):
    """What CrewRunOperator takes, but for its inputs."""

    crew_conn_id: str
    token_type: Literal["organization", "user"] | None
    webhook_conn_id: str | None
    validate_inputs: ValidateInputs
    on_uncertain_kickoff: OnUncertainKickoff
    reattach: bool
    forget_after: timedelta | float | None
    deferrable: bool
    poll_interval: timedelta | float | None
    timeout: timedelta | float
    max_outage: timedelta | float | None
    human_input: bool | None
    log_output: bool
    output_type: object
    on_invalid_output: OnInvalidOutput


class SensorArguments(TaskArguments, total=False):
    """What every sensor of Airflow takes, but for what ours spells out itself."""

    soft_fail: bool
    mode: str
    exponential_backoff: bool
    max_wait: timedelta | float | None
    silent_fail: bool
    never_fail: bool


def check_choices(
    task: BaseOperator,
    validate_inputs: ValidateInputs,
    on_uncertain_kickoff: OnUncertainKickoff,
    on_invalid_output: OnInvalidOutput = "fail",
) -> None:
    """Refuse what is none of the choices before a DAG runs with it."""
    if on_uncertain_kickoff not in get_args(OnUncertainKickoff):
        raise ValueError(f"{task.operator_name}: on_uncertain_kickoff must be 'fail' or 'retry'.")
    if validate_inputs not in get_args(ValidateInputs):
        raise ValueError(f"{task.operator_name}: validate_inputs must be True, False or 'strict'.")
    if on_invalid_output not in get_args(OnInvalidOutput):
        raise ValueError(f"{task.operator_name}: on_invalid_output must be 'fail' or 'retry'.")


def checked_output_type(task: BaseOperator, given: object) -> object:
    """
    Return the type of an output as it is, or refuse what can be none, before a DAG runs with it.

    Whether pydantic can check by it is found out when the task runs: to ask would import both.
    """
    if isinstance(given, XComArg):
        raise ValueError(f"{task.operator_name}: output_type takes nothing from another task.")  # noqa: TRY004
    if isinstance(given, str) and not _is_import_path(given):
        raise ValueError(
            f"{task.operator_name}: output_type as text must be an import path, as 'my_company.reports.Report' is."
        )
    if isinstance(given, _NO_TYPES):
        kind = type(given).__name__
        raise ValueError(  # noqa: TRY004 - as of every other argument
            f"{task.operator_name}: output_type must be a type, or the import path of one, and is of type {kind}."
        )
    return given


def _is_import_path(text: str) -> bool:
    parts = _BETWEEN_NAMES.split(text)
    return len(parts) > 1 and all(map(str.isidentifier, parts))


def seconds(task: BaseOperator, given: timedelta | float, name: str, *, at_least: float = math.ulp(0)) -> float:
    """Return a time in seconds, or refuse it before a DAG runs with it."""
    try:
        number = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not at_least <= number <= _LONGEST_TIME:
        least = "above 0" if at_least else "from 0"
        raise ValueError(
            f"{task.operator_name}: {name} must be a number of seconds {least} and up to ten years, "
            "or a timedelta."
        )
    return number


def seconds_or_none(
    task: BaseOperator, given: timedelta | float | None, name: str, *, at_least: float = math.ulp(0)
) -> float | None:
    """Return a time in seconds; None stays none."""
    return None if given is None else seconds(task, given, name, at_least=at_least)
