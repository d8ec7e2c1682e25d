"""What both clients share about the network: trust, proxies, time limits, and words for failures."""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import certifi

from airflow_provider_crew.service.errors import InvalidSettings
from airflow_provider_crew.service.settings import ServiceSettings, is_loopback, usable_proxy

_CONNECT_TIMEOUT = 10.0
# What http.client says, and what aiohttp does.
_TUNNEL_REFUSED = re.compile(r"(?:Tunnel connection failed: |ClientHttpProxyError )(\d+)")


def connect_timeout(settings: ServiceSettings) -> float:
    """Return the seconds to connect: fewer than for the whole exchange, so that the error tells the two apart."""
    return min(_CONNECT_TIMEOUT, 0.9 * settings.request_timeout)


def trusted_certificates(settings: ServiceSettings) -> str | None:
    """Return the file or folder of certificates to trust, None when they are not to be checked."""
    if settings.verify is not True:
        return settings.verify or None
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Return what verifies certificates, of an https proxy as well. ``None``: there are none to verify."""
    certificates = trusted_certificates(settings)
    if certificates is None or not any(
        url and url.startswith("https:") for url in (settings.address, proxy_for(settings))
    ):
        return None
    try:
        return _context_of(certificates, Path(certificates).stat().st_mtime)
    except (OSError, ValueError):  # a file without certificates ends here, too
        # The path is not repeated: it may be a token in the wrong field.
        raise InvalidSettings(
            "Certificates are unreadable.",
            next_step="Fix the path in `verify`, or in REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE of the environment.",
        ) from None


def load_async_client(settings: ServiceSettings) -> None:
    """Load what an asynchronous client needs, in a thread: it would hold up an event loop for too long."""
    import_module("airflow_provider_crew.service.async_client")
    import_module("requests.utils")
    tls_context(settings)


@lru_cache(maxsize=16)
def _context_of(certificates: str, _changed_at: float) -> ssl.SSLContext:
    """Load certificates once: that blocks an event loop for as long as many answers take."""
    if Path(certificates).is_dir():
        return ssl.create_default_context(capath=certificates)
    return ssl.create_default_context(cafile=certificates)


def proxy_for(settings: ServiceSettings) -> str | None:
    """Return the proxy for the crew: the one in the settings, or what the environment says."""
    if settings.proxy:
        return settings.proxy
    if is_loopback(settings.address):
        return None
    from requests.utils import get_environ_proxies, select_proxy  # knows NO_PROXY with networks, and takes long

    found = select_proxy(settings.address, get_environ_proxies(settings.address))
    return usable_proxy(found) if found else None


def reason_for(error: BaseException, *, connected: bool, settings: ServiceSettings) -> str:
    """
    Return why an exchange failed.

    The words come from the operating system's error, because a library's text may repeat headers or a password.
    """
    if timed_out(error):
        if connected:
            return f"timed out after {settings.request_timeout:g} s (request_timeout)"
        return f"no connection after {connect_timeout(settings):g} s"
    causes = list(_causes(error))
    known = (words for cause in reversed(causes) if (words := _words_for(cause)))
    return next(known, f"the connection broke ({type(causes[-1]).__name__})")


def timed_out(error: BaseException) -> bool:
    """Whether an exchange failed because time was over, and nobody said no."""
    return any(isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__ for cause in _causes(error))


def root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain."""
    return list(_causes(error))[-1]


def is_trusted(error: BaseException) -> bool:
    """Whether an exchange failed for another reason than a certificate."""
    return not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _words_for(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate rejected ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        told = str(error.reason).lower().replace("_", " ")
        return "the server does not speak https" if told == "wrong version number" else f"TLS failed ({told})"
    if isinstance(error, socket.gaierror):
        return "unknown host name (DNS)"
    if refused := _TUNNEL_REFUSED.search(f"{type(error).__name__} {error}"):
        return f"the proxy rejected the connection ({refused[1]})"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk from a library's exception down to what caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
