"""Poll one execution through a connection until it ends."""

import asyncio
import copy
import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.errors import CallError, Cost, CrewError, InvalidSettings
from airflow_provider_crew.client.models import Completed, Execution
from airflow_provider_crew.client.progress import ProgressReport
from airflow_provider_crew.client.text import in_words, warn
from airflow_provider_crew.client.watch import Outcome, Step, Watch, WatchRules, WatchState
from airflow_provider_crew.hooks.connection import load_connection_async, load_secrets, unreadable

if TYPE_CHECKING:
    from airflow_provider_crew.client.client import CrewClient
    from airflow_provider_crew.client.poll import CrewPolls
    from airflow_provider_crew.client.settings import ServiceSettings

    _Client = CrewClient | CrewPolls

Hook = Any  # a CrewHook, whose module imports this one


def renewed(hook: Hook, max_age: float = 0.0) -> Hook:
    """
    Return a hook with the current token.

    It is the same hook if this was done less than ``max_age`` seconds ago, if the connection is unreadable, or if
    it now points to another crew, because the executions are those of the first.
    """
    fresh, now = copy.copy(hook), time.monotonic()
    if now - _read_at.get(hook, -math.inf) < max_age:
        return hook
    _read_at[hook] = _read_at[fresh] = now
    try:
        return fresh if _is_same_crew(hook.get_conn(), fresh.get_conn()) else hook
    except Exception as error:  # noqa: BLE001 - Airflow may be unreachable while the known token is still valid
        warn(hook.log, _UNREAD.format(hook.crew_conn_id, getattr(error, "event", error)))
        return hook


# Times at which the connections of hooks were read again.
_read_at: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
_UNREAD = "Connection {!r} could not be read again, so its old token is used: {}"


def _is_same_crew(old: "_Client", fresh: "_Client") -> bool:
    return fresh.settings.address == old.settings.address


class SharedConnection:
    """
    Connection that all watches on one event loop share, with one look-up at once.

    If a connection is pointed to another crew, executions of the first are still polled there.
    """

    def __init__(self, hook: Hook) -> None:
        self._conn_id, self._webhook_conn_id = hook.crew_conn_id, hook.webhook_conn_id
        self._secrets: tuple[str, ...] = ()
        self._looking_up: asyncio.Task[CrewPolls] | None = None
        self._crew: CrewPolls | None = None
        self._read_at = -math.inf

    @classmethod
    def of(cls, hook: Hook) -> "SharedConnection":
        """Return the connection of a hook, shared on this event loop."""
        for ended in [loop for loop in _shared if loop.is_closed()]:
            del _shared[ended]
        here = _shared.setdefault(asyncio.get_running_loop(), {})
        # Format it with repr, because a stored trigger may hold any type.
        key = repr((hook.crew_conn_id, hook.webhook_conn_id))
        return here.setdefault(key, cls(hook))

    async def crew(self, max_age: float) -> "CrewPolls":
        """Return the crew behind the connection, which is read again unless that was done recently."""
        if self._looking_up is None or self._looking_up.done():
            if self._crew and time.monotonic() - self._read_at < max_age:
                return self._crew
            # A task of its own outlives the watch that happens to be the first.
            self._looking_up = asyncio.create_task(self._look_up())
        looking_up = self._looking_up
        longest = timing.CONNECTION_LOOKUP
        await asyncio.wait({looking_up}, timeout=longest)
        if not looking_up.done():
            raise unreadable(self._conn_id, f"Airflow did not return it within {longest:g} s", Cost.RUNNING)
        error = looking_up.exception()
        if isinstance(error, CallError | InvalidSettings):
            raise error.with_traceback(None)
        if error:
            raise unreadable(self._conn_id, in_words(error), Cost.RUNNING)
        return looking_up.result()

    async def renewed(self, old: "CrewPolls", log: Any) -> "CrewPolls":
        """Return the crew with the current token, or the same crew, by the same rule as for a hook."""
        try:
            fresh = await self.crew(timing.CONNECTION_AGE_IF_REJECTED)
        except CrewError as error:
            warn(log, _UNREAD.format(self._conn_id, error.event))
            return old
        return fresh if _is_same_crew(old, fresh) else old

    async def _look_up(self) -> "CrewPolls":
        settings = (await load_connection_async(self._conn_id)).settings
        secrets = self._secrets or await sync_to_async(load_secrets, thread_sensitive=False)(self._webhook_conn_id)
        if self._crew is None or (self._crew.settings, self._secrets) != (settings, secrets):
            # In a thread, because imports and certificates take long enough to block all other watches.
            self._crew = await asyncio.to_thread(_polls_of, settings, secrets)
        self._secrets = secrets
        self._read_at = time.monotonic()
        return self._crew


# Connections by event loop.
_shared: dict[asyncio.AbstractEventLoop, dict[str, SharedConnection]] = {}


def _polls_of(settings: "ServiceSettings", secrets: tuple[str, ...]) -> "CrewPolls":
    from airflow_provider_crew.client.poll import CrewPolls

    return CrewPolls(settings, secrets)


class SteadyClock:
    """Wall clock that does not jump if the machine's clock is set, which must not end a wait."""

    def __init__(self) -> None:
        self._offset = time.time() - timing.ticks()

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._offset + timing.ticks()

    @property
    def jump(self) -> int:
        """Seconds by which the machine's clock has jumped meanwhile, for a deadline that another process gets."""
        return round(time.time() - self())


# Receives the progress after each poll, and whether it has changed.
Observer = Callable[[ProgressReport, bool], None]


# Calls a function with a kickoff ID.
Call = Callable[[Callable[[str], Execution], str], Execution]


class Poller:
    """
    Poller that passes the outcome of each poll to a watch and follows the returned steps.

    If the token is rejected, the connection is read again.
    """

    def __init__(
        self,
        hook: Hook,
        kickoff_id: str,
        rules: WatchRules,
        memory: WatchState | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._hook = hook
        self.clock = SteadyClock()
        self.watch = Watch(kickoff_id, rules, clock=self.clock, random=random.random, memory=memory)
        self.report = ProgressReport(self.watch)
        self.observer = observer
        self.subject = f"Execution {kickoff_id}"
        """Beginning of each log line. A log that names the execution once needs only a word."""
        self.log = hook.log
        self.call: Call = lambda status, kickoff_id: status(kickoff_id)
        """Sends the request of a synchronous poll."""
        self._crew: CrewPolls | None = None

    def to_end(self) -> Completed:
        """Poll until the execution has completed. Raise the error that ends the watch otherwise."""
        while not (step := self.poll()).completed:
            self.pause(step)
        return step.completed

    def poll(self) -> Step:
        """Poll once, log what is new, and raise any error that ends the watch. The step holds the pause."""
        found: list[Outcome] = []
        for kickoff_id in self.watch.ids:
            try:
                client = self._hook.get_conn()
                self.watch.request_timeout = client.settings.request_timeout
                found.append(self.call(client.status, kickoff_id))
            except (CallError, InvalidSettings) as error:
                found.append(error)
        return self._decided(found)

    def pause(self, step: Step, sleep: Callable[[float], object] = time.sleep) -> None:
        """Sleep until the next poll, then renew the token if the step requires it."""
        sleep(step.poll_again_in)
        if step.renew_token:
            old = self._hook
            self._hook = renewed(old, timing.CONNECTION_AGE_IF_REJECTED)
            self._note_token(old.get_conn(), self._hook.get_conn())

    async def to_end_async(self, *, largest: int | None = None) -> Completed:
        """Poll until the execution has completed, like to_end(). ``largest``: maximum response size in bytes."""
        shared = SharedConnection.of(self._hook)
        while not (step := await self._poll_async(shared, largest)).completed:
            pause, renew_token = step.poll_again_in, step.renew_token
            del step  # free it during the pause: thousands of watches slow down the garbage collector
            await asyncio.sleep(pause)
            if renew_token and (old := self._crew):
                self._crew = await shared.renewed(old, self.log)
                self._note_token(old, self._crew)
        return step.completed

    async def _poll_async(self, shared: SharedConnection, largest: int | None) -> Step:
        """Poll once, like poll()."""
        found, deadline = list[Outcome](), self.watch.rules.deadline
        for kickoff_id in self.watch.ids:
            try:
                self._crew = crew = self._crew or await shared.crew(timing.CONNECTION_AGE)
                self.watch.request_timeout = crew.settings.request_timeout
                found.append(await crew.status(kickoff_id, deadline=deadline, largest=largest))
            except TimeoutError:  # until the deadline, too many other polls were under way
                return self._told(self.watch.on_deadline(), None)
            except (CallError, InvalidSettings) as error:
                found.append(error)
        return self._decided(found)

    def _decided(self, found: list[Outcome]) -> Step:
        execution = None
        try:
            execution = self.watch.whichever(found)
            step = self.watch.on_status(execution)
        except (CallError, InvalidSettings) as error:
            step = self.watch.on_error(error)
        return self._told(step, execution)

    def _told(self, step: Step, execution: Execution | None) -> Step:
        for level, text in self.watch.lines:
            self.log.log(level, "%s: %s", self.subject, text)
        if self.observer:
            try:
                self.observer(self.report, self.report.update(execution))
            except Exception as error:  # noqa: BLE001 - an observer must not end the watch
                self.log.debug("Progress was not reported: %s", error)
        if step.error:
            raise step.error
        return step

    def _note_token(self, old: "_Client", fresh: "_Client") -> None:
        if fresh.settings.token != old.settings.token:
            self.watch.token_renewed()
