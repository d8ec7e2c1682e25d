"""The Test button in the connection form of Airflow 2, in a real Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dev.airflow2 import USER
from dev.chromium import EXECUTABLE, Chromium, Page
from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(300),
    pytest.mark.skipif(AIRFLOW >= (3, 0), reason="there the button is in the list of connections"),
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed: apt-get install chromium"),
]

EXPECTED = "topic, audience"
BUTTON = "document.getElementById('test-connection')"
LOG_IN = f"""
for (const id of ['username', 'password']) document.getElementById(id).value = {USER!r};
document.querySelector('form input[type=submit]').click()
"""
# The kinds of a connection are in a list that only jQuery tells of a choice.
FILL = "for (const [id, value] of Object.entries({fields})) void $('#' + id).val(value).trigger('change')"
EDIT = "document.querySelector('a[href*=\"/connection/edit\"]')"
SHOWN = "Array.from(document.querySelectorAll('.alert')).filter(each => each.offsetParent)"
TOLD = f"{SHOWN}.map(each => each.innerText).join()"


@pytest.fixture
def page(airflow: AirflowStack) -> Iterator[Page]:
    with Chromium() as browser:
        page = browser.page()
        page.open(f"{airflow.url}/login/")
        page.wait_for("document.getElementById('username')")
        page.evaluate(LOG_IN)
        page.wait_for("location.pathname != '/login/' && document.body")
        yield page


def pressed(page: Page, address: str, **fields: str) -> str:
    """Return what the form says when the button is pressed."""
    page.open(address)
    page.wait_for(BUTTON)
    page.evaluate(FILL.format(fields=json.dumps(fields)))
    page.evaluate(f"{BUTTON}.click()")
    page.wait_for(f"{SHOWN}.length && !{TOLD}.includes('Warning: Fields')")
    told: str = page.evaluate(TOLD)
    return told.strip()


def edited(page: Page, airflow: AirflowStack) -> str:
    """Save the form that is open, and return the address of the form in which the connection is edited."""
    page.evaluate("document.querySelector('form#model_form button[type=submit]').click()")
    page.wait_for(f"!{BUTTON} && document.body")
    page.open(f"{airflow.url}/connection/list/")
    page.wait_for(EDIT)
    address: str = page.evaluate(f"{EDIT}.href")
    return address


def test_button_tests_the_values_in_the_form(page, airflow, crews):
    filled_in = {"conn_type": "crew", "conn_id": "without_port", "host": crews["default"].url, "password": TOKEN}

    assert EXPECTED in pressed(page, f"{airflow.url}/connection/add", **filled_in)

    form = edited(page, airflow)
    assert EXPECTED not in pressed(page, form)
    assert EXPECTED in pressed(page, form, password=TOKEN)
