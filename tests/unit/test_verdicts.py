"""Verdict on every end of a task, as in ``verdicts.txt``. Each line is what a user is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew import exceptions as ends
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.task.verdict import (
    Facts,
    RowCounts,
    after_adopting,
    fix_for,
    if_lost,
    verdict,
    while_cancelled,
    while_rows_run,
    while_waiting,
)
from airflow_provider_crew.versions import KEEP


def named(names: str) -> dict[str, BaseException]:
    """Return errors by the names of their classes, which they have as their reasons."""
    kinds = vars(ends) | vars(errors)
    return {name: kinds[name](name) for name in names.split()}


# What may end a task before its kickoff, while it waits, and after the execution has completed.
ANYWHERE: dict[str, BaseException] = {
    "execution_timeout": AirflowTaskTimeout("over"),
    "MemoryError": MemoryError("no memory is left."),
    "no connection": errors.Unreachable("no connection", sent=False, lacks_connection=True),
    **named("InvalidSettings"),
}
MOVED = errors.ExecutionUnknown("unknown", elsewhere="https://crew.example")
BEFORE = ANYWHERE | {
    **named(
        "InvalidInputs NotAuthenticated ServiceError UncertainKickoff ExecutionStopped OtherInputs CrewTaskError"
    ),
    "refused": errors.Unreachable("refused", sent=False),
    "reset": errors.Unreachable("reset"),
    "moved": MOVED,
}
WAITING = ANYWHERE | {
    **named(
        "ExecutionFailed ExecutionCancelled ExecutionStopped ExecutionUnknown ExecutionNotFound WaitedTooLong"
    ),
    **named("LostContact WaitStopped"),
    "moved": MOVED,
    "WatchBroken": errors.WatchBroken("401", cause=errors.NotAuthenticated("401")),
    "InvalidKickoffId": errors.InvalidKickoffId("none", cost=Cost.UNKNOWN),
}
ENDED = ANYWHERE | {
    **named("LostContact"),
    "InvalidOutput": errors.InvalidOutput("misfit", misfits=("title",)),
    "result forgotten": errors.ExecutionUnknown("NOT FOUND", has_completed=True, cost=Cost.ENDED),
}
OF_BATCH: dict[str, BaseException] = {
    **named(
        "BatchFailed CutShort WaitedTooLong ServiceError LostContact CrewTaskError InvalidSettings InvalidInputs"
    ),
    **named(
        "InvalidOutputType NotAuthenticated NotAllowed Rejected ResponseTooLarge DailyLimitReached EndedByAirflow"
    ),
    **{name: (ANYWHERE | WAITING)[name] for name in ("MemoryError", "no connection", "WatchBroken")},
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
    "too many uncertain": RowCounts(Counter(uncertain=2, not_started=98), 0, True, is_stuck=True),
    "too many uncertain, some run": RowCounts(Counter(uncertain=2, not_started=90), 8, True, is_stuck=True),
    "too many invalid": RowCounts(
        Counter(success=1, invalid_output=2, not_started=97), 0, True, is_stuck=True, is_stuck_if_cleared=True
    ),
    "uncertain, unreported": RowCounts(Counter(success=90, uncertain=10), 0, True, unreported=9),
    "unreported, chosen": RowCounts(
        Counter(success=90, uncertain=10), 0, True, unreported=9, may_start_twice=True
    ),
    "too many of both": RowCounts(Counter(uncertain=2, invalid_output=2), 0, True, is_stuck_if_cleared=True),
    "rejected": RowCounts(Counter(success=90, error=10, not_started=5), 0, True, unsent=8),
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
    "lost after 500": errors.LostContact("outage", cause=errors.ServiceError("500", http_status=500)),
    "lost without a connection": errors.LostContact("outage", cause=errors.Unreachable("", lacks_connection=True)),
    "lost in an outage": errors.LostContact("outage", cause=errors.ServiceError("503", http_status=503)),
    "lost as no host": errors.LostContact("outage", cause=errors.Unreachable("refused", sent=False)),
    "certificate": errors.Unreachable("certificate", sent=False, tls_failed=True),
    "http, not https": errors.Unreachable("wrong version", tls_failed=True),
    "HTML": errors.UnreadableResponse("HTML"),
    "NotCancelled": errors.NotCancelled("running"),
    "HumanInputNeeded": errors.HumanInputNeeded("paused"),
    "of a function": errors.LostContact("outage", kickoff_id="8"),
    "unknown, and ran": errors.ExecutionUnknown("NOT FOUND", at=AT),
    "output_type raises": errors.InvalidOutput("KeyError"),
    "completed, and unknown": errors.ExecutionUnknown("unknown", has_completed=True),
    "CrewError": errors.CrewError("other"),
    "timeout of another": errors.WaitedTooLong("timeout", kickoff_id="8"),
}


Case = tuple[str, str, str, BaseException, Facts]


def cases() -> Iterator[Case]:
    """Yield who waits, where, and with which error and facts."""
    for (name, error), earlier in product(BEFORE.items(), EARLIER):
        if name != "moved" or earlier == "running":
            yield "operator", f"before, earlier {earlier}", name, error, Facts(earlier=earlier, kickoff_id="7")
    yield "operator", "sending", "MemoryError", MemoryError(), Facts(phase="sending")
    for when, name, more in OTHER_FACTS:
        yield "sensor" if more.get("is_sensor") else "operator", when, name, EVERY[name], Facts(**more)
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


WAITS: dict[str, Any] = {"phase": "waiting", "kickoff_id": "7"}
UNNAMED: dict[str, Any] = {**WAITS, "reattachable": False, "is_unnamed": True}
ENDING: dict[str, Any] = {**WAITS, "is_ending": True}
EVERY = BEFORE | WAITING | ENDED | FIXED
# Where, with which error, and the facts.
OTHER_FACTS: list[tuple[str, str, dict[str, Any]]] = [
    ("before, of its function", "timeout of another", {}),
    ("not reported", "UncertainKickoff", {"is_reported": False}),
    ("on_uncertain_kickoff=retry", "UncertainKickoff", {"may_start_twice": True}),
    ("meta", "UncertainKickoff", {"meta": '{"dag_id": "d"}'}),
    ("no record", "UncertainKickoff", {"reattachable": False}),
    ("asked to call", "UncertainKickoff", {"is_called": True}),
    ("has called", "ExecutionUnknown", {**WAITS, "is_called": True}),
    ("has called, and ran", "unknown, and ran", {**WAITS, "is_called": True}),
    ("waiting, ID refused", "WaitedTooLong", UNNAMED),
    ("ID refused, two may be billed", "WaitedTooLong", UNNAMED | {"may_start_twice": True}),
    ("before, intent stays", "CrewTaskError", {"is_unnamed": True}),
    ("before, record unreadable", "CrewTaskError", {"earlier": "unreadable", "reattachable": False}),
    *(
        ("on_invalid_output=retry", name, {"phase": "ended", "kickoff_id": "7", "rejects_misfits": False})
        for name in ("InvalidOutput", "output_type raises")
    ),
    *(("before", name, {}) for name in ("certificate", "no connection", "http, not https")),
    *(
        (where, name, WAITS | {"is_sensor": where == "waiting, sensor"})
        for where in ("waiting", "waiting, sensor")
        for name in ("lost in the triggerer", "lost after 500", "lost without a connection", "lost as no host")
    ),
    ("before, by the inputs' function", "of a function", {}),
    ("waiting, asked to cancel", "WaitedTooLong", WAITS | {"is_cancelled": True}),
    ("waiting, no retry left", "WaitedTooLong", WAITS | {"has_retry": False}),
    ("Airflow ends it", "CrewError", ENDING),
    ("Airflow ends it, no retry left", "CrewError", ENDING | {"has_retry": False}),
    ("Airflow ends it", "lost after 500", ENDING),
    ("Airflow ends it", "UncertainKickoff", {"is_ending": True}),
    ("Airflow ends it, never_fail", "CrewError", ENDING | {"is_sensor": True, "skips": "never_fail"}),
]


def cases_of_tools() -> Iterator[Case]:
    for phase, error in {"sending": BEFORE["UncertainKickoff"], "waiting": WAITING["ExecutionUnknown"]}.items():
        facts = Facts(phase=phase, kickoff_id="7", is_tool=True)  # type: ignore[arg-type]
        yield "tool", phase, type(error).__name__, error, facts


def cases_of_batches() -> Iterator[Case]:
    for when, rows in ROWS.items():
        yield "batch", when, "BatchFailed", OF_BATCH["BatchFailed"], Facts(rows=rows)
    spent = ends.BatchFailed("max_tokens are used", max_tokens_needs="raised or removed")
    yield from (("batch", when, "tokens used", spent, Facts(rows=ROWS[when])) for when in ("half", "failed"))
    yield "batch", "uncertain", "WatchBroken", WAITING["WatchBroken"], Facts(rows=ROWS["uncertain"])
    for name, error in OF_BATCH.items():
        if name != "BatchFailed":
            yield "batch", "failed", name, error, Facts(rows=ROWS["failed"])


def table(_: list[str]) -> Iterator[str]:
    rows: list[Any] = [("task", "when", "error", "airflow", "cost", "if retried", "if cleared")]
    steps: list[Any] = [("task", "when", "error", "next step")]
    for *where, error, facts in cases():
        end = verdict(error, facts)
        failure = end.failure
        event = "" if failure.event == getattr(error, "event", "") else f"{failure.event} "
        rows.append((*where, end.action, failure.cost.value, end.if_retried or "-", end.if_cleared))
        steps.append((*where, f"{event}{on_every_airflow(failure.next_step)}"))
    for each in (rows, steps, [("without a report", "field", "value"), *without_report()]):
        widths = [max(map(len, column)) for column in zip(*each, strict=True)]
        for row in each:
            yield " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield ""


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
    yield from fields("record, reported", if_lost(None, None, is_reported=True))
    yield from fields("record, reported, asked to call", if_lost(None, None, is_reported=True, is_called=True))
    yield from fields("record, stopped, cleared", if_lost("7", "stopped", is_cleared=True))
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
    for when, cancels in product(("not started", "too many uncertain", "half", "half, rerun=all"), (False, True)):
        name = f"rows run, {when}{', cancels' if cancels else ''}"
        yield from fields(name, while_rows_run(ROWS[when], cancels=cancels))
    for name, error in EVERY.items():
        if isinstance(error, errors.CrewError):
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


def test_verdicts_are_those_of_the_table(printed: Any) -> None:
    printed("verdicts.txt", table)


def test_exception_and_tab_have_what_the_table_says() -> None:
    kinds = {"skip": ends.CrewTaskSkipped, "fail": ends.CrewTaskFailed}
    for *_, error, facts in cases():
        end = verdict(error, facts)
        shown, failure, raised = end.as_dict(), end.failure, end.exception()
        late = ends.CrewTaskTimeout if isinstance(failure, ends.CutShort) else ends.CrewSensorTimeout
        kind = kinds | {"time out": late, "retry": type(failure)}
        is_new = facts.phase == "before" and facts.earlier == "none"

        assert raised is error if end.action == "pass on" else type(raised) is kind[end.action]
        assert end.action == "pass on" or str(raised) == str(failure)
        known_id = "" if is_new else facts.kickoff_id
        assert failure.next_step == failure.next_step.strip()
        assert failure.kickoff_id == (getattr(error, "kickoff_id", "") or known_id)
        if isinstance(error, errors.CrewError):
            told = ("event", "cost", "next_step", "kickoff_id", "error")
            assert type(failure) is type(error)
            assert vars(failure) | dict.fromkeys(told) == vars(error) | dict.fromkeys(told)
        same = (end.action, end.if_retried, end.if_cleared, facts.meta)
        assert tuple(shown[name] for name in ("action", "if_retried", "if_cleared", "meta")) == same
        assert on_every_airflow(shown["choices"]["clear"]) == f"it {end.if_cleared}"
        left = shown["choices"]["nothing"]
        assert ("executions" in left) is (facts.rows is not None and "running" in left)
