"""What `make demo` and `make airflow` share: where things are, and how they end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dev.rest import ApiError
from dev.server import ServerError
from dev.stack import AirflowStack, StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_crew.local import LocalCrewService

_ROOT = Path(__file__).parents[1]
HOME = _ROOT / ".airflow"
EXAMPLES = _ROOT / "example_dags"
_INTERRUPTED = 130


class TargetError(Exception):
    """What the target was to do did not come about."""


def connection_to(service: LocalCrewService) -> dict[str, str | int]:
    """Return a connection to a crew service on this machine, with the page that it has of each execution."""
    fields: dict[str, str | int] = json.loads(service.connection_json)
    return fields | {"extra": json.dumps({"dashboard_url": service.dashboard_url})}


def checkout_airflow(environment: Mapping[str, str] | None = None) -> AirflowStack:
    """Return the Airflow of this checkout, with the example DAGs."""
    return AirflowStack(HOME, EXAMPLES, environment)


def run(body: Callable[[], None]) -> int:
    """Run a target and return its exit code. SIGTERM ends it as Ctrl-C does: what it started is stopped."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # seen at once in a pipe too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        body()
    except KeyboardInterrupt:
        print("\nStopped.")
        return _INTERRUPTED
    except (ApiError, ServerError, StackError, TargetError) as error:
        print(f"\nThis failed: {error}\n\nAll logs are in {HOME}.", file=sys.stderr)
        return 1
    return 0
