"""
Leave a real Airflow open, with the example DAGs and a connection to a crew service on this machine.

``python -m dev.explore celery`` opens one with two of everything, as on several machines.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_crew.local import LocalCrewService
from dev.target import EXAMPLES, HOME, checkout_airflow, connection_to, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from dev.stack import AirflowStack

_PAUSE = 5


def main() -> None:
    """Serve until Ctrl-C, or until a part of Airflow is no more."""
    with (
        LocalCrewService() as service,
        LocalCrewService(EXAMPLES / "crew_json_output.toml") as writes_json,
        _airflow(*sys.argv[1:]) as airflow,
    ):
        airflow.api.set_connection("crew_default", connection_to(service))
        airflow.api.set_connection("crew_json", connection_to(writes_json))
        airflow.api.ensure_pool("crews", slots=4)
        print(f"\n    {airflow.url}\n")
        print("No login is asked for. The example DAGs have the tag crew. They run against a crew on this")
        print(f"machine, {service.url}, which is the connection crew_default under Admin > Connections.")
        print(f"For a connection of your own to it the token is {service.token}.")
        print(f"Logs: {airflow.home}. Stop it with Ctrl-C.")
        while True:
            airflow.wait_until_healthy()
            time.sleep(_PAUSE)


def _airflow(executor: str = "local") -> AbstractContextManager[AirflowStack]:
    if executor == "celery":
        print("Airflow starts: API server and DAG processor, two each of scheduler, triggerer and Celery worker.")
        print("Its database is empty, and gone at the end.")
        return _several_machines()
    print("Airflow starts: API server, scheduler, triggerer and DAG processor. The first time takes longer.")
    return checkout_airflow()


@contextmanager
def _several_machines() -> Iterator[AirflowStack]:
    from dev.distributed import CeleryStack
    from dev.postgres import PostgresServer

    with PostgresServer() as database, CeleryStack(HOME / "celery", EXAMPLES, database.settings) as airflow:
        yield airflow


if __name__ == "__main__":
    sys.exit(run(main))
