"""
End of a task without a result: with a retry, without one, or skipped, and with which cost and next step.

``end_before_kickoff`` ends a task that has started nothing, and ``end_wait`` one whose wait has ended. Exceptions
are raised from None, because a chain of tracebacks would hide the message.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.durable.decide import Decision
from airflow_provider_crew.durable.record import SharedRecord
from airflow_provider_crew.durable.task import RunningTask
from airflow_provider_crew.exceptions import (
    CrewSensorTimeout,
    CrewTaskError,
    CrewTaskFailed,
    CrewTaskSkipped,
    CrewTaskTimeout,
    CutShort,
    EndedTask,
    OtherInputs,
)
from airflow_provider_crew.versions import CLEARING, HOW_TO_FORGET, KEEPING

if TYPE_CHECKING:
    from airflow_provider_crew.durable.kickoff import DurableRun

# A later attempt may succeed after these.
PASSING = (errors.TransientError, errors.LostContact)

RETRY_REATTACHES = f"A retry, or {CLEARING}, waits for the same execution."
RETRY_READS = f"A retry, or {CLEARING}, reads the result of this execution."
STARTS_AGAIN = "A retry, or clearing the task, starts a new execution, which is billed again."
HOW_TO_GIVE_UP = (
    f"To give the execution up and start another: {HOW_TO_FORGET.format('this task instance')}, and clear the "
    "task."
)


def wait_with_sensor(kickoff_id: str | None) -> str:
    """Return the next step for a task that cannot wait again without starting another execution."""
    return f'Wait for it with CrewExecutionSensor(kickoff_id="{kickoff_id}"). The task is not retried.'


def give_up(task: RunningTask, end: errors.CrewError | EndedTask) -> NoReturn:
    """End the task, and push the reason with its progress, also if no execution has started."""
    failure = end.failure if isinstance(end, EndedTask) else end
    task.progress.ended(task.kickoff_id or failure.kickoff_id, failure)
    raise end from None


def end_before_kickoff(run: "DurableRun", error: errors.CrewError) -> NoReturn:
    """End a task that has no execution of its own. Airflow retries it if a later attempt may succeed."""
    task, record = run.task, run.record
    if isinstance(error, errors.UncertainKickoff):
        end_uncertain(run, error)
    task.measure("kickoff.not_taken")
    if isinstance(error, PASSING):
        step = _after_its_own(error, "A retry, or clearing the task, starts an execution.")
        give_up(task, with_earlier(run, error.replace(next_step=step, cost=Cost.NONE)))
    if isinstance(error, (errors.ExecutionUnknown, OtherInputs)):
        _fail(task, error, f"{error.next_step} {HOW_TO_GIVE_UP}")
    waits = record.running and not run.has_abandoned
    then = f"{KEEPING}: it waits for the same execution." if waits else ". It is not retried."
    step = f"{error.next_step} Then clear the task{then}".lstrip()
    cost = error.cost if waits else Cost.NONE
    give_up(task, CrewTaskFailed(with_earlier(run, error.replace(next_step=step, cost=cost))))


def end_uncertain(run: "DurableRun", error: errors.UncertainKickoff) -> NoReturn:
    """End a task whose kickoff may have started an execution. Retry it only if the DAG author has chosen to."""
    task = run.task
    task.measure("kickoff.uncertain")
    if run.chooses_twice:
        step = "A retry starts an execution, and two may be billed, because on_uncertain_kickoff='retry'."
        give_up(task, error.replace(next_step=step))
    is_reported = not task.operator.is_told_to_end and run.record.save_report()
    then = "starts a new execution" if is_reported else "reports this once more, and clearing it again starts one"
    step = f"Find the execution in the crew's dashboard {run.mark()}. The task is not retried; clearing it {then}."
    _fail(task, error, step)


def end_to_retry(run: "DurableRun", event: str, kind: type[EndedTask] = CrewTaskError) -> NoReturn:
    """End a task before its kickoff, with retries."""
    give_up(run.task, kind(interrupted(run, event)))


def interrupted(run: "DurableRun", event: str) -> errors.CrewError:
    """Return the error for a task that was ended before its kickoff."""
    step = "A retry, or clearing the task, continues."
    return with_earlier(run, errors.CrewError(event, cost=Cost.NONE, next_step=step))


def with_earlier(run: "DurableRun", error: errors.CrewError) -> errors.CrewError:
    """Add the execution of an earlier attempt, and its cost, to an error before this kickoff."""
    record, running, last = run.record, run.record.running, run.record.last
    chooses_twice = run.chooses_twice and run.task.ti.try_number > 1
    is_forgotten = not record.is_shared and (chooses_twice or record.may_follow_a_clear)
    changes: dict[str, Any] = {"cost": Cost.UNKNOWN}
    if running and run.has_abandoned:
        fact = f"Execution {running} of an earlier attempt is unknown to the crew."
    elif running:
        fact = f"Execution {running} of an earlier attempt is still running."
        changes = {"cost": Cost.RUNNING, "kickoff_id": running}
    elif last and last.end and run.decision() is Decision.REATTACH:
        fact = f"Execution {last.kickoff_id} of an earlier attempt has completed."
        step = f"{error.next_step} A retry, or {CLEARING}, reads its result.".lstrip()
        changes = {"cost": Cost.ENDED, "next_step": step}
    elif is_forgotten or (last and not last.end):
        fact = "The kickoff of an earlier attempt may have started an execution."
    else:
        return error
    return error.replace(f"{error.event} This attempt started nothing. {fact}", **changes)


def ended_from_outside(run: "DurableRun", error: BaseException, *, kicked_off: bool) -> errors.CrewError:
    """Return the error to log if something other than the crew has ended the task."""
    if not kicked_off:
        return interrupted(run, f"Task was ended before the kickoff: {in_words(error)}.")
    task = run.task
    step = task.waits_again if run.record.is_shared else wait_with_sensor(task.kickoff_id)
    which = f"execution {task.kickoff_id}" if task.kickoff_id else "its execution"
    return task.about_its_execution(f"Task was ended while waiting for {which}: {in_words(error)}.", step)


def end_kickoff_that_took_too_long(task: RunningTask) -> NoReturn:
    """Cancel the execution of a task whose execution_timeout passed before it waits, and end the task."""
    event = f"execution_timeout passed just after execution {task.kickoff_id} was started."
    end_wait(task, task.cancelled(CutShort(event, kickoff_id=task.kickoff_id or "")))


def end_wait(task: RunningTask, error: errors.CrewError) -> NoReturn:
    """End a task whose wait ended without a result."""
    record = task.record
    if record is None:
        _end_sensor(task, error)
    if isinstance(error, errors.InvalidOutput):
        _end_misfit(task, record, error)
    _end_run(task, record, error)


def _end_run(task: RunningTask, record: SharedRecord, error: errors.CrewError) -> NoReturn:
    """End the task. Airflow retries it after a failed execution, or if a retry starts no execution."""
    if isinstance(error, errors.ExecutionFailed):
        # Logged as well if the task is killed before Airflow has stored its state.
        task.has_ended = True
        _end_to_start_again(task, record, error)
    if isinstance(error, errors.ExecutionUnknown) and error.has_completed:  # its result is permanently unavailable
        record.update(kickoff_id=task.kickoff_id, end="completed", delivered=True)
        _fail(task, error, f"{error.next_step} Clearing the task starts a new execution, which is billed again.")
    if not record.is_shared:
        _fail(task, error, wait_with_sensor(task.kickoff_id))
    if isinstance(error, errors.ExecutionUnknown):
        step = f"Answer what the crew asks in its dashboard, and clear the task{KEEPING}. {HOW_TO_GIVE_UP}"
        _fail(task, error, error.next_step if error.elsewhere else step)
    again = error.replace(next_step=_after_its_own(error, RETRY_READS if task.has_ended else RETRY_REATTACHES))
    if isinstance(error, CutShort):
        give_up(task, CrewTaskTimeout(again))
    if isinstance(error, (*PASSING, errors.WaitedTooLong)):
        give_up(task, again)
    _fail(task, error, f"{error.next_step} Then clear the task{KEEPING}: it waits for the same execution.")


def _after_its_own(error: errors.CrewError, step: str) -> str:
    """Return a next step. If there is no connection, a user has to add it first."""
    return f"{error.next_step} {step}" if getattr(error, "lacks_connection", False) else step


def _fail(task: RunningTask, error: errors.CrewError, step: str) -> NoReturn:
    """End the task without a retry."""
    give_up(task, CrewTaskFailed(error.replace(next_step=step)))


def _end_to_start_again(task: RunningTask, record: SharedRecord, error: errors.CrewError) -> NoReturn:
    """End the task so that Airflow's retry starts a new execution."""
    task.waits_again = STARTS_AGAIN
    record.update(kickoff_id=task.kickoff_id, end="failed")
    give_up(task, error.replace(next_step=STARTS_AGAIN))


def _end_misfit(task: RunningTask, record: SharedRecord, error: errors.InvalidOutput) -> NoReturn:
    """End the task because its output does not match ``output_type``."""
    if task.operator.on_invalid_output == "retry" and error.misfits:
        _end_to_start_again(task, record, error)
    if record.is_shared:
        _fail(
            task,
            error,
            f"Fix `output_type`, and clear the task{KEEPING}: it checks the same result again, at no cost. "
            f"{HOW_TO_GIVE_UP}",
        )
    _fail(
        task,
        error,
        f'Fix `output_type`, and check the same result with CrewExecutionSensor(kickoff_id="{task.kickoff_id}", '
        "output_type=...). Clearing this task starts a new execution.",
    )


def _end_sensor(task: RunningTask, error: errors.CrewError) -> NoReturn:
    """Skip, time out, fail or retry the sensor, in the same way in every mode."""
    passes, never_fail = isinstance(error, PASSING), task.operator.never_fail
    if never_fail or (task.operator.soft_fail and not passes):
        why = "never_fail" if never_fail else "soft_fail"
        give_up(task, CrewTaskSkipped(error.replace(next_step=f"The task is skipped because of {why}.")))
    step = _after_its_own(error, "A retry, or clearing this task, waits for the same execution.")
    again = error.replace(next_step=step)
    if passes:
        give_up(task, again)
    if isinstance(error, CutShort):
        give_up(task, CrewTaskTimeout(again))
    if isinstance(error, errors.WaitedTooLong):
        step = "Clear this task to wait again. It is not retried."
        give_up(task, CrewSensorTimeout(error.replace(next_step=step)))
    _fail(task, error, _step_of_sensor(error))


def _step_of_sensor(error: errors.CrewError) -> str:
    """Return the next step for a sensor that is not retried."""
    match error:
        case errors.ExecutionFailed():
            return "Clear the task that started the execution. That starts a new one, which is billed again."
        case errors.ExecutionUnknown(has_completed=False):
            return (
                f"Answer what the crew asks in its dashboard, and clear this task{KEEPING}. With human_input=True "
                "it waits until its timeout. To give the execution up: "
                f"{HOW_TO_FORGET.format('the task instance that started it')}, and clear that task, which starts "
                "another."
            )
        case errors.ExecutionNotFound():
            return "If the crew may wait for human input, set human_input=True, and clear this task."
        case errors.InvalidOutput():
            return "Fix `output_type`, and clear this task: it checks the same result again, at no cost."
        case errors.InvalidOutputType() | errors.WatchBroken():
            return f"{error.next_step} Then clear this task to wait again. It is not retried.".lstrip()
    return error.next_step
