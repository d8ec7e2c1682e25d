"""Kickoff options: the request body, the webhook secret, and checks that run before a kickoff."""

from __future__ import annotations

from collections import UserList
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.client.errors import InvalidInputs, InvalidSettings
from airflow_provider_crew.client.options import SENT_AS
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task.task import Options
from airflow_provider_crew.task.task import Task as KitTask
from tests.integration.operators import kickoff, run, run_deferred
from tests.integration.stories import decorated
from tests.integration.tasks import INPUTS, Task, TaskInstance, WatchedService
from tests.option_values import FIELDS, OPTIONS

pytest_plugins = ["tests.integration.task_fixtures"]


every_operator = pytest.mark.parametrize("operator", [kickoff, run, run_deferred, decorated])


def sent(service: WatchedService) -> dict[str, Any]:
    (request,) = service.requests.on("kickoff")
    return request.json


@every_operator
def test_every_option_is_sent(live_crew, operator):
    Task(lambda: operator(**OPTIONS)).run()

    assert sent(live_crew) == {"inputs": INPUTS} | FIELDS


def test_unreadable_secret_ends_no_poll(live_crew):
    live_crew.faults.answer(200, body={"state": "SUCCESS", "result": "Done."}, on="status")

    assert CrewHook(webhook_conn_id="no_such_connection").status("4711").status == "completed"


def test_mapped_task_outputs_are_sent_as_lists(live_crew):
    """Airflow renders the output of a mapped task to a sequence that is no list."""
    topic, audience = UserList(["ships", ("tugs", UserList(["ropes"]))]), {"port": UserList[str]()}

    Task(lambda: kickoff(inputs={"topic": topic, "audience": audience}, meta={"runs": UserList([1, 2])})).run()

    assert live_crew.kickoffs[0].meta == {"runs": [1, 2]}
    assert live_crew.kickoffs[0].inputs == {"topic": ["ships", ["tugs", ["ropes"]]], "audience": {"port": []}}


LOOP = {"loop": SimpleNamespace(index=2)}


@pytest.mark.parametrize(
    ("key", "more", "sent"),
    [("2026-11-27", {}, {"partition_key": "2026-11-27"}), (None, {}, {}), ("", LOOP, {"iteration": 2})],
)
def test_origin_has_the_partition_key_of_the_run(live_crew, key, more, sent):
    started = Task(kickoff)
    run = SimpleNamespace(**vars(started.context["dag_run"]), partition_key=key)

    started.begin().execute(started.context | more | {"dag_run": run})

    origin = live_crew.kickoffs[0].meta["airflow"]
    assert {name: origin[name] for name in ("partition_key", "iteration") if name in origin} == sent


@pytest.mark.parametrize("rendered", [None, "", " \n", "None"], ids=repr)
@pytest.mark.parametrize("name", [*SENT_AS, "webhook_conn_id", "crew_conn_id"])
def test_option_rendered_to_nothing_is_rejected(name, rendered):
    """A promise shows that nothing is sent then."""
    given: Any = {"kickoff": {name: rendered}} if name in SENT_AS else {name: rendered}
    options = Options(**{"crew_conn_id": "crew_default", "given": {name: "{{ upstream }}"}, **given})

    with pytest.raises(InvalidInputs if name in SENT_AS else InvalidSettings, match=name) as caught:
        KitTask(options, {"ti": TaskInstance()}, None).check()

    assert "{{ upstream }}" in str(caught.value)
