"""How long to wait, and how often to look: in seconds, when nobody says otherwise, and as users say it."""

from __future__ import annotations

import math
from datetime import timedelta

from airflow_provider_crew.service.limits import (
    LONGEST_INTERVAL,
    MAX_OUTAGE,
    NOT_FOUND_GRACE,
    SHORTEST_INTERVAL,
    WAKING_UP,
)

__all__ = [
    "FORGET_AFTER",
    "LONGEST_INTERVAL",
    "MAX_OUTAGE",
    "NOT_FOUND_GRACE",
    "SETTLING_TIME",
    "SHORTEST_INTERVAL",
    "TIMEOUT",
    "WAKING_UP",
    "seconds",
]

TIMEOUT = 24 * 60 * 60.0
# How long a person may take to answer a crew, before a Clear may give the execution up.
FORGET_AFTER = 7 * 24 * 60 * 60.0
# A task that starts again within a second or so of its deferral, or of its reschedule, is sometimes failed by
# Airflow's scheduler: it has not yet taken note that the process before has ended.
SETTLING_TIME = 10.0
# Beyond it lie dates that neither Airflow nor its database can hold, which would be found out after the kickoff.
_LONGEST_TIME = 10 * 365 * 86_400.0


def seconds(given: timedelta | float, name: str, *, at_least: float = math.ulp(0)) -> float:
    """Return a time in seconds, or refuse it before a DAG runs with it."""
    try:
        number = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not at_least <= number <= _LONGEST_TIME:
        least = "above 0" if at_least else "from 0"
        raise ValueError(f"{name} must be a number of seconds {least} and up to ten years, or a timedelta.")
    return number
