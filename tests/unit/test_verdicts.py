"""
Verdict on every end of a task (``verdicts.txt``), and what users read before and without one (``unreported.txt``).

To add an end, write its first three columns: the task, the facts about it or the rows of a batch, and the error.
The line below is the next step, after the event if the verdict changes that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew import exceptions as ends
from airflow_provider_crew.batch.facts import end, fact
from airflow_provider_crew.batch.fold import Row, Why, fold, steps_of
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.task.decide import KickoffRecord, Next, RowCounts
from airflow_provider_crew.task.record import end_of as recorded_end
from airflow_provider_crew.task.verdict import Facts, Phase, verdict
from airflow_provider_crew.versions import KEEP

AT = "task 2 of 2, writing_task (Writer), after 6s"
CLASSES = [each for each in (vars(errors) | vars(ends)).values() if isinstance(each, type)]
ERRORS: dict[str, BaseException] = {
    **{each.__name__: each(each.__name__) for each in CLASSES if issubclass(each, errors.CrewError)},
    "execution_timeout": AirflowTaskTimeout("over"),
    "MemoryError": MemoryError("no memory is left."),
    "no connection": errors.Unreachable("no connection", sent=False, lacks_connection=True),
    "unusable secret": errors.InvalidSettings("Connection 'crew_webhook' is unusable."),
    "refused": errors.Unreachable("refused", sent=False),
    "reset": errors.Unreachable("reset"),
    "certificate": errors.Unreachable("certificate", sent=False, tls_failed=True),
    "http, not https": errors.Unreachable("wrong version", tls_failed=True),
    "moved": errors.ExecutionUnknown("unknown", elsewhere="https://crew.example"),
    "result forgotten": errors.ExecutionUnknown("NOT FOUND", has_completed=True, cost=Cost.ENDED),
    "unknown, and ran": errors.ExecutionUnknown("NOT FOUND", at=AT),
    "WatchBroken": errors.WatchBroken("401", cause=errors.NotAuthenticated("401")),
    "InvalidKickoffId": errors.InvalidKickoffId("none", cost=Cost.UNKNOWN),
    "InvalidOutput": errors.InvalidOutput("misfit", misfits=("title",)),
    "output_type raises": errors.InvalidOutput("KeyError"),
    "lost after 500": errors.LostContact("outage", cause=errors.ServiceError("500", http_status=500)),
    "lost after 503": errors.LostContact("outage", cause=errors.ServiceError("503", http_status=503)),
    "lost without a connection": errors.LostContact("outage", cause=errors.Unreachable("", lacks_connection=True)),
    "lost as no host": errors.LostContact("outage", cause=errors.Unreachable("refused", sent=False)),
    "lost by a function": errors.LostContact("outage", kickoff_id="8"),
    "timeout of a function": errors.WaitedTooLong("timeout", kickoff_id="8"),
    **{f"{status}": errors.Rejected(f"{status}", http_status=status) for status in (302, 400, 404)},
    "400, missing inputs": errors.Rejected("400", http_status=400, missing_inputs=("topic",)),
    "missing inputs": errors.InvalidInputs("no topic", missing_inputs=("topic",)),
    "files missing": ends.InvalidResultPath("none of its files"),
    "files of another": ends.InvalidResultPath("another batch", owner="{}"),
}
SENT = KickoffRecord(0, 0.0, reported=True)
RUNNING, COMPLETED = KickoffRecord(0, 0.0, "7"), KickoffRecord(0, 0.0, "7", "completed")
FACTS: dict[str, dict[str, Any]] = {
    "before": {"phase": "before"},
    "sending": {"phase": "sending", "next": Next(SENT)},
    "waiting": {"phase": "waiting", "next": Next(RUNNING)},
    "ended": {"phase": "ended", "next": Next(COMPLETED)},
    "earlier none": {},
    "earlier running": {"next": Next(RUNNING)},
    "earlier completed": {"next": Next(COMPLETED)},
    "earlier stopped": {"next": Next(replace(RUNNING, end="stopped"))},
    "earlier uncertain": {"next": Next(SENT)},
    "earlier unreported": {"next": Next(replace(SENT, reported=False))},
    "earlier may have started": {"next": Next(may_be_forgotten=True)},
    "earlier unreadable": {"next": Next(is_unreadable=True)},
    "no record": {"next": Next()},
    "not durable": {"next": Next(RUNNING, durable=False)},
    "result not durable": {"next": Next(COMPLETED, durable=False)},
    "intent stays": {"next": Next(RUNNING, is_unnamed=True)},
    "unsent intent stays": {"next": Next(is_unnamed=True)},
    "asked to cancel": {"next": Next(replace(RUNNING, cancelled=True))},
    "on_invalid_output=retry": {"rejects_misfits": False},
    "meta": {"meta": '"dag_id": "d"'},
    "named": {"where": ("briefs", "manual__1 of Ann", "brief", 3), "conn_id": "crew_eu"},
    "unmapped": {"where": ("briefs", "manual__1", "brief", None), "conn_id": "crew_eu"},
    "no retry left": {"has_retry": False},
    "Airflow ends it": {"is_ending": True},
    **{skips: {"skips": skips} for skips in ("soft_fail", "never_fail")},
}


# How the kickoff of a row has ended: status, error and stage.
KICKOFFS: dict[str, Any] = {
    "s": ("success", None, ""),
    "i": ("invalid_output", errors.InvalidOutput("misfit"), "output"),
    "e": ("error", errors.ExecutionFailed("failed"), "execution"),
    "r": ("error", errors.Rejected("422"), "kickoff"),
    "n": ("error", errors.InvalidInputs("no topic"), "inputs"),
    "w": ("error", errors.WaitedTooLong("timeout"), "wait"),
    "c": ("cancelled", errors.ExecutionCancelled("cancelled"), "execution"),
    "p": ("cancelled", errors.ExecutionStopped("stopped"), "execution"),
}


def row(sign: str, index: int) -> Row:
    """Return a row that waits (``.``), runs (``k``), has ended, or is uncertain and reported (``u``) or not."""
    made = Row(index, f"{index}", "digest")
    facts = [fact(made, 1, "sent", at=1.0, address="", call="")] if sign != "." else []
    facts += [fact(made, 1, "named", kickoff_id="7")] if sign not in ".u?rn" else []
    facts += [fact(made, 1, "reported", error=None)] if sign == "u" else []
    facts += [end(made, *KICKOFFS[sign], number=1)] if sign in KICKOFFS else []
    fold([made], facts)
    return made


def rows(
    signs: str,
    *,
    reruns: bool = False,
    rerun: Any = "failed",
    is_billed: bool = True,
    pilot: int = 0,
    **others: Any,
) -> RowCounts:
    """Return the counts of rows. ``reruns``: whether more have failed than ``max_failed``."""
    made = [row(sign, index) for index, sign in enumerate(signs)]
    whys = Why(cleared=False, reruns=reruns), Why(cleared=True, reruns=True, runs_all=rerun == "all")
    retried, cleared = (steps_of(made, why=why, pilot=pilot) for why in whys)
    others |= {"executions": int(is_billed), "runs_all": rerun == "all"}
    return RowCounts(retried=retried, cleared=cleared, **others)


ENDED_ROWS = 90 * "s" + 7 * "e" + "c"
ROWS = {
    "nothing read": rows("", is_billed=False),
    "not started": rows(100 * ".", is_billed=False),
    "not read": rows(100 * ".", is_billed=False, is_blind=True),
    "not read, rerun=all": rows(100 * ".", is_billed=False, is_blind=True, rerun="all"),
    "all succeeded": rows(100 * "s"),
    "failed": rows(ENDED_ROWS + "ii"),
    "only failed": rows(ENDED_ROWS),
    "failed, more wait": rows(ENDED_ROWS + "rn" + 10 * "."),
    "failed, more run": rows(ENDED_ROWS + "kk"),
    "too many failed": rows(ENDED_ROWS + "ii", reruns=True),
    "one failed": rows(99 * "s" + "e", reruns=True),
    "stopped": rows(ENDED_ROWS + "pp", reruns=True),
    "one stopped": rows(99 * "s" + "p", reruns=True),
    "invalid": rows(98 * "s" + "ii"),
    "running": rows(84 * "s" + 16 * "k"),
    "not ended in time": rows(84 * "s" + 16 * "w"),
    "uncertain": rows(ENDED_ROWS + "uu", reruns=True),
    "too many uncertain": rows("uu" + 98 * ".", is_stuck=True),
    "too many uncertain, some run": rows("uu" + 8 * "k" + 90 * ".", is_stuck=True),
    "too many invalid": rows("sii" + 97 * ".", is_stuck=True, is_stuck_if_cleared=True),
    "uncertain, unreported": rows(90 * "s" + "u" + 9 * "?"),
    "too many of both": rows("uuii", is_stuck_if_cleared=True),
    "rejected": rows(90 * "s" + 2 * "e" + 4 * "rn" + 5 * ".", reruns=True),
    "spent, more wait": rows(90 * "s" + 4 * "k" + 6 * ".", is_spent=True),
    "pilot failed": rows(8 * "s" + "ee" + 290 * ".", pilot=10, reruns=True),
    "pilot runs": rows(8 * "s" + "kk" + ".", pilot=10),
    "pilot passed": rows(10 * "s" + "e" + 10 * ".", pilot=10),
    "spent, all failed": rows("ee", is_spent=True),
    "spent, invalid": rows(98 * "s" + "ii", is_spent=True),
    "half": rows(ENDED_ROWS + "uu" + 16 * "k" + 584 * "."),
    "half, rerun=all": rows(ENDED_ROWS + "ii" + 16 * "k" + 584 * ".", rerun="all"),
}


def end_of(task: str, when: str, name: str) -> tuple[str, ...]:
    """Return what Airflow does, the cost, the effects of a retry and of clearing the task, and the next step."""
    error = ERRORS[name]
    if task == "batch":
        facts = Facts(rows=ROWS[when])
    else:
        known = {fact: value for word in when.split(", ") for fact, value in FACTS[word].items()}
        facts = Facts(kickoff_id="7", **known, is_sensor=task == "sensor", is_tool=task == "tool")
        if (record := facts.next.record) and facts.phase in {"waiting", "ended"}:
            ends = recorded_end(error, rejects_misfits=facts.rejects_misfits)
            facts.next = replace(facts.next, record=replace(record, **ends))
    end = verdict(error, facts)
    assert_told_alike(error, facts)
    failure = end.failure
    event = "" if failure.event == getattr(error, "event", "") else f"{failure.event} "
    step = f"{event}{on_every_airflow(failure.next_step)}"
    return end.action, failure.cost.value, end.if_retried or "-", f"{end.if_cleared}\n    {step}"


def assert_told_alike(error: BaseException, facts: Facts) -> None:
    """Check that the exception that Airflow gets, its failure and the Crew tab have what the table says."""
    end = verdict(error, facts)
    shown, failure, raised = end.as_dict(), end.failure, end.exception()
    late = ends.CrewTaskTimeout if isinstance(failure, ends.CutShort) else ends.CrewSensorTimeout
    kinds = {"skip": ends.CrewTaskSkipped, "fail": ends.CrewTaskFailed, "time out": late, "retry": type(failure)}
    assert raised is error if end.action == "pass on" else type(raised) is kinds[end.action]
    assert end.action == "pass on" or str(raised) == str(failure)

    is_new = facts.phase == "before" and facts.next.earlier == "none"
    assert failure.kickoff_id == (getattr(error, "kickoff_id", "") or ("" if is_new else facts.kickoff_id))
    assert failure.next_step == failure.next_step.strip()
    if isinstance(error, errors.CrewError):
        told = dict.fromkeys(("event", "cost", "spent", "next_step", "kickoff_id", "error"))
        assert type(failure) is type(error)
        assert vars(failure) | told == vars(error) | told

    same = {"action": end.action, "if_retried": end.if_retried, "if_cleared": end.if_cleared, "meta": facts.meta}
    assert shown == same | {"choices": shown["choices"]}
    assert on_every_airflow(shown["choices"]["clear"]) == f"it {end.if_cleared}"
    left = shown["choices"]["nothing"]
    assert ("executions" in left) is (facts.rows is not None and "running" in left)


def left(kickoff_id: str | None = None, end: Any = None, **fields: Any) -> Next:
    """Return what the next attempt finds, for ``unreported.txt``."""
    about = {name: fields.pop(name) for name in ("was_cleared", "durable", "is_unnamed") if name in fields}
    return Next(KickoffRecord(0, 0.0, kickoff_id, end, **fields), **about)


def on_every_airflow(text: str) -> str:
    """Omit what is said only if clearing a task deletes its kickoff record."""
    return text.replace(f"{KEEP[1:]}, it ", "it ").replace(KEEP, "")


def test_verdicts_are_those_of_the_table(tabulated: Any) -> None:
    tabulated("verdicts.txt", 3, end_of)


def fields(value: Any, name: str = "") -> Iterator[str]:
    """Yield each sentence, with its name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields(inner, f"{name}.{key}".strip("."))
    else:
        yield f"{name}: {on_every_airflow(value)}"


def fixes() -> Iterator[str]:
    """Yield what users can do about each error, also where there is no verdict."""
    for name, error in ERRORS.items():
        if isinstance(error, errors.CrewError):
            yield f"{name}: {error.fix or '-'}"


def test_sentences_without_a_verdict_are_those_of_the_table(evaluated: Any) -> None:
    evaluated("unreported.txt", **globals())


def test_no_retry_starts_another_execution_while_one_may_be_running() -> None:
    found = [
        Next(record, durable, is_unnamed=is_unnamed)
        for record in (RUNNING, COMPLETED, None)
        for durable in (True, False)
        for is_unnamed in (True, False)
    ]
    found += [Next(is_unreadable=True), Next(is_unreadable=True, durable=False)]
    phases: tuple[Phase, ...] = ("waiting", "ended")
    for error, each, phase in product(ERRORS.values(), found, phases):
        if recorded_end(error, rejects_misfits=True):  # it has ended
            continue
        end = verdict(error, Facts(phase=phase, kickoff_id="7", next=each))
        starts = each.decision(cleared=False).name.startswith("KICK_OFF")
        may_retry = each.durable if each.is_unreadable else not starts
        assert end.action == "fail" or may_retry, (error, each, phase)
