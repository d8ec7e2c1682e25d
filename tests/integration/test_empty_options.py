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
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.sensors.crew import CrewExecutionSensor
from tests.integration.operators import in_every_mode, kickoff, run
from tests.integration.tasks import INPUTS, SLOW, Task, poked

pytest_plugins = ["tests.integration.task_fixtures"]

WEBHOOK_URLS = ["task_webhook_url", "step_webhook_url", "crew_webhook_url", "human_input_webhook_url"]
OPTIONS = ["restore_from_state_id", *WEBHOOK_URLS, "webhook_conn_id", "crew_conn_id"]
SETTINGS = {"webhook_conn_id", "crew_conn_id"}


def dag(*, native: bool = False) -> DAG:
    return DAG(
        "research",
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        render_template_as_native_obj=native,
    )


def deferred(**options: Any) -> Any:
    return run(deferrable=True, **options)


def decorated(**options: Any) -> Any:
    def inputs() -> dict[str, Any]:
        called.append(1)
        return INPUTS

    crew: Any = crew_task(task_id="crew", poll_interval=0.02, **options)(inputs)
    return crew().operator


called: list[int] = []
every_operator = pytest.mark.parametrize("operator", [kickoff, run, deferred, decorated])


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
        with dag(native=self.native):
            task = operator(**options)
        task.render_template_fields(self.context)
        return task


def assert_rejected(task: Task, kind: type[Exception], name: str, template: str) -> None:
    with pytest.raises(CrewTaskFailed) as caught:
        task.run()

    assert isinstance(caught.value.failure, kind)
    assert caught.value.cost is Cost.NONE
    assert name in str(caught.value)
    assert template in str(caught.value)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
@pytest.mark.parametrize("upstream", [None, "None", "", " \n"], ids=repr)
def test_option_rendered_to_nothing_is_rejected(live_crew, name, native, upstream):
    task = Rendered(run, upstream=upstream, native=native, **{name: "{{ upstream }}"})

    assert_rejected(task, InvalidSettings if name in SETTINGS else InvalidInputs, name, "{{ upstream }}")

    assert live_crew.calls == []


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("given", ["", " ", "None"], ids=repr)
def test_option_given_as_nothing_is_rejected(live_crew, name, given):
    assert_rejected(
        Rendered(run, **{name: given}), InvalidSettings if name in SETTINGS else InvalidInputs, name, ""
    )

    assert live_crew.calls == []


@pytest.mark.parametrize("name", ["meta", "webhooks"])
def test_object_rendered_to_nothing_is_rejected(live_crew, name):
    assert_rejected(Rendered(run, native=True, **{name: "{{ upstream }}"}), InvalidInputs, name, "{{ upstream }}")

    assert live_crew.calls == []


@every_operator
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "crew_conn_id"])
def test_option_given_as_none_is_not_sent(live_crew, operator, name):
    options: dict[str, Any] = {"meta": {}, name: None}

    Rendered(operator, **options).run()

    (request,) = live_crew.requests.on("kickoff")
    assert request.json == {"inputs": INPUTS}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "crew_conn_id"])
@pytest.mark.parametrize("operator", [kickoff, run, deferred])
def test_reattaching_ignores_options_rendered_to_nothing(live_crew, store, operator, name, monkeypatch):
    live_crew.scenario = SLOW
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS", json.dumps({"conn_type": "http", "password": "a-secret-4711"}))
    webhooks = {"url": "https://hooks.example", "events": []} if name == "webhook_conn_id" else None
    timeout = {} if operator is kickoff else {"timeout": 0.2}
    options: dict[str, Any] = {name: "{{ upstream }}", "webhooks": webhooks, **timeout}
    task = Rendered(operator, upstream="hooks", store=store, retries=1, **options)
    if operator is kickoff:
        first = task.begin().execute(task.context)  # and its process is killed before Airflow has the ID
    else:
        with pytest.raises(WaitedTooLong):
            task.run()
        first = live_crew.kickoffs[0].kickoff_id
    live_crew.finish(first)
    store_keeps_delivery(store)
    task.upstream = None

    result = task.run()

    assert (result if operator is kickoff else result["kickoff_id"]) == first
    assert len(live_crew.kickoffs) == 1


def store_keeps_delivery(store: Any) -> None:
    """Let the task forget that Airflow has the result of its first try, as if that had been lost."""
    kept = store.kickoff
    if kept and kept["delivered"]:
        store.set("crew_kickoff", kept | {"delivered": False})


def waiting(**options: Any) -> Any:
    return CrewExecutionSensor(**{"task_id": "crew", "poke_interval": 0.02, **options})


@in_every_mode
@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
@pytest.mark.parametrize("upstream", [None, "None", "", " \n"], ids=repr)
@pytest.mark.parametrize(("name", "kind"), [("kickoff_id", InvalidKickoffId), ("crew_conn_id", InvalidSettings)])
def test_sensor_option_rendered_to_nothing_is_rejected(live_crew, mode, native, upstream, name, kind):
    options = {"kickoff_id": "4711", **mode, name: "{{ upstream }}"}
    with pytest.raises(CrewTaskFailed) as caught:
        poked(Rendered(waiting, upstream=upstream, native=native, **options))

    assert isinstance(caught.value.failure, kind)
    assert caught.value.cost is Cost.UNKNOWN
    assert name in str(caught.value)
    assert "{{ upstream }}" in str(caught.value)
    assert live_crew.calls == []


def test_resumed_sensor_takes_its_id_from_the_event(live_crew):
    live_crew.scenario = SLOW
    kickoff_id = live_crew.take(INPUTS, None, {})
    task = Rendered(waiting, upstream=kickoff_id, kickoff_id="{{ upstream }}", deferrable=True)
    event = {"kickoff_id": kickoff_id, "result": json.dumps({"kickoff_id": kickoff_id, "output": "Done."})}
    deferral = task.deferred()
    task.upstream = None

    assert task.resume(deferral, event)["output"] == "Done."
