"""Task that starts an execution and waits for it: its kickoff, its wait, and its kickoff record."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

from airflow_provider_crew.client.errors import Cost, CrewError, InvalidKickoffId, InvalidOutput
from airflow_provider_crew.client.options import OnInvalidOutput
from airflow_provider_crew.compat import lacks_event, resumed_with_old_error, resumed_with_old_event
from airflow_provider_crew.durable.kickoff import Kickoff, KickoffArguments, reattach
from airflow_provider_crew.durable.outcome import RETRY_READS, CrewTaskFailed, end_misfit, end_run, give_up
from airflow_provider_crew.durable.record import KickoffMemory, kickoff_id_left_by
from airflow_provider_crew.durable.result import check_type
from airflow_provider_crew.durable.task import RunningTask
from airflow_provider_crew.durable.wait import Wait, WaitArguments
from airflow_provider_crew.triggers.events import read_event


class RunArguments(KickoffArguments, WaitArguments, Protocol):
    """Rendered arguments of an operator that starts an execution and waits for it."""

    on_invalid_output: OnInvalidOutput


@dataclass(frozen=True, slots=True)
class CrewRun:
    """One run of a crew. ``inputs`` is called when the kickoff needs it."""

    task: RunningTask
    given: RunArguments
    inputs: Callable[[], Any]

    def result(self) -> dict[str, Any]:
        """Start an execution, wait for it, and return its result."""
        kickoff = Kickoff(self.task, self.given)
        with kickoff.shelter():
            kickoff_id = kickoff.execution(self.inputs, check=partial(check_type, self.given))
            return kickoff.secure(self._result(kickoff.memory, kickoff_id))

    def resume(self, next_method: str, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral. The trigger's event takes precedence over the kickoff record."""
        if resumed_with_old_error(next_kwargs, self.task.ti):
            return self.result()
        try:
            return self._resumed(next_method, next_kwargs)
        except InvalidOutput:
            if not resumed_with_old_event(next_kwargs, self.task.ti):
                raise
            self.task.execution, self.task.has_ended = None, False  # of an earlier attempt, and ended
            return self.result()

    def _resumed(self, next_method: str, next_kwargs: dict[str, Any]) -> dict[str, Any]:
        kickoff = Kickoff(self.task, self.given, resumed=True)
        memory, wait = kickoff.memory, self._wait(kickoff.memory)
        with kickoff.shelter():
            end = read_event(next_kwargs.get("event"))
            kickoff_id = end.kickoff_id if end else self._kickoff_id(memory)
            memory.note_answer(kickoff_id)
            if end:
                result = wait.resume(end, **_origin(memory))
            elif lacks_event(next_method, next_kwargs):
                reattach(self.task, memory, kickoff_id)
                result = wait.result(kickoff_id, **_origin(memory))
            else:
                result = wait.poll_after_all(kickoff_id, next_kwargs)
            return kickoff.secure(result)

    def _result(self, memory: KickoffMemory, kickoff_id: str) -> dict[str, Any]:
        wait, origin = self._wait(memory), _origin(memory)
        if memory.last and memory.last.end == "completed":
            return wait.result_of_completed(kickoff_id, **origin)
        return wait.result(kickoff_id, **origin)

    def _wait(self, memory: KickoffMemory) -> Wait:
        def remember() -> None:
            memory.note(kickoff_id=self.task.execution, end="completed")
            if memory.lasts:
                self.task.waits_again = RETRY_READS

        return Wait(self.task, self.given, partial(self._give_up, memory), has_completed=remember)

    def _give_up(self, memory: KickoffMemory, error: CrewError) -> NoReturn:
        if isinstance(error, InvalidOutput):
            end_misfit(self.task, memory, error, anew=self.given.on_invalid_output == "retry")
        end_run(self.task, memory, error)

    def _kickoff_id(self, memory: KickoffMemory) -> str:
        """Return the kickoff ID that this attempt pushed to XCom, or else that of the kickoff record."""
        remembered = memory.last.kickoff_id if memory.last else None
        found = kickoff_id_left_by(self.task.ti) or remembered
        if not found:
            failure = InvalidKickoffId(
                "Kickoff ID of this task is lost.",
                cost=Cost.RUNNING,
                next_step="Find it in the crew's dashboard, and wait for it with CrewExecutionSensor.",
            )
            give_up(self.task, CrewTaskFailed(failure))
        return found


def _origin(memory: KickoffMemory) -> dict[str, Any]:
    """Return watch rules for an execution that exists: its address and the time of its kickoff."""
    last = memory.last
    return {"exists": True} | ({"kicked_off_at": last.kicked_off_at, "address": last.address} if last else {})
