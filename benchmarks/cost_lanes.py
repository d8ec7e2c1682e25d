"""What the benchmark of costs and its DAGs have to agree on."""

from __future__ import annotations

LANES = 10
# Enough for the ten seconds between a deferral and its event to be over, and for two or three polls.
SECONDS = 15
POLL_INTERVAL = 5
# When what only waits is done, counted from the beginning of the run.
LATER = 20
INPUTS = {"topic": "electric ferries"}
