"""What the event of an asset tells of the execution that has brought the asset about."""

import json
from collections.abc import Iterator
from typing import Any

from airflow_provider_crew.compat import asset_kinds
from airflow_provider_crew.service.text import warn

# What a task is given when it resumes: what its function has put into the events before, by number of the outlet.
CARRIED_EXTRAS = "outlet_extras"


class OutletEvents:
    """
    The events of the assets that a task has as outlets.

    Airflow sends them when the task has succeeded. By then the crew was paid, so nothing here fails the task.
    """

    def __init__(self, log: Any, context: Any, carried: dict[str, Any]) -> None:
        self._log = log
        self._context = context
        self._carried = carried

    def carry(self) -> None:
        """Keep what there is in them for the process that resumes, which begins with empty ones."""
        try:
            extras = {str(number): event.extra for number, event in self._events() if event.extra}
            if extras:
                self._carried[CARRIED_EXTRAS] = json.dumps(extras)
        except Exception as error:  # noqa: BLE001 - whatever a user has put there
            warn(self._log, f"What is in the events of the outlets is lost by the deferral: {error}")

    def tell(self, execution: dict[str, Any]) -> None:
        """Add what is known of the execution. What a user has put there under the same name stands."""
        try:
            carried = json.loads(self._carried.get(CARRIED_EXTRAS, "{}"))
            for number, event in self._events():
                event.extra = {**execution, **carried.get(str(number), {}), **event.extra}
        except Exception as error:  # noqa: BLE001
            warn(self._log, f"The events of the outlets do not tell of the execution: {error}")

    def _events(self) -> Iterator[tuple[int, Any]]:
        outlets = self._context.get("outlets") or ()
        for number, outlet in enumerate(outlets):
            if isinstance(outlet, asset_kinds()):
                yield number, self._context["outlet_events"][outlet]
