"""Ask a crew, and never kick off: ``python -m airflow_provider_crew``."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from typing import TYPE_CHECKING

from airflow_provider_crew.commands.arguments import parsed
from airflow_provider_crew.commands.showing import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from airflow_provider_crew.commands.asking import Told


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print what is told, and return the exit code."""
    options = parsed(arguments)
    try:
        with _without_other_words():
            told = _ask(options)
    except KeyboardInterrupt:
        return 130
    text = json.dumps(told.data, indent=2) if options.json else table(told.rows)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    return told.code


def _ask(options: argparse.Namespace) -> Told:
    # Imported here: it loads Airflow, which takes seconds, and has something to say on some versions.
    from airflow_provider_crew.commands.asking import ask_inputs, ask_status

    if options.command == "inputs":
        return ask_inputs(options.conn_id)
    return ask_status(options.conn_id, options.kickoff_id)


@contextlib.contextmanager
def _without_other_words() -> Iterator[None]:
    """Keep what Airflow says on the way from what scripts read: what went wrong is told in the end."""
    logging.disable()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    sys.exit(main())
