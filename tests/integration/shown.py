"""Tasks with what Airflow has in their context for the events of their outlets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.integration.tasks import Task

_numbers = itertools.count()


class ShownTask(Task):
    """A task whose processes each have one context."""

    def __init__(self, make: Callable[[], Any], *, outlets: tuple[Any, ...] = (), **options: Any) -> None:
        dag = DAG(f"shown_{next(_numbers)}", schedule=None)

        def begin_process() -> Any:
            ti: Any = self.ti
            ti.task = SimpleNamespace(dag=dag, retries=self._retries, template_ext=())
            self._of_process = {"dag": dag, "outlets": [*outlets], "outlet_events": OutletEventAccessors()}
            return make()

        super().__init__(begin_process, **options)

    @property
    def context(self) -> Any:
        return super().context | self._of_process

    def told(self, outlet: Asset) -> dict[str, Any]:
        """Return what the event of an outlet tells."""
        extra: dict[str, Any] = self.context["outlet_events"][outlet].extra
        return extra

    def _ended(self, operator: Any, result: Any) -> Any:
        if operator._post_execute_hook:
            operator._post_execute_hook(self.context, result)
        return super()._ended(operator, result)
