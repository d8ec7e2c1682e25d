"""
What an attempt does about the execution of an earlier one, as in ``earlier.txt``.

To add a line, write its first three columns: what is stored, how this attempt differs from a first retry, and the
crew's response if it is polled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args
from unittest.mock import patch

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.models import Completed, Execution, Failed, Paused, Running
from airflow_provider_crew.task.decide import Decision, End
from airflow_provider_crew.task.earlier import decision_of, earlier
from airflow_provider_crew.task.record import KEY, KICKOFF_ID, Record, fingerprint
from airflow_provider_crew.task.task import Options, Task
from airflow_provider_crew.task.verdict import Facts

INPUTS = {"topic": "ferries"}
CREW = "https://crew.example"
USAGE = {"total_tokens": 7}
RESPONSES: dict[str, Execution | CrewError] = {
    "running": Running(status="running", kickoff_id="k", word="RUNNING"),
    "paused": Paused(status="paused", kickoff_id="k", word="PAUSED"),
    "completed": Completed(status="completed", kickoff_id="k", output="x"),
    "failed": Failed(status="error", kickoff_id="k", error="out of credit", execution_time=6.0, usage=USAGE),
    "stopped": Failed(status="error", kickoff_id="k", error="revoked", word="REVOKED"),
    "NOT FOUND": errors.ExecutionNotFound("unknown", address=CREW),
    "NOT FOUND at another": errors.ExecutionNotFound("unknown", address="https://other.example"),
    "400": errors.Rejected("400", http_status=400),
}
FIRST: dict[str, Any] = {"max_tries": 3, "try_number": 1, "end": None, "fingerprint": fingerprint(INPUTS, None)}
# What the first attempt has stored, if it differs from a kickoff without a response.
STORED: dict[str, dict[str, Any]] = {
    "sent": {},
    "execution": {"kickoff_id": "k", "address": CREW},
    **{end: {"kickoff_id": "k", "end": end, "address": CREW} for end in get_args(End)},
    "reported": {"reported": True},
    "delivered": {"delivered": True},
    "asked to stop": {"cancelled": True},
    "no address": {"address": ""},
    "by this attempt": {"try_number": 2},
    "other inputs": {"fingerprint": fingerprint({"topic": "trains"}, None)},
    "unknown inputs": {"fingerprint": ""},
}


def raising(error: Exception) -> Callable[[], Any]:
    def compute() -> Any:
        raise error

    return compute


# What Airflow and the DAG author tell this attempt, if it differs from ``RETRY``.
ATTEMPTS: dict[str, dict[str, Any]] = {
    "": {},
    "cleared": {"max_tries": 4},
    "mapped": {"map_index": 0},
    **{f"attempt {number}": {"try_number": number} for number in (1, 4, 5)},
    "clear counted": {"clear_number": 1},
    "restarted": {"task_reschedule_count": 1},
    "has pushed its ID": {"xcom_keys_to_clear": [KICKOFF_ID]},
    "has pushed another": {"xcom_keys_to_clear": ["return_value"]},
    "another state": {"options": {"kickoff": {"restore_from_state_id": "state"}}},
    "function": {"options": {"inputs": None}},
    "function skips": {"options": {"inputs": None, "compute_inputs": raising(AirflowSkipException())}},
    "function fails": {"options": {"inputs": None, "compute_inputs": raising(ValueError())}},
    "function returns an object": {"options": {"compute_inputs": lambda: {"topic": object()}}},
}
RETRY = {"map_index": -1, "try_number": 2, "max_tries": 3, "clear_number": 0, "options": {}}
RETRY |= {"xcom_keys_to_clear": [], "task_reschedule_count": 0}


class Store(dict[str, Any]):
    """Task state store."""

    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        del self[key]


class Log(logging.Logger):
    """Log that counts its warnings."""

    warnings = 0

    def handle(self, record: logging.LogRecord) -> None:
        self.warnings += record.levelno == logging.WARNING


class Attempt:
    """Attempt of a task, and what others see of it."""

    def __init__(self, stored: str, attempt: str, response: str) -> None:
        self.done, self.log, self.response = list[str](), Log("task"), RESPONSES.get(response)
        now: Any = SimpleNamespace(
            **RETRY | {k: v for word in attempt.split(", ") for k, v in ATTEMPTS[word].items()}
        )
        vars(now).update(dag_id="d", run_id="r", task_id="t", start_date=None, task=SimpleNamespace(retries=3))
        now._ti_context_from_server = now
        self.store = None if stored == "no store" else Store()
        if self.store is not None and stored != "nothing":
            fields = {k: v for word in stored.split(", ") for k, v in STORED[word].items()}
            self.store[KEY] = FIRST | {"kicked_off_at": time.time()} | fields
        context: Any = {"ti": now, "task_state_store": self.store, "dag_run": now}
        options = {"inputs": INPUTS, "compute_inputs": self.compute} | now.options
        self.task = Task(Options(crew_conn_id="crew", **options), context, self.log)

    def compute(self) -> Any:
        self.done.append("computes the inputs")
        return INPUTS

    def poll(self, kickoff_id: str) -> Execution:
        self.done.append(f"polls {kickoff_id}")
        if isinstance(self.response, CrewError):
            raise self.response
        assert self.response
        return self.response

    def trace(self, kickoff_id: str, took: Any, usage: Any, error: Any) -> None:
        assert "," not in error.at, "the place is unknown"
        self.done.append(f"span of {kickoff_id}: {took}, {usage}, {type(error).__name__}")

    def decided(self, *args: Any, **facts: Any) -> Decision:
        decision = decision_of(*args, **facts)
        self.done = [each for each in self.done if each not in Decision.__members__]  # the last one counts
        self.done += [] if decision is Decision.ASK else [decision.name]
        return decision

    def outcome(self) -> str:
        record, facts, output = Record(self.task, is_shared=self.store is not None), Facts(), self
        record.read()
        try:
            with patch("airflow_provider_crew.task.earlier.decision_of", self.decided):
                found = earlier(record, facts, output, self.poll)  # type: ignore[arg-type]
            self.done.append(f"reattaches to {found}" if found else "may start one")
        except CrewError as error:
            assert " " in error.event  # noqa: PT017 - an outcome among others
            elsewhere = getattr(error, "elsewhere", "")
            assert not elsewhere or "https://other.example" in error.event  # noqa: PT017
            told = error.kickoff_id or "no ID", str(error.cost), elsewhere
            self.done.append(f"{type(error).__name__} ({', '.join(filter(None, told))})")
        kept = FIRST if self.store is None else self.store.get(KEY, FIRST)
        found_out = [f"{name} {kept[name]} is kept" for name in ("end", "max_tries") if kept[name] != FIRST[name]]
        warnings = [f"warns {self.log.warnings} time"] * bool(self.log.warnings)
        return "; ".join((*self.done, f"earlier {facts.next.earlier}", *warnings, *found_out))


def test_attempts_do_what_the_table_says(tabulated: Any) -> None:
    tabulated("earlier.txt", 3, lambda *cells: [Attempt(*cells).outcome()])
