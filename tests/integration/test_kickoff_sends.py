"""Kickoff request bodies, and the checks that run before a kickoff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_crew.operators.crew import CrewKickoffOperator
from tests.integration.tasks import INPUTS, Task

pytest_plugins = ["tests.integration.task_fixtures"]


class LazySequence(Sequence[Any]):
    """What Airflow renders the output of a mapped task to."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


def kickoff(*, retries: int = 0, **options: Any) -> Task:
    return Task(lambda: CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, **options}), retries=retries)


def test_mapped_task_outputs_are_sent_as_lists(live_crew):
    inputs = {
        **INPUTS,
        "topic": LazySequence("ships", ("tugs", LazySequence("ropes"))),
        "by": {"port": LazySequence()},
    }

    kickoff(inputs=inputs, meta={"ticket": 7, "runs": LazySequence(1, 2)}).run()

    assert live_crew.kickoffs[0].meta == {"ticket": 7, "runs": [1, 2]}
    assert live_crew.kickoffs[0].inputs == {
        **INPUTS,
        "topic": ["ships", ["tugs", ["ropes"]]],
        "by": {"port": []},
    }


def test_user_token_is_sent_if_chosen(live_crew, monkeypatch):
    uri = f"{live_crew.connection_uri}?user_bearer_token={live_crew.user_token}"
    monkeypatch.setenv("AIRFLOW_CONN_RESEARCH", uri)

    kickoff(crew_conn_id="research", token_type="user").run()

    sent = {request.header("Authorization") for request in live_crew.requests}
    assert sent == {f"Bearer {live_crew.user_token}"}


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 404},
        {"status": 403},
        {"status": 302, "headers": {"location": "https://else.example"}},
    ],
    ids=str,
)
def test_kickoff_without_listed_inputs_is_a_warning(live_crew, fault, task_log):
    live_crew.faults.answer(**fault, on="inputs", times=3)

    assert kickoff(inputs={**INPUTS, "odd": 1}).run()

    assert len(live_crew.kickoffs) == 1
    assert str(fault["status"]) in task_log.warnings


def test_unchecked_inputs_are_requested_only_to_wake_the_crew(live_crew, task_log):
    live_crew.faults.answer(200, body={"inputs": [{"name": "port", "required": True}]}, on="inputs")

    assert kickoff(inputs={**INPUTS, "prot": 1}, validate_inputs=False).run()

    assert live_crew.calls == ["inputs", "kickoff"]
    assert "port" not in task_log.text


def test_multiple_outputs_of_a_kickoff_are_rejected():
    with pytest.raises(ValueError, match="multiple_outputs"):
        CrewKickoffOperator(task_id="crew", inputs=INPUTS, multiple_outputs=True)


@pytest.mark.parametrize(("key", "sent"), [("2026-11-27", {"partition_key": "2026-11-27"}), (None, {}), ("", {})])
def test_origin_has_the_partition_key_of_the_run(live_crew, key, sent):
    started = kickoff()

    run = SimpleNamespace(**vars(started.context["dag_run"]), partition_key=key)
    started.begin().execute(started.context | {"dag_run": run})

    origin = live_crew.kickoffs[0].meta["airflow"]
    assert {name: value for name, value in origin.items() if name == "partition_key"} == sent


def test_origin_in_a_task_loop_has_the_iteration(live_crew):
    started = kickoff()
    context = started.context | {"loop": SimpleNamespace(index=2)}

    started.begin().execute(context)

    assert live_crew.kickoffs[0].meta["airflow"]["iteration"] == 2
