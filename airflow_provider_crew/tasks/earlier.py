"""What an earlier try has left: the execution that this try goes on with, or none."""

import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from airflow_provider_crew.compat import was_rescheduled, xcom_keys_left_behind
from airflow_provider_crew.service.errors import CallError, ExecutionNotFound, UncertainKickoff, execution
from airflow_provider_crew.service.watch_words import unknown_elsewhere
from airflow_provider_crew.tasks import messages
from airflow_provider_crew.tasks.decide import Decision, End, Standing, decide
from airflow_provider_crew.tasks.ends import CrewTaskFailed, OtherInputs, give_up
from airflow_provider_crew.tasks.memory import KickoffMemory
from airflow_provider_crew.tasks.running import RunningTask
from airflow_provider_crew.tasks.xcom import KICKOFF_ID

_FORGOTTEN = (
    "This task may have been cleared, and Airflow may have forgotten what the task remembered, as it does unless "
    "Keep task state is ticked. The crew is kicked off. An execution of an earlier try may go on, and is paid for."
)
_UNKNOWN = (
    "Execution {}: kicked off by an earlier try, and the service does not know it. A crew that waits for a "
    f"person's answer reads like this: it may be alive, and it is paid for. {messages.HOW_TO_GIVE_UP}"
)
_OTHER_INPUTS = (
    "Execution {}: its inputs are not those that the task has now. The task returns the result for the inputs of "
    "the kickoff."
)
_PERHAPS_TWO = "It is not known whether that try has started an execution: two may be paid for."
_ENDS: dict[str, End] = {"completed": "completed", "error": "failed"}
# A process that Airflow does not count with any more lives until its next heartbeat, and some seconds more.
_LATE_ANSWER = 15.0
_PAUSE = 1.0


def earlier_execution(
    task: RunningTask,
    memory: KickoffMemory,
    *,
    chooses_twice: bool,
    forget_after: float | None,
    fingerprint: Callable[[bool], str | None],
) -> str | None:
    """
    Return the kickoff id of the execution that this try goes on with; None when it has to kick off.

    ``chooses_twice``: the author of the DAG would rather run the crew twice than fail. ``forget_after``: for how
    many seconds an execution that the service does not know may be waiting for a person; None: for ever.
    ``fingerprint``: the fingerprint of the inputs of this try, and None if it is not known. It is asked with
    whether it has to be known.
    """
    if not memory.lasts:
        _refuse_a_try_that_nobody_asked_for(task, chooses_twice=chooses_twice)
    if memory.may_have_forgotten:
        task.warn(_FORGOTTEN)
    last, is_mapped = memory.last, task.ti.map_index >= 0
    if last and last.fingerprint:
        now = fingerprint(is_mapped and memory.was_cleared)
        memory.has_other_inputs = now is not None and now != last.fingerprint
    decision_on = partial(
        decide,
        cleared=memory.was_cleared,
        chooses_twice=chooses_twice,
        is_old=bool(last and forget_after is not None and time.time() - last.kicked_off_at > forget_after),
        is_mapped=is_mapped,
        other_inputs=memory.has_other_inputs,
    )
    decision = decision_on(last)
    if decision is Decision.FAIL_UNCERTAIN:
        _take_over_late_answer(task, memory)
        decision = decision_on(memory.last)
    if decision is Decision.ASK and memory.going_on:
        standing = _standing(task, memory, memory.going_on)
        decision = decision_on(memory.last, standing)
        if decision is Decision.REATTACH and standing == "unknown":
            task.warn(_UNKNOWN.format(memory.going_on))
    return _carry_out(decision, task, memory)


def _carry_out(decision: Decision, task: RunningTask, memory: KickoffMemory) -> str | None:
    log, last = task.log, memory.last
    kickoff_id = last.kickoff_id if last else None
    match decision:
        case Decision.REATTACH:
            if memory.has_other_inputs:
                task.warn(_OTHER_INPUTS.format(kickoff_id))
            reattach(task, memory, kickoff_id)
            return kickoff_id
        case Decision.KICK_OFF_BY_CHOICE:
            by_people = memory.was_cleared and last and last.reported
            why = "because the task was cleared" if by_people else "as on_uncertain_kickoff='retry' says"
            task.warn(f"{messages.LOST_ANSWER.what}\nIt is kicked off anew, {why}.\n{_PERHAPS_TWO}")
        case Decision.KICK_OFF_AFTER_OBLIVION:
            memory.has_given_up = True
            task.warn(
                f"Execution {kickoff_id} of an earlier try is not known to the service, and was kicked off longer "
                "ago than forget_after. The task was cleared: the crew is kicked off anew. Should the earlier one "
                "still wait for a person, two are paid for."
            )
        case Decision.KICK_OFF_AFTER_END:
            log.info("Execution %s of an earlier try is over. The crew is kicked off anew.", kickoff_id)
        case Decision.KICK_OFF:
            pass
        case Decision.FAIL_OTHER_INPUTS:
            _fail_with_other_inputs(task, kickoff_id or "")
        case _:  # nothing that is not named here may start an execution
            raise UncertainKickoff.saying(messages.LOST_ANSWER)
    return None


def _fail_with_other_inputs(task: RunningTask, kickoff_id: str) -> NoReturn:
    """
    Fail without a retry, because an execution that may be running has the inputs of another row.

    To reattach would hand the result of that row to this one. To kick off would pay while the execution runs.
    """
    ti = task.ti
    words = {
        "execution": execution(kickoff_id),
        "id": kickoff_id,
        "task": ti.task_id,
        "index": ti.map_index,
        "dag": ti.dag_id,
        "run": ti.run_id,
    }
    task.metrics.kickoff("not_taken")
    give_up(task, CrewTaskFailed(OtherInputs.saying(messages.OTHER_INPUTS, words, kickoff_id=kickoff_id)))


def reattach(task: RunningTask, memory: KickoffMemory, kickoff_id: str | None) -> None:
    """Go on with an execution, and say so."""
    memory.note_reattached()
    task.log.info("Execution %s: kicked off by an earlier try, and gone on with.", kickoff_id)
    task.log.info("Nothing is kicked off anew: it has the inputs of that try.")
    task.log.info("To force that, clear the task again when it has ended, or set reattach=False.")


def _standing(task: RunningTask, memory: KickoffMemory, kickoff_id: str) -> Standing:
    """Ask the service how the execution stands, and remember an end. Asked elsewhere, it cannot say."""
    try:
        execution = task.hook.status(kickoff_id)
    except ExecutionNotFound as error:
        kicked_off_at = memory.last.address if memory.last else ""
        if kicked_off_at and kicked_off_at != error.address:
            raise unknown_elsewhere(kickoff_id, kicked_off_at, error.address) from None
        return "unknown"
    except CallError as error:
        task.warn(f"Execution {kickoff_id}: it is not known how it is doing.\n{error.reason}")
        return "not told"
    end = _ENDS.get(execution.status)
    if end:
        memory.note(end=end)
    return end or "going on"


def _take_over_late_answer(task: RunningTask, memory: KickoffMemory) -> None:
    """Wait for the process that sent the kickoff, which may still be there, and may be told the answer."""
    if memory.last and memory.last.reported:
        return
    task.log.info("An earlier try sent a kickoff. If its process still gets the answer, it is taken over.")
    until = time.monotonic() + _LATE_ANSWER
    while time.monotonic() < until:
        if found := memory.late_answer():
            memory.note_answer(found)
            return
        time.sleep(_PAUSE)


def _refuse_a_try_that_nobody_asked_for(task: RunningTask, *, chooses_twice: bool) -> None:
    """Refuse one that Airflow begins by itself, where no try knows of another."""
    ti = task.ti
    # It had left a kickoff id, which Airflow has deleted just now.
    if was_rescheduled(ti) and KICKOFF_ID in xcom_keys_left_behind(ti):
        raise UncertainKickoff.saying(messages.BEGUN_ANEW)
    if ti.try_number <= ti.max_tries + 1:
        return
    if not chooses_twice:
        raise UncertainKickoff.saying(messages.ONE_TRY_TOO_MANY)
    task.warn(
        f"{messages.ONE_TRY_TOO_MANY.what}\n"
        f"It is kicked off anew, as on_uncertain_kickoff='retry' says.\n{_PERHAPS_TWO}"
    )
