"""The Test Connection button in Airflow's list of connections."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from dev.loopback import HOST
from dev.rest import ApiError
from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.nightly,
]


def pressed(airflow: AirflowStack, **fields: Any) -> Any:
    """Return what the button is answered about a connection that was saved with these fields."""
    names = {"connection_id": "button", "conn_type": "crew"}
    airflow.api.post("connections", {**names, "password": TOKEN, **fields})
    try:
        saved = airflow.api.get("connections/button")
        texts = {name: saved[name] or "" for name in ("description", "host", "login", "password", "schema")}
        # The page's JavaScript makes 0 of a port that is not there.
        sent = {**names, **texts, "port": saved["port"] or 0, "extra": saved["extra"] or "{}"}
        return airflow.api.post("connections/test", sent)
    finally:
        airflow.api.delete("connections/button")


def test_button_shows_the_inputs_of_the_crew(airflow, crews):
    answer = pressed(airflow, host=f"http://{HOST}", port=crews["default"].port)
    assert answer["status"] is True
    assert "topic, audience" in answer["message"]


def test_button_works_without_a_port_where_airflow_allows_it(airflow, crews):
    expected = pytest.raises(ApiError, match="connections/test: 400 .*The host or port to test differs")
    with expected if AIRFLOW == (3, 3) else nullcontext():
        assert pressed(airflow, host=crews["default"].url)["status"] is True
