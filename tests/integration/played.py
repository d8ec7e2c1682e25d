"""Python for an Airflow in a home of its own, where tests run DAGs with ``dag.test()``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def python(home: Path, *arguments: str | Path, told: str = "", **environment: str) -> str:
    """Run Python for an Airflow in a home of its own and return all that it says."""
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        input=told,
        env=os.environ
        | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags")}
        | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
