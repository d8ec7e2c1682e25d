"""Base class and argument checks shared by the operators and the sensor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import BaseOperator, TaskDeferred, XComArg

from airflow_provider_crew.links.crew import CrewDashboardLink

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.task.attempt import Attempt


# Time for human input, in seconds. After that, clearing the task may give up an unknown execution.
ABANDON_UNKNOWN_AFTER = 7 * 24 * 60 * 60.0
# A longer time overflows dates in Airflow and its database, and the error would come after the kickoff.
_LONGEST_TIME = 10 * 365 * 86_400.0
# Values mistaken for a type: the result of another task, an example, a schema, a list of names.
_NO_TYPES = (XComArg, int, float, bytes, dict, list, tuple, set, frozenset)
_IMPORT_PATH = re.compile(r"[^\W\d]\w*([.:][^\W\d]\w*)+")
# Method that Airflow calls if a trigger ended without an event.
TRIGGER_FAILED = "__fail__"


def check_choice(task: BaseOperator, name: str, value: object, choices: object) -> None:
    """Reject a value that is not among the choices, when the DAG is parsed."""
    if value not in get_args(choices):
        raise ValueError(f"{task.operator_name}: {name} must be one of {', '.join(map(repr, get_args(choices)))}.")


def checked_output_type(task: BaseOperator, given: object) -> object:
    """
    Return the output type unchanged, or reject a value that cannot be one, when the DAG is parsed.

    Whether pydantic supports the type is checked when the task runs, because that imports pydantic and the type.
    """
    is_no_path = isinstance(given, str) and not _IMPORT_PATH.fullmatch(given)
    if is_no_path or isinstance(given, _NO_TYPES):
        raise ValueError(
            f"{task.operator_name}: output_type must be a type, or an import path such as "
            f"'my_company.reports.Report', not {given!r:.80}."
        )
    return given


def seconds(task: BaseOperator, given: timedelta | float, name: str, *, at_least: float = math.ulp(0)) -> float:
    """Return a time in seconds, or reject it when the DAG is parsed."""
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
    """Return a time in seconds, or None if none is set."""
    return None if given is None else seconds(task, given, name, at_least=at_least)


class CrewTask(BaseOperator):
    """Base class of tasks that start or wait for one execution of a crew."""

    crew_conn_id: str
    token_type: TokenType | None
    operator_extra_links: Collection[BaseOperatorLink] = (CrewDashboardLink(),)
    given: Mapping[str, Any] = {}
    """Templated arguments before they are rendered."""
    _is_told_to_end = False
    _attempt: Attempt | None = None

    def _new_attempt(self, context: Context, next_kwargs: Mapping[str, Any] | None) -> Any:
        """Return the attempt of this process."""
        raise NotImplementedError

    def _steps(self, attempt: Any) -> Any:
        """Take the steps of an attempt, and return its value."""
        raise NotImplementedError

    def _run(self, context: Context, next_kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run one attempt, or the rest of it after a deferral. Every end without a result goes through here."""
        # The attempt pushes its link as soon as it knows the URL. Airflow would push it again, or an empty one.
        self.operator_extra_links = ()
        attempt: Attempt | None = None
        try:
            attempt = self._attempt = self._new_attempt(context, next_kwargs)
            return self._steps(attempt)
        except (TaskDeferred, AirflowRescheduleException):
            raise
        except BaseException as error:
            end = attempt.end(error) if attempt else self._end_without_attempt(error, context)
            if end is error:
                raise
            raise end from None  # a chain of tracebacks would hide the message

    @staticmethod
    def _end_without_attempt(error: BaseException, context: Context) -> BaseException:
        """Return the exception with which a task ends that could not begin its attempt."""
        from airflow_provider_crew.task.verdict import Facts, verdict

        is_first = context["ti"].try_number == 1
        return verdict(error, Facts(earlier="none" if is_first else "unreadable")).exception()

    def _options(self, kind: type[Any], **more: Any) -> Any:
        """Return the arguments of this operator as options. It has an attribute for each that it takes."""
        names = [each.name for each in fields(kind) if each.name not in more and hasattr(self, each.name)]
        return kind(**{name: getattr(self, name) for name in names}, **more)

    def post_execute(self, context: Context, result: Any = None) -> None:
        """Add the execution to the asset events, and note the delivery, after the author's own post_execute."""
        super().post_execute(context, result)
        if attempt := self._attempt:
            attempt.succeeded(self)

    def _is_ending(self) -> bool:
        return self._is_told_to_end

    def on_kill(self) -> None:
        """Prevent a kickoff that is not yet sent. The attempt notices, and may cancel its execution."""
        self._is_told_to_end = True
        if self._attempt:
            self._attempt.told_to_end()

    def get_openlineage_facets_on_complete(self, _task_instance: object) -> object:
        """Return the kickoff ID and the crew's address for OpenLineage, which calls this if it is installed."""
        from airflow.providers.common.compat.openlineage.facet import ExternalQueryRunFacet
        from airflow.providers.openlineage.extractors import OperatorLineage

        attempt = self._attempt
        if attempt is None or not attempt.kickoff_id:
            return OperatorLineage()
        address = attempt.task.hook.connection.settings.address
        facet = ExternalQueryRunFacet(externalQueryId=attempt.kickoff_id, source=address)
        return OperatorLineage(run_facets={"externalQuery": facet})

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral. If the trigger failed, Airflow's own method would fail the task."""
        resume = getattr(self, "execute_complete", None)
        if resume is None or next_method not in {"execute_complete", TRIGGER_FAILED}:  # a subclass has its own
            return super().resume_execution(next_method, next_kwargs, context)
        next_kwargs = dict(next_kwargs or {})
        if next_method == TRIGGER_FAILED:
            next_kwargs.setdefault("error", "its event cannot be read")
        return resume(context, **next_kwargs)
