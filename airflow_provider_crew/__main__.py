"""``python -m airflow_provider_crew``."""

from __future__ import annotations

import sys

from airflow_provider_crew.cli import main

if __name__ == "__main__":
    sys.exit(main())
