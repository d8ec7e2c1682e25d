"""What a client needs to know to talk to one crew, checked before anything is sent."""

from __future__ import annotations

import ipaddress
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import SplitResult, quote, urlsplit

from airflow_provider_crew import __version__
from airflow_provider_crew.service.errors import InvalidSettings

StatusPath = Literal["auto", "status_first", "id_first"]

DEFAULT_REQUEST_TIMEOUT = 60.0
# Far beyond it, a socket refuses the number after the connection is made.
_LONGEST_TIMEOUT = 86_400.0
USER_AGENT = f"airflow-provider-crew/{__version__} Python/{platform.python_version()}"

_CONTROL_OR_SPACE = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_HOST_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_ENDPOINTS = ("/kickoff", "/inputs", "/status")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """
    The address and the token of a crew, and how to reach it.

    ``request_timeout`` bounds a whole exchange, from connecting to the last byte of the answer. ``verify`` is
    True, False or a file of certificates. ``status_path`` says which of the two paths in the field the crew
    has; ``auto`` finds out. Neither the token nor the proxy (it may hold a password) shows in ``repr``.
    """

    address: str
    token: str = field(repr=False)
    request_timeout: float = DEFAULT_REQUEST_TIMEOUT
    verify: bool | str = True
    proxy: str | None = field(default=None, repr=False)
    status_path: StatusPath = "auto"
    allow_http: bool = False
    user_agent: str = USER_AGENT

    def __post_init__(self) -> None:
        """Refuse what cannot work with a sentence that names the field and how to mend it."""
        put = object.__setattr__  # the usual way to normalise a field of a frozen dataclass
        put(self, "address", checked_address(self.address, allow_http=self.allow_http))
        put(self, "token", checked_token(self.token))
        put(self, "proxy", checked_proxy(self.proxy, where="proxy") if self.proxy else None)
        if not 0 < self.request_timeout <= _LONGEST_TIMEOUT:
            raise InvalidSettings(
                "request_timeout must be a number of seconds above 0, and not more than a day.",
                field="request_timeout",
            )
        if self.status_path not in get_args(StatusPath):
            raise InvalidSettings(
                f"status_path is {self.status_path!r}; it must be one of {', '.join(get_args(StatusPath))}.",
                field="status_path",
            )
        if isinstance(self.verify, str) and not _is_file(self.verify):
            raise InvalidSettings(
                f"verify names the file {self.verify!r}, and there is none here. Give the path of a file of CA "
                "certificates that exists where tasks run, or true, or false.",
                field="verify",
            )


def checked_address(address: str, *, allow_http: bool) -> str:
    """Return the crew's address with its scheme and without a slash at the end; a bare name means https."""
    text = address.strip()
    if not text:
        raise _bad_address("has no address. Put the crew's address there, such as https://my-crew.crewai.com")
    if _CONTROL_OR_SPACE.search(text):
        raise _bad_address("has white space or a backslash in the address")
    parts = _split(text if "://" in text else f"https://{text}")
    if "@" in text:  # also behind a slash, which a token may hold
        raise _bad_address("has credentials in the address. Put the token into the password field instead")
    if parts.query or parts.fragment:
        raise _bad_address("has a query or a fragment in the address. Give the address alone")
    if parts.scheme not in {"http", "https"}:
        raise _bad_address(f"has the scheme {parts.scheme!r}. Crews are reached with https://")
    host = _ascii_host(parts.hostname or "")
    if parts.scheme == "http" and not allow_http and not _is_loopback(host):
        raise InvalidSettings(
            f"The address http://{host} would send the token unencrypted, which is refused. Use https://, or set "
            "allow_http to true in the extra if the network is trusted. (Loopback addresses are always allowed.)",
            field="host",
        )
    netloc = f"[{host}]" if ":" in host else host
    if parts.port is not None:
        netloc = f"{netloc}:{parts.port}"
    return f"{parts.scheme}://{netloc}{_checked_prefix(parts.path)}"


def checked_token(token: str, *, where: str = "password") -> str:
    """Return the token without the white space that pasting adds around it; ``where`` is the field it is in."""
    text = token.strip()
    if not text:
        raise InvalidSettings("There is no bearer token. Copy it from the crew's Status tab.", field=where)
    if not text.isascii() or _CONTROL_OR_SPACE.search(text.replace("\\", "")):
        raise InvalidSettings(
            f"The bearer token ({where}) has white space or other characters inside that no token has. Copy it "
            "again from the crew's Status tab, without the word Bearer.",
            field=where,
        )
    return text


def checked_proxy(proxy: str, *, where: str) -> str:
    """Return the proxy's URL; both clients speak to http and https proxies, and to no others."""
    text = proxy.strip() if "://" in proxy else f"http://{proxy.strip()}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or _CONTROL_OR_SPACE.search(text):
        # The value may hold a password, so it is not repeated here.
        raise InvalidSettings(
            f"The proxy given in {where} cannot be used. It must look like http://proxy.example:3128; "
            "SOCKS proxies are not supported.",
            field="proxy",
        )
    return text


def is_loopback(address: str) -> bool:
    """Whether an address stays on this machine."""
    return _is_loopback(urlsplit(address).hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        has_port_zero = parts.port == 0
    except ValueError:
        # Without the error's own text, which repeats what may be a token in the wrong place.
        raise _bad_address("cannot be read. It must look like https://my-crew.crewai.com:8443/prefix") from None
    if has_port_zero:
        raise _bad_address("has port 0, which nothing listens on")
    return parts


def _ascii_host(host: str) -> str:
    if not host:
        raise _bad_address("has no host name in the address")
    if host in {"http", "https"}:
        raise _bad_address("has a scheme that is not followed by // and a name, or has it twice")
    if ":" in host:  # urlsplit has checked IPv6 addresses
        return host
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not _HOST_NAME.fullmatch(name):
        raise _bad_address(f"has a host name that cannot exist: {host!r}")
    return name


def _checked_prefix(path: str) -> str:
    prefix = path.rstrip("/")
    if {".", ".."} & set(prefix.split("/")):
        raise _bad_address("has a '.' or '..' step in its path")
    for endpoint in _ENDPOINTS:
        if prefix.endswith(endpoint):
            raise _bad_address(f"ends in {endpoint}. Give the crew's address without it")
    try:
        return quote(prefix, safe="/%:@!$&'()*+,;=~-._")
    except UnicodeError:
        raise _bad_address("has half a character in its path") from None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # not a path at all, such as the certificate itself
        return False


def _bad_address(what: str) -> InvalidSettings:
    return InvalidSettings(f"The host of the crew {what}.", field="host")
