"""What the DAGs of the benchmark of costs and the benchmark itself have to agree on."""

from __future__ import annotations

LANES = 10
# Enough for the ten seconds between a deferral and its event to be over, and for two or three polls.
SECONDS = 15
POLL_INTERVAL = 5
# Of what waits for a time, which counts from the beginning of the run.
LATER = 20
INPUTS = {"topic": "electric ferries"}
