"""What the operators take besides what is theirs, and how it is checked when a DAG is parsed."""

import math
import re
from datetime import timedelta
from typing import Literal, get_args

from airflow.providers.common.compat.sdk import BaseOperator, XComArg

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
