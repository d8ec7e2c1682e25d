"""Implementation of the trigger, in a separate module because its imports are slow."""

import asyncio
from typing import Any

from airflow_provider_crew.client.errors import AnswerTooLarge, CrewError, WatchBroken
from airflow_provider_crew.client.watch import WatchMemory, WatchRules
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import Poller, shared_here
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import (
    LARGEST_ANSWER,
    told_completed,
    told_error,
    told_progress,
    told_watch,
)
from airflow_provider_crew.triggers.progress import progress_of


async def watched(trigger: CrewExecutionTrigger) -> dict[str, Any]:
    """Watch the execution until it has ended and return the event."""
    rules = WatchRules(**trigger.rules)
    event: dict[str, Any] = {"kickoff_id": trigger.kickoff_id, "deadline": rules.deadline}
    progress = progress_of(trigger.task_instance)
    memory = WatchMemory.recalled(trigger.memory)
    poller = Poller(_hook_of(trigger), trigger.kickoff_id, rules, memory, progress)
    try:
        await asyncio.sleep(poller.watch.spread().poll_again_in)
        completed = await poller.to_end_async(poller.shared_crew(), largest=LARGEST_ANSWER)
        # Encode in a thread: a large result takes long enough to block all other triggers.
        event |= await asyncio.to_thread(told_completed, completed, with_output=trigger.log_output)
    except CrewError as error:
        if isinstance(error, WatchBroken) and isinstance(error.cause, AnswerTooLarge):
            trigger.log.info("Execution %s: the answer is large, and the task itself reads it", trigger.kickoff_id)
        else:
            event |= told_error(error)
    finally:
        if progress:
            progress.close()
    return event | told_watch(poller.watch) | told_progress(poller.report, event, with_outputs=trigger.log_output)


def _hook_of(trigger: CrewExecutionTrigger) -> CrewHook:
    """Return the hook shared by all watches of this connection, which saves nine objects per trigger."""
    conn_id, token_type = trigger.crew_conn_id, trigger.token_type
    # Format them with repr, because a stored trigger may hold any type.
    return shared_here(f"hook {conn_id!r} {token_type!r}", lambda: CrewHook(conn_id, token_type=token_type))
