"""Read an Airflow connection of type crew into settings for a client."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection, mask_secret
from asgiref.sync import sync_to_async
from pydantic import AfterValidator, Field, Json, SkipValidation, TypeAdapter, ValidationError

from airflow_provider_crew import api_server
from airflow_provider_crew.client.errors import Cost, CrewError, InvalidSettings, Unreachable
from airflow_provider_crew.client.payload import checked_kickoff_id
from airflow_provider_crew.client.settings import (
    CheckedFields,
    ServiceSettings,
    WebhookSecret,
    parsed_url,
    reject_secret_in,
    secrets_of_proxy,
)
from airflow_provider_crew.client.text import in_words, warn

log = logging.getLogger(__name__)

TokenType = Literal["organization", "user"]

_EXTRA: TypeAdapter[dict[str, Any]] = TypeAdapter(Json[dict[str, Any]])

# Placeholder for the kickoff ID in the address of a page.
_KICKOFF_ID = "{kickoff_id}"


def _page(address: str) -> str:
    """Return the address of a page, which may contain a placeholder for the kickoff ID."""
    if re.search("[{}]", address.replace(_KICKOFF_ID, "")) or _KICKOFF_ID in urlsplit(address).netloc:
        raise ValueError("it has another placeholder, or one in its host name")
    checked = str(parsed_url(address))
    # Validation percent-encodes the braces in a path.
    return checked.replace("%7Bkickoff_id%7D", _KICKOFF_ID) if _KICKOFF_ID in address else checked


class _Fields(CheckedFields):
    """Fields of a connection that hold the address and the tokens."""

    host: str = ""
    port: int | None = Field(None, description="a number")
    scheme: Literal["http", "https"] = Field("https", description="http or https (a URI's path, or schema)")
    password: str | None = Field(None, repr=False)
    user_bearer_token: str | None = Field(None, repr=False)
    token_type: TokenType | None = Field(None, description="organization or user, or be left out")


class CrewConnection(CheckedFields):
    """Settings of a connection, with its dashboard page, its daily limit and its defaults for tasks."""

    settings: SkipValidation[ServiceSettings]
    token_type: TokenType
    dashboard_url: Annotated[str, AfterValidator(_page)] | None = Field(
        None,
        description="the full address of a page (https://app.example/7), with no placeholder but {kickoff_id}",
    )
    max_kickoffs_per_day: int | None = Field(
        None, ge=0, le=1_000_000, description="a whole number, not more than a million, or be left out"
    )
    cancel_on_kill: bool = Field(default=False, description="true or false")
    cancel_on_timeout: bool = Field(default=False, description="true or false")

    def page_of(self, kickoff_id: str | None) -> str | None:
        """Return the dashboard page. Without a kickoff ID, it is the address up to the placeholder."""
        page = self.dashboard_url
        if page is None or not kickoff_id:
            return page and page.partition(_KICKOFF_ID)[0]
        return page.replace(_KICKOFF_ID, checked_kickoff_id(kickoff_id))

    def require_address(self, address: str) -> None:
        """Raise InvalidSettings if the connection points to another address. An empty one matches any."""
        now = self.settings.address
        if address not in {"", now}:
            raise InvalidSettings(f"The connection points to {now}, not to {address}.")


def load_connection(conn_id: str) -> CrewConnection:
    """Look up a connection and read it."""
    return read_connection(_find(conn_id))


async def load_connection_async(conn_id: str) -> CrewConnection:
    """Look up a connection and read it, without blocking the event loop."""
    # A thread ends even while the event loop of a worker stands still. Airflow's own coroutine would hold a lock
    # until then, for which the worker waits.
    return await sync_to_async(load_connection, thread_sensitive=False)(conn_id)


def load_secret(conn_id: str) -> str:
    """Return the webhook secret, which is a connection's password. Mask it in Airflow's logs."""
    connection = _find(conn_id)
    with _named(connection):
        _mask(connection.password)
        return WebhookSecret.model_validate({"password": connection.password}).password


def load_secrets(conn_id: str | None) -> tuple[str, ...]:
    """Return the secrets of webhooks. If they are unreadable, polls go on without masking them."""
    try:
        return (load_secret(conn_id),) if conn_id else ()
    except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
        reason = error.event if isinstance(error, CrewError) else in_words(error)
        warn(log, f"The webhook secret in {conn_id!r} is unreadable, so responses are not masked for it: {reason}")
        return ()


def read_connection(connection: Connection) -> CrewConnection:
    """
    Read a connection and mask its secrets in Airflow's logs, whether used or not.

    InvalidSettings names the invalid field and how to fix it.
    """
    with _named(connection):
        _mask(connection.password)
        extra = _extra_of(connection)
        proxy = extra.get("proxy")
        _mask(extra.get("user_bearer_token"), *secrets_of_proxy(proxy if isinstance(proxy, str) else None))
        fields = _Fields.model_validate(
            extra
            | {"host": connection.host, "port": connection.port, "scheme": connection.schema}
            | {"password": connection.password}
        )
        kind, token = _chosen_token(fields)
        given = {"address": _address(fields), "token": token}
        reject_secret_in(given["address"], fields.password or "", fields.user_bearer_token or "")
        settings = ServiceSettings.model_validate(extra | given)
        return CrewConnection.model_validate(extra | {"settings": settings, "token_type": kind})


@contextmanager
def _named(connection: Connection) -> Iterator[None]:
    """Add the connection's ID to InvalidSettings."""
    try:
        yield
    except InvalidSettings as error:
        raise error.replace(f"Connection {connection.conn_id!r} is unusable. {error.event}") from None


def _find(conn_id: str) -> Connection:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        why = "it does not exist, or Airflow could not read it"
    except Exception as error:
        if not api_server.is_away(error):
            raise
        why = "Airflow's API server did not respond"
    raise unreadable(conn_id, why, Cost.NONE)


def unreadable(conn_id: str, why: str, cost: Cost) -> Unreachable:
    """Return the error for a connection that Airflow does not return."""
    event = f"Connection {conn_id!r} is unreadable: {why}."
    return Unreachable(event, cost=cost, sent=False, lacks_connection=True)


def _mask(*secrets: Any) -> None:
    for secret in secrets:
        if isinstance(secret, str) and secret.strip():
            mask_secret(secret.strip())


def _extra_of(connection: Connection) -> dict[str, Any]:
    # Connection.extra_dejson treats unreadable JSON as empty, so a token would be missing without an error.
    try:
        return _EXTRA.validate_python(connection.extra or "{}")
    except ValidationError:
        raise InvalidSettings(
            'extra is not a JSON object such as {"token_type": "user", "user_bearer_token": "..."}.'
        ) from None


def _chosen_token(fields: _Fields) -> tuple[TokenType, str]:
    only: TokenType = "user" if fields.user_bearer_token and not fields.password else "organization"
    kind = fields.token_type or only
    token = fields.user_bearer_token if kind == "user" else fields.password
    if not token:
        where = "the password field" if kind == "organization" else "`user_bearer_token`"
        raise InvalidSettings(f"There is no {kind} token in {where}.")
    return kind, token


def _address(fields: _Fields) -> str:
    """Build the address from the host, which may be a whole address, and from the port and scheme of a URI."""
    scheme, _, rest = fields.host.strip().rpartition("://")
    name, slash, path = rest.partition("/")
    port = "" if fields.port is None else f":{fields.port}"
    return f"{scheme or fields.scheme}://{name}{port}{slash}{path}" if name else ""
