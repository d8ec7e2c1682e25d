"""What the benchmark of costs and its DAGs have to agree on."""

from __future__ import annotations

LANES = 8
# Of LocalExecutor. Each imports Airflow's supervisor at its own first task, which the round before warms up.
WORKERS = 4
# Enough for the ten seconds between a deferral and its event to be over.
SECONDS = 14
POLL_INTERVAL = 2
# When what only waits is done, counted from the beginning of the run.
LATER = 30
INPUTS = {"topic": "electric ferries"}
