"""Link from a task to its crew's dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

# XCom key under which Airflow looks for the URL.
DASHBOARD_KEY = "crew_dashboard"


class CrewDashboardLink(BaseOperatorLink):
    """Link to the connection's ``dashboard_url``, which is the page of the crew or of the execution."""

    name = "Crew dashboard"
    xcom_key = DASHBOARD_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the URL that the task pushed. Airflow calls this if the task ended before its own code ran."""
        return XCom.get_value(ti_key=ti_key, key=DASHBOARD_KEY) or ""
