"""What the DAGs of the benchmark of crew runs and the benchmark itself have to agree on."""

from __future__ import annotations

POLL_INTERVAL = 10
# Enough for the noise of starting to average out, and few enough for two cores to start a process for every poll.
LANES = 8
_MEAN_SECONDS = 60


def seconds_of(lane: int) -> float:
    """
    Return how long the crew of a lane runs.

    A minute on average, spread evenly over one poll interval: were it a minute for all, a loop that polls every 10
    seconds from the kickoff on would always be there at the very end.
    """
    return _MEAN_SECONDS + POLL_INTERVAL * ((lane + 0.5) / LANES - 0.5)


def inputs_of(lane: int, run_id: str = "{{ run_id }}") -> dict[str, str]:
    """Return the inputs by which the execution of a lane is found again."""
    return {"run": run_id, "lane": str(lane)}
