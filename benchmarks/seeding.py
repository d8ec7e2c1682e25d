"""
Defers task instances without running them: ``python -m benchmarks.seeding ours 1000``.

A program of its own, because it needs Airflow's models with the settings of the Airflow that it writes to. A
thousand tasks that really defer would take longer than the rest of the benchmark.
"""

from __future__ import annotations

import sys
import time
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.triggers.base import BaseTrigger

MOST = 1000
POLL_INTERVAL = 30.0
_WEEK = 7 * 24 * 3600.0


def main(kind: str, count: int) -> None:
    """Let this many tasks, and no others, wait for triggers of this kind."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState
    from sqlalchemy import delete, select, update

    with create_session() as session:
        session.execute(update(TaskInstance).values(trigger_id=None, state=None))
        session.execute(delete(Trigger))
        found = select(TaskInstance).order_by(TaskInstance.map_index).limit(count)
        instances = session.scalars(found).all()
        triggers = [Trigger.from_object(_KINDS[kind](number)) for number in range(count)]
        session.add_all(triggers)
        session.flush()
        for instance, trigger in zip(instances, triggers, strict=True):
            instance.trigger_id = trigger.id
            instance.state = TaskInstanceState.DEFERRED
            instance.next_method = "execute_complete"


def _ours(_: int) -> BaseTrigger:
    from airflow_provider_crew.client.watch import WatchRules
    from airflow_provider_crew.triggers.crew import CrewExecutionTrigger

    now = time.time()
    rules = WatchRules(deadline=now + _WEEK, poll_interval=POLL_INTERVAL, kicked_off_at=now)
    return CrewExecutionTrigger(str(uuid.uuid4()), "crew_default", rules=asdict(rules), deferred_at=now)


def _dbt_cloud(number: int) -> BaseTrigger:
    from airflow.providers.dbt.cloud.triggers.dbt import DbtCloudRunJobTrigger

    trigger: BaseTrigger = DbtCloudRunJobTrigger(
        conn_id="dbt_cloud_default",
        run_id=number,
        end_time=time.time() + _WEEK,
        poll_interval=POLL_INTERVAL,
        account_id=1,
    )
    return trigger


_KINDS: dict[str, Callable[[int], BaseTrigger]] = {"ours": _ours, "dbt_cloud": _dbt_cloud}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
