"""Requests of each kind of task to Airflow's API server. Each costs about 20 ms of CPU in all of Airflow."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import structlog
from airflow.sdk import DAG
from airflow.sdk.api.datamodels._generated import TaskInstance, TIRunContext
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import comms, task_runner

from tests.integration.live import INTERVALS, PAUSES, crew_of_a_task
from tests.integration.operators import kickoff, run, sensor
from tests.integration.tasks import CONNECTION, SLOW, TOKEN, WatchedService, fired, rebuilt
from tests.supported import AIRFLOW

_NAMES: dict[str, Any] = {"dag_id": "research", "task_id": "crew", "run_id": "r"}


class Supervisor:
    """Airflow's supervisor, which passes requests of a task, or of its trigger, to the API server."""

    def __init__(self, crew: WatchedService) -> None:
        self.requests: list[str] = []
        self.end: Any = None
        self._crew = crew
        self._store: dict[str, Any] = {}

    def send(self, msg: Any) -> Any:  # noqa: C901, PLR0911 - a table
        """Take note of a message, and answer it as Airflow does."""
        if isinstance(msg, comms.MaskSecret):  # it stays with the supervisor
            return comms.OKResponse(ok=True)
        fields = " ".join(getattr(msg, "rendered_fields", ()))
        subject = getattr(msg, "key", getattr(msg, "conn_id", fields))
        self.requests.append(f"{type(msg).__name__} {subject}".strip())
        match msg:
            case comms.GetTaskStateStore() if msg.key in self._store:
                return comms.TaskStateStoreResult(value=self._store[msg.key])
            case comms.GetTaskStateStore():
                return comms.ErrorResponse(error=ErrorType.TASK_STORE_NOT_FOUND)
            case comms.SetTaskStateStore():
                self._store[msg.key] = msg.value
            case comms.GetConnection():
                url = urlsplit(self._crew.url)
                about: dict[str, Any] = {
                    "host": url.hostname,
                    "port": url.port,
                    "schema": "http",
                    "password": TOKEN,
                }
                return comms.ConnectionResult(
                    conn_id=msg.conn_id, conn_type="crew", login=None, extra=None, **about
                )
            case comms.GetXCom():
                return comms.XComResult(key=msg.key, value=self._crew.ids[-1])
            case comms.GetTaskStates():
                return comms.TaskStatesResult(task_states={"r": {"crew": "success"}})
            case comms.ValidateInletsAndOutlets():
                return comms.InactiveAssetsResult(inactive_assets=[])
            case comms.DeferTask() | comms.SucceedTask():
                self.end = msg
        return comms.OKResponse(ok=True)


def _process(supervisor: Supervisor, operator: Any, resumes: Any) -> Any:
    """Run a process of a task as Airflow does, and return how it ends."""
    run_id, now, none = "r", datetime.now(UTC), dict.fromkeys(("logical_date", "data_interval_start", "end_date"))
    if not operator.has_dag():
        DAG("research", schedule=None).add_task(operator)
    dag_run: dict[str, Any] = {
        **none,
        "data_interval_end": None,
        "start_date": now,
        "run_after": now,
        "partition_key": None,
    }
    dag_run |= {"dag_id": "research", "run_id": run_id, "run_type": "manual", "state": "running"}
    about: dict[str, Any] = {"dag_run": dag_run | {"consumed_asset_events": []}, "max_tries": 0, **resumes}
    ti = task_runner.RuntimeTaskInstance.model_construct(
        **_NAMES,
        id=uuid4(),
        map_index=-1,
        try_number=1,
        max_tries=0,
        task=operator,
        start_date=now,
        _ti_context_from_server=TIRunContext.model_validate(about),
    )
    log: Any = structlog.get_logger()
    context = ti.get_template_context()
    state, _, error = task_runner.run(ti, context, log)
    task_runner.finalize(ti, state, context, log, error)
    return supervisor.end


async def _at_once(_: Any, function: Callable[..., Any], *args: Any, **__: Any) -> Any:
    """Call a function of a trigger before its next poll, so that no push is late."""
    return function(*args)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, timing: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """Return what lists the requests of a task, whose execution ends after three polls, and its kinds."""
    timing(**PAUSES | INTERVALS)
    monkeypatch.setattr("airflow_provider_crew.api_server.in_thread", _at_once)
    before = signal.getsignal(signal.SIGTERM)
    with crew_of_a_task(monkeypatch, scenario=SLOW) as crew, patch.dict(os.environ):
        monkeypatch.delenv(CONNECTION)

        def listed(make: Callable[..., Any], **options: Any) -> Iterator[str]:
            supervisor, resumes = Supervisor(crew), dict[str, Any]()
            crew.at_look(3, lambda: crew.finish(crew.ids[-1]))
            monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
            while True:
                end = _process(supervisor, make(**options), resumes)
                yield f"process: {', '.join(supervisor.requests)}"
                supervisor.requests.clear()
                if isinstance(end, comms.SucceedTask):
                    return
                trigger: Any = rebuilt(end.classpath, end.trigger_kwargs)
                trigger.task_instance = TaskInstance.model_construct(**_NAMES, map_index=-1, try_number=1)
                event = asyncio.run(fired(trigger))
                yield f"trigger: {', '.join(supervisor.requests)}"
                supervisor.requests.clear()
                resumes = {"next_method": end.next_method, "next_kwargs": end.next_kwargs | {"event": event}}

        def sensor_of_kickoff(**options: Any) -> Any:
            crew.new_execution(SLOW)
            with DAG("research", schedule=None):
                return sensor(kickoff(task_id="kickoff").output, **options)

        kinds = {"kickoff": kickoff, "run": run, "sensor": sensor, "sensor_of_kickoff": sensor_of_kickoff}
        yield kinds | {"requests": listed, "start": lambda: crew.new_execution(SLOW)}
    signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="Earlier versions have no task state store.")
def test_requests_to_airflow_are_those_of_the_table(evaluated: Callable[..., None], names: Any) -> None:
    evaluated("airflow_requests.txt", **names)
