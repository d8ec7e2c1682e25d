"""What a client needs to know to talk to one crew, checked before anything is sent."""

import base64
import platform
import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

import pydantic
from pydantic import AfterValidator, Field, HttpUrl, TypeAdapter, ValidationError, model_validator

from airflow_provider_crew import __version__
from airflow_provider_crew.service import messages
from airflow_provider_crew.service.errors import InvalidSettings
from airflow_provider_crew.service.limits import REQUEST_TIMEOUT
from airflow_provider_crew.service.masking import SHORTEST_SECRET

StatusPath = Literal["auto", "status_first", "id_first"]

USER_AGENT = f"airflow-provider-crew/{__version__} Python/{platform.python_version()}"
_ENDPOINTS = ("/kickoff", "/inputs", "/status")
# An IP address, or a name that only this machine may have.
_LOOPBACK = re.compile(r"(.+\.)?localhost|127(\.\d+){3}|::1")
_URL: TypeAdapter[HttpUrl] = TypeAdapter(HttpUrl)


class CheckedFields(pydantic.BaseModel):
    """
    What people fill in. InvalidSettings names the field that cannot be used, and says what it must be.

    What it must be is the field's description. The value is never repeated: it may be a secret in the wrong place.
    """

    model_config = pydantic.ConfigDict(frozen=True, hide_input_in_errors=True)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_words(cls, filled_in: dict[str, Any], check: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        # A form leaves an empty text in a field that nobody has filled in.
        given = {name: value for name, value in filled_in.items() if value is not None and value != ""}
        try:
            return check(given)
        except ValidationError as error:
            name = str(error.errors(include_input=False, include_context=False)[0]["loc"][0])
            words = {"name": name, "description": cls.model_fields[name].description or "a text"}
            raise InvalidSettings.saying(messages.INVALID_FIELD, words) from None


def printable(text: str) -> str:
    """Return an address without the white space around it; a parser would drop a line break inside it silently."""
    stripped = text.strip()
    if not stripped.isprintable():
        raise ValueError("it holds characters that cannot be printed")
    return stripped


def _crew_address(address: str) -> str:
    """Return the crew's address with its scheme and without a slash at the end; a bare name means https."""
    text = printable(address)
    url = _URL.validate_python(text if "://" in text else f"https://{text}")
    found = str(url).rstrip("/")
    if "@" in text or "?" in text or "#" in text or found.endswith(_ENDPOINTS) or url.host in {"http", "https"}:
        raise ValueError("it is more than an address")
    return found


def usable_proxy(proxy: str) -> str:
    """Return the proxy's URL; both clients speak to http and https proxies, and to no others."""
    try:
        text = printable(proxy)
        return str(_URL.validate_python(text if "://" in text else f"http://{text}")).rstrip("/")
    except ValueError:
        raise InvalidSettings.saying(messages.INVALID_PROXY) from None


Token = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, pattern="^[!-~]+$")]


class ServiceSettings(CheckedFields):
    """
    The address and the token of a crew, and how to reach it.

    ``request_timeout`` bounds a whole exchange, from connecting to the last byte of the answer. ``verify`` is
    True, False or a file of certificates. ``status_path`` says which of the two paths in the field the crew
    has; ``auto`` finds out. Neither the token nor the proxy (it may hold a password) shows in ``repr``.
    """

    address: Annotated[str, AfterValidator(_crew_address)] = Field(
        description="that of the crew (the host of a connection), such as https://my-crew.crewai.com:8443/team, "
        "without a path of its API, and without the token, which belongs in the password field"
    )
    token: Token = Field(
        repr=False, description="the bearer token (password, or user_bearer_token), without the word Bearer"
    )
    # Far beyond a day, a socket refuses the number after the connection is made.
    request_timeout: float = Field(
        REQUEST_TIMEOUT, gt=0, le=86_400, description="a number of seconds above 0, and not more than a day"
    )
    # From left to right: a URI has only texts, and "true" is no path.
    verify: bool | str = Field(
        default=True, union_mode="left_to_right", description="true, false, or the path of a file of certificates"
    )
    proxy: Annotated[str, AfterValidator(usable_proxy)] | None = Field(None, repr=False)
    status_path: StatusPath = Field("auto", description="auto, status_first or id_first")
    allow_http: bool = Field(default=False, description="true or false")
    user_agent: str = USER_AGENT

    @property
    def host(self) -> str:
        """Where the crew is to be found, with the port that is connected to."""
        parts = urlsplit(self.address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.hostname}:{port}" if ":" not in (parts.hostname or "") else f"[{parts.hostname}]:{port}"

    @model_validator(mode="after")
    def _keep_the_token_from_strangers(self) -> Self:
        refuse_secret_in(self.address, self.token)
        if self.address.startswith("https://") or self.allow_http or is_loopback(self.address):
            return self
        raise InvalidSettings.saying(messages.PLAIN_HTTP)


def refuse_secret_in(address: str, *secrets: str) -> None:
    """Refuse an address that holds a secret: it stands in messages, logs and records."""
    spelled = {text.lower() for text in (address, unquote(address))}
    for secret in filter(None, map(str.strip, secrets)):
        if len(secret) >= SHORTEST_SECRET and any(secret.lower() in text for text in spelled):
            words = {"name": "address", "description": ServiceSettings.model_fields["address"].description}
            raise InvalidSettings.saying(messages.INVALID_FIELD, words)


def secrets_of_proxy(proxy: str | None) -> tuple[str, ...]:
    """
    Return the secrets in a proxy's URL in each form that is sent: a page of the proxy may repeat any of them.

    The name of the user alone is none: it may be a word, which must not be left out of what a crew has written.
    """
    _, scheme, rest = (proxy or "").partition("://")
    raw = (rest if scheme else proxy or "").rpartition("@")[0]
    name, _, password = map(unquote, raw.partition(":"))
    if not raw:
        return ()
    pair = f"{name}:{password}"
    # Clients differ in how they encode what is not ASCII.
    in_bytes = (pair.encode(errors="replace"), pair.encode("latin-1", "replace"))
    encoded = dict.fromkeys(base64.b64encode(each).decode() for each in in_bytes)
    basic = (f"Basic {each}" for each in encoded)
    return tuple(dict.fromkeys((password or name, raw.partition(":")[2] or raw, pair, *encoded, *basic)))


def is_loopback(address: str) -> bool:
    """Whether an address stays on this machine."""
    return _LOOPBACK.fullmatch(urlsplit(address).hostname or "") is not None
