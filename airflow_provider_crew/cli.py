"""
Command line: ``python -m airflow_provider_crew``, for a crew, and for the kickoff records of tasks.

Only ``check --start`` starts an execution.

Airflow takes seconds to import, so it is imported after the arguments are validated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWERED, FAILED, USAGE, UNDECIDED = range(4)
INTERRUPTED = 130

_EXIT_CODES = """exit codes:
  0  the command did what you asked for; status: the execution completed
  1  the execution failed, you did not confirm, or a request, a connection or a file was rejected;
     cancel: the execution is still running
  2  wrong usage
  3  the execution is running, waits for human input, or is unknown, or there was no usable response
"""


_COMMANDS = {
    "inputs": "list the inputs of the crew",
    "status": "show the status of an execution",
    "cancel": "cancel an execution, if the crew has the undocumented endpoint for it",
    "check": "check what a deployed crew supports",
    "adopt": "give a task the execution that you found in the crew's dashboard",
    "forget": "delete a task's kickoff records, so that clearing it starts another execution",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Print its answer as JSON, and return the exit code."""
    options, answer = _parser().parse_args(arguments), dict[str, Any]()
    logging.disable()  # Airflow's own log lines are not part of the command's output
    try:
        with contextlib.redirect_stdout(sys.stderr):
            from airflow_provider_crew.commands import run

            succeeded = run(options, answer, partial(_confirm, options))
        code = UNDECIDED if succeeded is None else ANSWERED if succeeded else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
        if "cost" not in answer:  # otherwise an execution may have started
            return code
    except SystemExit as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    finally:
        logging.disable(logging.NOTSET)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{json.dumps(answer, indent=2)}\n")
        sys.stdout.flush()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_crew",
        description="Query or check a crew, and repair tasks. Connections are read as Airflow reads them.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, purpose in _COMMANDS.items():
        description = f"{purpose[0].upper()}{purpose[1:]}."
        command = commands.add_parser(name, help=purpose, description=description, epilog=_EXIT_CODES)
        _add_arguments(command, name)
    return parser


def _add_arguments(command: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments of a command to its parser."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.set_defaults(command=name)
    add = command.add_argument
    if name in {"adopt", "forget"}:
        _add_task(command, name)
    if name in {"status", "cancel", "adopt"}:
        where = "see the task's log or the crew's dashboard"
        add("kickoff_id", metavar="KICKOFF_ID", help=where)
    if name in {"inputs", "status", "cancel", "adopt"}:
        add("--conn-id", default="crew_default", help="Airflow connection; default: %(default)s")
    if name in {"cancel", "check", "adopt", "forget"}:
        add("--yes", action="store_true", help="skip the confirmation")
    if name == "check":
        add("conn_id", metavar="CONN_ID", help="Airflow connection to the crew")
        add("--start", action="store_true", help="run an execution (billed)")
        add("--inputs", type=_inputs, metavar="JSON", default={}, help="inputs of this execution")


def _add_task(command: argparse.ArgumentParser, name: str) -> None:
    """Add the arguments that name a task."""
    for part in ("dag_id", "run_id", "task_id"):
        command.add_argument(part, metavar=part.upper())
    where = "Airflow's address; default: [api] base_url. Set its token in AIRFLOW_CLI_TOKEN"
    command.add_argument("--url", help=where)
    command.add_argument("--map-index", metavar="N", type=int, default=-1, help="map index of a mapped task")
    if name == "adopt":
        unknown = "with --yes: also an execution unknown to the crew"
        command.add_argument("--row", metavar="KEY", help="row of a batch, by its key")
        command.add_argument("--force", action="store_true", help=unknown)


def _confirm(options: argparse.Namespace, question: str, facts: dict[str, Any]) -> None:
    """Show the facts and ask the question, unless ``--yes`` was given. End the command if it is declined."""
    if options.yes:
        return
    sys.stderr.write(f"{json.dumps(facts, indent=2)}\n{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise SystemExit("Nothing was done.")


def _inputs(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        if isinstance(inputs := json.loads(text), dict):
            return inputs
    raise argparse.ArgumentTypeError(f'not a JSON object, such as {{"topic": "ferries"}}: {text}')
