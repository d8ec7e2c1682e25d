"""The link from a task to the page of its crew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

# Where a task leaves the address. Airflow 3 keeps the finished link under the same key.
DASHBOARD_KEY = "crew_dashboard"


class CrewDashboardLink(BaseOperatorLink):
    """Leads to the page that the connection names as ``dashboard_url``: of the crew, or of the very execution."""

    name = "Crew dashboard"
    xcom_key = DASHBOARD_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """
        Return the address that the task has left, or none.

        Airflow 3 asks in the task's own process, which knows: looking for an XCom that is not there would leave an
        error in the task's log. Airflow 2 asks where the page is shown.
        """
        known: str | None = getattr(operator, "dashboard_url", None)
        return known if known is not None else XCom.get_value(ti_key=ti_key, key=DASHBOARD_KEY) or ""
