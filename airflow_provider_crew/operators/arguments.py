"""What the operators take besides what is theirs, and how it is checked when a DAG is parsed."""

import math
from collections.abc import MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, get_args

from airflow_provider_crew.service.options import KickoffOptions

OnUncertainKickoff = Literal["fail", "retry"]
ValidateInputs = Literal[True, False, "strict"]
OnInvalidOutput = Literal["fail", "retry"]

# How long a person may take to answer a crew, before a Clear may give the execution up.
FORGET_AFTER = 7 * 24 * 60 * 60.0
# Beyond it lie dates that neither Airflow nor its database can hold, which would be found out after the kickoff.
_LONGEST_TIME = 10 * 365 * 86_400.0


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
    validate_inputs: ValidateInputs,
    on_uncertain_kickoff: OnUncertainKickoff,
    on_invalid_output: OnInvalidOutput = "fail",
) -> None:
    """Refuse what is none of the choices before a DAG runs with it."""
    if on_uncertain_kickoff not in get_args(OnUncertainKickoff):
        raise ValueError("on_uncertain_kickoff must be 'fail' or 'retry'.")
    if validate_inputs not in get_args(ValidateInputs):
        raise ValueError("validate_inputs must be True, False or 'strict'.")
    if on_invalid_output not in get_args(OnInvalidOutput):
        raise ValueError("on_invalid_output must be 'fail' or 'retry'.")


def seconds(given: timedelta | float, name: str, *, at_least: float = math.ulp(0)) -> float:
    """Return a time in seconds, or refuse it before a DAG runs with it."""
    number = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if not at_least <= number <= _LONGEST_TIME:
        least = "above 0" if at_least else "from 0"
        raise ValueError(f"{name} must be a number of seconds {least} and up to ten years, or a timedelta.")
    return number


def seconds_or_none(given: timedelta | float | None, name: str, *, at_least: float = math.ulp(0)) -> float | None:
    """Return a time in seconds; None stays none."""
    return None if given is None else seconds(given, name, at_least=at_least)
