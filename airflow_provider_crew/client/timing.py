"""
Pauses and limits in seconds that users cannot set. And clocks. DAG files import this module, so it imports little.

Code reads them when it uses them, so that tests can replace them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


def ticks() -> float:
    """Return seconds that pass even while the machine sleeps. Setting the machine's clock does not change them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Wall clock that does not jump if the machine's clock is set, which must not end a wait."""

    def __init__(self) -> None:
        self._offset = time.time() - ticks()

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._offset + ticks()

    @property
    def jump(self) -> int:
        """Seconds by which the machine's clock has jumped meanwhile, for a deadline that another process gets."""
        return round(time.time() - self())


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Pauses and limits, in seconds unless noted otherwise."""

    # Between two polls. The interval grows with the age of the execution.
    shortest_interval: float = 5.0
    longest_interval: float = 60.0
    # A crew may need a moment until it knows an execution that it has just started.
    not_found_grace: float = 30.0
    # Between two polls while a new execution is not known yet, or one has just become unknown.
    unknown_poll: float = 5.0
    # Between two polls while a person decides. Human input takes a while, and nothing else ends such a wait.
    people_poll: float = 60.0
    # Number of concurrent polls of one crew, and so of kept connections.
    concurrent_polls: int = 100
    # Polls may be rejected for this long: a token may be replaced in the connection, and a gateway may recover.
    longest_rejection: float = 120.0

    # A deployment that has been idle for a while needs a moment until it responds at all.
    waking_up: float = 300.0
    # Between two requests to such a deployment.
    waking_pause: float = 5.0
    # Other requests that are repeated wait at random, at most for this long, and then for as long as the crew
    # asked for.
    longest_back_off: float = 10.0
    longest_retry_after: float = 30.0
    # Between two requests to stop an execution.
    cancel_pause: float = 1.0

    # Before a connection is read again.
    connection_age: float = 60.0
    # Shorter, because a rejected token affects all watches, each at its own next poll.
    connection_age_if_rejected: float = 5.0
    # Maximum wait for the connection: a secrets backend may hang, and the watch has a deadline.
    connection_lookup: float = 10.0

    # Airflow ends a task whose heartbeats fail for about this long, so the task stops asking its store as well.
    store_outage: float = 120.0
    store_pause: float = 2.0
    # Between two looks whether Airflow is ending the task. It kills the process 5 seconds after SIGTERM.
    look: float = 0.5
    # Between two looks of a process at the clock, which show that it was suspended.
    beat: float = 5.0
    # Airflow needs this long to clear a task, from reading its state to the commit of the changes.
    time_to_clear: float = 1.0
    # The scheduler sometimes fails a task that starts again within about a second of its deferral or reschedule,
    # because it has not yet recorded the end of the previous process.
    shortest_deferral: float = 10.0

    # Between two updates of one execution's progress. Later news replaces earlier news.
    progress_pause: float = 5.0
    # From one XCom of a triggerer to the next, so that all cost its event loop no more than 3 % of a CPU.
    progress_turn: float = 1 / 15
    # After this, unchanged progress is pushed again, as a sign of life.
    progress_refresh: float = 10.0
    # The same for each writer of a triggerer, if that is more in total.
    progress_refresh_each: float = 0.5

    # Between two looks at the XCom of a question. Each is a request to Airflow's API server.
    question_look: float = 10.0
    # Between two looks whether a crew whose kickoff is uncertain has called.
    settle_look: float = 2.0
    # For the whole body of a webhook.
    webhook_body: float = 10.0

    # Between two looks at the rows that have ended.
    batch_look: float = 0.5
    # After this, a wait ends if any row has ended, and the progress is logged again.
    batch_wait: float = 30.0
    # Maximum pause between two groups of rows.
    batch_jitter: float = 0.5
    # Without new kickoffs after the crew did not respond to one.
    batch_back_off: float = 15.0
    # Before a result file is written again, and twice as long each time after that.
    storage_pause: float = 1.0
    # Until another batch that claims the same files has written its name as well.
    batch_claim: float = 2.0


_values = [Timing()]


def current() -> Timing:
    """Return the values that apply now, in every thread of the process."""
    return _values[-1]


@contextmanager
def replaced(**values: Any) -> Iterator[None]:
    """Replace some values, in every thread of the process. Only tests do this."""
    _values.append(replace(current(), **values))
    try:
        yield
    finally:
        _values.pop()
