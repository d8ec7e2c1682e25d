"""Options that are set and render to nothing are rejected before any request."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.client.errors import (
    Cost,
    InvalidInputs,
    InvalidKickoffId,
    InvalidSettings,
    WaitedTooLong,
)
from airflow_provider_crew.client.options import SENT_AS
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.operators import every_operator, run
from tests.integration.tasks import INPUTS, SLOW, Task

pytest_plugins = ["tests.integration.task_fixtures"]

OPTIONS = [*SENT_AS, "webhook_conn_id"]
TEXTS = [name for name, sent in SENT_AS.items() if sent.kind is str]
TEMPLATE = "{{ upstream }}"


class Rendered(Task):
    """A task whose templates Airflow renders in each process; ``upstream`` is what another task returned."""

    def __init__(self, operator: Any, *, upstream: Any = None, native: bool = False, **options: Any) -> None:
        self.upstream = upstream
        self.native = native
        store, retries = options.pop("store", None), options.pop("retries", 0)
        super().__init__(lambda: self._rendered(operator, options), store=store, retries=retries)

    @property
    def context(self) -> Any:
        return {**super().context, "upstream": self.upstream}

    def _rendered(self, operator: Any, options: dict[str, Any]) -> Any:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        with DAG("research", schedule=None, start_date=start, render_template_as_native_obj=self.native):
            task = operator(**options)
        task.render_template_fields(self.context)
        return task


def sensor(**options: Any) -> Any:
    return CrewExecutionSensor(**{"task_id": "crew", "kickoff_id": "4711", "poke_interval": 0.02, **options})


NAMES: Any = [
    *((run, name) for name in [*OPTIONS, "crew_conn_id"]),
    (sensor, "kickoff_id"),
    (sensor, "crew_conn_id"),
]
NOTHING = [(TEMPLATE, None), (TEMPLATE, ""), (TEMPLATE, " \n"), ("", ""), ("None", "")]


@pytest.mark.parametrize(
    ("operator", "name", "native", "given", "upstream"),
    [(*each, False, TEMPLATE, None) for each in NAMES]
    + [(run, TEXTS[0], native, *each) for native in (False, True) for each in NOTHING],
)
def test_option_rendered_to_nothing_is_rejected(live_crew, operator, name, native, given, upstream):
    kinds = {"kickoff_id": InvalidKickoffId, "webhook_conn_id": InvalidSettings, "crew_conn_id": InvalidSettings}

    with pytest.raises(CrewTaskFailed) as caught:
        Rendered(operator, upstream=upstream, native=native, **{name: given}).run()

    assert isinstance(caught.value.failure, kinds.get(name, InvalidInputs))
    assert caught.value.cost is (Cost.UNKNOWN if operator is sensor else Cost.NONE)
    assert name in str(caught.value)
    assert given in str(caught.value)
    assert live_crew.calls == []


@every_operator
def test_options_given_as_none_are_not_sent(live_crew, operator):
    options: dict[str, Any] = dict.fromkeys(OPTIONS) | {"meta": {}}

    Rendered(operator, **options).run()

    assert live_crew.requests.on("kickoff")[0].json == {"inputs": INPUTS}


@pytest.mark.parametrize("name", [*TEXTS, "webhook_conn_id"])
def test_reattaching_ignores_options_rendered_to_nothing(live_crew, store, name, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS", json.dumps({"conn_type": "http", "password": "a-secret-4711"}))
    webhooks = {"url": "https://hooks.example", "events": []} if name == "webhook_conn_id" else None
    options: dict[str, Any] = {name: TEMPLATE, "webhooks": webhooks, "timeout": 0.2}
    task = Rendered(run, upstream="hooks", store=store, retries=1, **options)
    with pytest.raises(WaitedTooLong):
        task.run()
    live_crew.finish(live_crew.kickoffs[0].kickoff_id)
    task.upstream = None

    assert task.run()["kickoff_id"] == live_crew.kickoffs[0].kickoff_id
    assert len(live_crew.kickoffs) == 1
