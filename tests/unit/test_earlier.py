"""The execution of an earlier attempt: what this attempt does about it, and what is known of it at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.models import Completed, Execution, Failed, Paused, Running
from airflow_provider_crew.exceptions import OtherInputs
from airflow_provider_crew.task.decide import Decision
from airflow_provider_crew.task.earlier import earlier, poll_earlier
from airflow_provider_crew.task.record import KEY, KICKOFF_ID, Record, fingerprint
from airflow_provider_crew.task.task import Options, Task
from airflow_provider_crew.task.verdict import Facts

INPUTS = {"topic": "ferries"}
OWN = fingerprint(INPUTS, None)
OTHER = fingerprint({"topic": "trains"}, None)
USAGE = {"total_tokens": 7}
STATES: dict[str, Execution] = {
    "running": Running(status="running", kickoff_id="k", word="RUNNING"),
    "paused": Paused(status="paused", kickoff_id="k", word="PAUSED"),
    "completed": Completed(status="completed", kickoff_id="k", output="x"),
    "failed": Failed(status="error", kickoff_id="k", error="out of credit", execution_time=6.0, usage=USAGE),
    "stopped": Failed(status="error", kickoff_id="k", error="revoked", word="REVOKED"),
}


class Store(dict[str, Any]):
    """Task state store."""

    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        del self[key]


class Seen(NamedTuple):
    """What an attempt did about the kickoff, and what others see of it."""

    found: str | CrewError | None
    """Kickoff ID to reattach to, None to start an execution, or the error."""
    facts: Facts
    polled: list[str]
    measured: list[Decision]
    traced: list[Any]
    stored: Any
    warnings: int


class Attempt:
    """Attempt of a task, before its kickoff. ``last``: what is stored about an earlier one."""

    def __init__(self, last: dict[str, Any] | None, *, retries: int = 3, number: int = 2, **options: Any) -> None:
        self.max_tries, self.number, self.map_index = retries, number, -1
        self.options: dict[str, Any] = {"inputs": INPUTS, "compute_inputs": lambda: INPUTS} | options
        self.server = SimpleNamespace(xcom_keys_to_clear=[], task_reschedule_count=0)
        self.store: Store | None = Store()
        self.clears = 0
        if last is not None:
            self.store[KEY] = {"max_tries": retries, "kicked_off_at": time.time(), "fingerprint": OWN} | last

    def see(self, status: Any = "running") -> Seen:
        ti = SimpleNamespace(
            dag_id="d", run_id="r", task_id="t", map_index=self.map_index, try_number=self.number,
            max_tries=self.max_tries, start_date=None, task=SimpleNamespace(retries=3),
            _ti_context_from_server=self.server,
        )  # fmt: skip
        context = {"ti": ti, "task_state_store": self.store, "dag_run": SimpleNamespace(clear_number=self.clears)}
        task = Task(Options(crew_conn_id="crew", **self.options), context, log := Log())
        record = Record(task, is_shared=self.store is not None)
        record.read()
        seen = Seen(None, Facts(), [], [], [], None, 0)

        def poll(kickoff_id: str) -> Execution:
            seen.polled.append(kickoff_id)
            if isinstance(status, CrewError):
                raise status
            return STATES[status]

        output: Any = SimpleNamespace(
            measure_decision=seen.measured.append, trace=lambda *args, **more: seen.traced.append((*args, more))
        )
        found: Any
        try:
            found = earlier(task, record, seen.facts, output, poll)
        except CrewError as error:
            found = error
        assert not isinstance(found, CrewError) or " " in found.event
        stored = None if self.store is None else self.store.get(KEY)
        return seen._replace(found=found, stored=stored, warnings=log.warnings)


class Log(logging.Logger):
    """Log that counts its warnings."""

    def __init__(self) -> None:
        super().__init__("task")
        self.warnings = 0

    def handle(self, record: logging.LogRecord) -> None:
        self.warnings += record.levelno == logging.WARNING


EXECUTION = {"kickoff_id": "k", "address": "https://crew.example"}
NOT_FOUND = errors.ExecutionNotFound("unknown", address="https://crew.example")
UNREADABLE = errors.Rejected("400", http_status=400)


def ended(end: str) -> dict[str, Any]:
    return EXECUTION | {"end": end}


@pytest.mark.parametrize(
    ("last", "status", "is_polled", "decision", "state", "end"),
    [
        (None, "running", False, Decision.KICK_OFF, "none", None),
        (EXECUTION, "running", True, Decision.REATTACH, "running", None),
        (EXECUTION, "paused", True, Decision.REATTACH, "running", None),
        (EXECUTION, NOT_FOUND, True, Decision.REATTACH, "running", None),
        (EXECUTION, UNREADABLE, True, Decision.REATTACH, "running", None),
        (EXECUTION, "completed", True, Decision.REATTACH, "completed", "completed"),
        (EXECUTION, "failed", True, Decision.KICK_OFF_AFTER_END, "none", "failed"),
        (EXECUTION, "stopped", True, Decision.FAIL_STOPPED, "none", "stopped"),
        (ended("completed"), "running", False, Decision.REATTACH, "completed", "completed"),
        (ended("failed"), "running", False, Decision.KICK_OFF_AFTER_END, "none", "failed"),
        (ended("stopped"), "running", False, Decision.FAIL_STOPPED, "none", "stopped"),
        ({}, "running", False, Decision.FAIL_UNCERTAIN, "may have started", None),
    ],
)
def test_retry_decides_by_the_record_and_the_crew(last, status, is_polled, decision, state, end):
    seen = Attempt(last).see(status)

    assert seen.polled == ["k"] * is_polled
    assert (seen.measured, seen.facts.earlier) == ([decision], state)
    assert (seen.stored or {}).get("end") == end
    match decision:
        case Decision.REATTACH:
            assert seen.found == "k"
        case Decision.FAIL_STOPPED:
            assert isinstance(seen.found, errors.ExecutionStopped)
            assert seen.found.kickoff_id == "k"
        case Decision.FAIL_UNCERTAIN:
            assert isinstance(seen.found, errors.UncertainKickoff)
            assert (seen.found.kickoff_id, seen.found.cost) == ("", Cost.UNKNOWN)
        case _:
            assert seen.found is None


@pytest.mark.parametrize("status", [NOT_FOUND, UNREADABLE])
def test_user_is_warned_of_an_execution_that_cannot_be_seen(status):
    assert Attempt(EXECUTION).see(status).warnings == 1
    assert Attempt(EXECUTION).see().warnings == 0


def test_execution_unknown_at_another_address_is_not_replaced():
    seen = Attempt(EXECUTION).see(errors.ExecutionNotFound("unknown", address="https://other.example"))

    assert isinstance(seen.found, errors.ExecutionUnknown)
    assert (seen.found.kickoff_id, seen.found.elsewhere) == ("k", "https://crew.example")
    assert "https://other.example" in seen.found.event


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (STATES["running"], "running"),
        (STATES["paused"], "running"),
        (STATES["completed"], "completed"),
        (STATES["failed"], "failed"),
        (STATES["stopped"], "stopped"),
        (NOT_FOUND, "unknown"),
        (UNREADABLE, "unreadable"),
    ],
)
def test_poll_tells_the_status_of_an_execution(found, status):
    task: Any = SimpleNamespace(warn=[].append)

    def poll(_: str) -> Execution:
        if isinstance(found, CrewError):
            raise found
        return found

    assert poll_earlier(task, poll, "k") == (status, found if isinstance(found, Failed) else None)


def test_execution_whose_address_is_unknown_is_reattached():
    assert Attempt(EXECUTION | {"address": ""}).see(NOT_FOUND).found == "k"


def test_span_of_a_failed_execution_has_its_time_tokens_and_error():
    ((kickoff_id, took, usage, error, more),) = Attempt(EXECUTION).see("failed").traced

    assert (kickoff_id, took, usage, more) == ("k", 6.0, USAGE, {"is_own": False})
    assert isinstance(error, errors.ExecutionFailed)
    assert "," not in error.at, "the place is unknown"
    assert Attempt(EXECUTION).see("completed").traced == []


def test_later_attempt_counts_as_a_retry_again_after_reattaching():
    seen = Attempt(EXECUTION | {"max_tries": 1}).see()

    assert seen.found == "k"
    assert seen.stored["max_tries"] == 3


CLEARED = {"max_tries": 1}
OLD = {"kicked_off_at": time.time() - 3600}


@pytest.mark.parametrize(
    ("last", "status", "expected", "state"),
    [
        (EXECUTION | CLEARED | OLD, NOT_FOUND, Decision.KICK_OFF_AFTER_EXPIRY, "abandoned"),
        (EXECUTION | CLEARED, NOT_FOUND, Decision.REATTACH, "running"),
        (EXECUTION | OLD, NOT_FOUND, Decision.REATTACH, "running"),
        (EXECUTION | CLEARED | OLD, "running", Decision.REATTACH, "running"),
        (EXECUTION | CLEARED, "stopped", Decision.KICK_OFF_AFTER_END, "none"),
        (CLEARED | {"reported": True}, "running", Decision.KICK_OFF_BY_CHOICE, "may have started"),
        (CLEARED, "running", Decision.FAIL_UNCERTAIN, "may have started"),
        (ended("completed") | CLEARED | {"delivered": True}, "running", Decision.KICK_OFF_AFTER_END, "none"),
    ],
)
def test_cleared_task_decides_by_age_report_and_delivery(last, status, expected, state):
    seen = Attempt(last, abandon_unknown_after=1800.0).see(status)

    assert (seen.measured, seen.facts.earlier) == ([expected], state)


def test_execution_is_never_abandoned_without_a_limit():
    assert Attempt(EXECUTION | CLEARED | OLD, abandon_unknown_after=None).see(NOT_FOUND).found == "k"


@pytest.mark.parametrize("stored", [{}, {"reported": True}])
def test_author_may_choose_a_second_execution(stored):
    seen = Attempt(stored, on_uncertain_kickoff="retry").see()

    assert (seen.found, seen.measured, seen.warnings) == (None, [Decision.KICK_OFF_BY_CHOICE], 1)


@pytest.mark.parametrize(
    ("own", "status", "expected"),
    [
        (False, "running", None),
        (True, "running", OtherInputs),
        (True, "completed", None),
        (True, "recorded", None),
    ],
)
def test_other_inputs_of_the_same_attempt_are_another_item(own, status, expected):
    last = ended("completed") if status == "recorded" else EXECUTION
    attempt = Attempt(last | {"fingerprint": OTHER, "try_number": 2 if own else 1})
    seen = attempt.see(status)

    if expected:
        assert isinstance(seen.found, expected)
        assert seen.found.kickoff_id == "k"
    else:
        assert seen.found == (None if own else "k")
        assert seen.warnings == (not own)


@pytest.mark.parametrize(
    ("map_index", "max_tries", "is_another"), [(0, 1, True), (3, 1, True), (-1, 1, False), (0, 3, False)]
)
def test_record_of_a_mapped_task_may_be_of_another_row_after_a_clear(map_index, max_tries, is_another):
    attempt = Attempt(EXECUTION | {"fingerprint": OTHER, "max_tries": max_tries})
    attempt.map_index = map_index

    assert isinstance(attempt.see().found, OtherInputs) is is_another


@pytest.mark.parametrize(
    ("stored", "own", "is_mapped", "is_computed"),
    [
        (OTHER, True, False, True),
        (OTHER, False, False, False),
        (OTHER, False, True, True),
        ("", True, True, False),
    ],
)
def test_function_for_the_inputs_is_called_only_if_they_decide(stored, own, is_mapped, is_computed):
    calls: list[Any] = []

    def compute() -> Any:
        calls.append(1)
        return INPUTS

    last = EXECUTION | CLEARED | {"fingerprint": stored, "try_number": 2 if own else 1}
    attempt = Attempt(last, inputs=None, compute_inputs=compute)
    attempt.map_index = 0 if is_mapped else -1
    seen = attempt.see("completed")

    assert bool(calls) is is_computed
    if not stored:
        assert (seen.found, seen.warnings) == ("k", 0)


def failing(error: Exception) -> Callable[[], Any]:
    def compute() -> Any:
        raise error

    return compute


@pytest.mark.parametrize("is_mapped", [True, False])
def test_inputs_that_are_not_json_match_no_row(is_mapped):
    attempt = Attempt(EXECUTION | CLEARED, compute_inputs=lambda: {"topic": object()})
    attempt.map_index = 0 if is_mapped else -1

    assert isinstance(attempt.see().found, OtherInputs) is is_mapped


def test_function_that_skips_its_row_leaves_no_execution_untold():
    attempt = Attempt(EXECUTION | CLEARED, inputs=None, compute_inputs=failing(AirflowSkipException()))
    attempt.map_index = 0

    found = attempt.see().found

    assert isinstance(found, OtherInputs)
    assert (found.cost, found.kickoff_id) == (Cost.RUNNING, "k")


def test_failing_function_for_the_inputs_is_no_reason_against_a_retry():
    assert Attempt(EXECUTION, inputs=None, compute_inputs=failing(ValueError())).see().found == "k"


def test_restored_state_belongs_to_the_inputs():
    attempt = Attempt(EXECUTION | CLEARED, kickoff={"restore_from_state_id": "state"})
    attempt.map_index = 0

    assert isinstance(attempt.see().found, OtherInputs)
    attempt.map_index = -1
    assert attempt.see().warnings == 1


def test_fingerprint_is_of_canonical_json():
    told = fingerprint({"b": [1, "é"], "a": {"y": None, "x": 1.5}}, None)
    assert told == fingerprint({"a": {"x": 1.5, "y": None}, "b": (1, "é")}, "")
    assert len(bytes.fromhex(told)) == 32
    assert told != fingerprint({"b": [1, "é"], "a": {"y": None, "x": 1.5}}, "4711")
    assert fingerprint({}, 4711) == fingerprint({}, "4711")


# Without a record that attempts share.


def unshared(**given: Any) -> Attempt:
    attempt = Attempt(None, **given)
    attempt.store = None
    return attempt


@pytest.mark.parametrize(
    ("number", "retries", "chooses_twice", "clears", "state"),
    [
        (1, 3, False, 0, "none"),
        (1, 3, True, 0, "none"),
        (2, 3, False, 0, "none"),
        (2, 3, True, 0, "may have started"),
        (2, 3, False, 1, "may have started"),
        (2, 4, False, 0, "may have started"),
        (1, 4, False, 1, "none"),
    ],
)
def test_forgotten_execution_may_have_started(number, retries, chooses_twice, clears, state):
    options: dict[str, Any] = {"on_uncertain_kickoff": "retry"} if chooses_twice else {}
    attempt = unshared(number=number, retries=retries, **options)
    attempt.clears = clears
    seen = attempt.see()

    assert (seen.found, seen.facts.earlier, seen.measured) == (None, state, [Decision.KICK_OFF])


@pytest.mark.parametrize(("number", "is_extra"), [(4, False), (5, True)])
def test_extra_attempt_starts_nothing_unless_the_author_chooses_that(number, is_extra):
    assert isinstance(unshared(number=number).see().found, errors.UncertainKickoff) is is_extra
    chosen = unshared(number=number, on_uncertain_kickoff="retry").see()
    assert (chosen.found, chosen.warnings) == (None, is_extra)


def test_extra_attempt_with_a_record_is_a_retry():
    assert Attempt(EXECUTION, number=5).see().found == "k"


@pytest.mark.parametrize(
    ("reschedules", "keys", "is_second"),
    [(1, [KICKOFF_ID], True), (1, ["return_value"], False), (0, [KICKOFF_ID], False)],
)
def test_attempt_that_airflow_restarts_sends_no_second_kickoff(reschedules, keys, is_second):
    attempt = unshared()
    attempt.server = SimpleNamespace(xcom_keys_to_clear=keys, task_reschedule_count=reschedules)
    found = attempt.see().found

    assert isinstance(found, errors.UncertainKickoff) is is_second
    assert getattr(found, "cost", None) is (Cost.RUNNING if is_second else None)
