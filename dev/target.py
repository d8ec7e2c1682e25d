"""What `make demo` and `make airflow` share: where things are, and how Airflow comes and goes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_crew.local.unusable import Unusable
from dev.loopback import free_port, is_free
from dev.progress import stage
from dev.rest import ApiError
from dev.server import ServerError
from dev.stack import AirflowStack, StackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_crew.local import LocalCrewService

_ROOT = Path(__file__).parents[1]
HOME = _ROOT / ".airflow"
EXAMPLES = _ROOT / "example_dags"
# Airflow's own, where people look for it.
_PORT = 8080


class TargetError(Exception):
    """What the target was to do did not come about."""


FAILURES = (ApiError, ServerError, StackError, TargetError, Unusable)


def connection_to(service: LocalCrewService) -> dict[str, str | int]:
    """Return a connection to a crew service on this machine, with the page that it has of each execution."""
    fields: dict[str, str | int] = json.loads(service.connection_json)
    return fields | {"extra": json.dumps({"dashboard_url": service.dashboard_url})}


def checkout_airflow(environment: Mapping[str, str] | None = None) -> AirflowStack:
    """Return the Airflow of this checkout, with the example DAGs."""
    return AirflowStack(HOME, EXAMPLES, environment, usual_port())


def usual_port() -> int:
    """Return the port that Airflow has each time, or a free one while that is taken."""
    return _PORT if is_free(_PORT) else free_port()


@contextmanager
def opened(airflow: AirflowStack) -> Iterator[None]:
    """Start an Airflow and stop it, before the eyes of people."""
    with stage("Starting Airflow", lambda: _awaited(airflow)):
        airflow.start()
    try:
        why = "" if airflow.url.endswith(f":{_PORT}") else f", because another program has port {_PORT}"
        print(f"Airflow is at {airflow.url}{why}.")
        yield
    finally:
        print()
        with stage("Stopping Airflow", lambda: _awaited(airflow)):
            airflow.stop()


def _awaited(airflow: AirflowStack) -> str:
    names = ", ".join(airflow.awaited)
    return f"waiting for {names}" if names else ""
