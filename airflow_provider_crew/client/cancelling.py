"""Requests to cancel an execution, which a crew may have to be sent more than once."""

from collections.abc import Callable

from airflow_provider_crew.client.errors import Cost, NotCancelled
from airflow_provider_crew.client.models import Completed, Failed

# How often to ask a crew to stop an execution.
_MOST_REQUESTS = 3


class Cancelling:
    """
    Requests to cancel one execution. Ask as long as that may help, with a pause before each further request.

    :param continued_as: Another ID of the execution. Both are stopped, and the execution has ended if both have.
    """

    is_open = False
    """Whether asking again may help."""
    may_follow = False
    """Whether the crew may have taken a request, so that it may end the execution late."""

    def __init__(self, kickoff_id: str, continued_as: str = "") -> None:
        self._kickoff_id = kickoff_id
        self._running = [name for name in (kickoff_id, continued_as) if name]
        self._ends: dict[str, Completed | Failed] = {}
        self._requests = 0
        self._taken: NotCancelled | None = None

    def ask(self, cancel: Callable[[str], Completed | Failed]) -> Completed | Failed:
        """Ask once, and return the end. Raise NotCancelled if there is none."""
        failures, self.is_open = dict[str, NotCancelled](), False
        for name in self._running:
            try:
                self._ends[name] = cancel(name)
            except NotCancelled as error:
                failures[name] = error
        self._running, self._requests = [*failures], self._requests + 1
        passing = next((error for error in failures.values() if error.passes), None)
        self.is_open = passing is not None and self._requests < _MOST_REQUESTS
        if failures:
            failure = min(failures.values(), key=lambda error: error.cost is not Cost.RUNNING)
            # A crew may reject a second request.
            failure, self._taken = self._taken if self._taken and failure.is_refused else failure, passing
            self.may_follow = not failure.is_refused
            raise failure
        ends = (end for end in self._ends.values() if isinstance(end, Completed))
        return next(ends, self._ends[self._kickoff_id]).model_copy(update={"kickoff_id": self._kickoff_id})
