"""What the benchmark of batches and its DAGs have to agree on."""

from __future__ import annotations

import os

ROWS = int(os.environ.get("BENCH_ROWS", "1000"))
MAX_ACTIVE = 100
SECONDS = 15
POLL_INTERVAL = 5
MANY = int(os.environ.get("BENCH_MANY", "10000"))
MANY_ACTIVE = 1000
MANY_SECONDS = 60
# Rows that take so long that the batch waits in the triggerer.
LONG = int(os.environ.get("BENCH_LONG", "3000"))
LONG_SECONDS = 240
LAG = "/tmp/bench-batch-lag"  # noqa: S108 - deleted by the benchmark


def rows(number: int) -> list[dict[str, str]]:
    """Return the inputs of a number of rows."""
    return [{"topic": f"electric ferries {index}"} for index in range(number)]
