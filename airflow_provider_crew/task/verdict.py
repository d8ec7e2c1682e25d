"""
Verdict on a task that ends without a result: what Airflow does, the cost, and the next step. It does no I/O.

``decide()`` is its twin for the beginning of a task. Every next step is made here, from the error's ``fix``.
``tests/unit/verdicts.txt`` has the table as text.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_crew import exceptions
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost, CrewError
from airflow_provider_crew.client.text import in_words, one_line
from airflow_provider_crew.task.decide import (
    Decision,
    End,
    KickoffRecord,
    Next,
    PolledStatus,
    RowCounts,
    effect_on,
)
from airflow_provider_crew.versions import KEEPING

# Next step if a task has left none, for alerts and the Crew tab.
UNREPORTED = "Check the log and the crew's dashboard before you clear the task."

Phase = Literal["before", "sending", "waiting", "ended"]
"""Whether nothing was sent, the kickoff is on its way, the kickoff ID is known, or the execution has completed."""
Action = Literal["retry", "fail", "skip", "time out", "pass on"]
"""What Airflow does with the task. ``pass on``: it gets the exception that it would get without this package."""

_UNLESS_DISCARDED = ", unless the task is cleared without 'Keep task state and resume'," if KEEPING else ""
_STARTS = "starts an execution (billed)"
_STARTS_ANOTHER = "starts another execution (billed)"
AFTER_FORGETTING = f"Clearing the task {_STARTS_ANOTHER}."
_WAITS = "waits for the same execution, at no further cost"
AFTER_REMOVAL = "Trigger the DAG crew_wait_for_execution with the kickoff ID, or cancel the execution."
AFTER_UPSTREAM = f"When its upstream tasks have succeeded, clearing the task {_WAITS}."
_READS = "reads the result of the same execution, at no cost"
_IF_SAME = (
    "waits for the execution if the inputs are the same, or else starts another (billed) once that has ended"
)
_CHECKS = "checks the same result again, at no cost"
_ENDS_AGAIN = "ends with the same error, at no cost"
_REPORTS = "reports the uncertain kickoff. Clearing the task after that starts another execution (billed)"
_STARTS_UNLESS_RUNNING = f"{_STARTS_ANOTHER}, unless the last one is still running"
# What an attempt does about a stored record.
_EFFECTS = {
    Decision.KICK_OFF: _STARTS,
    Decision.REATTACH: _READS,
    Decision.FAIL_UNCERTAIN: _REPORTS,
    Decision.FAIL_STOPPED: _ENDS_AGAIN,
}
# What happens to the execution of a task that has ended, and to those of a batch.
_LEFT: dict[Cost, tuple[str, str]] = {
    Cost.NONE: ("nothing is billed", "nothing is billed"),
    Cost.RUNNING: ("the execution keeps running and is billed", "the executions keep running and are billed"),
    Cost.ENDED: ("nothing more is billed", "nothing more is billed"),
    Cost.UNKNOWN: ("an execution may be running and billed", "executions may be running and billed"),
}
# The effects for which Airflow 3.4 needs "Keep task state and resume".
_NEED_RECORD = frozenset({_WAITS, _READS, _CHECKS, _REPORTS, _STARTS_UNLESS_RUNNING})


@dataclass(slots=True, kw_only=True)
class Facts:
    """
    State of an attempt, from which follows what its end means.

    :param kickoff_id: Execution of this attempt, or of an earlier one if this attempt has none.
    :param where: DAG, run, task and map index, for commands.
    :param conn_id: Connection of the crew. Empty if it is unknown.
    :param next: What the next attempt finds.
    :param rejects_misfits: Whether ``on_invalid_output`` is ``fail``.
    :param meta: Meta of the kickoff that names the task, as JSON. Empty if the DAG author has set another.
    :param has_retry: Whether Airflow has a retry left.
    :param is_ending: Whether Airflow is ending the process, which does not know whether it was cleared or marked.
    :param is_tool: Whether an agent has called the crew. The command ``adopt`` doesn't know such a record.
    :param skips: Argument of a sensor because of which Airflow skips it.
    :param rows: Rows of a batch, of which ``has_retry`` and ``is_ending`` are the only other facts.
    """

    phase: Phase = "before"
    kickoff_id: str = ""
    where: tuple[str, str, str, int | None] = ("DAG_ID", "RUN_ID", "TASK_ID", -1)
    conn_id: str = ""
    next: Next = field(default_factory=Next)
    rejects_misfits: bool = True
    meta: str = ""
    has_retry: bool = True
    is_ending: bool = False
    is_sensor: bool = False
    is_tool: bool = False
    skips: Literal["", "soft_fail", "never_fail"] = ""
    rows: RowCounts | None = None

    def effect(self, *, cleared: bool = False, status: PolledStatus | None = None) -> str:
        """Return what a retry does, or clearing the task, about the execution in the record."""
        if self.next.is_unreadable:
            return "reads the kickoff record again"
        if self.next.record is None and not self.next.is_unnamed:
            return _STARTS if self.phase == "before" else _STARTS_ANOTHER
        return _effect_of(self.next, status, cleared=cleared)


def _effect_of(found: Next, status: PolledStatus | None = None, *, cleared: bool) -> str:
    decision = found.decision(status, cleared=cleared)
    if decision is Decision.ASK:  # it has not ended yet
        end: PolledStatus = "failed" if found.record and found.record.cancelled else "completed"
        is_kept = found.decision(end, cleared=cleared) is Decision.REATTACH
        return _WAITS if is_kept else _STARTS_UNLESS_RUNNING
    return _EFFECTS.get(decision, _STARTS_ANOTHER)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    End of a task.

    :param failure: What happened, with its cost and the next step.
    :param if_retried: Effect of a retry, as the rest of a sentence. Empty if there is none.
    :param if_cleared: Effect of clearing the task.
    :param cause: Exception that has ended the task.
    :param meta: Meta that names the task, as JSON.
    :param is_of_batch: Whether it is about many executions.
    """

    action: Action
    failure: CrewError
    if_retried: str
    if_cleared: str
    cause: BaseException
    meta: str = ""
    is_of_batch: bool = False

    def exception(self) -> BaseException:
        """Return the exception that makes Airflow act."""
        failure = self.failure
        match self.action:
            case "pass on":
                return self.cause
            case "skip":
                return exceptions.CrewTaskSkipped(failure)
            case "time out" if isinstance(failure, exceptions.CutShort):
                return exceptions.CrewTaskTimeout(failure)
            case "time out":
                return exceptions.CrewSensorTimeout(failure)
            case "fail":
                return exceptions.CrewTaskFailed(failure)
        return failure

    def as_dict(self) -> dict[str, Any]:
        """Return the sentences that the Crew tab shows."""
        shown = {"action": self.action, "if_retried": self.if_retried, "if_cleared": self.if_cleared}
        choices = _choices(self.if_cleared, self.failure.cost, is_of_batch=self.is_of_batch)
        return shown | {"meta": self.meta, "choices": choices}


@dataclass(frozen=True, slots=True)
class _Row:
    """
    Row of the table.

    :param effect: Effect of a retry.
    :param fix: Part of the next step before that effect.
    :param after: Part of the next step behind it.
    :param cleared: Effect of clearing the task, if it differs from that of a retry.
    """

    action: Action
    effect: str
    fix: str = ""
    after: str = ""
    cleared: str = ""

    @property
    def if_cleared(self) -> str:
        """Effect of clearing the task."""
        return self.cleared or self.effect


def verdict(error: BaseException, facts: Facts) -> Verdict:
    """Return the end of a task, from the exception that ends it and the facts about the attempt."""
    event = error if isinstance(error, CrewError) else _event_of(error, facts)
    is_foreign = event is not error and type(event) is CrewError
    if is_foreign and (facts.skips == "soft_fail" or not isinstance(error, Exception)):
        facts = replace(facts, skips="")  # as in Airflow's own sensors
    row = _row(event, facts)
    if facts.conn_id and "Connection '" not in event.event:  # the event may name that of a webhook's secret
        row = replace(row, fix=row.fix.replace("the connection", f"connection `{facts.conn_id}`", 1))
    # Another exception keeps its traceback, unless a retry of the task would start a second execution.
    passes_on = is_foreign and row.action not in {"fail", "skip"}
    is_retried = (
        passes_on or row.action == "retry" or (row.action == "time out" and isinstance(event, exceptions.CutShort))
    )
    if_retried = row.effect if is_retried else ""
    is_new = facts.phase == "before" and facts.next.earlier == "none"  # an earlier one is over
    failure = event.replace(
        _with_earlier(event, facts),
        cost=_cost(event, facts),
        spent=_spent(facts.rows),
        next_step=_next_step(row, facts, if_retried),
        kickoff_id=event.kickoff_id or ("" if is_new else facts.kickoff_id),
    )
    action: Action = "pass on" if passes_on else row.action
    return Verdict(action, failure, if_retried, row.if_cleared, error, facts.meta, facts.rows is not None)


def _spent(rows: RowCounts | None) -> str:
    if not (rows and rows.executions):
        return ""
    return f"{rows.executions:,} execution{'' if rows.executions == 1 else 's'}, {rows.tokens:,} tokens."


def if_lost(found: Next, keeping: str = KEEPING) -> dict[str, Any]:
    """Return the sentences for a task that leaves no report: its process was killed, or it has succeeded."""
    record, effect = found.record, _effect_of(found, cleared=True)
    cost = Cost.UNKNOWN if not (record and record.kickoff_id) else Cost.ENDED if record.end else Cost.RUNNING
    fix = "Search the crew's dashboard for the execution. " if cost is Cost.UNKNOWN else ""
    return {
        "cost": cost.value,
        "billed": cost.sentence,
        # Only clearing a task whose result was delivered begins an attempt, which Airflow may retry.
        "if_retried": _effect_of(found, cleared=record is not None and record.delivered),
        "if_cleared": effect,
        "next_step": f"{fix}Clearing the task{keeping if effect in _NEED_RECORD else ''} {effect}.",
        "choices": _choices(effect, cost, keeping),
    }


def if_lost_without_record(facts: Facts) -> dict[str, Any]:
    """Return the sentences of ``if_lost()`` for a sensor, or for a task whose next attempt may read no record."""
    end: End | None = "completed" if facts.phase == "ended" else None
    known = if_lost(Next(KickoffRecord(0, 0.0, facts.kickoff_id or None, end)), keeping="")
    if facts.is_sensor:
        return known
    return {"cost": known["cost"], "billed": known["billed"], "next_step": UNREPORTED}


def while_waiting(facts: Facts, *, cancels: bool, cancels_at_timeout: bool = False) -> dict[str, dict[str, str]]:
    """
    Return the sentences for a task that waits, before a user does anything.

    ``choices``: effect and cost of each choice, and of the timeout without an answer. ``after_kill``: the
    next step after the trigger has tried to cancel the execution, by whether it is ``cancelled``, has ``ended`` by
    itself, is ``running``, or was ``asked`` to end and may do so later.
    """
    keeps = _LEFT[Cost.RUNNING][0]
    cancelled = "the task asks the crew to cancel the execution (billed up to its end)"
    returned = "the task returns the result when the execution ends. The execution is billed once"
    returned += "" if facts.is_sensor or not facts.has_retry else f". If it fails, a retry {_STARTS_ANOTHER}"
    mark = {"mark": cancelled if cancels else keeps}
    late = f"{cancelled}, unless the crew reports NOT FOUND" if cancels_at_timeout else keeps
    nothing = {"nothing": returned, "unanswered": late}
    if facts.is_sensor:
        after = {"cancelled": _ENDS_AGAIN, "ended": _READS, "running": _WAITS, "asked": _WAITS}
    else:
        now = replace(facts, phase="waiting")
        ends: dict[str, PolledStatus] = {"cancelled": "stopped", "ended": "completed"}
        after = {end: now.effect(cleared=True, status=status) for end, status in ends.items()}
        after["running"] = after["asked"] = now.effect(cleared=True)
        if after["asked"] == _WAITS:
            after["asked"] = _STARTS_UNLESS_RUNNING
    return {
        "choices": _choices(after["running"], Cost.RUNNING) | mark | nothing,
        "after_kill": {end: _sentence(_clearing(effect)) for end, effect in after.items()},
    }


def while_rows_run(rows: RowCounts, *, cancels: bool, retries: int = 0) -> dict[str, Any]:
    """Return the sentences for a batch that has not ended, and for one whose process was killed (``if_lost``)."""
    if_cleared = effect_on(rows, cleared=True)
    after = _choices(if_cleared, Cost.UNKNOWN, is_of_batch=True)
    stops = "the task asks the crew to cancel the running executions, which are billed up to their end"
    mark = stops if cancels else f"no further row starts, and {_LEFT[Cost.RUNNING][1]}"
    again = f". If it fails, retries (up to {retries:,}) may rerun failed rows (billed)" if retries else ""
    nothing = f"the batch continues, and each of its executions is billed once{again}"
    return {
        "choices": after | {"mark": mark, "nothing": nothing},
        "if_lost": {
            "cost": Cost.UNKNOWN.value,
            "billed": "unknown; rows may be running. Those with a kickoff in flight are reported as uncertain.",
            "if_retried": effect_on(rows, cleared=False),
            "next_step": " ".join(filter(None, (_look_first(rows), _sentence(_clearing(if_cleared))))),
            "choices": after,
        },
    }


def _look_first(rows: RowCounts) -> str:
    """Return what to do before the next attempt, which may start uncertain rows again, or nothing."""
    which = f"the executions of the uncertain rows ({rows.uncertain:,})"
    look = f"Look for {which} in the crew's dashboard first." if rows.uncertain else ""
    fix = "Fix `output_type` or `check` first, or raise `max_failed`." if rows.is_stuck_if_cleared else ""
    return " ".join(filter(None, (look, fix)))


def _choices(effect: str, cost: Cost, keeping: str = KEEPING, *, is_of_batch: bool = False) -> dict[str, str]:
    """Return effect and cost of what a user may do about a task that has ended or waits for a retry."""
    clear = f"{keeping[1:]}, it {effect}" if keeping and effect in _NEED_RECORD else f"it {effect}"
    left = _LEFT[cost][is_of_batch]
    return {"clear": clear, "mark": f"no retry follows, and {left}", "nothing": left}


def _event_of(error: BaseException, facts: Facts) -> CrewError:
    """Return the event for an exception that is not ours: of Airflow, of a library, or of a user's function."""
    why, phase = one_line(in_words(error), 2_000).rstrip("."), facts.phase
    if facts.rows:
        return CrewError(f"The batch was ended by {why}.")
    if phase == "sending":
        event = f"The kickoff may have started an execution. It was interrupted while being sent: {why}."
        return errors.UncertainKickoff(event)
    if isinstance(error, AirflowTaskTimeout):
        when = {"before": "before the kickoff", "waiting": "while the execution was running"}
        return exceptions.CutShort(f"execution_timeout passed {when.get(phase, 'before the result was read')}.")
    what = "task was ended before the kickoff" if phase == "before" else "wait for the execution was ended"
    return CrewError(f"The {what} by {why}.")


_OUTAGES = (errors.TransientError, errors.LostContact)


def _is_passing(error: CrewError) -> bool:
    """Whether a retry may succeed without a person. Of the others, each table lists those that are retried."""
    is_unnamed = type(error) is CrewError  # another exception has ended the task
    return is_unnamed or isinstance(error, (*_OUTAGES, errors.WaitedTooLong, exceptions.CrewTaskError))


def _row(error: CrewError, facts: Facts) -> _Row:
    if facts.rows:
        return _row_of_batch(error, facts.rows)
    if facts.is_sensor:
        return _row_of_sensor(error, facts)
    if facts.phase in {"before", "sending"}:
        return _row_before(error, facts)
    return _row_after(error, facts)


def _row_after(error: CrewError, facts: Facts) -> _Row:  # noqa: C901, PLR0911 - a table
    """Return the row of an operator that has an execution."""
    again, cleared = facts.effect(), facts.effect(cleared=True)
    match error:
        case errors.ExecutionStopped():
            return _Row("fail", cleared)
        case errors.ExecutionFailed():
            return _Row("retry", again, cleared=cleared)
        case errors.ExecutionUnknown(has_completed=True):
            return _Row("fail", cleared, error.fix)
        case errors.InvalidOutput() if error.misfits and not facts.rejects_misfits:
            return _Row("retry", again, cleared=cleared)
        case errors.InvalidOutput() if facts.next.reattaches:
            return _Row("fail", _CHECKS, "Fix `output_type`.")
        case errors.InvalidOutput():
            return _Row("fail", cleared, f"Fix `output_type`. To read the same result, {_waiting(facts)}.")
        case _ if not facts.next.reattaches:  # a retry would start another
            return _Row("fail", cleared, f"To wait for the execution without starting another, {_waiting(facts)}.")
        case errors.ExecutionUnknown(elsewhere=""):
            return _Row("fail", cleared, _first(error), _start_over(facts))
        case errors.WaitStopped():
            return _Row("fail", cleared, _first(error))
    return _row_of_any(error, again, cleared, facts)


def _row_of_any(error: CrewError, effect: str, cleared: str = "", facts: Facts | None = None) -> _Row:
    """Return the row of an error that its table does not list. ``facts``: those of a task with an execution."""
    is_optional = error.fix == errors.TRY_LATER or isinstance(error, errors.WaitedTooLong)
    fix = "" if is_optional and _is_passing(error) else error.fix
    action: Action = "retry" if _is_passing(error) else "fail"
    cause = getattr(error, "cause", None)
    has_failed = getattr(cause, "http_status", None) == errors.FAILED_FOR_GOOD
    after = _start_over(facts, "If it failed") if facts and has_failed else ""
    return _Row("time out" if isinstance(error, exceptions.CutShort) else action, effect, fix, after, cleared)


def _row_of_batch(error: CrewError, rows: RowCounts) -> _Row:
    """Return the row of a batch."""
    if isinstance(error, exceptions.InvalidResultPath):
        return _Row("fail" if error.owner else "retry", "starts no rows until result_path is fixed", error.fix)
    row = _row_of_any(error, effect_on(rows, cleared=False), effect_on(rows, cleared=True))
    action: Action = "retry" if isinstance(error, exceptions.BatchFailed) and rows.has_more else row.action
    return replace(row, action=action, fix=" ".join(filter(None, (row.fix, _look_first(rows)))))


def _row_before(error: CrewError, facts: Facts) -> _Row:
    """Return the row of an operator that has no execution of its own."""
    cleared = facts.effect(cleared=True)
    match error:
        case errors.UncertainKickoff():
            meta = f"its meta, which contains {facts.meta}" if facts.meta else "the meta of this task"
            fix = f"Look for the execution in the crew's dashboard by {meta}."
            if facts.next.record and not facts.is_tool and not facts.is_ending:
                adopt = command("adopt", facts.where, "KICKOFF_ID", "--conn-id", facts.conn_id or "CONN_ID")
                fix += f" If it is there, run `{adopt}`: clearing the task{KEEPING} then waits for it. If not,"
            return _Row("fail", cleared if facts.next.record else _STARTS_ANOTHER, fix)
        case errors.ExecutionStopped():
            return _Row("fail", cleared)
        case errors.ExecutionUnknown():
            return _Row("fail", cleared, error.fix if error.has_completed else _first(error), _start_over(facts))
        case exceptions.OtherInputs():
            fix = f"To read the execution's result, {_waiting(facts)}."
            return _Row("fail", _IF_SAME, fix, _start_over(facts))
    row = _row_of_any(error, facts.effect(), cleared)
    if facts.next.earlier == "may have started" and cleared in {_STARTS, _STARTS_ANOTHER}:
        meta = f" (meta: {facts.meta})" if facts.meta else ""
        row = replace(row, fix=f"{row.fix} Look for that execution in the crew's dashboard first{meta}.".lstrip())
    return row


def _row_of_sensor(error: CrewError, facts: Facts) -> _Row:
    """Return the row of a sensor, which is the same in every mode."""
    row = _row_of_failed_sensor(error, facts)
    if facts.skips == "never_fail" or (facts.skips == "soft_fail" and not isinstance(error, _OUTAGES)):
        return replace(row, action="skip", fix=f"The task is skipped because of {facts.skips}.")
    return row


def _row_of_failed_sensor(error: CrewError, facts: Facts) -> _Row:  # noqa: PLR0911 - a table
    again = _READS if facts.phase == "ended" else _WAITS
    match error:
        case errors.WaitedTooLong():
            return _Row("time out", again)
        case errors.ExecutionFailed():
            fix = f"Clear the task that started the execution. That {_STARTS_ANOTHER}."
            return _Row("fail", _ENDS_AGAIN, fix)
        case errors.InvalidOutput():
            return _Row("fail", _CHECKS, "Fix `output_type`.")
        case errors.ExecutionUnknown(elsewhere="", has_completed=False):
            fix = f"{_first(error, 'this task')} With human_input=True, the sensor waits until its timeout."
            return _Row("fail", again, fix, _start_over(facts))
        case errors.ExecutionUnknown(has_completed=True):
            return _Row("fail", _ENDS_AGAIN, error.fix)
        case errors.InvalidKickoffId():
            fix = "Check what the kickoff task returned. After a mapped kickoff task, map the sensor: "
            effect = "waits for the execution that kickoff_id names then, at no further cost"
            return _Row("fail", effect, f"{fix}.expand(kickoff_id=kickoff.output).")
    return _row_of_any(error, again, facts=facts)


def command(name: str, where: Sequence[Any], *arguments: str) -> str:
    """Return a command about the kickoff record of a task, for a shell. ``where``: as in Facts."""
    *task, index = where
    mapped = [] if index in {None, -1} else ["--map-index", str(index)]
    return f"python -m airflow_provider_crew {name} {shlex.join([*task, *arguments, *mapped])}"


def _start_over(facts: Facts, when: str = "To start over") -> str:
    """Return how to abandon the execution and start another."""
    if facts.is_tool:  # the command knows the record of a task only
        return f"{when}, delete its crew_kickoff_… in the task's Task State Store, then clear the task."
    where = (*facts.where[:2], "TASK_ID", -1) if facts.is_sensor else facts.where
    then = " for the task that started it, then clear that task" if facts.is_sensor else ", then clear the task"
    return f"{when}, run `{command('forget', where)}`{then}."


def _waiting(facts: Facts) -> str:
    """Return how to wait for an execution in a DAG of its own."""
    conn_id = f" and connection `{facts.conn_id}`" if facts.conn_id else ""
    return f"trigger the DAG crew_wait_for_execution with kickoff ID {facts.kickoff_id}{conn_id}"


def _first(error: CrewError, task: str = "the task") -> str:
    """Return what a person does before clearing a task whose crew waits."""
    return f"{error.fix.removesuffix('.')} before you clear {task}."


def _cost(error: CrewError, facts: Facts) -> Cost:
    if facts.rows:
        return facts.rows.cost
    if facts.phase == "ended":
        return Cost.ENDED
    # The function for the inputs may have called another crew.
    is_of_function = facts.phase == "before" and error.kickoff_id not in {"", facts.kickoff_id}
    if is_of_function or isinstance(error, errors.UncertainKickoff | errors.ExecutionFailed):
        return error.cost
    if facts.is_sensor:  # it does not know what the kickoff task has started
        return Cost.UNKNOWN if error.cost is Cost.NONE else error.cost
    if facts.phase == "waiting":
        return Cost.RUNNING if error.cost is Cost.NONE or type(error) is CrewError else error.cost
    earlier = {"none": Cost.NONE, "running": Cost.RUNNING, "completed": Cost.ENDED}
    return earlier.get(facts.next.earlier, Cost.UNKNOWN)


def _with_earlier(error: CrewError, facts: Facts) -> str:
    """Return the event, with the execution of an earlier attempt if this one started nothing."""
    if facts.phase != "before" or isinstance(
        error, errors.UncertainKickoff | errors.ExecutionUnknown | errors.ExecutionStopped | exceptions.OtherInputs
    ):
        return error.event
    which = "The execution of an earlier attempt"
    fact = {
        "running": f"{which} is still running.",
        "completed": f"{which} has completed.",
        "unreadable": "An earlier attempt may have started an execution.",
        "may have started": "The kickoff of an earlier attempt may have started an execution.",
    }.get(facts.next.earlier)
    return f"{error.event} This attempt sent no kickoff. {fact}" if fact else error.event


def _next_step(row: _Row, facts: Facts, if_retried: str) -> str:
    clearing = _clearing(row.if_cleared, "this task" if facts.is_sensor else "the task")
    if facts.is_ending:
        which = f"the next attempt{_UNLESS_DISCARDED if row.effect in _NEED_RECORD else ''}"
        fix = "" if row.action == "skip" else row.fix
        return _then(fix, f"{which} {row.effect}")
    if row.action == "skip":
        return row.fix
    effects = f"retrying or {clearing}" if if_retried == row.if_cleared and facts.has_retry else clearing
    return f"{_then(row.fix, effects)} {row.after}".rstrip()


def _then(fix: str, effects: str) -> str:
    """Return what to do, followed by a sentence about the effects, which it may have begun."""
    return f"{fix} {f'{effects}.' if fix.endswith(',') else _sentence(effects)}".lstrip()


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _clearing(effect: str, task: str = "the task") -> str:
    keeping = KEEPING if effect in _NEED_RECORD else ""
    return f"clearing {task}{keeping} {effect}"
