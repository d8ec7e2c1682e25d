"""What a question changes in Airflow's database: the XCom and the request of the one task that waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from airflow_provider_crew.answers.question import QUESTION
from airflow_provider_crew.answers.receiver import change_xcom
from tests.supported import AIRFLOW

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="Answers need Airflow 3.3.")

TASK = {"dag_id": "research", "run_id": "manual__1", "task_id": "crew", "map_index": 1}
DIFFERENCES: list[dict[str, Any]] = [
    {"dag_id": "payroll"},
    {"run_id": "manual__2"},
    {"task_id": "other"},
    {"map_index": 0},
]


def box_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return the XCom for the questions of a task's crew, which differs from that of any other task."""
    return {"try_number": 2, "known": [str(value) for value in task.values()]}


class Database:
    """Airflow's tables, with tasks that wait, and their requests."""

    def __init__(self, url: str = "sqlite://") -> None:
        from airflow.models import import_all_models
        from airflow.models.base import Base

        import_all_models()
        self.engine = create_engine(url)
        Base.metadata.create_all(self.engine)
        self.session = scoped_session(sessionmaker(self.engine, expire_on_commit=False))
        self.tasks = 0

    def add(self, task: dict[str, Any], state: str | None, *, xcoms: tuple[str, ...] = (QUESTION,)) -> None:
        from airflow.models.dagrun import DagRun
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.xcom import XComModel

        self.tasks += 1
        run = {name: task[name] for name in ("dag_id", "run_id")}
        ti = UUID(int=self.tasks)
        with Session(self.engine) as session, session.begin():
            run_id = session.scalar(select(DagRun.id).filter_by(**run))
            if run_id is None:
                run_id, now = self.tasks, datetime.now(UTC)
                session.execute(insert(DagRun).values(id=run_id, run_type="manual", run_after=now, **run))
            session.execute(insert(TaskInstance).values(id=ti, pool="default_pool", state=state, **task))
            session.execute(insert(HITLDetail).values(ti_id=ti, options=["Approve"], subject="Draft"))
            for key in xcoms:
                value = box_of(task) if key == QUESTION else key
                session.execute(insert(XComModel).values(dag_run_id=run_id, key=key, value=value, **task))

    def found(self) -> dict[str, Any]:
        """Return the XComs by task, map index and key, and the requests."""
        from airflow.models.hitl import HITLDetail
        from airflow.models.xcom import XComModel

        with Session(self.engine) as session:
            xcoms = {
                (each.dag_id, each.run_id, each.task_id, each.map_index, each.key): each.value
                for each in session.scalars(select(XComModel))
            }
            return {"xcoms": xcoms, "requests": set(session.scalars(select(HITLDetail.ti_id)))}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database()
    monkeypatch.setattr("airflow.settings.Session", made.session)
    yield made
    made.session.remove()
    made.engine.dispose()


@pytest.mark.parametrize("state", ["running", "deferred", "awaiting_input", "restarting", "queued", "scheduled"])
def test_question_changes_the_task_that_waits_and_no_other(database, state):
    for other in DIFFERENCES:
        database.add(TASK | other, "running")
    database.add(TASK, state, xcoms=("other", QUESTION, "more"))
    before = database.found()
    given: list[Any] = []

    def change(found: Any) -> dict[str, Any]:
        given.append(found)
        return {"changed": True}

    change_xcom(TASK, QUESTION, change)

    assert given == [box_of(TASK)]
    assert database.found() == {
        "xcoms": before["xcoms"] | {(*TASK.values(), QUESTION): {"changed": True}},
        "requests": {UUID(int=number) for number in range(1, 1 + len(DIFFERENCES))},
    }


@pytest.mark.parametrize(
    ("state", "xcoms"),
    [
        *((state, (QUESTION,)) for state in ("success", "failed", "up_for_retry", "skipped", None)),
        ("running", ()),
    ],
)
def test_question_finds_no_task_that_has_ended_or_expects_none(database, state, xcoms):
    database.add(TASK, state, xcoms=xcoms)
    before = database.found()
    given: list[Any] = []

    change_xcom(TASK, QUESTION, given.append)

    assert given == [None]
    assert database.found() == before


def test_unwanted_question_changes_nothing(database):
    database.add(TASK, "running")
    before = database.found()

    change_xcom(TASK, QUESTION, lambda _: None)

    assert database.found() == before
