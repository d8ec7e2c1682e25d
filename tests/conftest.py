"""An Airflow home of its own for every test run, set before anything imports Airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_HOME = tempfile.mkdtemp(prefix="airflow-provider-crew-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ |= {
    "AIRFLOW_HOME": _HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}
