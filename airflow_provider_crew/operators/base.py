"""What Airflow asks of every task of this package."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from airflow.providers.common.compat.sdk import BaseOperator, XComArg

from airflow_provider_crew.client.options import OnInvalidOutput, OnUncertainKickoff, ValidateInputs
from airflow_provider_crew.compat import note_when_delivered
from airflow_provider_crew.links.crew import CrewDashboardLink

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_crew.durable.task import RunningTask
    from airflow_provider_crew.hooks.connection import TokenType


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


class CrewTask(BaseOperator):
    """A task about one execution of one crew."""

    crew_conn_id: str
    token_type: TokenType | None
    operator_extra_links: Collection[BaseOperatorLink] = (CrewDashboardLink(),)
    _running: RunningTask | None = None
    _templates: Mapping[str, Any] | None = None
    _is_told_to_end = False
    _time_limit: timedelta | None = None

    @property
    def dashboard_url(self) -> str:
        """The page of the crew, where the task is running and knows it."""
        return self._running.dashboard_url if self._running else ""

    @property
    def time_limit(self) -> timedelta | None:
        """The execution_timeout, also where Airflow is kept from enforcing it."""
        return self._time_limit or self.execution_timeout

    def on_kill(self) -> None:
        """Say what goes on when the task is told to end, and keep one from kicking off that has not begun yet."""
        self._is_told_to_end = True
        if self._running:
            self._running.end()

    def get_openlineage_facets_on_complete(self, _task_instance: object) -> object:
        """Tell OpenLineage, when it is installed and asks, which execution of which crew the task was about."""
        from airflow.providers.common.compat.openlineage.facet import ExternalQueryRunFacet
        from airflow.providers.openlineage.extractors import OperatorLineage

        running = self._running
        if running is None or running.execution is None:
            return OperatorLineage()
        address = running.hook.connection.settings.address
        facet = ExternalQueryRunFacet(externalQueryId=running.execution, source=address)
        return OperatorLineage(run_facets={"externalQuery": facet})

    def post_execute(self, context: Context, result: Any = None) -> None:
        """Complete what Airflow takes from a task that has succeeded, after the author's own post_execute."""
        super().post_execute(context, result)
        if self._running:
            self._running.finish()
            note_when_delivered(self)

    def note_crew_delivery(self) -> None:
        """Record that Airflow has noted the success of the task."""
        if self._running and self._running.memory:
            self._running.memory.note_delivery()

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """
        Remember the templates before Airflow replaces them by what they render to. Mapped tasks pass here as well.

        Only the template tells an option that renders to nothing from one that is not set.
        """
        if parent is self:
            template_fields = tuple(template_fields)
            self._templates = {name: self._template(name) for name in template_fields}
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)

    def _template(self, name: str) -> Any:
        """Return what the author gave: a template, a value, an XCom of another task, or None."""
        if (given := getattr(self, name, None)) is not None:
            return given
        # Airflow replaces an XCom that a task is mapped over by its row. The author's own list may hold None.
        dag = self.get_dag()
        task = dag.task_dict.get(self.task_id) if dag else None
        mapped = getattr(getattr(task, "expand_input", None), "value", None)
        source = mapped.get(name) if isinstance(mapped, Mapping) else None
        return None if isinstance(source, Sequence | Mapping) else source

    def _begin(self, context: Context, next_kwargs: Mapping[str, Any] | None = None) -> RunningTask:
        """Begin this process of the task; ``next_kwargs``: what the one before it has left to one that resumes."""
        from airflow_provider_crew.durable.task import CARRIED, RunningTask

        carried = {name: next_kwargs[name] for name in CARRIED if name in next_kwargs} if next_kwargs else {}
        self._running = RunningTask(
            self.log, context, self.crew_conn_id, self.token_type, carried=carried, templates=self._templates or {}
        )
        self._running.is_told_to_end = self._is_told_to_end
        return self._running
