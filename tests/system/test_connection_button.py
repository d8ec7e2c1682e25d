"""The button Test Connection in Airflow's list of connections: docs/connection.md says what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from dev.loopback import HOST
from dev.rest import ApiError
from dev.stack import AirflowStack
from tests.airflow_runs import TOKEN
from tests.supported import AIRFLOW

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(AIRFLOW < (3, 1), reason="there the button is in the form, and sends what is filled in"),
]

CONNECTED = {"status": True, "message": "Connected. This crew expects: topic, audience"}


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


def test_it_tells_what_the_crew_expects(airflow, crews):
    assert pressed(airflow, host=f"http://{HOST}", port=crews["default"].port) == CONNECTED


def test_it_does_so_without_a_port_where_airflow_lets_it(airflow, crews):
    host = crews["default"].url
    if AIRFLOW == (3, 3):
        with pytest.raises(ApiError, match="connections/test: 400 .*The host or port to test differs"):
            pressed(airflow, host=host)
    else:
        assert pressed(airflow, host=host) == CONNECTED
