"""What is sent, stored and counted of a kickoff, checks that run before it, and what a later attempt does."""

from __future__ import annotations

import os
import signal
import time
from collections import UserList
from dataclasses import asdict
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import comms

from airflow_provider_crew.client.errors import Cost, DailyLimitReached, InvalidInputs, InvalidSettings
from airflow_provider_crew.client.options import SENT_AS
from airflow_provider_crew.exceptions import CrewTaskFailed
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.task import send
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import fingerprint
from airflow_provider_crew.task.task import Options
from airflow_provider_crew.task.task import Task as KitTask
from tests.airflow_runs import eventually
from tests.integration.operators import every_operator, id_of, kickoff, run, run_deferred
from tests.integration.stories import decorated
from tests.integration.tasks import CONNECTION, INPUTS, QUICK, SLOW, Task, TaskInstance, WatchedService
from tests.option_values import FIELDS, OPTIONS
from tests.supported import AIRFLOW

pytest_plugins = ["tests.integration.task_fixtures"]

every_kind = pytest.mark.parametrize("operator", [kickoff, run, run_deferred, decorated])


def sent(service: WatchedService) -> dict[str, Any]:
    (request,) = service.requests.on("kickoff")
    return request.json


@every_kind
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


@every_operator
def test_record_is_stored_before_the_kickoff_is_sent(live_crew, store, operator):
    seen = []
    live_crew.at_kickoff = lambda: seen.append(store.kickoff)
    task = Task(lambda: operator(restore_from_state_id="4711"), store=store, retries=1)
    began = time.time()

    returned = id_of(task.run())

    digest = fingerprint(INPUTS, "4711")
    assert seen == [asdict(KickoffRecord(1, ANY, address=live_crew.url, fingerprint=digest, try_number=1))]
    assert began <= seen[0]["kicked_off_at"] <= time.time()
    assert store.has_delivered
    assert store.kickoff["kickoff_id"] == returned
    assert store.kickoff["end"] == (None if operator is kickoff else "completed")
    if AIRFLOW >= (3, 3):
        from airflow.sdk.execution_time import context

        assert store.retentions == {"crew_kickoff": context.NEVER_EXPIRE}


@every_operator
def test_success_that_a_clear_drops_a_moment_later_is_returned_again(
    live_crew, store, timing, monkeypatch, operator
):
    timing(time_to_clear=0.5)
    dropped_at = time.monotonic() + 0.5
    monkeypatch.setattr("airflow_provider_crew.api_server.has_succeeded", lambda _: time.monotonic() < dropped_at)
    task = Task(operator, store=store)
    returned = id_of(task.run())
    live_crew.finish(returned)
    task.clear()

    assert id_of(task.run()) == returned
    assert len(live_crew.kickoffs) == 1


# Kickoffs whose response came late, or could not be stored.


@pytest.mark.parametrize("is_stopped", [False, True])
def test_record_tells_what_a_clear_has_changed(live_crew, store, is_stopped):
    if is_stopped:
        live_crew.scenario = SLOW
        live_crew.at_look(1, lambda: live_crew.revoke(live_crew.ids[0]))
    else:
        live_crew.faults.reset(on="kickoff", after_taken=True)
    task = Task(run, store=store, retries=1)
    told = []
    with pytest.raises(CrewTaskFailed):
        task.run()
    told.append(store.entries["crew_kickoff"]["if_lost"])
    task.clear()
    live_crew.scenario = QUICK
    note = lambda: told.append(store.entries["crew_kickoff"]["if_lost"])  # noqa: E731
    # Not the first kickoff, whose response is lost.
    live_crew.after = lambda request: note() if request.operation == "inputs" else None
    task.run()

    starts = [told[0][name].startswith("starts another") for name in ("if_retried", "if_cleared")]
    assert starts == [False, True]
    assert "starts another execution" in told[1]["if_retried"]
    assert len(live_crew.kickoffs) == 2


@pytest.fixture(params=[True, False], ids=["forgets at Clear", "keeps at Clear"])
def forgets(request, monkeypatch) -> bool:
    """Airflow from 3.4 on, and before."""
    monkeypatch.setattr("airflow_provider_crew.versions.CLEARING_DELETES_TASK_STATE", request.param)
    return request.param


class TestAnAirflowThatForgetsWhenCleared:
    @every_operator
    def test_gets_the_record_again_from_an_ending_attempt(self, live_crew, store, operator, forgets):
        made = operator()
        before = signal.signal(signal.SIGTERM, lambda *_: made.on_kill())
        seen: list[Any] = []

        def clear() -> None:
            remembered = store.kickoff
            store.delete("crew_kickoff")
            until = time.monotonic() + (240.0 if forgets else 0.3)
            while store.kickoff is None and time.monotonic() < until:
                # Python does not notice a signal that arrives just before the main thread blocks.
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.05)
            seen.extend([remembered, store.kickoff])

        live_crew.at_kickoff = clear
        try:
            Task(lambda: made, store=store).run()
        finally:
            eventually(lambda: seen)  # otherwise a late signal would end pytest
            signal.signal(signal.SIGTERM, before)

        remembered, again = seen
        assert remembered["kickoff_id"] is None
        assert again == (remembered if forgets else None)


@pytest.fixture
def allow(live_crew, ledger, monkeypatch):  # noqa: ARG001 - without it, nothing counts here
    def allow_kickoffs(limit: int, connection: str = CONNECTION) -> None:
        monkeypatch.setenv(connection, f"{live_crew.connection_uri}?max_kickoffs_per_day={limit}")

    return allow_kickoffs


def limited(*, store: Any = None, **options: Any) -> Task:
    return Task(lambda: kickoff(**options), store=store, retries=0 if store is None else 1, run_id="morning")


def test_limit_applies_per_connection_and_day(ledger, allow, monkeypatch):
    allow(1)
    allow(1, "AIRFLOW_CONN_TEAM/A%1")
    day = send.today()
    limited().run()
    limited(crew_conn_id="team/a%1").run()
    monkeypatch.setattr(send, "datetime", SimpleNamespace(now=lambda zone: datetime(2031, 5, 7, tzinfo=zone)))
    limited().run()

    assert [*ledger.runs] == [
        f"crew_default.{day}.1",
        f"team~2Fa~251.{day}.1",  # only what Airflow takes in the name of a run
        "crew_default.2031-05-07.1",
    ]


def test_block_of_kickoffs_is_counted_with_one_run(live_crew, ledger, allow):
    allow(10)
    hook, ti = CrewHook(), TaskInstance()
    assert [send.count_kickoffs(hook, ti, {}, hook.log, 4) for _ in range(3)] == [4, 4, 2]
    assert [run["total"] for run in ledger.runs.values()] == [4, 8, 10]
    with pytest.raises(CrewTaskFailed) as caught:
        limited().run()
    assert isinstance(caught.value.failure, DailyLimitReached)
    assert caught.value.cost is Cost.NONE
    assert not live_crew.kickoffs


def test_start_run_reports_a_duplicate(monkeypatch):
    taken = comms.ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
    asked: list[Any] = []

    def answer(message: Any) -> Any:
        asked.append(message)
        return comms.OKResponse(ok=True) if len(asked) == 1 else taken

    supervisor = SimpleNamespace(send=answer)
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", supervisor, raising=False)

    assert [send.start_run("a.1", {"task_id": "crew"}) for _ in range(2)] == [True, False]
    assert (asked[0].dag_id, asked[0].run_id, asked[0].conf) == ("crew_budget", "a.1", {"task_id": "crew"})
    assert not asked[0].reset_dag_run
