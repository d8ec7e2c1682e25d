"""Kickoff options: the request body, the webhook secret, and inputs that are rejected."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_crew.client.errors import (
    InvalidSettings,
    Rejected,
    UncertainKickoff,
)
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.operators.crew import CrewKickoffOperator, CrewRunOperator
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.integration.operators import run_deferred
from tests.integration.tasks import INPUTS, QUICK, Task, WatchedService, fired
from tests.option_values import FIELDS, OPTIONS

pytest_plugins = ["tests.integration.task_fixtures"]

SECRET = "webhook-secret/2718+281828"
WEBHOOKS = {"events": ["task_completed"], "url": "https://hooks.example/{{ ti.dag_id }}", "realtime": False}
RENDERED = WEBHOOKS | {"url": "https://hooks.example/research"}
PERSON = "https://hooks.example/person"
PAIR = base64.b64encode(f"crew:{SECRET}".encode()).decode()
BEARER = {"strategy": "bearer", "token": SECRET}
BASIC = {"strategy": "basic", "username": "crew", "password": SECRET}
CREW = QUICK.model_copy(update={"dialect": "deployed"})
FLOW = CREW.model_copy(update={"kind": "flow"})


def kickoff(**options: Any) -> CrewKickoffOperator:
    return CrewKickoffOperator(**{"task_id": "crew", "inputs": INPUTS, "meta": {}, **options})


def run(**options: Any) -> CrewRunOperator:
    return CrewRunOperator(**{"task_id": "crew", "inputs": INPUTS, "poll_interval": 0.02, "meta": {}, **options})


def decorated(**options: Any) -> Any:
    crew: Any = crew_task(task_id="crew", poll_interval=0.02, **options)(lambda: INPUTS)
    return crew().operator


every_operator = pytest.mark.parametrize("operator", [kickoff, run, run_deferred, decorated])


class RenderedTask(Task):
    """A task whose templates are rendered as Airflow does it."""

    def begin(self) -> Any:
        self.operator = super().begin()
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
        RenderedTask(lambda: operator(**OPTIONS)).run()

        assert sent(live_crew) == {"inputs": INPUTS} | FIELDS

    def test_goes_every_option_of_a_hook(self, live_crew):
        options: Any = OPTIONS
        CrewHook().kickoff(INPUTS, **options)

        assert sent(live_crew) == {"inputs": INPUTS} | FIELDS

    @every_operator
    @pytest.mark.usefixtures("hooks")
    @pytest.mark.parametrize(("connection", "authentication"), [("hooks", BEARER), ("hooks_login", BASIC)])
    def test_goes_the_secret_of_webhooks(self, live_crew, operator, connection, authentication):
        conn_id = f"{{{{ '{connection}' }}}}"
        options = {"human_input_webhook_url": PERSON, "webhook_conn_id": conn_id, "webhooks": WEBHOOKS}

        RenderedTask(lambda: operator(**options)).run()

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
    OPTIONS = {  # noqa: RUF012
        "webhooks": RENDERED,
        "human_input_webhook_url": PERSON,
        "webhook_conn_id": "hooks_login",
    }

    @pytest.fixture(autouse=True)
    def every_line(self, caplog) -> None:
        caplog.set_level(logging.DEBUG)

    @pytest.mark.parametrize("operator", [kickoff, run, run_deferred])
    def test_is_nowhere_but_on_the_wire(self, live_crew, store, operator, task_log):
        task = RenderedTask(lambda: operator(**self.OPTIONS), store=store)

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
