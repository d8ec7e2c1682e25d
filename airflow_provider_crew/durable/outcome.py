"""
Mapping from the end of a wait to the end of its task: a retry, no retry, or a skip, with its cost and next step.

Exceptions are raised from None: a chain of tracebacks would hide the message.
"""

from typing import NoReturn

from airflow_provider_crew.client import errors
from airflow_provider_crew.compat import CLEARING, HOW_TO_FORGET, KEEPING
from airflow_provider_crew.durable.record import SharedRecord
from airflow_provider_crew.durable.task import RunningTask
from airflow_provider_crew.exceptions import (
    CrewSensorTimeout,
    CrewTaskFailed,
    CrewTaskSkipped,
    CrewTaskTimeout,
    CutShort,
    EndedTask,
)

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
    task.progress.ended(task.execution or failure.kickoff_id, failure)
    raise end from None


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
        record.update(kickoff_id=task.execution, end="completed", delivered=True)
        _fail(task, error, f"{error.next_step} Clearing the task starts a new execution, which is billed again.")
    if not record.is_shared:
        _fail(task, error, wait_with_sensor(task.execution))
    if isinstance(error, errors.ExecutionUnknown):
        step = f"Answer what the crew asks in its dashboard, and clear the task{KEEPING}. {HOW_TO_GIVE_UP}"
        _fail(task, error, error.next_step if error.elsewhere else step)
    again = error.replace(next_step=RETRY_READS if task.has_ended else RETRY_REATTACHES)
    if isinstance(error, CutShort):
        give_up(task, CrewTaskTimeout(again))
    if isinstance(error, (*PASSING, errors.WaitedTooLong)):
        give_up(task, again)
    _fail(task, error, f"{error.next_step} Then clear the task{KEEPING}: it waits for the same execution.")


def _fail(task: RunningTask, error: errors.CrewError, step: str) -> NoReturn:
    """End the task without a retry."""
    give_up(task, CrewTaskFailed(error.replace(next_step=step)))


def _end_to_start_again(task: RunningTask, record: SharedRecord, error: errors.CrewError) -> NoReturn:
    """End the task so that Airflow's retry starts a new execution."""
    task.waits_again = STARTS_AGAIN
    record.update(kickoff_id=task.execution, end="failed")
    give_up(task, error.replace(next_step=STARTS_AGAIN))


def _end_misfit(task: RunningTask, record: SharedRecord, error: errors.InvalidOutput) -> NoReturn:
    """End the task because its output does not match ``output_type``."""
    if task.operator.on_invalid_output == "retry" and error.misfits:
        _end_to_start_again(task, record, error)
    if record.is_shared:
        _fail(
            task,
            error,
            f"Fix `output_type`, and clear the task{KEEPING}: it checks the same result again, at no cost.",
        )
    _fail(
        task,
        error,
        f'Fix `output_type`, and check the same result with CrewExecutionSensor(kickoff_id="{task.execution}", '
        "output_type=...). Clearing this task starts a new execution.",
    )


def _end_sensor(task: RunningTask, error: errors.CrewError) -> NoReturn:
    """Skip, time out, fail or retry the sensor, in the same way in every mode."""
    passes, never_fail = isinstance(error, PASSING), task.operator.never_fail
    if never_fail or (task.operator.soft_fail and not passes):
        why = "never_fail" if never_fail else "soft_fail"
        give_up(task, CrewTaskSkipped(error.replace(next_step=f"The task is skipped because of {why}.")))
    again = error.replace(next_step="A retry, or clearing this task, waits for the same execution.")
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
