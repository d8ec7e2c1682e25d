"""Implementation of the trigger, in a separate module because its imports are slow."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

from airflow_provider_crew import api_server
from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.progress import PROGRESS, Pace, ProgressReport, ended
from airflow_provider_crew.client.text import in_words, warn
from airflow_provider_crew.client.watch import Watch, WatchRules, WatchState
from airflow_provider_crew.client.wording import after_cancelling
from airflow_provider_crew.get_provider_info import is_on
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import Poller
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from airflow_provider_crew.triggers.events import DEFERRAL, LARGEST_RESPONSE, told_completed, told_error

log = logging.getLogger(__name__)


async def watched(trigger: CrewExecutionTrigger) -> dict[str, Any]:
    """Watch the execution until it ends and return the event."""
    if trigger.asked and trigger.task_instance and (answer := await answer_before(trigger)):
        return answer
    rules = WatchRules(**trigger.rules)
    event: dict[str, Any] = {"kickoff_id": trigger.kickoff_id}
    progress = progress_of(trigger)
    memory = WatchState.recalled(trigger.memory)
    poller = Poller(hook_of(trigger), trigger.kickoff_id, rules, memory)
    is_asked = trigger.asked and trigger.task_instance  # there is none in dag.test()
    request = RequestedAction(trigger, poller.watch, progress) if is_asked else None
    if observer := request or progress:
        poller.observer = observer.saw
    poller.subject, trigger.report = "Crew", poller.report
    # The task has pushed its progress right before its deferral. Alerts need to know that the trigger cancels.
    is_old = time.time() - (trigger.deferred_at or 0.0) > timing.PROGRESS_REFRESH
    poller.report.is_first = is_old or trigger.cancel_on_kill
    try:
        await asyncio.sleep(poller.watch.spread().poll_again_in)
        completed = await trigger.end_of(poller.to_end_async(largest=LARGEST_RESPONSE))
        # Encode in a thread: a large result takes long enough to block all other triggers.
        event |= await asyncio.to_thread(told_completed, completed)
        polls_again = "result" not in event
    except errors.CrewError as error:
        event |= _told(error, trigger.log)
        polls_again = isinstance(error, errors.HumanInputNeeded) or "too_large" in event
        if progress and isinstance(error, errors.HumanInputNeeded):
            await progress.leave(poller.report)
    finally:
        if progress:
            progress.close()
    if polls_again:
        event["memory"] = json.dumps(poller.watch.memory.handed_over())
    if request:
        request.close()
    event |= {"seen": poller.watch.memory.seen, "deadline": rules.deadline + poller.clock.jump}
    listed: dict[str, Any] = {"tasks": []} if "result" in event else {}  # the result lists them
    return event | {"progress": json.dumps(poller.report.as_dict() | listed)}


def _told(error: errors.CrewError, log: Any) -> dict[str, Any]:
    if isinstance(error, errors.WatchBroken) and isinstance(error.cause, errors.ResponseTooLarge):
        log.info("The crew's response is too large for a triggerer, so the task itself reads it.")
        return {"too_large": True}
    return told_error(error)


async def answer_before(trigger: CrewExecutionTrigger) -> dict[str, Any] | None:
    """
    Return the event of an answer that a user gave before the task was deferred.

    Airflow stores such an answer, and resumes nothing. It resumes the task for a later one.
    """
    try:
        read = api_server.read_required_action
        response = await api_server.in_thread(api_server.REQUESTS, read, trigger.task_instance)
    except Exception as error:  # noqa: BLE001 - the wait goes on
        if api_server.api_status(error) != HTTPStatus.NOT_FOUND:
            warn(trigger.log, f"The request under Required Actions is unreadable: {in_words(error)}")
            return None
        response = {}  # Airflow 3.4 has left the request to the earlier attempt
    if response is None or response.get("responded_by_user"):
        return response
    # The trigger of an earlier attempt has closed it, or there is none. The task opens another.
    trigger.asked, trigger.rules = False, {**trigger.rules, "stops_for_input": True}
    return None


async def cancel_if_unwanted(trigger: CrewExecutionTrigger) -> None:
    """Cancel the execution if Airflow has ended the task. A task that was cleared reattaches to it."""
    if not await is_marked(trigger):
        return
    event = "Airflow ended the task while it was waiting."
    end, is_asked = errors.CrewError(event, cost=errors.Cost.RUNNING, kickoff_id=trigger.kickoff_id), False
    try:
        where = (trigger.rules.get(name, "") for name in ("continued_as", "address"))
        end = after_cancelling(end, await hook_of(trigger).cancel_async(trigger.kickoff_id, *where))
    except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
        is_asked = isinstance(error, errors.NotCancelled) and not error.is_refused
        end = after_cancelling(end, error)
    how = "asked" if is_asked else end.cost.value if type(end) is errors.CrewError else "cancelled"
    end = end.replace(next_step=trigger.shown.get("after_kill", {}).get(how, ""))
    warn(trigger.log, end.story)
    if trigger.report and (progress := progress_of(trigger)):
        await progress.leave_end(trigger.report, end)


async def is_marked(trigger: CrewExecutionTrigger) -> bool:
    """
    Whether Airflow has ended the task while it was deferred on this very trigger.

    A triggerer may notice late that a task has left its trigger. By then, a later attempt may have ended.
    """

    def has_left(ti: Any) -> bool:
        return api_server.has_ended(ti) and bool(api_server.read_own_xcom(ti, DEFERRAL) == trigger.deferred_at)

    try:
        return await api_server.in_thread(api_server.XCOMS, has_left, trigger.task_instance)
    except Exception as error:  # noqa: BLE001 - Airflow does not answer
        event = f"Execution {trigger.kickoff_id} was not cancelled, because the state of its task is unreadable"
        warn(trigger.log, f"{event}: {in_words(error)}")
        return False


class RequestedAction:
    """Open request under Required Actions. The trigger closes it when the crew continues by itself."""

    def __init__(self, trigger: CrewExecutionTrigger, watch: Watch, progress: "TriggerProgress | None") -> None:
        self._trigger = trigger
        self._watch = watch
        self._progress = progress
        self._has_waited = bool(watch.memory.troubles)

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Close the request if a poll shows that the crew continues, and stop for the next one."""
        if self._progress:
            self._progress.saw(report, is_news)
        if self._watch.memory.troubles:
            self._has_waited = True
        elif self._trigger.asked and self._has_waited:  # a status may be older than the crew's question
            self.close()
            self._watch.rules = replace(self._watch.rules, stops_for_input=True)

    def close(self) -> None:
        """Close the request, unless it is closed. Nothing waits for Airflow's response."""
        if self._trigger.asked:
            self._trigger.asked = False
            api_server.REQUESTS.submit(copy_context().run, self._close)

    def _close(self) -> None:
        try:
            api_server.close_required_action(self._trigger.task_instance, self._trigger.closes_as)
        except Exception as error:  # noqa: BLE001 - a user may just have answered it
            warn(self._trigger.log, f"The request under Required Actions was not closed: {error}")


def hook_of(trigger: CrewExecutionTrigger) -> CrewHook:
    """Return a hook for the trigger's connection."""
    return CrewHook(trigger.crew_conn_id, webhook_conn_id=trigger.webhook_conn_id)


# Progress that a trigger pushes to XCom while its task is deferred.


def progress_of(trigger: CrewExecutionTrigger) -> "TriggerProgress | None":
    """Return the progress writer of a deferred task, or None if it is turned off."""
    if trigger.task_instance is None or not is_on("progress_xcom", log):  # dag.test() passes no task instance
        return None
    return TriggerProgress(trigger.task_instance, trigger.shown)


class TriggerProgress:
    """
    Progress writer that pushes news to XCom between polls.

    At the end, unpushed news reaches the task with the event.

    :param ti: Task instance of the trigger.
    :param shown: Sentences of the task for the Crew tab and alerts.
    """

    def __init__(self, ti: Any, shown: Mapping[str, Any]) -> None:
        self._ti = ti
        self._sentences = {name: shown[name] for name in ("choices", "if_lost") if name in shown}
        self._shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
        self._shared.writers += 1
        self._pace = Pace(lambda: self._shared.writers)
        self._is_closed = False
        self._pushing: asyncio.Task[None] | None = None

    def saw(self, report: ProgressReport, is_news: bool) -> None:  # noqa: FBT001 - an Observer
        """Schedule a push after a poll, if it is due."""
        is_due = report.has_content and self._pace.is_due(is_news)
        if is_due and (self._pushing is None or self._pushing.done()):
            self._pushing = asyncio.create_task(self._push_report(report))

    async def leave(self, report: ProgressReport) -> None:
        """Push what the last poll has seen, because the task may wait for a worker. A backend may hang."""

        async def push() -> None:
            if self._pushing:
                await self._pushing
            if self._pace.has_news:
                await self._push_report(report)

        await asyncio.wait({asyncio.create_task(push())}, timeout=timing.PROGRESS_LAST)

    def close(self) -> None:
        """Stop pushing. From here on, the task reports the progress."""
        self._shared.writers -= 1
        # Not cancelled: a thread that hangs has to keep the lock, or each writer would occupy another thread.
        self._is_closed = True

    async def leave_end(self, report: ProgressReport, error: errors.CrewError) -> None:
        """Push the error with which the trigger itself has ended the execution, and stop pushing."""
        self.close()
        async with self._shared.lock:
            with suppress(Exception):  # Airflow 3.4 stores no XCom of a task that has ended
                await self._push(ended(report.as_dict(), error, time.time()))

    async def _push_report(self, report: ProgressReport) -> None:
        async with self._shared.lock:
            if self._is_closed:  # while it waited for the lock
                return
            self._pace.pushed()
            try:
                value = self._sentences | report.as_dict()
                value["stale_after"] += self._pace.refresh - timing.PROGRESS_REFRESH
                await self._push(value)
            except Exception as error:  # noqa: BLE001 - progress is best effort
                if not self._shared.has_failed:
                    warn(log, f"Progress was not pushed to XCom, but polling continues: {error}")
                self._shared.has_failed = True
            await asyncio.sleep(timing.PROGRESS_TURN)

    async def _push(self, value: dict[str, Any]) -> None:
        push, value = api_server.push_xcom, value | {"try_number": self._ti.try_number}
        await api_server.in_thread(api_server.XCOMS, push, self._ti, PROGRESS, value, is_limited=False)


class _Shared:
    """State of all writers on one event loop. A custom XCom backend may hang, but only in one thread."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.writers = 0
        self.has_failed = False


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()
