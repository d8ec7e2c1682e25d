"""Address, token, TLS and proxy of one crew, validated before anything is sent."""

import base64
import os
import platform
import re
import socket
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import unquote, urlsplit

import certifi
import pydantic
from pydantic import AfterValidator, Field, HttpUrl, StringConstraints, ValidationError, model_validator

from airflow_provider_crew import __version__
from airflow_provider_crew.client.errors import InvalidSettings
from airflow_provider_crew.client.options import REQUEST_TIMEOUT
from airflow_provider_crew.client.text import SHORTEST_SECRET, mask, maskable

USER_AGENT = f"airflow-provider-crew/{__version__} Python/{platform.python_version()}"
_CONNECT_TIMEOUT = 10.0
_ENDPOINTS = ("/kickoff", "/inputs", "/status")
# A loopback address, or a host name that resolves to one.
_LOOPBACK = re.compile(r"(.+\.)?localhost|127(\.\d+){3}|::1")


class CheckedFields(pydantic.BaseModel):
    """Validated fields of a connection. InvalidSettings names the invalid field and repeats its description."""

    model_config = pydantic.ConfigDict(frozen=True, hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _name_invalid_field(cls, values: dict[str, Any], check: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        # A form submits an empty string for a field that is left empty.
        given = {name: value for name, value in values.items() if value is not None and value != ""}
        try:
            return check(given)
        except ValidationError as error:
            name = str(error.errors(include_input=False, include_context=False)[0]["loc"][0])
            raise invalid_field(name, cls.model_fields[name].description or "a text") from None


def invalid_field(name: str, description: str) -> InvalidSettings:
    """Return the error for a field, without its value, which may be a secret in the wrong field."""
    return InvalidSettings(f"{name} must be {description}.")


def parsed_url(text: str, default_scheme: str = "") -> HttpUrl:
    """Return a URL. Reject line breaks, which parsers drop silently."""
    text = text.strip()
    if not text.isprintable():
        raise ValueError("it contains characters that cannot be printed")
    return HttpUrl(text if "://" in text else f"{default_scheme}://{text}")


def _crew_address(address: str) -> str:
    """Return the crew's address with its scheme and without a trailing slash. The default scheme is https."""
    url = parsed_url(address, "https")
    found = str(url).rstrip("/")
    if re.search("[@?#]", address) or found.endswith(_ENDPOINTS) or url.host in {"http", "https"}:
        raise ValueError("it contains more than an address")
    return found


def usable_proxy(proxy: str) -> str:
    """Return the proxy's URL. Both clients support only http and https proxies."""
    try:
        return str(parsed_url(proxy, "http")).rstrip("/")
    except ValueError:
        raise InvalidSettings(
            "`proxy` of the connection, or https_proxy, http_proxy or all_proxy of the environment, must be like "
            "http://proxy.example:3128. SOCKS proxies are not supported."
        ) from None


Token = Annotated[str, StringConstraints(strip_whitespace=True, pattern="^[!-~]+$", min_length=SHORTEST_SECRET)]


class WebhookSecret(CheckedFields):
    """Secret that the crew sends to receivers of webhooks, as a bearer token."""

    password: Token = Field(
        repr=False, description="the secret of webhooks, at least 8 characters that a bearer token may have"
    )


class ServiceSettings(CheckedFields):
    """
    Address and token of a crew, and how to connect to it.

    ``request_timeout`` limits each wait for a response and the reading of its body. ``verify`` is True, False or a
    file of certificates. ``repr`` shows neither the token nor the proxy, which may hold a password.
    """

    address: Annotated[str, AfterValidator(_crew_address)] = Field(
        description="that of the crew (the host of a connection), such as https://my-crew.crewai.com:8443/team, "
        "with one port, without a path of its API, and without the token, which belongs in the password field"
    )
    token: Token = Field(
        repr=False,
        description="the bearer token (password, or user_bearer_token): 8 characters or more, without Bearer",
    )
    # A socket rejects a number far beyond a day, but only after the connection is made.
    request_timeout: float = Field(
        REQUEST_TIMEOUT, gt=0, le=86_400, description="a number of seconds above 0, and not more than a day"
    )
    # Left to right, because a URI has only strings, and "true" must not become a path.
    verify: bool | str = Field(
        default=True, union_mode="left_to_right", description="true, false, or the path of a file of certificates"
    )
    proxy: Annotated[str, AfterValidator(usable_proxy)] | None = Field(None, repr=False)
    allow_http: bool = Field(default=False, description="true or false")

    @property
    def connect_timeout(self) -> float:
        """Connect timeout in seconds. It is below request_timeout, so that errors distinguish the two."""
        return min(_CONNECT_TIMEOUT, 0.9 * self.request_timeout)

    @model_validator(mode="after")
    def _reject_unencrypted(self) -> Self:
        reject_secret_in(self.address, self.token)
        if any(len(secret) < SHORTEST_SECRET for secret in secrets_of_proxy(self.proxy)):
            raise invalid_field("proxy", "a URL whose password, if it has one, has at least 8 characters")
        if self.address.startswith("https://") or self.allow_http or is_loopback(self.address):
            return self
        raise InvalidSettings(
            "The address would send the token unencrypted: it has no https://, and `allow_http` is not set."
        )


def reject_secret_in(address: str, *secrets: str) -> None:
    """Reject an address that contains a secret, because messages, logs and records show the address."""
    lower = address.lower()  # as the host is shown
    if mask(lower, maskable(*(each.strip().lower() for each in secrets))) != lower:
        raise invalid_field("address", ServiceSettings.model_fields["address"].description or "")


def secrets_of_proxy(proxy: str | None) -> tuple[str, ...]:
    """
    Return the password in a proxy's URL and its Basic credentials, since an error page may repeat either.

    A user name is not a secret: it may be a word.
    """
    user = (proxy or "").split("://", 1)[-1].rpartition("@")[0]
    name, _, password = map(unquote, user.partition(":"))
    return (password, *_basic_credentials(name, password)) if password else ()


def _basic_credentials(name: str, password: str) -> tuple[str, ...]:
    # Clients encode non-ASCII characters differently.
    pairs = {f"{name}:{password}".encode(encoding, "replace") for encoding in ("utf-8", "latin-1")}
    encoded = [base64.b64encode(pair).decode() for pair in pairs]
    return (*encoded, *(f"Basic {each}" for each in encoded))


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    return _LOOPBACK.fullmatch(urlsplit(address).hostname or "") is not None


# Matches the messages of http.client and aiohttp.
_TUNNEL_REFUSED = re.compile(r"(?:Tunnel connection failed: |ClientHttpProxyError )(\d+)")


def trusted_certificates(settings: ServiceSettings) -> str | None:
    """Return the file or folder of trusted certificates, or None if verification is off."""
    if settings.verify is not True:
        return settings.verify or None
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()


def tls_context(settings: ServiceSettings, proxy: str | None) -> ssl.SSLContext | None:
    """Return the TLS context for the crew and its proxy. None if verification is off, or if neither has TLS."""
    certificates, urls = trusted_certificates(settings), (settings.address, proxy or "")
    if certificates is None or not any(url.startswith("https:") for url in urls):  # loading them takes 35 ms
        return None
    try:
        return _context_of(certificates, Path(certificates).stat().st_mtime)
    except (OSError, ValueError):  # also raised for a file without certificates
        # Omit the path from the message: it may be a token in the wrong field.
        raise InvalidSettings(
            "The certificates are unreadable: those of `verify`, or of REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE in "
            "the environment."
        ) from None


@lru_cache(maxsize=16)
def _context_of(certificates: str, _changed_at: float) -> ssl.SSLContext:
    """Load certificates once, because loading blocks an event loop for as long as many responses."""
    if Path(certificates).is_dir():
        return ssl.create_default_context(capath=certificates)
    return ssl.create_default_context(cafile=certificates)


def proxy_for(settings: ServiceSettings) -> str | None:
    """Return the proxy for the crew, from the settings or else from the environment."""
    if settings.proxy:
        return settings.proxy
    if is_loopback(settings.address):
        return None
    from requests.utils import get_environ_proxies, select_proxy  # supports networks in NO_PROXY; slow to import

    found = select_proxy(settings.address, get_environ_proxies(settings.address))
    return usable_proxy(found) if found else None


def reason_for(error: BaseException, settings: ServiceSettings, *, sent: bool) -> str:
    """
    Return the reason of a failed exchange.

    Prefer the operating system's error text, because a library's text may repeat headers or a password.
    """
    if is_caused_by(error, TimeoutError):
        if not sent:
            return f"no connection after {settings.connect_timeout:g} s"
        return f"timed out after {settings.request_timeout:g} s (request_timeout)"
    causes = causes_of(error)
    reasons = (words for cause in reversed(causes) if (words := _words_for(cause)))
    return next(reasons, f"the connection broke ({type(causes[-1]).__name__})")


def is_caused_by(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether an error of one of these kinds is in the chain of causes."""
    return any(isinstance(cause, kinds) for cause in causes_of(error))


def detach(error: BaseException, handled: BaseException | None) -> None:
    """Remove from an error's causes what the caller was handling: Python adds it, and it proves nothing here."""
    for cause in causes_of(error):
        if cause.__context__ is handled:
            cause.__context__ = None


def causes_of(error: BaseException) -> list[BaseException]:
    """Return the chain from a library's exception down to its root cause."""
    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__ or _wrapped_by(causes[-1]):
        if any(cause is seen for seen in causes):  # a caller's own chain may form a circle
            break
        causes.append(cause)
    return causes


def _wrapped_by(error: BaseException) -> BaseException | None:
    """Return the exception that urllib3 has passed as an argument."""
    return next((each for each in error.args if isinstance(each, BaseException)), None)


def _words_for(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate rejected ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason).lower().replace("_", " ")
        return "the server does not speak https" if reason == "wrong version number" else f"TLS failed ({reason})"
    if isinstance(error, socket.gaierror):
        return "unknown host name (DNS)"
    if refused := _TUNNEL_REFUSED.search(f"{type(error).__name__} {error}"):
        return f"the proxy rejected the connection ({refused[1]})"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return ""
