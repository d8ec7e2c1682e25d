"""Run a crew against the local service through the hook, watch it, and print its result."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

# Before anything imports Airflow: a home inside the checkout, so that nothing is left anywhere else.
os.environ |= {
    "AIRFLOW_HOME": str(Path(__file__).parents[1] / ".airflow"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}

from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.service.errors import CrewError

INPUTS = {"topic": "electric ferries", "audience": "harbour masters"}


def main() -> int:
    """Run the demo; the exit code says whether the crew delivered."""
    with LocalCrewService() as service:
        os.environ["AIRFLOW_CONN_CREW_DEFAULT"] = service.connection_uri
        print(f"A crew listens at {service.url}. Its connection is in AIRFLOW_CONN_CREW_DEFAULT.\n")
        hook = CrewHook()
        try:
            works, found = hook.test_connection()
            print(f"CrewHook().test_connection() -> {found}")
            if not works:
                return 1
            kickoff_id = hook.kickoff(INPUTS)
            print(f"CrewHook().kickoff({INPUTS})\n  -> {kickoff_id}\n")
            completed = hook.wait(kickoff_id, poll_interval=1)
        except CrewError as error:
            print(f"The demo failed. {error}", file=sys.stderr)
            return 1
    print(f"\n{len(completed.tasks)} tasks, {completed.execution_time:.1f} s. The crew's result:\n")
    print(textwrap.indent(completed.output, "    "))
    return 0


if __name__ == "__main__":
    sys.exit(main())
