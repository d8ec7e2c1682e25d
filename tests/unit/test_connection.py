from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Connection
from crew_builders import TOKEN

from airflow_provider_crew.hooks.connection import read_connection
from airflow_provider_crew.service.errors import InvalidSettings


def connection(**fields: Any) -> Connection:
    return Connection(
        **{"conn_id": "my_crew", "conn_type": "crew", "host": "crew.example", "password": TOKEN} | fields
    )


def fault_of(connection: Connection, **options: Any) -> InvalidSettings:
    with pytest.raises(InvalidSettings) as caught:
        read_connection(connection, **options)
    return caught.value


@pytest.mark.parametrize("extra", ["[1]", '"text"', "null", "{", "not JSON", "[" * 100_000])
def test_an_extra_that_is_no_object_is_refused(extra: str) -> None:
    fault = fault_of(connection(extra=extra))

    assert fault.field == "extra"
    assert "The extra is not a JSON object." in str(fault)


def test_names_the_field_of_the_token_that_is_wrong() -> None:
    fault = fault_of(connection(password=None, extra='{"user_bearer_token": "Bearer abc"}'))

    assert fault.field == "user_bearer_token"
    assert "The bearer token (user_bearer_token) has white space" in str(fault)
    assert "abc" not in str(fault)


@pytest.mark.parametrize("port", [None, 8443])
def test_an_address_that_cannot_be_read_is_not_repeated(port: int | None) -> None:
    fault = fault_of(connection(host=f"https://crew.example:{TOKEN}", port=port))

    assert fault.field == "host"
    assert TOKEN[:3] not in str(fault)


def test_a_colon_without_a_port_leaves_the_port_to_its_field() -> None:
    assert (
        read_connection(connection(host="crew.example:", port=8443)).settings.address
        == "https://crew.example:8443"
    )


def test_secrets_are_masked_as_they_are_sent() -> None:
    read = read_connection(connection(password=f" {TOKEN}\n", extra='{"proxy": "me:secret@proxy.example:3128"}'))

    assert set(read.secrets) == {TOKEN, "secret"}
