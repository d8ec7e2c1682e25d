"""What an earlier try has left: the execution that this try goes on with, or none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_provider_crew.compat import was_rescheduled, xcom_keys_left_behind
from airflow_provider_crew.service.errors import CallError, ExecutionNotFound, UncertainKickoff
from airflow_provider_crew.service.watch_words import unknown_elsewhere
from airflow_provider_crew.tasks.decide import Circumstances, Decision, decide
from airflow_provider_crew.tasks.memory import HOW_TO_GIVE_UP
from airflow_provider_crew.tasks.xcom import KICKOFF_ID

if TYPE_CHECKING:
    from airflow_provider_crew.service.errors import CrewError
    from airflow_provider_crew.tasks.decide import KickoffRecord, Standing
    from airflow_provider_crew.tasks.memory import KickoffMemory
    from airflow_provider_crew.tasks.running import RunningTask

IT_IS_NOT_KNOWN = (
    "It is not known whether that started an execution: the crew may be running, and paid for, without anybody "
    "watching it. Look into the crew's dashboard before starting it again."
)
_LOST_ANSWER = f"An earlier try sent a kickoff and ended before it knew the answer. {IT_IS_NOT_KNOWN}"
_BEGUN_ANEW = (
    "This try has kicked off before. Airflow could not load its DAG when it was to resume, and has begun it anew, "
    "without the kickoff id. That execution goes on and is paid for: the log of this try may name its id, for a "
    "CrewExecutionSensor to wait for it. Else look into the crew's dashboard."
)
_ONE_TRY_TOO_MANY = (
    "Airflow runs this task once more than its retries allow: it has lost the process of the try before, or the "
    f"task was cleared while it ran. Nothing is known of that try, which may have kicked off. {IT_IS_NOT_KNOWN}"
)
_FORGOTTEN = (
    "This task may have been cleared, and Airflow may have forgotten what the task remembered, as it does unless "
    "Keep task state is ticked. Should an execution of an earlier try still be running, it goes on and is paid "
    "for, too. The crew is kicked off."
)
_UNKNOWN = (
    "Execution %s: kicked off by an earlier try, and the service does not know it. A crew that waits for a "
    f"person's answer reads like this: it may be alive, and it is paid for. {HOW_TO_GIVE_UP}"
)
_STANDINGS: dict[str, Standing] = {
    "running": "going on",
    "paused": "going on",
    "completed": "completed",
    "error": "failed",
}
# A process that Airflow does not count with any more lives until its next heartbeat, and some seconds more.
_LATE_ANSWER = 15.0
_PAUSE = 1.0


class EarlierKickoff:
    """
    The kickoff of an earlier try, and what this one does about it.

    ``chooses_twice``: the author of the DAG would rather run the crew twice than fail. ``forget_after``: for how
    many seconds an execution that the service does not know may be waiting for a person; None: for ever.
    """

    def __init__(
        self, task: RunningTask, memory: KickoffMemory, *, chooses_twice: bool, forget_after: float | None
    ) -> None:
        self._task = task
        self._memory = memory
        self._chooses_twice = chooses_twice
        self._forget_after = forget_after

    def execution(self) -> str | None:
        """Return the kickoff id of the execution that this try goes on with; None when it has to kick off."""
        if not self._memory.lasts:
            self._refuse_a_try_that_nobody_asked_for()
        if self._memory.may_have_forgotten:
            self._task.log.warning(_FORGOTTEN)
        given = self._circumstances(self._memory.last)
        decision = decide(self._memory.last, given)
        if decision is Decision.FAIL_UNCERTAIN and self._take_over_late_answer():
            decision = decide(self._memory.last, given)
        last = self._memory.last
        if decision is Decision.ASK and last and last.kickoff_id:
            standing, elsewhere = self._standing(last, last.kickoff_id)
            decision = decide(last, given, standing)
            if elsewhere:
                raise elsewhere
            if decision is Decision.REATTACH and standing == "unknown":
                self._task.log.warning(_UNKNOWN, last.kickoff_id)
        return self._carry_out(decision, last, given)

    def _circumstances(self, last: KickoffRecord | None) -> Circumstances:
        oldest = None if self._forget_after is None else time.time() - self._forget_after
        return Circumstances(
            cleared=self._memory.was_cleared,
            chooses_twice=self._chooses_twice,
            is_old=bool(last and oldest is not None and last.kicked_off_at < oldest),
        )

    def _carry_out(self, decision: Decision, last: KickoffRecord | None, given: Circumstances) -> str | None:
        log, kickoff_id = self._task.log, last.kickoff_id if last else None
        match decision:
            case Decision.FAIL_UNCERTAIN:
                raise UncertainKickoff(_LOST_ANSWER)
            case Decision.REATTACH:
                self._memory.note_reattached()
                log.info(
                    "Execution %s: kicked off by an earlier try, with the inputs of that try, and gone on with. "
                    "Nothing is kicked off anew. To force that, clear the task again when it has ended, or set "
                    "reattach=False.",
                    kickoff_id,
                )
                return kickoff_id
            case Decision.KICK_OFF_BY_CHOICE:
                cleared = given.cleared and bool(last and last.reported)
                why = "because the task was cleared" if cleared else "as on_uncertain_kickoff='retry' says"
                log.warning("%s It is kicked off anew, %s.", _LOST_ANSWER, why)
            case Decision.KICK_OFF_AFTER_OBLIVION:
                log.warning(
                    "Execution %s of an earlier try is not known to the service, and was kicked off longer ago "
                    "than forget_after. The task was cleared: the crew is kicked off anew. Should the earlier "
                    "one still wait for a person, two are paid for.",
                    kickoff_id,
                )
            case Decision.KICK_OFF_AFTER_END:
                log.info("Execution %s of an earlier try is over. The crew is kicked off anew.", kickoff_id)
            case Decision.KICK_OFF:
                pass
            case _:  # nothing that is not named here may start an execution
                raise UncertainKickoff(_LOST_ANSWER)
        return None

    def _standing(self, last: KickoffRecord, kickoff_id: str) -> tuple[Standing, CrewError | None]:
        """Ask the service how the execution stands, and remember an end."""
        try:
            execution = self._task.hook.status(kickoff_id)
        except ExecutionNotFound as error:
            if last.address and last.address != error.address:
                return "unknown elsewhere", unknown_elsewhere(kickoff_id, last.address, error.address)
            return "unknown", None
        except CallError as error:
            self._task.log.warning("Execution %s: it is not known how it is doing. %s", kickoff_id, error)
            return "not told", None
        standing = _STANDINGS[execution.status]
        if standing in ("completed", "failed"):
            self._memory.note_end(standing)
        return standing, None

    def _take_over_late_answer(self) -> bool:
        """Wait for the process that sent the kickoff, which may still be there, and may be told the answer."""
        if self._memory.last and self._memory.last.reported:
            return False
        self._task.log.info(
            "An earlier try sent a kickoff. If its process still gets the answer, it is taken over."
        )
        until = time.monotonic() + _LATE_ANSWER
        while time.monotonic() < until:
            if found := self._memory.late_answer():
                self._memory.take_over(found)
                return True
            time.sleep(_PAUSE)
        return False

    def _refuse_a_try_that_nobody_asked_for(self) -> None:
        """Refuse one that Airflow begins by itself, where no try knows of another."""
        ti = self._task.ti
        # It had left a kickoff id, which Airflow has deleted just now.
        if was_rescheduled(ti) and KICKOFF_ID in xcom_keys_left_behind(ti):
            raise UncertainKickoff(_BEGUN_ANEW)
        if ti.try_number <= ti.max_tries + 1:
            return
        if not self._chooses_twice:
            raise UncertainKickoff(_ONE_TRY_TOO_MANY)
        self._task.log.warning(
            "%s It is kicked off anew, as on_uncertain_kickoff='retry' says.", _ONE_TRY_TOO_MANY
        )
