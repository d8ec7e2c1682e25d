"""What the command is asked, checked before Airflow is loaded, which takes seconds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from airflow_provider_crew.commands.exit_codes import ExitCode
from airflow_provider_crew.service.errors import InvalidKickoffId
from airflow_provider_crew.service.kickoff_id import checked_kickoff_id

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDS = "exit codes:\n" + "\n".join(f"  {code.value}  {code.meaning}" for code in ExitCode)
_WHERE = (
    "Run it where Airflow's own commands run: it reads the connection from the environment, a secrets backend or "
    "Airflow's database. It asks the crew once, and never kicks off."
)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what is asked; wrong usage ends the process with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_crew",
        description=f"Ask a deployed crew, at night or in a script. {_WHERE}",
        epilog="'inputs --help' and 'status --help' list the exit codes.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    shared = _shared()
    for name, does in (
        ("inputs", "which inputs the crew expects, and whether it can be reached"),
        ("status", "the status of an execution, its cost, and the next step"),
    ):
        command = commands.add_parser(
            name,
            help=does,
            description=f"Tell {does}.",
            epilog=_ENDS,
            parents=[shared],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "status":
            command.add_argument(
                "kickoff_id", metavar="KICKOFF_ID", type=_kickoff_id, help="which execution: see the task's log"
            )
    return parser.parse_args(arguments)


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--conn-id", default="crew_default", help="a connection of Airflow; default: %(default)s")
    shared.add_argument("--json", action="store_true", help="print one JSON object, for scripts")
    return shared


def _kickoff_id(text: str) -> str:
    try:
        return checked_kickoff_id(text)
    except InvalidKickoffId as error:
        raise argparse.ArgumentTypeError(error.event) from None
