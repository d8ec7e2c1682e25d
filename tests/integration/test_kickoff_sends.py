"""What a kickoff sends, what is checked before it is sent, and what may interrupt it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_crew.local import CrewInput
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.service.errors import (
    InvalidInputs,
    InvalidSettings,
    NotAuthenticated,
    ServiceError,
    Unreachable,
    UnreadableAnswer,
)
from airflow_provider_crew.tasks.ends import CrewTaskFailed
from tests.integration.tasks import INPUTS, QUICK, Task, TaskStateStore

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


def test_returns_the_kickoff_id_as_text_whatever_the_service_calls_it(live_crew):
    live_crew.next_kickoff_id(4711)

    assert kickoff().run() == "4711"


def test_sends_the_inputs_and_where_they_come_from(live_crew):
    started = kickoff()
    started.run()

    assert live_crew.calls == ["inputs", "kickoff"]
    assert live_crew.requests.on("kickoff")[0].json == {
        "inputs": INPUTS,
        "meta": {
            "airflow": {
                "dag_id": "research",
                "run_id": "manual__2026-01-01",
                "task_id": "crew",
                "map_index": -1,
                "try_number": 1,
            }
        },
    }


@pytest.mark.parametrize(
    ("meta", "mark"), [(None, 'by its meta, {"dag_id": "research"'), ({"ticket": 7}, "by the meta of this task")]
)
def test_only_an_uncertain_end_tells_how_to_find_an_execution(live_crew, task_log, meta, mark):
    told: list[str] = []
    live_crew.at_kickoff = lambda: told.append(task_log.text)
    live_crew.faults.answer(500, on="kickoff", after_taken=True)

    with pytest.raises(CrewTaskFailed) as caught:
        kickoff(meta=meta).run()

    assert "run manual__2026-01-01, task crew" in told[0]
    assert "known" not in told[0]
    assert f"There it can be found {mark}" in str(caught.value)


def test_sends_webhook_addresses_under_the_names_of_the_service(live_crew):
    addresses: Any = {f"{kind}_webhook_url": f"https://hooks.example/{kind}" for kind in ("task", "step", "crew")}

    kickoff(**addresses, meta={}).run()

    assert live_crew.requests.on("kickoff")[0].json == {
        "inputs": INPUTS,
        "taskWebhookUrl": "https://hooks.example/task",
        "stepWebhookUrl": "https://hooks.example/step",
        "crewWebhookUrl": "https://hooks.example/crew",
    }


def test_sends_the_meta_that_is_given(live_crew):
    kickoff(meta={"ticket": 7, "runs": LazySequence(1, 2)}).run()

    assert live_crew.kickoffs[0].meta == {"ticket": 7, "runs": [1, 2]}


def test_outputs_of_mapped_tasks_are_sent_as_lists(live_crew):
    inputs = {
        **INPUTS,
        "topic": LazySequence("ships", ("tugs", LazySequence("ropes"))),
        "by": {"port": LazySequence()},
    }

    kickoff(inputs=inputs).run()

    assert live_crew.kickoffs[0].inputs == {
        **INPUTS,
        "topic": ["ships", ["tugs", ["ropes"]]],
        "by": {"port": []},
    }


def test_the_user_token_is_sent_when_it_is_asked_for(live_crew, monkeypatch):
    uri = f"{live_crew.connection_uri}?user_bearer_token={live_crew.user_token}"
    monkeypatch.setenv("AIRFLOW_CONN_RESEARCH", uri)

    kickoff(crew_conn_id="research", token_type="user").run()

    sent = {request.header("Authorization") for request in live_crew.requests}
    assert sent == {f"Bearer {live_crew.user_token}"}


@pytest.mark.parametrize("store", [TaskStateStore, lambda: None], ids=["remembering", "forgetting"])
def test_missing_inputs_are_named_and_nothing_is_started(live_crew, store):
    started = kickoff(inputs={"Topic": "harbours", "audience": "sailors"})
    started.store = store()

    with pytest.raises(
        CrewTaskFailed, match="(?s)not given: topic.*Nothing was.*Is 'Topic' meant to be 'topic'"
    ) as caught:
        started.run()

    assert isinstance(caught.value.failure, InvalidInputs)
    assert live_crew.calls == ["inputs"]
    assert started.store is None or started.store.kickoff is None


def test_inputs_that_the_crew_does_not_list_are_sent_with_a_warning(live_crew, task_log):
    live_crew.scenario = QUICK.model_copy(
        update={"inputs": (CrewInput(name="topic"), CrewInput(name="tone", required=False))}
    )
    live_crew.scenario = live_crew.scenario.model_copy(update={"inputs_shape": "objects"})

    kickoff(inputs={"topic": "harbours", "tonne": "dry", "zebra": 1}).run()

    assert live_crew.kickoffs[0].inputs == {"topic": "harbours", "tonne": "dry", "zebra": 1}
    assert (
        "does not list the input 'tonne'. Is 'tonne' meant to be 'tone'? It is sent all the same" in task_log.text
    )
    assert "does not list the input 'zebra'. It is sent all the same" in task_log.text


@pytest.mark.parametrize("validate_inputs", [True, False])
@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"inputs": {"topic": {"day": datetime(2026, 1, 1, tzinfo=UTC)}}}, "inputs.topic.day"),
        ({"inputs": {"topic": LazySequence("a", b"raw")}}, r"inputs.topic\[1\]"),
        ({"inputs": {"topic": float("nan")}}, "inputs.topic"),
        ({"inputs": ["topic"]}, "inputs"),
        ({"inputs": None}, "inputs"),
        ({"meta": {"when": {1, 2}}}, "meta.when"),
    ],
    ids=["a date", "bytes in a lazy sequence", "not a number", "a list", "nothing", "a set"],
)
def test_what_is_no_json_is_named_and_nothing_is_sent_at_all(live_crew, options, path, validate_inputs):
    with pytest.raises(CrewTaskFailed, match=f"(?s)^{path}[, ].*Nothing was started") as caught:
        kickoff(**options, validate_inputs=validate_inputs).run()

    assert isinstance(caught.value.failure, InvalidInputs)
    assert live_crew.calls == []


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        pytest.param(bytearray(b"raw"), "type bytearray", id="bytes"),
        pytest.param(memoryview(b"raw"), "type memoryview", id="view"),
    ],
)
def test_what_only_looks_like_a_list_is_no_json(live_crew, value, fault):
    with pytest.raises(CrewTaskFailed, match=fault):
        kickoff(inputs={**INPUTS, "odd": value}).run()

    assert live_crew.calls == []


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 404},
        {"status": 403},
        {"status": 302, "headers": {"location": "https://else.example"}},
    ],
    ids=str,
)
def test_a_crew_that_does_not_tell_its_inputs_is_kicked_off_with_a_warning(live_crew, fault, task_log):
    live_crew.faults.answer(**fault, on="inputs", times=3)

    assert kickoff(inputs={**INPUTS, "odd": 1}).run()

    assert len(live_crew.kickoffs) == 1
    assert "The inputs are not checked, since the crew does not tell which it takes" in task_log.text


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda faults: faults.answer(503, on="inputs", for_seconds=60), ServiceError),
        (lambda faults: faults.answer(500, on="inputs", times=3), ServiceError),
        (lambda faults: faults.reset(on="inputs", times=3), Unreachable),
        (lambda faults: faults.refuse(), Unreachable),
    ],
    ids=["503", "500", "reset", "refused"],
)
@pytest.mark.parametrize("store", [TaskStateStore, lambda: None], ids=["remembering", "forgetting"])
def test_an_outage_is_found_before_anything_is_sent_and_costs_only_a_retry(live_crew, store, spoil, error):
    spoil(live_crew.faults)
    started = kickoff(retries=1)
    started.store = store()

    with pytest.raises(
        error, match="(?s)Nothing was started.*If Airflow retries, or you clear the task, the crew is kicked off"
    ):
        started.run()

    assert "kickoff" not in live_crew.calls
    live_crew.faults.clear()
    assert started.run()


@pytest.mark.parametrize("body", ["<html>", {"inputs": "topic"}, []], ids=str)
def test_inputs_that_are_unreadable_keep_the_kickoff_back(live_crew, body):
    """The kickoff ID would be unreadable as well, and its execution billed and lost."""
    live_crew.faults.answer(200, body=body, on="inputs", times=6)

    with pytest.raises(UnreadableAnswer):
        kickoff(retries=1).run()

    assert "kickoff" not in live_crew.calls
    assert kickoff(validate_inputs=False).run()


def test_a_hiccup_of_the_service_is_over_before_the_task_notices(live_crew):
    live_crew.faults.answer(503, on="inputs", times=2)

    assert kickoff().run()


def test_inputs_that_shall_not_be_checked_are_asked_for_only_to_wake_the_crew(live_crew, task_log):
    live_crew.faults.answer(200, body={"inputs": [{"name": "port", "required": True}]}, on="inputs")

    assert kickoff(inputs={**INPUTS, "prot": 1}, validate_inputs=False).run()

    assert live_crew.calls == ["inputs", "kickoff"]
    assert "port" not in task_log.text


@pytest.mark.parametrize("validate_inputs", [True, False, "strict"])
def test_a_token_that_is_not_accepted_ends_the_task_before_anything_is_sent(live_crew, validate_inputs):
    live_crew.rotate_token("another-token-0815")
    started = kickoff(validate_inputs=validate_inputs, retries=1)

    with pytest.raises(
        CrewTaskFailed, match="(?s)Nothing was started.*Then clear the task: a retry would not help.*answers 401"
    ) as caught:
        started.run()

    assert isinstance(caught.value.failure, NotAuthenticated)
    assert live_crew.calls == ["inputs"]


@pytest.mark.usefixtures("live_crew")
def test_what_the_crew_refuses_although_nothing_was_missing_is_not_retried():
    with pytest.raises(CrewTaskFailed, match="(?s)Missing inputs: .*: topic"):
        kickoff(inputs={"audience": "sailors"}, validate_inputs=False).run()


@pytest.mark.usefixtures("live_crew")
@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (None, "There is none of that name"),
        ("crew://crew.example", "There is no organization token"),
        ("crew://:t@crew.example/http", "unencrypted"),
    ],
)
def test_a_connection_that_cannot_be_used_is_named_and_not_retried(monkeypatch, connection, said):
    if connection:
        monkeypatch.setenv("AIRFLOW_CONN_RESEARCH", connection)

    with pytest.raises(CrewTaskFailed, match=f"(?s)'research' cannot be used.*{said}") as caught:
        kickoff(crew_conn_id="research").run()

    assert isinstance(caught.value.failure, InvalidSettings)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "options",
    [
        {"on_uncertain_kickoff": "again"},
        {"validate_inputs": "strictly"},
        {"poll_interval": 0},
        {"poll_interval": -1},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"poll_interval": float("inf")},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused_when_the_dag_is_parsed(options):
    with pytest.raises(ValueError, match="must be"):
        CrewRunOperator(task_id="crew", inputs=INPUTS, **options)
