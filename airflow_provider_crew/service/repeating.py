"""When a call that failed is made again, and after which pause."""

import logging
from dataclasses import dataclass
from typing import Any

import tenacity

from airflow_provider_crew.service.errors import CrewError, RateLimited, TransientError, Unreachable

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_LONGEST_RETRY_AFTER = 30.0
_WAKING_PAUSE = 5.0
_JITTER = tenacity.wait_random_exponential(multiplier=0.5, max=10)


def repeating(call: str, *, only_if_not_taken: bool = False, wake_up_within: float = 0.0) -> dict[str, Any]:
    """
    Return how tenacity's Retrying, or its AsyncRetrying, repeats a call.

    A read may be repeated after any passing failure. A kickoff only when it certainly was not taken. A crew that
    may be waking up after a quiet period is given ``wake_up_within`` seconds.
    """
    policy = _Repeating(call, only_if_not_taken, wake_up_within)
    return {
        "stop": policy.is_enough,
        "wait": policy.pause,
        "retry": tenacity.retry_if_exception(policy.again),
        "before_sleep": policy.say,
        "reraise": True,
    }


@dataclass(slots=True)
class _Repeating:
    """One call and its repetitions. What fails otherwise while a crew wakes up is a part of that."""

    call: str
    only_if_not_taken: bool
    wake_up_within: float
    is_waking: bool = False

    def again(self, error: BaseException) -> bool:
        self.is_waking = self.is_waking or self._wakes_up(error)
        if isinstance(error, Unreachable) and not error.trusted:
            return False  # a second later it is the same, and someone should know
        if self.only_if_not_taken:
            return isinstance(error, RateLimited) or (isinstance(error, Unreachable) and not error.sent)
        return isinstance(error, TransientError)

    def is_enough(self, state: tenacity.RetryCallState) -> bool:
        if self.is_waking:
            return (state.seconds_since_start or 0.0) >= self.wake_up_within
        return state.attempt_number >= _ATTEMPTS

    def pause(self, state: tenacity.RetryCallState) -> float:
        return max(_wait(state), _WAKING_PAUSE) if self.is_waking else _wait(state)

    def say(self, state: tenacity.RetryCallState) -> None:
        error = _error_of(state)
        seconds = state.next_action.sleep if state.next_action else 0.0
        event = error.event if isinstance(error, CrewError) else str(error)
        log.warning("%s Retrying in %.1f s.", event, seconds)
        if self._wakes_up(error):
            minutes = self.wake_up_within / 60
            log.warning("Crew may be starting up after a quiet period. Retrying for up to %.0f minutes.", minutes)

    def _wakes_up(self, error: BaseException | None) -> bool:
        return bool(self.wake_up_within) and isinstance(error, TransientError) and error.may_be_waking_up


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _wait(state: tenacity.RetryCallState) -> float:
    error = _error_of(state)
    asked_for = error.retry_after if isinstance(error, TransientError) else None
    # The jitter comes on top, or all who were told the same time would come back together.
    return _JITTER(state) + min(asked_for or 0.0, _LONGEST_RETRY_AFTER)
