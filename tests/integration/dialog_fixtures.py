"""A task that answers its crew, as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.dialogs import Dialog, asking
from tests.integration.question_receiver import SECRET, receiving
from tests.integration.tasks import TaskInstance, WatchedService


@pytest.fixture
def dialog(request, monkeypatch, timing) -> Iterator[Dialog]:
    service = partial(WatchedService, call_webhooks=True, scenario=asking("draft-1"))
    monkeypatch.setattr("tests.integration.live.WatchedService", service)
    crew = request.getfixturevalue("live_crew")
    timing(unknown_poll=0.02, not_found_grace=0.05, people_poll=0.3, question_look=0.02, question_wait=0.1)
    monkeypatch.setattr("airflow_provider_crew.answers.trigger.read_own_xcom", lambda ti, key: ti.xcoms.get(key))
    ti = TaskInstance()
    task = {name: getattr(ti, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
    # Before the receiver sets it for a while: otherwise a test that changes it would leave it set.
    monkeypatch.setenv("AIRFLOW__CREW__WEBHOOK_CONN_ID", "crew_webhook")
    with receiving(task, {}) as questions:
        monkeypatch.setenv("AIRFLOW__CREW__EVENTS_URL", questions.url)
        monkeypatch.setenv("AIRFLOW_CONN_CREW_WEBHOOK", f"generic://:{SECRET}@")
        dialog = Dialog(crew, questions)
        monkeypatch.setattr("airflow_provider_crew.api_server.open_required_action", dialog.opened)
        yield dialog
