"""Kickoff options: the request body, the webhook secret, and checks that run before a kickoff."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.sdk import DAG

from airflow_provider_crew.client.errors import (
    Cost,
    InvalidInputs,
    InvalidKickoffId,
    InvalidSettings,
    Rejected,
    UncertainKickoff,
    WaitedTooLong,
)
from airflow_provider_crew.client.options import SENT_AS
from airflow_provider_crew.client.timing import Timing
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.integration.operators import every_operator as every_kickoff
from tests.integration.operators import kickoff as plain_kickoff
from tests.integration.operators import run_deferred
from tests.integration.operators import sensor as sensor_of
from tests.integration.tasks import CONNECTION, INPUTS, SLOW, Task, WatchedService, fired
from tests.option_values import FIELDS, OPTIONS

pytest_plugins = ["tests.integration.task_fixtures"]

SECRET = "webhook-secret/2718+281828"
WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example/{{ ti.dag_id }}", "realtime": False}
RENDERED = WEBHOOKS | {"url": "https://hooks.example/research"}
PERSON = "https://hooks.example/person"
PAIR = base64.b64encode(f"crew:{SECRET}".encode()).decode()
BEARER = {"strategy": "bearer", "token": SECRET}
BASIC = {"strategy": "basic", "username": "crew", "password": SECRET}


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, "meta": {}, **options})


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, "meta": {}, **options})


def sensor(**options: Any) -> Any:
    return sensor_of(**{"kickoff_id": "4711", **options})


def decorated(**options: Any) -> Any:
    crew: Any = crew_task(task_id="crew", poll_interval=0.02, **options)(lambda: INPUTS)
    return crew().operator


every_operator = pytest.mark.parametrize("operator", [kickoff, run, run_deferred, decorated])


class Rendered(Task):
    """A task whose templates Airflow renders in each process; ``upstream`` is what another task returned."""

    def __init__(self, operator: Any, *, upstream: Any = None, native: bool = False, **options: Any) -> None:
        self.upstream = upstream
        self.native = native
        self.operator: Any = None
        store, retries = options.pop("store", None), options.pop("retries", 0)
        super().__init__(lambda: self._rendered(operator, options), store=store, retries=retries)

    @property
    def context(self) -> Any:
        return {**super().context, "upstream": self.upstream}

    def _rendered(self, operator: Any, options: dict[str, Any]) -> Any:
        start = datetime(2026, 1, 1, tzinfo=UTC)
        with DAG("research", schedule=None, start_date=start, render_template_as_native_obj=self.native):
            self.operator = operator(**options)
        self.operator.render_template_fields(self.context)
        return self.operator


@pytest.fixture
def hooks(monkeypatch) -> None:
    """The connections whose password is the secret of the webhooks."""
    fields = {"conn_type": "http", "password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS", json.dumps(fields))
    monkeypatch.setenv("AIRFLOW_CONN_HOOKS_LOGIN", json.dumps({**fields, "login": "crew"}))


def sent(service: WatchedService) -> dict[str, Any]:
    (request,) = service.requests.on("kickoff")
    return request.json


class TestOnTheWire:
    @every_operator
    def test_goes_every_option(self, live_crew, operator):
        Rendered(operator, **OPTIONS).run()

        assert sent(live_crew) == {"inputs": INPUTS} | FIELDS

    @every_operator
    @pytest.mark.usefixtures("hooks")
    @pytest.mark.parametrize(("connection", "authentication"), [("hooks", BEARER), ("hooks_login", BASIC)])
    def test_goes_the_secret_of_webhooks(self, live_crew, operator, connection, authentication):
        conn_id = f"{{{{ '{connection}' }}}}"
        options: Any = {"human_input_webhook_url": PERSON, "webhook_conn_id": conn_id, "webhooks": WEBHOOKS}

        Rendered(operator, **options).run()

        body = sent(live_crew)
        assert body["humanInputWebhook"] == {"url": PERSON, "authentication": authentication}
        assert "humanInputWebhookUrl" not in body
        assert body["webhooks"] == RENDERED | {"authentication": BEARER}
        assert live_crew.kickoffs[0].webhooks == {"humanInputWebhook": body["humanInputWebhook"]}

    @pytest.mark.usefixtures("hooks")
    @pytest.mark.parametrize("is_async", [False, True])
    def test_goes_what_a_hook_is_given(self, live_crew, is_async):
        options: Any = {"webhooks": RENDERED, "restore_from_state_id": "4711"}
        hook = CrewHook(webhook_conn_id="hooks_login")

        kicked_off = asyncio.run(hook.kickoff_async(INPUTS, **options)) if is_async else None
        assert kicked_off or hook.kickoff(INPUTS, **options)

        assert sent(live_crew)["webhooks"]["authentication"] == BEARER
        assert sent(live_crew)["restoreFromStateId"] == "4711"


def assert_hidden(*told: Any) -> None:
    for each in told:
        text = each if isinstance(each, str) else json.dumps(each, default=repr)
        assert not [form for form in (SECRET, quote(SECRET, safe=""), PAIR) if form in text]


def shown(error: BaseException | None) -> str:
    """Return what a report of an error shows: messages, facts and causes."""
    parts = []
    while error is not None:
        parts += [repr(error), repr(vars(error)), shown(getattr(error, "cause", None) or None)]
        parts.append(shown(inner) if isinstance(inner := getattr(error, "error", None), BaseException) else "")
        error = error.__cause__ or error.__context__
    return " ".join(parts)


REPEATING = json.dumps({"state": "SUCCESS", "result": f"Sent {SECRET} and {PAIR}."})


@pytest.mark.usefixtures("hooks")
class TestTheSecretInAStatus:
    """A crew may repeat the secret in any response, not only in that to the kickoff."""

    def test_is_masked_by_a_hook(self, live_crew):
        live_crew.faults.answer(200, body=REPEATING, on="status", times=3)
        hook = CrewHook(webhook_conn_id="hooks_login")

        shown = [hook.status("4711"), hook.wait("4711"), asyncio.run(hook.wait_async("4711"))]

        assert_hidden(*(execution.output for execution in shown))

    async def test_is_masked_by_a_trigger(self, live_crew):
        live_crew.faults.answer(200, body=REPEATING, on="status", times=3)
        rules = {"deadline": time.time() + 3600, "poll_interval": 0.02}

        event = await fired(
            CrewExecutionTrigger("4711", "crew_default", rules=rules, webhook_conn_id="hooks_login")
        )

        assert "result" in event
        assert_hidden(event)

    def test_that_is_unreadable_ends_no_poll(self, live_crew):
        live_crew.faults.answer(200, body=REPEATING, on="status", times=3)
        hook = CrewHook(webhook_conn_id="no_such_connection")

        assert hook.status("4711").status == "completed"
        assert asyncio.run(hook.wait_async("4711")).status == "completed"


@pytest.mark.usefixtures("hooks")
class TestTheSecret:
    OPTIONS: Any = {  # noqa: RUF012
        "webhooks": RENDERED,
        "human_input_webhook_url": PERSON,
        "webhook_conn_id": "hooks_login",
    }

    @pytest.fixture(autouse=True)
    def every_line(self, caplog) -> None:
        caplog.set_level(logging.DEBUG)

    @pytest.mark.parametrize("operator", [kickoff, run, run_deferred])
    def test_is_nowhere_but_on_the_wire(self, live_crew, store, operator, task_log):
        task = Rendered(operator, store=store, **self.OPTIONS)

        result = task.run()

        assert sent(live_crew)["webhooks"]["authentication"] == BEARER
        assert sent(live_crew)["humanInputWebhook"]["authentication"] == BASIC
        fields = {name: getattr(task.operator, name) for name in task.operator.template_fields}
        assert (fields["webhooks"], fields["human_input_webhook_url"]) == (RENDERED, PERSON)
        assert_hidden(result, fields, repr(vars(task.operator)), task.ti.xcoms, vars(store), task_log.text)

    @pytest.mark.parametrize("operator", [kickoff, run])
    @pytest.mark.parametrize("status", [422, 500, 200])
    def test_is_in_no_error_although_the_service_repeats_it(self, live_crew, store, operator, status, task_log):
        body = {
            "detail": f"webhooks: {SECRET} is no token",
            "error": f"Basic {PAIR}",
            "message": {"token": SECRET},
        }
        live_crew.faults.answer(status, body=body, on="kickoff")
        task = Task(lambda: operator(**self.OPTIONS), store=store)

        with pytest.raises(CrewTaskFailed) as caught:
            task.run()

        assert isinstance(caught.value.failure, Rejected if status == 422 else UncertainKickoff)
        assert "***" in str(caught.value)
        assert_hidden(shown(caught.value), task_log.text, task.ti.xcoms, vars(store))

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({}, "password"),
            ({"password": ""}, "password"),
            ({"password": "two words"}, "password"),
            ({"password": SECRET, "login": "a:b"}, "login"),
        ],
        ids=["no password", "an empty password", "no token", "a login that no receiver could read"],
    )
    def test_that_is_unusable_is_rejected(self, live_crew, store, monkeypatch, fields, named):
        monkeypatch.setenv("AIRFLOW_CONN_ODD", json.dumps({"conn_type": "http", **fields}))

        with pytest.raises(CrewTaskFailed, match=named) as caught:
            Task(lambda: kickoff(human_input_webhook_url=PERSON, webhook_conn_id="odd"), store=store).run()

        assert isinstance(caught.value.failure, InvalidSettings)
        assert caught.value.failure.event.startswith("Connection 'odd' is unusable. ")
        assert_hidden(shown(caught.value))
        assert live_crew.calls == []
        assert store.kickoff is None


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


def test_mapped_task_outputs_are_sent_as_lists(live_crew):
    inputs = {
        **INPUTS,
        "topic": LazySequence("ships", ("tugs", LazySequence("ropes"))),
        "by": {"port": LazySequence()},
    }

    Task(lambda: kickoff(inputs=inputs, meta={"ticket": 7, "runs": LazySequence(1, 2)})).run()

    assert live_crew.kickoffs[0].meta == {"ticket": 7, "runs": [1, 2]}
    assert live_crew.kickoffs[0].inputs == {
        **INPUTS,
        "topic": ["ships", ["tugs", ["ropes"]]],
        "by": {"port": []},
    }


def test_user_token_is_sent_if_chosen(live_crew, monkeypatch):
    uri = f"{live_crew.connection_uri}?user_bearer_token={live_crew.user_token}"
    monkeypatch.setenv("AIRFLOW_CONN_RESEARCH", uri)

    Task(lambda: kickoff(crew_conn_id="research", token_type="user")).run()

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

    assert Task(lambda: kickoff(inputs={**INPUTS, "odd": 1})).run()

    assert len(live_crew.kickoffs) == 1
    assert str(fault["status"]) in task_log.warnings


def test_unchecked_inputs_are_requested_only_to_wake_the_crew(live_crew, task_log):
    live_crew.faults.answer(200, body={"inputs": [{"name": "port", "required": True}]}, on="inputs")

    assert Task(lambda: kickoff(inputs={**INPUTS, "prot": 1}, validate_inputs=False)).run()

    assert live_crew.calls == ["inputs", "kickoff"]
    assert "port" not in task_log.text


def test_multiple_outputs_of_a_kickoff_are_rejected():
    with pytest.raises(ValueError, match="multiple_outputs"):
        CrewKickoffOperator(task_id="crew", inputs=INPUTS, multiple_outputs=True)


LOOP = {"loop": SimpleNamespace(index=2)}


@pytest.mark.parametrize(
    ("key", "more", "sent"),
    [
        ("2026-11-27", {}, {"partition_key": "2026-11-27"}),
        (None, {}, {}),
        ("", {}, {}),
        ("", LOOP, {"iteration": 2}),
    ],
)
def test_origin_has_the_partition_key_of_the_run(live_crew, key, more, sent):
    started = Task(lambda: CrewKickoffOperator(task_id="crew", inputs=INPUTS))
    run = SimpleNamespace(**vars(started.context["dag_run"]), partition_key=key)

    started.begin().execute(started.context | more | {"dag_run": run})

    origin = live_crew.kickoffs[0].meta["airflow"]
    assert {name: origin[name] for name in ("partition_key", "iteration") if name in origin} == sent


# Options that are set and render to nothing are rejected before any request.

EMPTIABLE = [*SENT_AS, "webhook_conn_id"]
TEXTS = [name for name, sent in SENT_AS.items() if sent.kind is str]
TEMPLATE = "{{ upstream }}"
NAMES: Any = [
    *((run, name) for name in [*EMPTIABLE, "crew_conn_id"]),
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


FIVE_MINUTES = Timing().waking_up
ASLEEP = 3600


however_inputs_are_checked = pytest.mark.parametrize("validate_inputs", [True, False])


@pytest.fixture
def patient(live_crew, timing) -> None:  # noqa: ARG001 - whose impatience it takes back
    timing(waking_up=FIVE_MINUTES)


@every_kickoff
@however_inputs_are_checked
@pytest.mark.usefixtures("patient")
def test_waking_crew_is_waited_for_and_kicked_off_once(live_crew, store, operator, validate_inputs, task_log):
    live_crew.fall_asleep(ASLEEP)
    live_crew.after = lambda _: live_crew.fall_asleep(0) if len(live_crew.calls) == 5 else None

    Task(lambda: operator(validate_inputs=validate_inputs), store=store).run()

    assert live_crew.calls.count("inputs") == 6, "more often than any other call is repeated"
    assert live_crew.calls.count("kickoff") == len(live_crew.kickoffs) == 1
    assert "503" in task_log.warnings


@pytest.mark.usefixtures("patient")
def test_missing_answer_is_waited_for(live_crew, monkeypatch):
    monkeypatch.setenv(CONNECTION, f"{live_crew.connection_uri}?request_timeout=0.3")
    live_crew.faults.hang(on="inputs", times=3)

    assert Task(plain_kickoff).run()
    assert live_crew.calls == ["inputs"] * 4 + ["kickoff"]


@pytest.mark.parametrize("spoil", [{"status": 500}, {"status": 404}, {"status": 200, "body": "<html>"}], ids=str)
def test_failed_check_does_not_prevent_kickoff_when_off(live_crew, spoil):
    live_crew.faults.answer(on="inputs", times=3, **spoil)

    assert Task(lambda: plain_kickoff(validate_inputs=False)).run()
