"""What a connection of type crew says, read into settings for a client."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.connection import get_async_connection
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, mask_secret
from asgiref.sync import sync_to_async
from pydantic import BaseModel, BeforeValidator, ConfigDict, HttpUrl, SecretStr, ValidationError, model_validator

from airflow_provider_crew import __version__
from airflow_provider_crew.compat import api_server_is_away, denies_connection
from airflow_provider_crew.service.errors import InvalidSettings, Unreachable
from airflow_provider_crew.service.settings import (
    DEFAULT_REQUEST_TIMEOUT,
    ServiceSettings,
    StatusPath,
    checked_token,
)
from airflow_provider_crew.service.text import one_line

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

TokenType = Literal["organization", "user"]

_USER_AGENT = f"airflow-provider-crew/{__version__} Airflow/{airflow_version} Python/{platform.python_version()}"

_TOKEN_FIELDS: dict[TokenType, str] = {"organization": "password", "user": "user_bearer_token"}

_REMEDIES = {
    "user_bearer_token": "must be a text",
    "token_type": "must be organization or user, or be left out",
    "request_timeout": "must be a number of seconds",
    "verify": "must be true, false, or the path of a file of CA certificates",
    "proxy": "must look like http://proxy.example:3128",
    "status_path": "must be auto, status_first or id_first",
    "dashboard_url": "must be the full address of a page, such as https://app.example/crews/7",
    "allow_http": "must be true or false",
}


def _switch(value: Any) -> Any:
    """Understand a switch that came as text, as in a URI; any other text is a path."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


class _Extra(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    user_bearer_token: SecretStr | None = None
    token_type: TokenType | None = None
    request_timeout: float = DEFAULT_REQUEST_TIMEOUT
    verify: Annotated[bool | str, BeforeValidator(_switch)] = True
    proxy: SecretStr | None = None
    status_path: StatusPath = "auto"
    dashboard_url: HttpUrl | None = None
    allow_http: bool = False

    @model_validator(mode="before")
    @classmethod
    def _an_empty_field_is_not_set(cls, fields: Any) -> Any:
        return {name: value for name, value in fields.items() if value is not None and value != ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrewConnection:
    """A connection that has been read: how to talk to the crew, and where people look at it."""

    settings: ServiceSettings
    token_type: TokenType
    dashboard_url: str | None


def load_connection(conn_id: str, token_type: TokenType | None = None) -> CrewConnection:
    """Look a connection up and read it."""
    return read_connection(_find(conn_id), token_type=token_type)


async def load_connection_async(conn_id: str, token_type: TokenType | None = None) -> CrewConnection:
    """Look a connection up and read it, without blocking the event loop."""
    connection = await _find_async(conn_id)
    # Reading tells Airflow what to mask, which on the event loop of a triggerer of Airflow 3.0 cannot be done.
    return await sync_to_async(read_connection)(connection, token_type=token_type)


def load_secret(conn_id: str) -> str:
    """Return a connection's password, the secret of webhooks, and have Airflow mask it."""
    return _secret_of(_find(conn_id))


async def load_secret_async(conn_id: str) -> str:
    """Return a connection's password, like load_secret()."""
    return await sync_to_async(_secret_of)(await _find_async(conn_id))


def read_connection(connection: Connection, *, token_type: str | None = None) -> CrewConnection:
    """
    Read a connection, and have Airflow mask its secrets, used or not.

    InvalidSettings names the field that is wrong and how to mend it.
    """
    try:
        _refuse_other_types(connection)
        extra = _read_extra(connection.extra)
        for secret in _secrets_of(connection, extra):
            mask_secret(secret)
        kind, token = _choose_token(connection, extra, token_type)
        settings = ServiceSettings(
            address=_address(connection),
            token=checked_token(token.get_secret_value(), where=_TOKEN_FIELDS[kind]),
            request_timeout=extra.request_timeout,
            verify=extra.verify,
            proxy=extra.proxy.get_secret_value() if extra.proxy else None,
            status_path=extra.status_path,
            allow_http=extra.allow_http,
            user_agent=_USER_AGENT,
        )
    except InvalidSettings as error:
        raise InvalidSettings(error.fault, field=error.field, conn_id=connection.conn_id) from None
    dashboard_url = str(extra.dashboard_url) if extra.dashboard_url else None
    return CrewConnection(settings=settings, token_type=kind, dashboard_url=dashboard_url)


def _find(conn_id: str) -> Connection:
    """Return a connection, told from one that is not there, and from an Airflow that cannot be asked."""
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if denies_connection(conn_id):
            raise _not_defined(conn_id) from None
    except Exception as error:
        if not api_server_is_away(error):
            raise
    told = f"The connection {conn_id!r} cannot be read: Airflow's API server did not answer."
    raise Unreachable(told, sent=False) from None


async def _find_async(conn_id: str) -> Connection:
    try:
        return await get_async_connection(conn_id)
    except AirflowNotFoundException:
        raise _not_defined(conn_id) from None


def _secret_of(connection: Connection) -> str:
    if not connection.password:
        raise InvalidSettings("It has no password, which is to be the secret.", conn_id=connection.conn_id)
    mask_secret(connection.password)
    try:
        secret = checked_token(connection.password)
    except InvalidSettings:
        fault = "Its password, which is to be the secret, has characters that no bearer token has."
        raise InvalidSettings(fault, conn_id=connection.conn_id) from None
    mask_secret(secret)
    return secret


def _not_defined(conn_id: str) -> InvalidSettings:
    """Build the error for a connection that Airflow does not have."""
    variable = one_line(f"AIRFLOW_CONN_{conn_id}".upper(), 100)
    return InvalidSettings(
        f"There is none of that name. Add it with the type Crew (Admin, Connections), or set {variable}. If that "
        "is set, Airflow cannot read it: in a URI, everything in the token but letters and digits has to be "
        "percent-encoded.",
        conn_id=conn_id,
    )


def _refuse_other_types(connection: Connection) -> None:
    for name in ("host", "schema", "login", "password", "extra"):
        if not isinstance(getattr(connection, name), str | None):
            raise InvalidSettings(f"The {name} is no text. In JSON, put it in quotes.", field=name)


def _secrets_of(connection: Connection, extra: _Extra) -> tuple[str, ...]:
    secrets = [
        connection.password,
        extra.user_bearer_token.get_secret_value() if extra.user_bearer_token else None,
        _password_of(extra.proxy.get_secret_value()) if extra.proxy else None,
    ]
    return tuple(secret.strip() for secret in secrets if secret)


def _password_of(proxy: str) -> str | None:
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}").password


def _read_extra(extra: str | None) -> _Extra:
    # Not Connection.extra_dejson: it takes what it cannot read for empty, and a token would silently be missing.
    try:
        fields = json.loads(extra) if extra else {}
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, Mapping):
        raise InvalidSettings(
            'The extra is not a JSON object. Write it like {"token_type": "user", "user_bearer_token": "..."}.',
            field="extra",
        )
    try:
        return _Extra.model_validate(fields)
    except ValidationError as error:
        name = str(error.errors(include_input=False, include_context=False)[0]["loc"][0])
        raise InvalidSettings(f"The extra field {name} {_REMEDIES[name]}.", field=name) from None


def _choose_token(connection: Connection, extra: _Extra, token_type: str | None) -> tuple[TokenType, SecretStr]:
    tokens: dict[TokenType, SecretStr | None] = {
        "organization": SecretStr(connection.password) if connection.password else None,
        "user": extra.user_bearer_token,
    }
    wanted: Any = token_type or extra.token_type
    for kind, token in tokens.items():
        if token is not None and wanted in (kind, None):
            return kind, token
    if wanted == "user":
        raise InvalidSettings(
            "The user's token is asked for (token_type user), and there is none. Put it into the field User "
            "bearer token (user_bearer_token in the extra), or use token_type organization.",
            field="user_bearer_token",
        )
    if wanted not in ("organization", None):
        shown = repr(wanted[:40]) if isinstance(wanted, str) else f"of type {type(wanted).__name__}"
        raise InvalidSettings(f"token_type is {shown}; it must be organization or user.", field="token_type")
    in_login = " It stands in the login, where it is not looked for." if connection.login else ""
    raise InvalidSettings(
        f"There is no organization token.{in_login} Put the bearer token from the crew's Status tab into the "
        "password field (in a URI behind a colon: crew://:TOKEN@host).",
        field="password",
    )


def _address(connection: Connection) -> str:
    """Put the address together from host, port and schema, which in a URI holds the scheme or the prefix."""
    host = (connection.host or "").strip()
    if not host:
        return ""
    if host.count(":") > 1 and not {"[", "/"} & set(host):
        host = f"[{host}]"
    schema = (connection.schema or "").strip().strip("/")
    scheme, prefix = (schema.lower(), "") if schema.lower() in {"http", "https"} else ("", schema)
    if "://" not in host:
        host = f"{scheme or 'https'}://{host}"
    elif scheme and not host.lower().startswith(f"{scheme}://"):
        raise InvalidSettings(
            f"The host begins with another scheme than the schema says ({scheme}). Leave the schema empty.",
            field="schema",
        )
    address = _with_port(host, connection.port).rstrip("/")
    return f"{address}/{prefix}" if prefix else address


def _with_port(url: str, port: int | None) -> str:
    try:
        parts = urlsplit(url)
        own_port = parts.port
    except ValueError:
        return url  # refused with the other addresses that cannot be read
    if port is None or own_port == port:
        return url
    if own_port is not None:
        raise InvalidSettings(
            f"The host says port {own_port} and the port field says {port}. Leave one of them out.", field="port"
        )
    return parts._replace(netloc=f"{parts.netloc.removesuffix(':')}:{port}").geturl()
