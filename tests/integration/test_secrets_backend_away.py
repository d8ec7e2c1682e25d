"""What becomes of a task while the secrets backend that holds its connection fails."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.secrets.base_secrets import BaseSecretsBackend

from airflow_provider_crew.client.errors import Unreachable
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.tasks import CONNECTION, INPUTS, SLOW, TOKEN, Task, TaskStateStore, poked, sensors_remember
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

VAULT = "a_vault_of_the_tests"


class Vault(BaseSecretsBackend):
    """Holds the connection of the crew, and can be sealed."""

    holds: str | None = None
    is_sealed = False

    def get_connection(self, conn_id: str, *_: Any, **__: Any) -> Any:
        if type(self).is_sealed:
            raise ConnectionError("the vault is sealed: s3cret")
        return Connection(conn_id=conn_id, **json.loads(self.holds)) if self.holds else None


@pytest.fixture
def vault(live_crew, monkeypatch) -> type[Vault]:
    """Move the connection from the environment into a vault."""
    module = ModuleType(VAULT)
    module.Vault = Vault  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, VAULT, module)
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", f"{VAULT}.Vault")
    monkeypatch.delenv(CONNECTION)
    held = {"conn_type": "crew", "host": live_crew.url, "password": TOKEN}
    monkeypatch.setattr(Vault, "holds", json.dumps(held))
    monkeypatch.setattr(Vault, "is_sealed", False)
    # Airflow keeps its backends for the life of a process.
    monkeypatch.setattr("airflow.configuration.secrets_backend_list", ["a", "b"])
    if AIRFLOW >= (3, 2):
        monkeypatch.setattr("airflow.sdk.configuration._secrets_backend_cache", {}, raising=False)
    return Vault


@pytest.mark.parametrize(("name", "value"), [("is_sealed", True), ("holds", None)])
def test_connection_that_vault_does_not_return_is_retryable(vault, monkeypatch, name, value):
    monkeypatch.setattr(vault, name, value)

    with pytest.raises(Unreachable, match="crew_default") as caught:
        _ = CrewHook().connection
    assert caught.value.lacks_connection is True
    assert "s3cret" not in str(caught.value)


@sensors_remember
def test_rescheduled_sensor_waits_until_it_is_back(live_crew, vault, monkeypatch, timing):
    live_crew.scenario = SLOW
    kickoff_id = CrewHook().kickoff(INPUTS)
    pokes: list[bool] = []

    def sensor() -> CrewExecutionSensor:
        pokes.append(vault.is_sealed)
        if len(pokes) == 2:
            monkeypatch.setattr(vault, "is_sealed", True)
        if len(pokes) == 4:
            monkeypatch.setattr(vault, "is_sealed", False)
            live_crew.finish(kickoff_id)
        return CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, mode="reschedule", poke_interval=0.02)

    timing(shortest_deferral=0.02)
    assert poked(Task(sensor, store=TaskStateStore()))["kickoff_id"] == kickoff_id
    assert pokes[:4] == [False, False, True, True]
