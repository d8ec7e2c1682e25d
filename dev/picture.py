"""Run a crew in a real Airflow, and take the picture of the Crew tab: ``make picture``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import requests

from airflow_provider_crew.local import LocalCrewService
from dev.chromium import Chromium
from dev.demo import SCENARIO
from dev.target import checkout_airflow

_PICTURE = Path(__file__).parents[1] / "docs/crew-tab.png"
_DAG, _TASK = "crew_in_one_task", "report"
_SCREEN = (1200, 960)


def main() -> None:
    """Take a picture of the tab of a finished task, as a browser shows it."""
    with (
        LocalCrewService(SCENARIO) as service,
        checkout_airflow({"AIRFLOW_CONN_CREW_DEFAULT": service.connection_uri}) as airflow,
    ):
        run_id = airflow.api.trigger(_DAG, {"topic": "electric ferries", "audience": "harbour masters"})
        airflow.api.wait_for(_DAG, run_id, timeout=180)
        with Chromium() as browser:
            page = browser.page()
            page.log_in(airflow.url, requests.get(f"{airflow.url}/auth/token", timeout=30).json()["access_token"])
            page.resize(*_SCREEN)
            page.open(f"{airflow.url}/dags/{_DAG}/runs/{quote(run_id)}/tasks/{_TASK}/plugin/crew")
            page.wait_for("document.querySelector('.crew-output')", 60)
            end = "Math.ceil(document.querySelector('.crew-tab').getBoundingClientRect().bottom)"
            page.resize(_SCREEN[0], max(_SCREEN[1], page.evaluate(end)))
            page.save_picture(_PICTURE)


if __name__ == "__main__":
    main()
