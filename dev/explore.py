"""
Leave a real Airflow open, with the example DAGs and a connection to a crew service on this machine.

``python -m dev.run explore celery`` opens one with two of everything, as on several machines.
"""

from __future__ import annotations

import textwrap
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_crew.local import LocalCrewService
from dev.demo import SCENARIO
from dev.progress import stage
from dev.target import EXAMPLES, HOME, checkout_airflow, connection_to, opened, usual_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dev.stack import AirflowStack

_PAUSE = 5


def main(executor: str = "local") -> None:
    """Serve until Ctrl-C, or until a part of Airflow is no more."""
    with (
        LocalCrewService(SCENARIO) as service,
        LocalCrewService(EXAMPLES / "crew_json_output.toml") as writes_json,
        LocalCrewService(EXAMPLES / "crew_human_input.toml", call_webhooks=True) as waits,
        LocalCrewService(EXAMPLES / "crew_restore_flow_state.toml") as flow,
        _several_machines() if executor == "celery" else _one_machine() as airflow,
    ):
        with stage("Adding connections and a pool"):
            airflow.api.set_connection("crew_default", connection_to(service))
            airflow.api.set_connection("crew_json", connection_to(writes_json))
            airflow.api.set_connection("crew_human_input", connection_to(waits))
            airflow.api.set_connection("crew_flow", connection_to(flow))
            airflow.api.ensure_pool("crews", slots=4)
        service.airflow_url = writes_json.airflow_url = airflow.url
        print(_directions(airflow, service))
        while True:
            airflow.wait_until_healthy()
            time.sleep(_PAUSE)


@contextmanager
def _one_machine() -> Iterator[AirflowStack]:
    airflow = checkout_airflow()
    with opened(airflow):
        yield airflow


@contextmanager
def _several_machines() -> Iterator[AirflowStack]:
    from dev.distributed import CeleryStack
    from dev.postgres import PostgresServer

    print("Two each of scheduler, triggerer and Celery worker. The database is gone at the end.")
    with PostgresServer() as database:
        airflow = CeleryStack(HOME / "celery", EXAMPLES, database.settings, usual_port())
        with opened(airflow):
            yield airflow


def _directions(airflow: AirflowStack, service: LocalCrewService) -> str:
    return textwrap.dedent(f"""
        Open {airflow.url} in a browser.

        No login is asked for. The example DAGs run against a crew on this machine,
        {service.url}, which is the connection crew_default.

        Try next:
          - Run a DAG: {airflow.url}/dags/crew_in_one_task
            Press Trigger. Its task has a Crew tab, with the crew's progress.
          - See a crew wait for you: {airflow.url}/dags/crew_human_input
          - Answer it in Airflow: {airflow.url}/dags/crew_answer_in_airflow
          - Write one: each file in example_dags is read within seconds.
          - See a crew fail. This starts one that does, in another terminal, for a
            connection of your own under Admin > Connections:
            .venv/bin/python -m airflow_provider_crew.local --fail

        The crew's executions are at {service.url}/local/
        The password there is the crew's token: {service.token}
        Logs are in {airflow.home}
        Ctrl-C stops all of it.
    """)
