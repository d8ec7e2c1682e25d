"""Run the benchmarks that are named, or all: ``make bench ARGS="polls imports"``."""

from __future__ import annotations

import argparse
import importlib
import sys

from benchmarks import report

# In the order of their sections; the four that need a whole Airflow take most of the time.
_TITLES = {
    "polls": "1. The polling loop alone",
    "crowd": "2. The polling loop alone, with ten thousand executions",
    "triggerer": "3. A real triggerer",
    "runs": "4. A crew run in a real Airflow",
    "schedule": "5. Requests sent while an execution runs",
    "imports": "6. Import time when a DAG is parsed",
    "progress": "7. Cost of progress in XCom for a triggerer",
    "waiting": "8. Objects for the garbage collector",
    "sizing": "9. Adding a triggerer",
    "cost": "10. Cost of a run in Airflow",
    "freshness": "11. Age of the progress in XCom",
    "batch": "12. A batch of rows",
}


def main() -> None:
    """Measure, print each section when it is ready, and keep it in RESULTS.md."""
    arguments = _arguments()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # seen at once in a pipe too
    for name in _TITLES if "all" in arguments.benchmarks else arguments.benchmarks:
        tables = importlib.import_module(f"benchmarks.{name}").measure(arguments.rounds)
        section = report.section(_TITLES[name], tables)
        print(section)
        report.keep(section)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", choices=[*_TITLES, "all"], default="all")
    parser.add_argument("--rounds", type=int, default=3, help="how many times everything is measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
