"""A task that kicks a crew off and waits for it: its kickoff, its wait, and what it remembers of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_crew.service.errors import InvalidKickoffId
from airflow_provider_crew.tasks.ends import CrewTaskFailed, RunEnds
from airflow_provider_crew.tasks.kickoff import Kickoff, recall_kickoff
from airflow_provider_crew.tasks.memory import KickoffMemory
from airflow_provider_crew.tasks.wait import Origin, Resumed, Wait, how_resumed
from airflow_provider_crew.tasks.xcom import kickoff_id_left_by
from airflow_provider_crew.triggers.events import read_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_crew.tasks.kickoff import KickoffArguments
    from airflow_provider_crew.tasks.running import RunningTask
    from airflow_provider_crew.tasks.wait import Patience

    Carried = Callable[[], Mapping[str, Any]]


class CrewRun:
    """
    One run of a crew.

    ``inputs`` are asked for when it is kicked off, and ``carried`` when it defers: what the task is given besides
    the event when it resumes.
    """

    def __init__(
        self,
        task: RunningTask,
        arguments: KickoffArguments,
        patience: Patience,
        *,
        inputs: Callable[[], Any],
        carried: Carried,
    ) -> None:
        self._task = task
        self._arguments = arguments
        self._patience = patience
        self._inputs = inputs
        self._carried = carried

    def result(self) -> dict[str, Any]:
        """Kick off and wait."""
        memory = recall_kickoff(self._task, wanted=self._arguments.reattach)
        kickoff = self._kickoff(memory)
        with kickoff.shelter():
            kickoff_id = kickoff.execution(self._inputs)
            result = self._wait(memory).result(kickoff_id, _origin_of(memory), self._carried())
            memory.note_end("completed", kickoff_id)
            return kickoff.secure(result)

    def resume(self, next_method: str, told: dict[str, Any]) -> dict[str, Any]:
        """Resume after a deferral: the crew was kicked off, and what came of it counts more than a memory."""
        how = how_resumed(next_method, told, self._task.ti)
        if how is Resumed.AS_RETRY:
            return self.result()
        memory = self._recall_if_possible()
        kickoff, wait = self._kickoff(memory), self._wait(memory)
        with kickoff.shelter(resumed=True):
            memory.take_over_from_xcom()
            end = read_event(told.get("event")) if how is Resumed.BY_EVENT else None
            if end:
                result = wait.resume(end)
            elif how is Resumed.BY_CLEAR:
                kickoff_id = self._kickoff_id(memory)
                memory.note_reattached()
                result = wait.result(kickoff_id, _origin_of(memory), self._carried())
            else:
                result = wait.poll_after_all(self._kickoff_id(memory), told)
            memory.note_end("completed", self._task.execution)
            return kickoff.secure(result)

    def shelter(self, kickoff_id: str, what: Callable[[], None]) -> None:
        """Do something before resuming that may not lead to a retry which would start another execution."""
        self._task.execution = kickoff_id
        with self._kickoff(self._recall_if_possible()).shelter(resumed=True):
            what()

    def _kickoff(self, memory: KickoffMemory) -> Kickoff:
        return Kickoff(self._task, self._arguments, memory)

    def _wait(self, memory: KickoffMemory) -> Wait:
        return Wait(self._task, self._patience, RunEnds(self._task, memory))

    def _recall_if_possible(self) -> KickoffMemory:
        try:
            return KickoffMemory(self._task.context, wanted=self._arguments.reattach)
        except Exception as error:  # noqa: BLE001
            self._task.log.warning("What this task remembers of its kickoff cannot be read: %s", error)
            return KickoffMemory(self._task.context, wanted=False)

    def _kickoff_id(self, memory: KickoffMemory) -> str:
        """Return the kickoff id that this try has left in XCom, or that the task remembers."""
        remembered = memory.last.kickoff_id if memory.last else None
        if found := kickoff_id_left_by(self._task.ti) or remembered:
            return found
        raise CrewTaskFailed(InvalidKickoffId("The kickoff id of this task is not known any more."))


def _origin_of(memory: KickoffMemory) -> Origin:
    last = memory.last
    return Origin(last.kicked_off_at, exists=True, address=last.address) if last else Origin(exists=True)
