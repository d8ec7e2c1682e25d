"""Leave a real Airflow open, with the example DAGs and a connection to a crew service on this machine."""

from __future__ import annotations

import sys
import time

from airflow_provider_crew.local import LocalCrewService
from dev.target import EXAMPLES, checkout_airflow, connection_to, run

_PAUSE = 5


def main() -> None:
    """Serve until Ctrl-C, or until a part of Airflow is no more."""
    with LocalCrewService() as service, LocalCrewService(EXAMPLES / "crew_json_output.toml") as writes_json:
        print("Airflow starts: API server, scheduler, triggerer and DAG processor. The first time takes longer.")
        with checkout_airflow() as airflow:
            airflow.api.set_connection("crew_default", connection_to(service))
            airflow.api.set_connection("crew_json", connection_to(writes_json))
            airflow.api.ensure_pool("crews", slots=4)
            print(f"\n    {airflow.url}\n")
            print("No login is asked for. The example DAGs have the tag crew. They run against a crew on this")
            print(f"machine, {service.url}, which is the connection crew_default under Admin > Connections.")
            print(f"For a connection of your own to it the token is {service.token}.")
            print(f"Logs: {airflow.home / 'logs'}. Stop it with Ctrl-C.")
            while True:
                airflow.wait_until_healthy()
                time.sleep(_PAUSE)


if __name__ == "__main__":
    sys.exit(run(main))
