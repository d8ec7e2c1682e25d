"""What Airflow asks of every task of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_crew.compat import note_when_delivered
from airflow_provider_crew.links.crew import CrewDashboardLink

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_provider_crew.hooks.connection import TokenType
    from airflow_provider_crew.tasks.running import RunningTask


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
        from airflow_provider_crew.tasks.running import CARRIED, RunningTask

        carried = {name: next_kwargs[name] for name in CARRIED if name in next_kwargs} if next_kwargs else {}
        self._running = RunningTask(
            self.log, context, self.crew_conn_id, self.token_type, carried=carried, templates=self._templates or {}
        )
        self._running.is_told_to_end = self._is_told_to_end
        return self._running
