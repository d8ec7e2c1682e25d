"""What the benchmark of crew runs and its DAGs have to agree on."""

from __future__ import annotations

POLL_INTERVAL = 10
# Enough to average out the noise of starting, and few enough for two cores to start a process for every poll.
LANES = 8
_MEAN_SECONDS = 60


def seconds_of(lane: int) -> float:
    """
    Return how long the crew of a lane runs.

    A minute on average, spread evenly over one poll interval: if all took a minute, a loop that polls every 10
    seconds from the kickoff on would always poll at the very end.
    """
    return _MEAN_SECONDS + POLL_INTERVAL * ((lane + 0.5) / LANES - 0.5)


def inputs_of(lane: int, run_id: str = "{{ run_id }}") -> dict[str, str]:
    """Return the inputs that tell the execution of a lane from the others."""
    return {"run": run_id, "lane": str(lane)}
