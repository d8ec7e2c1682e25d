"""What becomes of a task while the secrets backend that holds its connection fails."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.secrets.base_secrets import BaseSecretsBackend

from airflow_provider_crew.client.errors import Cost, Unreachable
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.tasks import CONNECTION, INPUTS, SLOW, Task, TaskStateStore, poked, sensors_remember
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

VAULT = "a_vault_of_the_tests"


class Vault(BaseSecretsBackend):
    """Holds the connection of the crew, and can be sealed."""

    holds: str | None = None
    is_sealed = False
    keeps_variables_alone = False

    def get_connection(self, conn_id: str, *_: Any, **__: Any) -> Any:
        if type(self).keeps_variables_alone:
            return super().get_connection(conn_id)
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
    monkeypatch.setattr(Vault, "holds", json.dumps(connection_of(live_crew)))
    monkeypatch.setattr(Vault, "is_sealed", False)
    forget_backends(monkeypatch)
    return Vault


def connection_of(crew: Any) -> dict[str, Any]:
    return {"conn_type": "crew", "host": crew.url, "password": "organization-token-4711"}


def forget_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Airflow, which keeps them for the life of a process, look for them anew."""
    monkeypatch.setattr("airflow.configuration.secrets_backend_list", ["a", "b"])
    if AIRFLOW >= (3, 2):
        monkeypatch.setattr("airflow.sdk.configuration._secrets_backend_cache", {}, raising=False)


def seal(vault: type[Vault], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "is_sealed", True)


@pytest.mark.usefixtures("vault")
def test_connection_of_vault_is_found(live_crew):
    assert CrewHook().connection.settings.address == live_crew.url


@pytest.mark.parametrize(
    ("name", "value"), [("is_sealed", True), ("holds", None), ("keeps_variables_alone", True)]
)
def test_connection_that_vault_does_not_return_is_retryable(vault, monkeypatch, name, value):
    monkeypatch.setattr(vault, name, value)

    with pytest.raises(Unreachable, match="crew_default") as caught:
        _ = CrewHook().connection
    assert caught.value.lacks_connection is True
    assert "s3cret" not in str(caught.value)


def test_task_that_kicks_off_is_left_to_its_retries(live_crew, vault, monkeypatch):
    seal(vault, monkeypatch)
    task = Task(lambda: CrewRunOperator(task_id="crew", inputs=INPUTS), store=TaskStateStore(), retries=1)
    with pytest.raises(Unreachable) as caught:
        task.run()
    assert caught.value.cost is Cost.NONE

    monkeypatch.setattr(vault, "is_sealed", False)
    assert task.run()["output"]
    assert len(live_crew.kickoffs) == 1


@sensors_remember
def test_rescheduled_sensor_waits_until_it_is_back(live_crew, vault, monkeypatch):
    live_crew.scenario = SLOW
    kickoff_id = CrewHook().kickoff(INPUTS)
    pokes: list[bool] = []

    def sensor() -> CrewExecutionSensor:
        pokes.append(vault.is_sealed)
        if len(pokes) == 2:
            seal(vault, monkeypatch)
        if len(pokes) == 4:
            monkeypatch.setattr(vault, "is_sealed", False)
            live_crew.finish(kickoff_id)
        return CrewExecutionSensor(task_id="crew", kickoff_id=kickoff_id, mode="reschedule", poke_interval=0.02)

    monkeypatch.setattr("airflow_provider_crew.durable.wait.MIN_DEFERRAL_SECONDS", 0.02)
    assert poked(Task(sensor, store=TaskStateStore()))["kickoff_id"] == kickoff_id
    assert pokes[:4] == [False, False, True, True]
