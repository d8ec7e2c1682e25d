"""Tasks as Airflow shows them: what a mapped one is called, and what the events of its outlets tell."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.integration.tasks import Task

_numbers = itertools.count()


class ShownTask(Task):
    """A task whose processes each have one context, with what Airflow has in it for a name and for outlets."""

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        template: str | None = None,
        native: bool = False,
        outlets: tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__(make, **options)
        self._dag = DAG(f"shown_{next(_numbers)}", schedule=None, render_template_as_native_obj=native)
        self._template = template
        self._outlets = outlets
        self._context: Any = None
        self.names: list[str | None] = []
        """What Airflow has called the task when a process of it has ended, try after try."""

    @property
    def context(self) -> Any:
        return self._context

    def run(self) -> Any:
        try:
            return super().run()
        finally:
            self.names.append(self.rendered())

    def deferred(self) -> TaskDeferred:
        try:
            return super().deferred()
        finally:
            self.names.append(self._ti.rendered_map_index)

    def begin(self) -> Any:
        operator = super().begin()
        self._new_process()
        return operator

    def resume(self, waiting: TaskDeferred, event: dict[str, Any]) -> Any:
        self._new_process()
        return super().resume(waiting, event)

    def resume_without_event(self, why: str, traceback: list[str] | None = None) -> Any:
        self._new_process()
        return super().resume_without_event(why, traceback)

    def told(self, outlet: Asset) -> dict[str, Any]:
        """Return what the event of an outlet tells."""
        extra: dict[str, Any] = self.context["outlet_events"][outlet].extra
        return extra

    def rendered(self) -> str | None:
        """Have Airflow render the name, as it does when a task has done its work."""
        from airflow.sdk.execution_time.task_runner import _render_map_index
        from structlog import get_logger

        name = _render_map_index(self.context, ti=self._ti, log=get_logger())
        assert name is None or type(name) is str
        return name

    def _ended(self, operator: Any, result: Any) -> Any:
        if operator._post_execute_hook:
            operator._post_execute_hook(self.context, result)
        return super()._ended(operator, result)

    @property
    def _ti(self) -> Any:
        return self.ti

    def _new_process(self) -> None:
        self._ti.task = SimpleNamespace(dag=self._dag, retries=self._retries, template_ext=())
        self._ti.rendered_map_index = None
        self._context = super().context | {
            "dag": self._dag,
            "map_index_template": self._template,
            "outlets": [*self._outlets],
            "outlet_events": OutletEventAccessors(),
        }
