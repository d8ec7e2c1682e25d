from __future__ import annotations

import pytest
from crew_builders import TOKEN, settings

from airflow_provider_crew.service.errors import InvalidSettings
from airflow_provider_crew.service.settings import checked_token


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("https:/crew.example", id="one slash"),
        pytest.param("https://https://crew.example", id="scheme twice"),
        pytest.param("https://crew.example/\ud800", id="half a character"),
    ],
)
def test_an_address_mistyped_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettings, match="The host of the crew has") as caught:
        settings(address=address)

    assert caught.value.field == "host"


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("https://crew.example:{}", id="as port"),
        pytest.param("https://user:{}@crew.example", id="as password, with a slash"),
        pytest.param("https://{}@crew.example", id="as user, with a slash"),
        pytest.param("https://org\u2100@crew.example", id="with what is normalised to a slash"),
        pytest.param("https://[{}]", id="in brackets"),
    ],
)
def test_a_token_in_the_wrong_place_is_not_repeated(address: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        settings(address=address.format(TOKEN))

    assert TOKEN[:3] not in str(caught.value)


@pytest.mark.parametrize("verify", ["/nowhere/ca.pem", "", "\0", "MIIB" * 2000])
def test_a_file_of_certificates_that_is_none_is_refused(verify: str) -> None:
    with pytest.raises(InvalidSettings, match="^verify names the file") as caught:
        settings(verify=verify)

    assert caught.value.field == "verify"


def test_says_which_token_is_wrong() -> None:
    with pytest.raises(InvalidSettings, match=r"\(user_bearer_token\)") as caught:
        checked_token("Bearer abc", where="user_bearer_token")

    assert caught.value.field == "user_bearer_token"
