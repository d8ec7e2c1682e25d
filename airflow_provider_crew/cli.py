"""
Command line: ``python -m airflow_provider_crew`` queries a crew, cancels an execution, or copies DAGs.

It never starts an execution.

Airflow takes seconds to import, so it is imported after the arguments are validated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_crew.client.errors import CrewError
    from airflow_provider_crew.client.models import Execution

ANSWERED, FAILED, USAGE, UNDECIDED = range(4)

_EXIT_CODES = """exit codes:
  0  inputs: the crew answered; status: the execution completed; cancel: it has ended; dags: they were copied
  1  the execution failed, or the connection or the request was rejected; cancel: not confirmed, or still running
  2  wrong usage
  3  status: the execution is running, waits for human input, or is unknown; or the crew gave no usable response
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Print its answer, and return the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "dags":
        return _copy_dags(options.into)
    if options.command == "cancel" and not (options.yes or _is_confirmed(options.kickoff_id)):
        return FAILED
    logging.disable()  # Airflow's own log lines are not part of the command's output
    try:
        with contextlib.redirect_stdout(sys.stderr):
            code, answer = _ask(options)
    except KeyboardInterrupt:
        return 130
    finally:
        logging.disable(logging.NOTSET)
    shown = answer if options.json else {name: value for name, value in answer.items() if value not in (None, [])}
    lines = [f"{name.replace('_', ' ').capitalize()}: {_line(value)}" for name, value in shown.items()]
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(shown, indent=2) if options.json else "\n".join(lines))
        sys.stdout.write("\n")
        sys.stdout.flush()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_crew",
        description="Query a crew, cancel an execution, or copy DAGs. Connections are read as by Airflow itself.",
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--conn-id", default="crew_default", help="Airflow connection; default: %(default)s")
    shared.add_argument("--json", action="store_true", help="print one JSON object")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, purpose in (
        ("inputs", "list the inputs of the crew"),
        ("status", "show the status of an execution"),
        ("cancel", "cancel an execution, if the crew has the undocumented endpoint for it"),
    ):
        command = commands.add_parser(
            name,
            help=purpose,
            epilog=_EXIT_CODES,
            parents=[shared],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "cancel":
            command.add_argument("--yes", action="store_true", help="skip the confirmation")
        if name != "inputs":
            command.add_argument("kickoff_id", metavar="KICKOFF_ID", type=_kickoff_id, help="see the task's log")
    copy = commands.add_parser("dags", help="copy the DAGs crew_budget and crew_wait_for_execution to a folder")
    copy.add_argument("--into", metavar="DIR", type=Path, required=True, help="your dags folder")
    return parser


def _copy_dags(folder: Path) -> int:
    """Copy the DAGs of this package to a folder, unless it has other files of their names."""
    for source in sorted(Path(__file__).with_name("dags").glob("crew_*.py")):
        target, wanted = folder / source.name, source.read_bytes()
        try:
            if target.exists() and target.read_bytes() != wanted:
                sys.stderr.write(f"{target} exists and differs. Remove it, and run this command again.\n")
                return FAILED
            target.write_bytes(wanted)
        except OSError as error:
            sys.stderr.write(f"{target} was not written: {error.strerror}.\n")
            return FAILED
        sys.stdout.write(f"Copied {target}\n")
    return ANSWERED


def _is_confirmed(kickoff_id: str) -> bool:
    sys.stderr.write(f"Cancel execution {kickoff_id}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _kickoff_id(text: str) -> str:
    from airflow_provider_crew.client.api import checked_kickoff_id
    from airflow_provider_crew.client.errors import InvalidKickoffId

    try:
        return checked_kickoff_id(text)
    except InvalidKickoffId as error:
        raise argparse.ArgumentTypeError(error.event) from None


def _ask(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from airflow_provider_crew.client import errors
    from airflow_provider_crew.client.watch import describe_end
    from airflow_provider_crew.hooks.crew import CrewHook
    from airflow_provider_crew.versions import reads_connections_as_commands_do

    reads_connections_as_commands_do()
    hook = CrewHook(options.conn_id)
    about = {"connection": options.conn_id}
    try:
        crew = hook.get_conn()
        about["address"] = crew.settings.address
        if options.command == "inputs":
            return ANSWERED, {**about, "inputs": [each.model_dump() for each in crew.inputs().inputs]}
        about["kickoff_id"] = options.kickoff_id
        if options.command == "cancel":
            end = hook.cancel(options.kickoff_id)
            about["state"] = "completed" if end.status == "completed" else "failed"
            return ANSWERED, {**about, "event": describe_end(end), "cost": errors.Cost.ENDED.value}
        return _status(about, crew.status(options.kickoff_id))
    except errors.CrewError as error:
        is_unknown = isinstance(error, errors.NotCancelled) and error.cost is errors.Cost.UNKNOWN
        is_undecided = is_unknown or isinstance(error, errors.TransientError | errors.ExecutionNotFound)
        if options.command == "status" and not isinstance(error, errors.ExecutionNotFound):
            error = error.replace(cost=errors.Cost.UNKNOWN)  # a failed query reveals nothing about the execution
        state = {"state": "unknown"} if isinstance(error, errors.ExecutionNotFound) else {}
        return UNDECIDED if is_undecided else FAILED, {**about, **state, **_shown(error)}


def _shown(error: CrewError) -> dict[str, str]:
    from airflow_provider_crew.attempt.verdict import fix_for

    return {**error.as_dict(), "next_step": fix_for(error)}


def _status(about: dict[str, str], execution: Execution) -> tuple[int, dict[str, Any]]:
    from airflow_provider_crew.attempt.verdict import AFTER_COMPLETION, WHILE_PAUSED, WHILE_RUNNING
    from airflow_provider_crew.client.errors import Cost
    from airflow_provider_crew.client.models import Completed, Failed, Paused
    from airflow_provider_crew.client.watch import describe_progress, execution_failed

    if isinstance(execution, Failed):
        return FAILED, {
            **about,
            "state": "failed",
            "usage": execution.usage,
            **_shown(execution_failed(execution, "")),
        }
    if isinstance(execution, Completed):
        facts = {"state": "completed", "cost": Cost.ENDED.value, "next_step": AFTER_COMPLETION}
        return ANSWERED, {**about, **facts, "result": execution.result()}
    step = WHILE_PAUSED if isinstance(execution, Paused) else WHILE_RUNNING
    facts = {"state": execution.status, "progress": describe_progress(execution), "cost": Cost.RUNNING.value}
    return UNDECIDED, {**about, **facts, "next_step": step}


def _line(value: Any) -> str:
    """Return a value on one line, so that a crew's output cannot forge another."""
    from airflow_provider_crew.client.text import one_line

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, 1_000)
