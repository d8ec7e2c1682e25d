"""Link from a task to its crew's dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

# XCom key of the URL. Airflow 3 stores the finished link under the same key.
DASHBOARD_KEY = "crew_dashboard"


class CrewDashboardLink(BaseOperatorLink):
    """Link to the connection's ``dashboard_url``, which is the page of the crew or of the execution."""

    name = "Crew dashboard"
    xcom_key = DASHBOARD_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """
        Return the URL that the task pushed, or an empty string.

        Airflow 3 calls this in the task's own process, which knows the URL. Pulling a missing XCom there would log
        an error. Airflow 2 calls this in the webserver.
        """
        known: str | None = getattr(operator, "dashboard_url", None)
        return known if known is not None else XCom.get_value(ti_key=ti_key, key=DASHBOARD_KEY) or ""
