"""Base class and argument checks shared by the operators and the sensor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args

from airflow.providers.common.compat.sdk import BaseOperator, XComArg

from airflow_provider_crew.links.crew import CrewDashboardLink
from airflow_provider_crew.versions import TRIGGER_FAILED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_crew.durable.task import RunningTask
    from airflow_provider_crew.hooks.connection import TokenType


# Time for human input, in seconds. After that, clearing the task may give up an unknown execution.
ABANDON_UNKNOWN_AFTER = 7 * 24 * 60 * 60.0
# A longer time overflows dates in Airflow and its database, and the error would come after the kickoff.
_LONGEST_TIME = 10 * 365 * 86_400.0
# Values mistaken for a type: the result of another task, an example, a schema, a list of names.
_NO_TYPES = (XComArg, int, float, bytes, dict, list, tuple, set, frozenset)
_IMPORT_PATH = re.compile(r"[^\W\d]\w*([.:][^\W\d]\w*)+")


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


P = ParamSpec("P")
R = TypeVar("R")


def short_traceback(execute: Callable[P, R]) -> Callable[P, R]:
    """Run a task, and raise its error without the frames below, which would push its message out of view."""

    @wraps(execute)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        task: Any = args[0]
        task.is_over = False  # dag.test() resumes the same object
        try:
            return execute(*args, **kwargs)
        except BaseException as error:
            from airflow_provider_crew.exceptions import CrewError, EndedTask

            if isinstance(error, (CrewError, EndedTask)):
                error.__traceback__ = None
            raise
        finally:
            task.is_over = True
            if task._running:  # noqa: SLF001 - the wrapper is part of the class
                task._running.finish_cancelling()  # noqa: SLF001

    return run


class CrewTask(BaseOperator):
    """Base class of tasks that start or wait for one execution of a crew."""

    crew_conn_id: str
    token_type: TokenType | None
    cancel_on_kill: bool | None = None
    cancel_on_timeout: bool | None = None
    operator_extra_links: Collection[BaseOperatorLink] = (CrewDashboardLink(),)
    templates: Mapping[str, Any] = {}
    """Arguments before they were rendered."""
    is_told_to_end = False
    """Whether Airflow is stopping the task."""
    is_over = False
    """Whether the task has returned or raised in this process, so its execution is wanted, or was ended."""
    _running: RunningTask | None = None

    @property
    def time_limit(self) -> timedelta | None:
        """Time after which Airflow ends the task."""
        return self.execution_timeout

    def on_kill(self) -> None:
        """Prevent a kickoff that is not yet sent. Log a running execution, or cancel it."""
        self.is_told_to_end = True
        if self._running:
            self._running.end()

    def get_openlineage_facets_on_complete(self, _task_instance: object) -> object:
        """Return the kickoff ID and the crew's address for OpenLineage, which calls this if it is installed."""
        from airflow.providers.common.compat.openlineage.facet import ExternalQueryRunFacet
        from airflow.providers.openlineage.extractors import OperatorLineage

        running = self._running
        if running is None or running.kickoff_id is None:
            return OperatorLineage()
        address = running.hook.connection.settings.address
        facet = ExternalQueryRunFacet(externalQueryId=running.kickoff_id, source=address)
        return OperatorLineage(run_facets={"externalQuery": facet})

    def post_execute(self, context: Context, result: Any = None) -> None:
        """
        Set the task's name and its asset event extras after the author's own post_execute.

        Success callbacks run as soon as Airflow has recorded the success, so the first one records the delivery.
        It is added after the author's code, so that neither a cluster policy nor an assignment replaces it.
        """
        super().post_execute(context, result)
        if self._running:
            self._running.finish()
            own: Any = self.on_success_callback or []
            own = own if isinstance(own, Sequence) else [own]
            self.on_success_callback = [self._save_delivery, *own]

    def _save_delivery(self, _context: Context) -> None:
        """Record that Airflow has stored the success of the task."""
        if self._running and self._running.record:
            self._running.record.save_delivery()

    def execute_complete(self, context: Context, **next_kwargs: Any) -> Any:
        """Return the result after a deferral."""
        raise NotImplementedError

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral. If the trigger failed, Airflow's own method would fail the task."""
        if type(self).execute_complete is CrewTask.execute_complete:  # a subclass defers to a method of its own
            return super().resume_execution(next_method, next_kwargs, context)
        next_kwargs = dict(next_kwargs or {})
        if next_method == TRIGGER_FAILED:
            next_kwargs.setdefault("error", "its event cannot be read")
        return self.execute_complete(context, **next_kwargs)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """
        Save the templates before Airflow replaces them with their rendered values, for mapped tasks as well.

        Only the template distinguishes an option that renders to nothing from one that is not set.
        """
        if parent is self:
            template_fields = tuple(template_fields)
            self.templates = {name: self._template(name) for name in template_fields}
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)

    def _template(self, name: str) -> Any:
        """Return the author's argument: a template, a value, an XCom of another task, or None."""
        if (given := getattr(self, name, None)) is not None:
            return given
        # Airflow replaces an XCom that a task is mapped over with one of its items. A literal list may hold None.
        dag = self.get_dag()
        task = dag.task_dict.get(self.task_id) if dag else None
        mapped = getattr(getattr(task, "expand_input", None), "value", None)
        source = mapped.get(name) if isinstance(mapped, Mapping) else None
        return None if isinstance(source, Sequence | Mapping) else source

    def _begin(self, context: Context, next_kwargs: Mapping[str, Any] | None = None) -> RunningTask:
        """Create the state of this attempt's process."""
        from airflow_provider_crew.durable.task import RunningTask

        # The task pushes its link as soon as it knows the URL. At the end of each process, Airflow would push it
        # again, or push an empty one.
        self.operator_extra_links = ()
        self._running = RunningTask(self, context, next_kwargs)
        return self._running
