"""Run the local server: ``python -m airflow_provider_crew.local``."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import sys
import threading
from typing import TYPE_CHECKING, get_args

from airflow_provider_crew.local.console import Console
from airflow_provider_crew.local.scenario import DialectName, Scenario
from airflow_provider_crew.local.unusable import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_crew.local.projects.engine import Project
    from airflow_provider_crew.local.server import LocalCrewService

_DEFAULT_PORT = 8765
_PORTS = 65536
_AIRFLOW_URL = "http://localhost:8080"
_REASON = "RateLimitError: the model is overloaded (--fail)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name in ("seconds", "fail") if options.crew else ("python", "keep", "at_most"):
        if getattr(options, name) is not None:
            rule = "is for a scripted crew, not for" if options.crew else "is for a real crew, and needs"
            parser.error(f"--{name.replace('_', '-')} {rule} --crew")
    console = Console()
    try:
        service = _service(options, console)
        service.start()
    except Unusable as error:
        return _give_up(f"{error.traceback}{error}")
    except OSError as error:
        return _give_up(f"Cannot listen on port {options.port}: {error.strerror}. Choose another with --port.")
    except KeyboardInterrupt:
        return _give_up("Stopped.")
    _serve_until_ctrl_c(service, console)
    service.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_crew.local", description="A local server with the API of a deployed crew."
    )
    parser.add_argument("--port", type=_port, default=_DEFAULT_PORT, help="default: %(default)s; 0: a free one")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; beyond this machine only with --token"
    )
    parser.add_argument(
        "--token", help="organization token to accept; default: the scenario's, or with --crew a random one"
    )
    parser.add_argument("--scenario", metavar="FILE", help="TOML file with inputs, tasks and faults")
    parser.add_argument(
        "--dialect", choices=get_args(DialectName), help="format of the responses; default: that of the scenario"
    )
    parser.add_argument(
        "--airflow-url", type=_http_url, default=_AIRFLOW_URL, help="Airflow UI to link to; default: %(default)s"
    )
    scripted = parser.add_argument_group("a scripted crew")
    scripted.add_argument("--seconds", type=_seconds, help="duration of each task; default: that of the scenario")
    scripted.add_argument(
        "--fail", nargs="?", const=_REASON, metavar="REASON", help="every execution fails at its last task"
    )
    real = parser.add_argument_group("a real crew or flow")
    real.add_argument("--crew", metavar="PROJECT", help="its folder, or package.module:Class")
    real.add_argument("--python", metavar="FILE", help="its interpreter; default: that of its .venv")
    real.add_argument(
        "--at-most", type=_count, metavar="N", help="concurrent executions (default: 4); the others are queued"
    )
    real.add_argument("--keep", metavar="FILE", help="keep executions in this file for the next start")
    return parser


def _service(options: argparse.Namespace, console: Console) -> LocalCrewService:
    # Imported here, so errors in the options are reported at once.
    from airflow_provider_crew.local.server import LocalCrewService

    service = LocalCrewService(
        _scenario(options),
        project=_project(options, console) if options.crew else None,
        host=options.host,
        port=options.port,
        token=options.token,
        on_request=console.request,
        call_webhooks=True,
        log=console.event,
    )
    service.airflow_url = options.airflow_url.rstrip("/")
    return service


def _project(options: argparse.Namespace, console: Console) -> Project:
    from airflow_provider_crew.local.projects.engine import Project

    console.line(f"Loading {options.crew}. Importing crewai takes a while.")
    chosen = {"python": options.python, "keep": options.keep, "at_most": options.at_most}
    given = {name: value for name, value in chosen.items() if value is not None}
    return Project(options.crew, **given, log=console.event)


def _scenario(options: argparse.Namespace) -> Scenario:
    scenario = Scenario.load(options.scenario) if options.scenario else Scenario()
    if options.dialect:
        scenario = scenario.model_copy(update={"dialect": options.dialect})
    if options.seconds is not None:
        scenario = scenario.lasting(options.seconds)
    return scenario if options.fail is None else scenario.failing(options.fail)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of executions")
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return seconds


def _http_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text} does not start with http:// or https://")
    return text


def _port(text: str) -> int:
    port = int(text)
    if port not in range(_PORTS):
        raise argparse.ArgumentTypeError(f"{port} is not a port; ports go from 0 to {_PORTS - 1}")
    return port


def _serve_until_ctrl_c(service: LocalCrewService, console: Console) -> None:
    try:
        console.line(_directions(service))
        never = threading.Event()
        while not never.wait(0.5):  # Python does not notice a signal that arrives just before it blocks
            pass
    except KeyboardInterrupt:
        console.line()


def _directions(service: LocalCrewService) -> str:
    inputs = {wanted.name: "..." for wanted in service.scenario.inputs if wanted.required}
    body = shlex.quote(json.dumps({"inputs": inputs}))
    return f"""\
A crew is listening on {service.url}. Stop it with Ctrl-C.
Point Airflow at it, and try it:

  export AIRFLOW_CONN_CREW_DEFAULT='{service.connection_uri}' CREW_TOKEN={shlex.quote(service.token)}
  curl -H "Authorization: Bearer $CREW_TOKEN" --data {body} {service.url}/kickoff

See its executions and answer human input at {service.url}/local/
Log in with any user name, and the token as the password. Deployed crews have no such page.
"""


def _give_up(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 1


if __name__ == "__main__":
    # Handle SIGTERM like Ctrl-C, so every process that was started also stops.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
