"""What stands in front of a crew that sleeps: it answers in the crew's place until the crew is awake."""

import threading
from collections.abc import Callable

from airflow_provider_crew.local.answer import Answer, text_answer

# Gateways know nothing of the crew's JSON, and not how long it takes to wake up.
_ASLEEP = text_answer(
    503,
    "<html><head><title>503 Service Temporarily Unavailable</title></head>\n"
    "<body><center><h1>503 Service Temporarily Unavailable</h1></center></body></html>\n",
    "html",
)


class Gateway:
    """The way to a crew that a first request wakes, which takes some seconds. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.fall_asleep(seconds)

    def fall_asleep(self, seconds: float) -> None:
        """Let the crew sleep; the next request wakes it, and so many seconds later it is awake."""
        with self._lock:
            self._seconds = seconds
            self._awake_at: float | None = None

    def answer(self) -> Answer | None:
        """Return what a request gets instead of the crew, or None when the crew is awake."""
        now = self._clock()
        with self._lock:
            if self._awake_at is None:
                self._awake_at = now + self._seconds
            return _ASLEEP if now < self._awake_at else None
