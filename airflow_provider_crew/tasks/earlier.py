"""What an earlier try has left: the execution that this try goes on with, or none."""

import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from airflow_provider_crew.compat import was_rescheduled, xcom_keys_left_behind
from airflow_provider_crew.service.errors import CallError, Cost, ExecutionNotFound, UncertainKickoff
from airflow_provider_crew.service.watch_words import unknown_elsewhere
from airflow_provider_crew.tasks.decide import Decision, End, Standing, decide
from airflow_provider_crew.tasks.ends import HOW_TO_GIVE_UP, CrewTaskFailed, OtherInputs, give_up
from airflow_provider_crew.tasks.memory import KickoffMemory
from airflow_provider_crew.tasks.running import RunningTask
from airflow_provider_crew.tasks.xcom import KICKOFF_ID

_NO_ANSWER = "An earlier attempt sent a kickoff and ended before its answer, so an execution may have started."
_ONE_ATTEMPT_TOO_MANY = (
    "Airflow runs this task once more than its retries allow: it lost the process of the attempt before, or the "
    "task was cleared while it ran. That attempt may have started an execution."
)
_ENDS: dict[str, End] = {"completed": "completed", "error": "failed"}


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
        task.warn(
            "This task may have been cleared without 'Keep task state', which deletes its kickoff record. It "
            "starts an execution. One of an earlier attempt may still be running, and billed."
        )
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
    if decision is Decision.ASK and memory.going_on:
        standing = _standing(task, memory, memory.going_on)
        decision = decision_on(memory.last, standing)
        if decision is Decision.REATTACH and standing == "unknown":
            task.warn(
                f"Execution {memory.going_on} of an earlier attempt is unknown to the crew, as it is while a crew "
                f"waits for human input. It may be running, and billed. {HOW_TO_GIVE_UP}"
            )
    return _carry_out(decision, task, memory)


def _carry_out(decision: Decision, task: RunningTask, memory: KickoffMemory) -> str | None:
    log, last = task.log, memory.last
    kickoff_id = last.kickoff_id if last else None
    match decision:
        case Decision.REATTACH:
            if memory.has_other_inputs:
                task.warn(
                    f"Execution {kickoff_id} has other inputs than the task has now. The task returns its result."
                )
            reattach(task, memory, kickoff_id)
            return kickoff_id
        case Decision.KICK_OFF_BY_CHOICE:
            by_people = memory.was_cleared and last and last.reported
            why = "the task was cleared" if by_people else "on_uncertain_kickoff='retry'"
            task.warn(f"{_NO_ANSWER} This attempt starts another, because {why}. Two may be billed.")
        case Decision.KICK_OFF_AFTER_OBLIVION:
            memory.has_given_up = True
            task.warn(
                f"Execution {kickoff_id} of an earlier attempt is unknown to the crew, and older than "
                "forget_after. The task was cleared, so it starts another. If the earlier one still waits for "
                "human input, two are billed."
            )
        case Decision.KICK_OFF_AFTER_END:
            log.info("Execution %s of an earlier attempt has ended. Starting another.", kickoff_id)
        case Decision.KICK_OFF:
            pass
        case Decision.FAIL_OTHER_INPUTS:
            _fail_with_other_inputs(task, kickoff_id or "")
        case _:  # nothing that is not named here may start an execution
            raise UncertainKickoff(_NO_ANSWER)
    return None


def _fail_with_other_inputs(task: RunningTask, kickoff_id: str) -> NoReturn:
    """
    Fail without a retry, because an execution that may be running has the inputs of another row.

    To reattach would hand the result of that row to this one. To kick off would pay while the execution runs.
    """
    ti = task.ti
    error = OtherInputs(
        f"Execution {kickoff_id} may be running with the inputs of another row: task {ti.task_id}, map index "
        f"{ti.map_index}, of run {ti.run_id} of {ti.dag_id} started it before the list of inputs changed.",
        next_step=f'Read its result with CrewExecutionSensor(kickoff_id="{kickoff_id}"), or clear the task when '
        "it has "
        f"ended. {HOW_TO_GIVE_UP}",
        kickoff_id=kickoff_id,
    )
    task.metrics.kickoff("not_taken")
    give_up(task, CrewTaskFailed(error))


def reattach(task: RunningTask, memory: KickoffMemory, kickoff_id: str | None) -> None:
    """Continue with the execution of an earlier attempt."""
    memory.note_reattached()
    task.log.info(
        "Reattached to execution %s, which an earlier attempt started with its inputs. To start another: clear "
        "the task when it has ended, or set reattach=False.",
        kickoff_id,
    )


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
        task.warn(f"Status of execution {kickoff_id} is unreadable. {error.event}")
        return "not told"
    end = _ENDS.get(execution.status)
    if end:
        memory.note(end=end)
    return end or "going on"


def _refuse_a_try_that_nobody_asked_for(task: RunningTask, *, chooses_twice: bool) -> None:
    """Refuse one that Airflow begins by itself, where no try knows of another."""
    ti = task.ti
    # It had left a kickoff id, which Airflow has deleted just now.
    if was_rescheduled(ti) and KICKOFF_ID in xcom_keys_left_behind(ti):
        raise UncertainKickoff(
            "This attempt has started an execution before, and Airflow has begun it again because it could not "
            "load its DAG.",
            cost=Cost.RUNNING,
        )
    if ti.try_number <= ti.max_tries + 1:
        return
    if not chooses_twice:
        raise UncertainKickoff(_ONE_ATTEMPT_TOO_MANY)
    task.warn(
        f"{_ONE_ATTEMPT_TOO_MANY} This attempt starts another, because on_uncertain_kickoff='retry'. Two may be "
        "billed."
    )
