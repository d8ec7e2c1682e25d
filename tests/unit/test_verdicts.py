"""
Verdict on every end of a task, as a table: ``python -m tests.unit.test_verdicts`` prints ``verdicts.txt`` again.

Read the difference before you commit it: each line is what a user is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, AirflowTaskTimeout

from airflow_provider_crew import exceptions as ends
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.notifications import CrewAlert
from airflow_provider_crew.operators.crew import CrewRunOperator
from airflow_provider_crew.task.progress import TaskProgress
from airflow_provider_crew.task.verdict import (
    Facts,
    RowCounts,
    Verdict,
    after_adopting,
    fix_for,
    if_lost,
    verdict,
    while_cancelled,
    while_rows_run,
    while_waiting,
)
from airflow_provider_crew.versions import KEEP

TABLE = Path(__file__).with_name("verdicts.txt")

# What may end a task before its kickoff, while it waits, and after the execution has completed.
ANYWHERE: dict[str, BaseException] = {
    "execution_timeout": AirflowTaskTimeout("over"),
    "MemoryError": MemoryError("no memory is left."),
    "no connection": errors.Unreachable("no connection", sent=False, lacks_connection=True),
    "InvalidSettings": errors.InvalidSettings("no token"),
}
BEFORE = ANYWHERE | {
    "InvalidInputs": errors.InvalidInputs("no topic"),
    "NotAuthenticated": errors.NotAuthenticated("401"),
    "refused": errors.Unreachable("refused", sent=False),
    "ServiceError": errors.ServiceError("503"),
    "reset": errors.Unreachable("reset"),
    "UncertainKickoff": errors.UncertainKickoff("lost"),
    "ExecutionStopped": errors.ExecutionStopped("revoked"),
    "moved": errors.ExecutionUnknown("unknown", elsewhere="https://crew.example"),
    "OtherInputs": ends.OtherInputs("other"),
    "CrewTaskError": ends.CrewTaskError("told to end"),
}
WAITING = ANYWHERE | {
    "ExecutionFailed": errors.ExecutionFailed("boom"),
    "ExecutionCancelled": errors.ExecutionCancelled("timeout"),
    "ExecutionStopped": errors.ExecutionStopped("revoked"),
    "ExecutionUnknown": errors.ExecutionUnknown("NOT FOUND"),
    "moved": errors.ExecutionUnknown("unknown", elsewhere="https://crew.example"),
    "ExecutionNotFound": errors.ExecutionNotFound("404"),
    "WaitedTooLong": errors.WaitedTooLong("timeout"),
    "LostContact": errors.LostContact("outage"),
    "WatchBroken": errors.WatchBroken("401", cause=errors.NotAuthenticated("401")),
    "WaitStopped": errors.WaitStopped("a user"),
    "InvalidKickoffId": errors.InvalidKickoffId("none", cost=Cost.UNKNOWN),
}
ENDED = ANYWHERE | {
    "InvalidOutput": errors.InvalidOutput("misfit", misfits=("title",)),
    "LostContact": errors.LostContact("outage"),
    "result forgotten": errors.ExecutionUnknown("NOT FOUND", has_completed=True, cost=Cost.ENDED),
}
OF_BATCH: dict[str, BaseException] = {
    "BatchFailed": ends.BatchFailed("12 of 100 rows failed"),
    "CutShort": ends.CutShort("execution_timeout"),
    "WaitedTooLong": errors.WaitedTooLong("timeout"),
    "MemoryError": MemoryError(),
    "ServiceError": errors.ServiceError("503"),
    "LostContact": errors.LostContact("outage"),
    "CrewTaskError": ends.CrewTaskError("Airflow did not store the kickoff records"),
    "no connection": ANYWHERE["no connection"],
    "InvalidSettings": ANYWHERE["InvalidSettings"],
    "InvalidInputs": errors.InvalidInputs("no topic"),
    "InvalidOutputType": errors.InvalidOutputType("not a type"),
    "NotAuthenticated": errors.NotAuthenticated("401"),
    "NotAllowed": errors.NotAllowed("403"),
    "Rejected": errors.Rejected("404"),
    "ResponseTooLarge": errors.ResponseTooLarge("65 MiB"),
    "DailyLimitReached": errors.DailyLimitReached("20 a day"),
    "WatchBroken": WAITING["WatchBroken"],
    "EndedByAirflow": ends.EndedByAirflow("Airflow is ending the task"),
    "files missing": ends.InvalidResultPath("none of its files"),
    "files of another": ends.InvalidResultPath("another batch", owner="{}"),
}
AT = "task 2 of 2, writing_task (Writer), after 6s"
ENDED_ROWS = Counter(success=90, error=7, cancelled=1)
ROWS = {
    "nothing read": RowCounts(Counter(), 0, False),
    "not started": RowCounts(Counter(not_started=100), 0, False),
    "not read": RowCounts(Counter(not_started=100), 0, False, is_blind=True),
    "not read, rerun=all": RowCounts(Counter(not_started=100), 0, False, is_blind=True, runs_all=True),
    "all succeeded": RowCounts(Counter(success=100), 0, True),
    "failed": RowCounts(ENDED_ROWS + Counter(invalid_output=2), 0, True),
    "one failed": RowCounts(Counter(success=99, error=1), 0, True),
    "stopped": RowCounts(ENDED_ROWS + Counter(cancelled=2), 0, True, stopped=2),
    "one stopped": RowCounts(Counter(success=99, cancelled=1), 0, True, stopped=1),
    "invalid": RowCounts(Counter(success=98, invalid_output=2), 0, True),
    "running": RowCounts(Counter(success=84), 16, True),
    "uncertain": RowCounts(ENDED_ROWS + Counter(uncertain=2), 0, True),
    "uncertain, chosen": RowCounts(ENDED_ROWS + Counter(uncertain=2), 0, True, may_start_twice=True),
    "half": RowCounts(ENDED_ROWS + Counter(uncertain=2, not_started=584), 16, True),
    "half, rerun=all": RowCounts(ENDED_ROWS + Counter(invalid_output=2, not_started=584), 16, True, runs_all=True),
}
EARLIER: list[Any] = ["none", "running", "completed", "may have started"]


# Errors of the hook and of the commands, for which there is no verdict, and variants of the others.
FIXED = {
    "302": errors.Rejected("302", http_status=302),
    "400": errors.Rejected("400", http_status=400),
    "400, missing inputs": errors.Rejected("400", http_status=400, missing_inputs=("topic",)),
    "404": errors.Rejected("404", http_status=404),
    "missing inputs": errors.InvalidInputs("no topic", missing_inputs=("topic",)),
    "lost in the triggerer": errors.LostContact("outage", only_in_triggerer=True),
    "lost after 500": errors.LostContact("outage", http_status=500),
    "lost without a connection": errors.LostContact("outage", lacks_connection=True),
    "certificate": errors.Unreachable("certificate", trusted=False),
    "HTML": errors.UnreadableResponse("HTML"),
    "NotCancelled": errors.NotCancelled("running"),
    "HumanInputNeeded": errors.HumanInputNeeded("paused"),
    "completed, and unknown": errors.ExecutionUnknown("unknown", has_completed=True),
    "CrewError": errors.CrewError("other"),
}


def cases() -> Iterator[tuple[str, str, str, BaseException, Facts]]:
    """Yield who waits, where, and with which error and facts."""
    for (name, error), earlier in product(BEFORE.items(), EARLIER):
        if name != "moved" or earlier == "running":
            yield "operator", f"before, earlier {earlier}", name, error, Facts(earlier=earlier, kickoff_id="7")
    yield "operator", "sending", "MemoryError", MemoryError(), Facts(phase="sending")
    uncertain = errors.UncertainKickoff("lost")
    for name, facts in {
        "not reported": Facts(is_reported=False),
        "on_uncertain_kickoff=retry": Facts(may_start_twice=True),
        "meta": Facts(meta='{"dag_id": "d"}'),
        "asked to call": Facts(is_called=True),
    }.items():
        yield "operator", name, "UncertainKickoff", uncertain, facts
    called = Facts(phase="waiting", kickoff_id="7", is_called=True)
    ran = errors.ExecutionUnknown("NOT FOUND", at=AT)
    yield "operator", "has called", "ExecutionUnknown", WAITING["ExecutionUnknown"], called
    yield "operator", "has called, and ran", "ExecutionUnknown", ran, called
    unnamed: Any = {"kickoff_id": "7", "reattachable": False, "is_unnamed": True}
    yield (
        "operator",
        "waiting, ID refused",
        "WaitedTooLong",
        WAITING["WaitedTooLong"],
        Facts(phase="waiting", **unnamed),
    )
    twice = Facts(phase="waiting", may_start_twice=True, **unnamed)
    yield "operator", "ID refused, two may be billed", "WaitedTooLong", WAITING["WaitedTooLong"], twice
    told_to_end = BEFORE["CrewTaskError"]
    yield "operator", "before, intent stays", "CrewTaskError", told_to_end, Facts(is_unnamed=True)
    unreadable = Facts(earlier="unreadable", reattachable=False)
    yield "operator", "before, record unreadable", "CrewTaskError", told_to_end, unreadable
    misfit = ENDED["InvalidOutput"]
    facts = Facts(phase="ended", kickoff_id="7", rejects_misfits=False)
    yield "operator", "on_invalid_output=retry", "InvalidOutput", misfit, facts
    yield "operator", "on_invalid_output=retry", "output_type raises", errors.InvalidOutput("KeyError"), facts
    for phase, known in {"waiting": WAITING, "ended": ENDED}.items():
        for (name, error), is_shared in product(known.items(), [True, False]):
            where = phase if is_shared else f"{phase}, no record"
            yield "operator", where, name, error, Facts(phase=phase, kickoff_id="7", reattachable=is_shared)  # type: ignore[arg-type]
        for name, error in known.items():
            yield "sensor", phase, name, error, Facts(phase=phase, kickoff_id="7", is_sensor=True)  # type: ignore[arg-type]
    for skips, (name, error) in product(["soft_fail", "never_fail"], WAITING.items()):
        facts = Facts(phase="waiting", kickoff_id="7", is_sensor=True, skips=skips)  # type: ignore[arg-type]
        yield "sensor", skips, name, error, facts
    yield from cases_of_tools()
    yield from cases_of_batches()


def cases_of_tools() -> Iterator[tuple[str, str, str, BaseException, Facts]]:
    for phase, error in {"sending": BEFORE["UncertainKickoff"], "waiting": WAITING["ExecutionUnknown"]}.items():
        facts = Facts(phase=phase, kickoff_id="7", is_tool=True)  # type: ignore[arg-type]
        yield "tool", phase, type(error).__name__, error, facts


def cases_of_batches() -> Iterator[tuple[str, str, str, BaseException, Facts]]:
    for when, rows in ROWS.items():
        yield "batch", when, "BatchFailed", OF_BATCH["BatchFailed"], Facts(rows=rows)
    spent = ends.BatchFailed("max_tokens are used", is_spent=True)
    yield from (("batch", when, "tokens used", spent, Facts(rows=ROWS[when])) for when in ("half", "failed"))
    yield "batch", "uncertain", "WatchBroken", WAITING["WatchBroken"], Facts(rows=ROWS["uncertain"])
    for name, error in OF_BATCH.items():
        if name != "BatchFailed":
            yield "batch", "failed", name, error, Facts(rows=ROWS["failed"])


def table() -> str:
    """Return the table as text."""
    rows = [("task", "when", "error", "airflow", "cost", "if retried", "if cleared")]
    for task, when, name, error, facts in cases():
        end = verdict(error, facts)
        cost = end.failure.cost.value
        rows.append((task, when, name, end.action, cost, end.if_retried or "-", end.if_cleared))
    steps = []
    for *case, error, facts in cases():
        failure = verdict(error, facts).failure
        event = "" if isinstance(error, errors.CrewError) else f"{failure.event} "
        steps.append((*case, f"{event}{on_every_airflow(failure.next_step)}"))
    return "\n".join(
        (
            aligned(rows),
            aligned([("task", "when", "error", "next step"), *steps]),
            aligned([("without a report", "field", "value"), *without_report()]),
        )
    )


def without_report() -> Iterator[tuple[str, str, str]]:
    """Yield what is said about a task that waits, was lost, or has succeeded: when, and each field."""
    keeping = " keeping its state"
    stored: list[tuple[Any, Any]] = [(None, None), ("7", None)]
    stored += [("7", end) for end in ("kicked off", "completed", "delivered", "failed", "stopped")]
    for kickoff_id, end in stored:
        known = end or ("running" if kickoff_id else "sent")
        yield from fields(f"record, {known}", if_lost(kickoff_id, end, keeping=keeping))
        adopted = after_adopting(kickoff_id, end, keeping=keeping, is_row=end == "completed")
        yield f"adopted, {known}", "next_step", adopted
    yield from fields("record, sent, on_uncertain_kickoff=retry", if_lost(None, None, may_start_twice=True))
    yield from fields("record, sent, asked to call", if_lost(None, None, is_called=True))
    usual: dict[str, Any] = {"reattachable": True, "cancels": False}
    waits: tuple[dict[str, Any], ...] = (
        *({}, {"cancels": True}, {"cancels_at_timeout": True}, {"is_sensor": True}, {"reattachable": False}),
        *({"is_unnamed": True}, {"is_unnamed": True, "reattachable": False}),
        {"is_sensor": True, "reattachable": False},
    )
    for more in waits:
        facts = Facts(**{name: value for name, value in more.items() if name.startswith("is_")})
        options = {name: value for name, value in more.items() if not name.startswith("is_")}
        yield from fields(", ".join(("waiting", *more)), while_waiting(facts, **usual | options))
    for when, cancels in (("not started", False), ("half", False), ("half", True), ("half, rerun=all", False)):
        name = f"rows run, {when}{', cancels' if cancels else ''}"
        yield from fields(name, while_rows_run(ROWS[when], cancels=cancels))
    for name, error in FIXED.items():
        yield f"error, {name}", "fix", fix_for(error) or "-"
    for task, is_sensor in {"operator": False, "sensor": True}.items():
        yield f"being cancelled, {task}", "next_step", while_cancelled(is_sensor)


def fields(when: str, value: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields(when, inner, f"{name}.{key}".strip("."))
    else:
        yield when, name, on_every_airflow(str(value))


def on_every_airflow(text: str) -> str:
    """Omit what is said only if clearing a task deletes its kickoff record."""
    return text.replace(f"{KEEP[1:]}, it ", "it ").replace(KEEP, "")


def aligned(rows: list[Any]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def test_verdicts_are_those_of_the_table() -> None:
    # Line by line: explaining how long texts differ takes a minute.
    assert table().splitlines() == TABLE.read_text().splitlines()


@pytest.mark.parametrize("facts", [{"sent": False}, {"sent": False, "trusted": False}])
def test_unreachable_host_is_to_be_checked(facts: Any) -> None:
    error = errors.Unreachable("refused", **facts)

    assert verdict(error, Facts()).failure.next_step.startswith(fix_for(error))
    assert not verdict(errors.Unreachable("reset"), Facts()).failure.next_step.startswith("Check")


@pytest.mark.parametrize("is_sensor", [False, True])
def test_lost_contact_says_where_to_look(is_sensor: Any) -> None:
    facts = Facts(phase="waiting", kickoff_id="7", is_sensor=is_sensor)
    looks: list[Any] = [
        {"http_status": 500},
        {"lacks_connection": True},
        {"only_in_triggerer": True},
    ]

    plain = verdict(errors.LostContact("outage"), facts).failure.next_step
    steps = [verdict(errors.LostContact("outage", **look), facts).failure.next_step for look in looks]

    assert all(step.endswith(plain) and step != plain for step in steps)
    assert len({*steps}) == len(looks)


ALL = [verdict(error, facts) for *_, error, facts in cases()]


def told(end: Verdict) -> str:
    return end.failure.next_step


def test_every_end_has_a_next_step_of_short_sentences() -> None:
    for end in ALL:
        assert told(end).endswith(".")
        assert "  " not in str(end.failure)
        assert "None" not in str(end.failure)


@pytest.mark.parametrize(
    ("error", "facts"), [each[3:] for each in cases()], ids=[": ".join(each[:3]) for each in cases()]
)
def test_airflow_acts_on_the_class_and_the_tab_shows_the_rest(error: BaseException, facts: Facts) -> None:
    end = verdict(error, facts)
    time_out = ends.CrewTaskTimeout if isinstance(end.failure, ends.CutShort) else ends.CrewSensorTimeout
    kinds: dict[str, type[BaseException]] = {
        "skip": ends.CrewTaskSkipped,
        "time out": time_out,
        "fail": ends.CrewTaskFailed,
    }
    kinds |= {"pass on": type(error), "retry": type(end.failure)}
    shown = end.as_dict()

    assert type(end.exception()) is kinds[end.action]
    assert end.failure.kickoff_id == (
        facts.kickoff_id if facts.phase != "before" or facts.earlier != "none" else ""
    )
    assert (shown["action"], shown["if_retried"], shown["if_cleared"]) == (
        end.action,
        end.if_retried,
        end.if_cleared,
    )
    assert on_every_airflow(shown["choices"]["clear"]) == f"it {end.if_cleared}"
    left = shown["choices"]["nothing"]
    assert ("executions" in left) is (facts.rows is not None and "running" in left)
    assert shown["meta"] == facts.meta
    assert ("This attempt started nothing" in end.failure.event) <= (facts.phase == "before")
    if isinstance(error, errors.UncertainKickoff | errors.ExecutionStopped):
        assert end.failure.event == error.event


@pytest.mark.parametrize("earlier", ["abandoned", "unreadable"])
def test_event_tells_of_the_execution_of_an_earlier_attempt(earlier: Any) -> None:
    event = verdict(errors.ServiceError("503"), Facts(earlier=earlier)).failure.event

    assert event.startswith("503 ")
    assert event != verdict(errors.ServiceError("503"), Facts(earlier="none")).failure.event


def test_event_tells_that_an_unknown_crew_has_called() -> None:
    unknown = WAITING["ExecutionUnknown"]
    plain, called = (
        verdict(unknown, Facts(phase="waiting", is_called=is_called)).failure.event for is_called in (False, True)
    )

    assert called.endswith(f" {plain}")


def test_only_ends_that_are_retried_mention_a_retry() -> None:
    for end in ALL:
        is_alike = end.if_retried == end.if_cleared  # not if clearing a batch also starts uncertain rows
        assert ("Retrying or" in told(end)) is (is_alike and "skipped" not in told(end))


def test_no_retry_is_promised_if_none_is_left() -> None:
    error = errors.WaitedTooLong("timeout")

    assert "Retrying" in told(verdict(error, Facts(phase="waiting", kickoff_id="7")))
    assert "Retrying" not in told(verdict(error, Facts(phase="waiting", kickoff_id="7", has_retry=False)))


@pytest.mark.parametrize("has_retry", [False, True])
def test_process_that_airflow_ends_promises_no_retry(*, has_retry: bool) -> None:
    facts = Facts(phase="waiting", kickoff_id="7", is_ending=True, has_retry=has_retry)
    end = verdict(errors.CrewError("Airflow is ending this task.", kickoff_id="7"), facts)

    assert told(end).startswith("The next attempt")
    assert end.if_retried in told(end)


def test_process_that_airflow_ends_says_first_what_to_fix() -> None:
    lost, facts = errors.LostContact("outage", http_status=500), Facts(phase="waiting", is_ending=True)

    assert told(verdict(lost, facts)).startswith(f"{fix_for(lost)} The next attempt")


def test_ending_sensor_is_not_said_to_be_skipped() -> None:
    facts = Facts(phase="waiting", kickoff_id="7", is_sensor=True, skips="never_fail", is_ending=True)

    assert told(verdict(errors.CrewError("Airflow is ending this task."), facts)).startswith("The next attempt")


def test_nothing_that_may_be_running_is_said_to_cost_nothing() -> None:
    for *_, error, facts in cases():
        if facts.phase != "before" or facts.earlier != "none" or isinstance(error, errors.UncertainKickoff):
            end = verdict(error, facts)
            is_safe = isinstance(error, errors.UncertainKickoff) and error.cost is Cost.NONE
            assert end.failure.cost is not Cost.NONE or is_safe


def test_no_retry_starts_a_second_execution_unasked() -> None:
    for *_, error, facts in cases():
        end = verdict(error, facts)
        if "billed again" in end.if_retried or "two may be billed" in end.if_retried:
            has_ended = isinstance(error, errors.ExecutionFailed | errors.InvalidOutput)
            assert has_ended or facts.may_start_twice


def test_uncertain_kickoff_may_be_adopted_if_records_are_shared() -> None:
    for is_shared, phase in product([True, False], ["before", "sending"]):
        facts = Facts(reattachable=is_shared, phase=phase)  # type: ignore[arg-type]
        assert (" adopt`" in told(verdict(errors.UncertainKickoff("lost"), facts))) is is_shared


def test_stopped_execution_is_not_retried() -> None:
    for phase in ("before", "waiting"):
        end = verdict(errors.ExecutionStopped("revoked"), Facts(phase=phase, kickoff_id="7"))

        assert isinstance(end.exception(), AirflowFailException)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), AirflowSkipException(), ValueError("mine"), MemoryError()])
def test_exception_of_another_is_passed_on(error: BaseException) -> None:
    assert verdict(error, Facts()).exception() is error
    assert verdict(error, Facts(phase="waiting", kickoff_id="7")).exception() is error
    assert verdict(error, Facts(phase="waiting", kickoff_id="7", is_sensor=True)).exception() is error


def test_other_exception_without_a_record_is_not_retried() -> None:
    error = verdict(MemoryError(), Facts(phase="waiting", kickoff_id="7", reattachable=False)).exception()

    assert isinstance(error, ends.CrewTaskFailed)
    assert 'CrewExecutionSensor(kickoff_id="7")' in error.failure.next_step


def test_error_keeps_its_class_and_facts() -> None:
    failed = errors.ExecutionFailed("boom", kickoff_id="7", usage={"total_tokens": 3}, error="no credit")

    failure = verdict(failed, Facts(phase="waiting", kickoff_id="7")).failure

    assert isinstance(failure, errors.ExecutionFailed)
    assert (failure.kickoff_id, failure.usage, failure.error) == ("7", {"total_tokens": 3}, "no credit")


def test_record_of_a_lost_task_says_what_the_verdict_says() -> None:
    waits = verdict(MemoryError(), Facts(phase="waiting", kickoff_id="7"))
    reads = verdict(MemoryError(), Facts(phase="ended", kickoff_id="7"))

    assert if_lost("7", None)["if_cleared"] == waits.if_cleared
    assert if_lost("7", "completed")["if_cleared"] == reads.if_cleared
    assert if_lost(None, None)["cost"] == Cost.UNKNOWN
    assert if_lost("7", "failed")["cost"] == Cost.ENDED


@pytest.mark.parametrize(
    ("error", "facts"), [each[3:] for each in cases()], ids=[": ".join(each[:3]) for each in cases()]
)
def test_log_tab_alerts_and_exception_tell_the_same(
    error: BaseException, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(error, errors.CrewError):
        error = error.replace(f"{error.event}: {'a long reason, ' * 100}why", at=AT)
    end = verdict(error, facts)
    failure, raised, xcoms, sent = end.failure, end.exception(), {}, []
    story = str(failure)
    assert story.splitlines()[0] == failure.event
    assert [line.partition(": ")[0] for line in story.splitlines()[-3:]] == ["Cost", "Next", "Error"]
    place = ", ".join(filter(None, (failure.at, failure.kickoff_id and f"execution {failure.kickoff_id}")))
    assert [line for line in story.splitlines() if line.startswith("At: ")] == [f"At: {place}"] * bool(place)
    ti: Any = SimpleNamespace(
        task_id="t", map_index=-1, state="failed", xcom_push=lambda key, value: xcoms.update({key: value})
    )
    dag = SimpleNamespace(
        dag_id="d", on_failure_callback=None, task_dict={"t": CrewRunOperator(task_id="t", inputs={})}
    )
    progress = TaskProgress(ti, None, 0.0)
    if facts.rows:
        progress.heard({"batch": {"total": 100}, "doing": "100 of 100 rows have ended"})

    progress.ended(failure.kickoff_id, failure, end.as_dict())

    told = xcoms["crew_progress"]["end"]  # the Crew tab shows it
    assert [told[name] for name in ("event", "at", "billed", "next_step")] == [
        failure.event,
        failure.at,
        failure.cost.sentence,
        failure.next_step,
    ]
    if end.action == "pass on":  # Airflow logs the exception as it is, and the task this before
        assert raised is error
    else:
        assert str(raised) == story
    monkeypatch.setattr("airflow_provider_crew.notifications.task_states", lambda _: {("t", -1): "failed"})
    monkeypatch.setattr("airflow_provider_crew.notifications.read_xcom", lambda _, __, ___, key: xcoms.get(key))
    monkeypatch.setattr("airflow_provider_crew.notifications.redact", str)  # other tests leave secrets to mask
    context = {"dag": dag, "run_id": "r", "ti": ti}
    for more in ({"exception": raised}, {"reason": "task_failure"}):
        xcoms.pop("crew_alert", None)
        CrewAlert(lambda *message: sent.append(message)).notify(context | more)  # type: ignore[arg-type]
        if end.action != "skip":
            subject, text = sent.pop()
            assert (f"[{failure.cost}]" in subject, story in text) == (True, True)


def test_every_error_of_the_client_can_be_fixed() -> None:
    for error in (*BEFORE.values(), *WAITING.values(), *ENDED.values()):
        if isinstance(error, errors.CrewError) and not isinstance(error, ends.OtherInputs | ends.CrewTaskError):
            assert fix_for(error)


if __name__ == "__main__":
    print(table(), end="")  # noqa: T201
