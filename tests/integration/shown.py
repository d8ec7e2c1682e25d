"""Tasks with what Airflow has in their context for the events of their outlets."""

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
    """A task whose processes each have one context."""

    def __init__(self, make: Callable[[], Any], *, outlets: tuple[Any, ...] = (), **options: Any) -> None:
        super().__init__(make, **options)
        self._dag = DAG(f"shown_{next(_numbers)}", schedule=None)
        self._outlets = outlets
        self._context: Any = None

    @property
    def context(self) -> Any:
        return self._context

    def begin(self) -> Any:
        operator = super().begin()
        self._new_process()
        return operator

    def resume(self, waiting: TaskDeferred, event: dict[str, Any]) -> Any:
        self._new_process()
        return super().resume(waiting, event)

    def told(self, outlet: Asset) -> dict[str, Any]:
        """Return what the event of an outlet tells."""
        extra: dict[str, Any] = self.context["outlet_events"][outlet].extra
        return extra

    def _ended(self, operator: Any, result: Any) -> Any:
        if operator._post_execute_hook:
            operator._post_execute_hook(self.context, result)
        return super()._ended(operator, result)

    def _new_process(self) -> None:
        ti: Any = self.ti
        ti.task = SimpleNamespace(dag=self._dag, retries=self._retries, template_ext=())
        self._context = super().context | {
            "dag": self._dag,
            "outlets": [*self._outlets],
            "outlet_events": OutletEventAccessors(),
        }
