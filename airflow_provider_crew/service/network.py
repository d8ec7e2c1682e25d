"""What both clients share about the network: trust, proxies, time limits, repeating, and words for failures."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import tenacity

from airflow_provider_crew.service.errors import InvalidSettings, RateLimited, TransientError, Unreachable
from airflow_provider_crew.service.settings import checked_proxy, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_crew.service.settings import ServiceSettings

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
_CONNECT_TIMEOUT = 10.0
_ATTEMPTS = 3
_LONGEST_RETRY_AFTER = 30.0
_WAKING_PAUSE = 5.0
# What http.client says, and what aiohttp does.
_TUNNEL_REFUSED = re.compile(r"(?:Tunnel connection failed: |ClientHttpProxyError )(\d+)")
_OLD_TLS = "; it speaks only versions of TLS older than 1.2, which are not safe"
_TLS_FAILURES = {
    "wrong version number": "; what listens there does not speak https",
    "tlsv1 alert protocol version": _OLD_TLS,
    "unsupported protocol": _OLD_TLS,
}
_JITTER = tenacity.wait_random_exponential(multiplier=0.5, max=10)


def connect_timeout(settings: ServiceSettings) -> float:
    """Give up on connecting earlier than on the whole exchange: a live crew accepts at once."""
    return min(_CONNECT_TIMEOUT, settings.request_timeout)


def trusted_certificates(settings: ServiceSettings) -> str | None:
    """Return the file or folder of certificates to trust, None when they are not to be checked."""
    if isinstance(settings.verify, str):
        return settings.verify
    if not settings.verify:
        return None
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Return what checks the crew's certificate, None when nothing is to be checked."""
    certificates = trusted_certificates(settings)
    if certificates is None or not settings.address.startswith("https://"):
        return None
    try:
        return _context_of(certificates, Path(certificates).stat().st_mtime)
    except OSError as error:  # a file without certificates ends here, too
        fault = "it holds no certificates" if isinstance(error, ssl.SSLError) else os.strerror(error.errno or 0)
    raise InvalidSettings(
        f"The certificates in {certificates!r} cannot be used: {fault.lower()}. The path comes from verify in the "
        "extra, or from REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE in the environment of the task.",
        field="verify",
    )


@lru_cache(maxsize=16)
def _context_of(certificates: str, _changed_at: float) -> ssl.SSLContext:
    """Load certificates once: that blocks an event loop for as long as many answers take."""
    folder = Path(certificates).is_dir()
    return ssl.create_default_context(
        cafile=None if folder else certificates, capath=certificates if folder else None
    )


def proxy_for(settings: ServiceSettings) -> str | None:
    """Return the proxy for the crew: the one in the settings, or what the environment says."""
    if settings.proxy:
        return settings.proxy
    parts = urlsplit(settings.address)
    if is_loopback(settings.address) or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return checked_proxy(found, where=f"the environment ({parts.scheme}_proxy or all_proxy)") if found else None


def retrying(call: str, *, only_if_not_taken: bool, wake_up_within: float = 0.0) -> dict[str, Any]:
    """
    Return how tenacity repeats a call, for its sync and its async form alike.

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
        waking = ""
        if self._wakes_up(_error_of(state)):
            minutes = f"{self.wake_up_within / 60:.0f} minutes"
            waking = f" It may be waking up after a quiet period, and is given {minutes} for that."
        seconds = state.next_action.sleep if state.next_action else 0.0
        log.warning("%s%s Trying %s again in %.1f s.", _error_of(state), waking, self.call, seconds)

    def _wakes_up(self, error: BaseException | None) -> bool:
        return bool(self.wake_up_within) and isinstance(error, TransientError) and error.may_be_waking_up


def _error_of(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _wait(state: tenacity.RetryCallState) -> float:
    error = _error_of(state)
    asked_for = error.retry_after if isinstance(error, TransientError) else None
    # The jitter comes on top, or all who were told the same time would come back together.
    return _JITTER(state) + min(asked_for or 0.0, _LONGEST_RETRY_AFTER)


def reason_for(error: BaseException, *, connected: bool, settings: ServiceSettings) -> str:
    """
    Say in words why an exchange failed.

    Built from the operating system's own error below the library's, since a library's text may repeat headers
    or a proxy's password.
    """
    causes = list(_causes(error))
    if timed_out(error):
        if connected:
            return f"it was not complete after {settings.request_timeout:g} s (request_timeout)"
        return f"no connection after {connect_timeout(settings):g} s"
    for cause in reversed(causes):
        if words := _words_for(cause):
            return words
    return f"the connection broke off ({type(causes[-1]).__name__})"


def timed_out(error: BaseException) -> bool:
    """Whether an exchange failed because time was over, and nobody said no."""
    return any(isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__ for cause in _causes(error))


def is_trusted(error: BaseException) -> bool:
    """Whether an exchange failed for another reason than a certificate."""
    return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _words_for(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({getattr(error, 'verify_message', 'unknown reason')})"
    if isinstance(error, ssl.SSLError):
        # An error made in Python (pyOpenSSL below urllib3 does) has no reason at all.
        told = (getattr(error, "reason", None) or "unknown reason").lower().replace("_", " ")
        return f"TLS failed ({told}){_TLS_FAILURES.get(told, '')}"
    if isinstance(error, socket.gaierror):
        return "its name is not known (DNS)"
    if refused := _TUNNEL_REFUSED.search(f"{type(error).__name__} {error}"):
        return f"the proxy refuses to connect to it ({refused[1]})"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk from a library's exception down to what caused it, wherever the library keeps that."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        nested = [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
        waiting += [item for item in nested if isinstance(item, BaseException)]
