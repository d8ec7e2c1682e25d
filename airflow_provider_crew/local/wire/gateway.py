"""Gateway in front of a sleeping crew: it answers in the crew's place until the crew is awake."""

import threading
from collections.abc import Callable

from airflow_provider_crew.local.answer import Answer, text_answer

# Gateways know neither the crew's JSON nor how long it takes to wake up.
_ASLEEP = text_answer(
    503,
    "<html><head><title>503 Service Temporarily Unavailable</title></head>\n"
    "<body><center><h1>503 Service Temporarily Unavailable</h1></center></body></html>\n",
    "html",
)


class Gateway:
    """Gateway to a crew that takes some seconds to wake up after a first request. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.fall_asleep(seconds)

    def fall_asleep(self, seconds: float) -> None:
        """Put the crew to sleep. The next request wakes it, and it is awake this many seconds later."""
        with self._lock:
            self._seconds = seconds
            self._awake_at: float | None = None

    def answer(self) -> Answer | None:
        """Return the gateway's answer to a request, or None if the crew is awake."""
        now = self._clock()
        with self._lock:
            if self._awake_at is None:
                self._awake_at = now + self._seconds
            return _ASLEEP if now < self._awake_at else None
