"""A clock that only moves while something waits, processes and an event loop with it, and requests in memory."""

from __future__ import annotations

import asyncio
import heapq
import selectors
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import requests
import urllib3
from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_crew.batch.state import Board
from airflow_provider_crew.local.answer import Answer
from airflow_provider_crew.local.faults.calls import Faults
from airflow_provider_crew.local.faults.exchange import Exchange
from airflow_provider_crew.local.record import ReceivedRequest
from tests.integration import attempts
from tests.integration.attempts import Killed

START = 1_800_000_000.0
_REQUEST_TAKES = 0.05
_TIME_TO_END = 5.0


class Clock:
    """Seconds since the epoch, and what happens at which of them."""

    def __init__(self) -> None:
        self.now = START
        self._numbers = count()
        self._later: list[tuple[float, int, Callable[[], object]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass, and do what was to be done meanwhile. That may raise."""
        until = self.now + max(seconds, 0.0)
        while self._later and self._later[0][0] <= until:
            at, _, act = heapq.heappop(self._later)
            self.now = max(self.now, at)
            act()
        self.now = max(self.now, until)

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something after a while."""
        heapq.heappush(self._later, (self.now + seconds, next(self._numbers), act))

    def forget(self) -> None:
        """Do nothing more of what was to be done later."""
        self._later.clear()


class Process(attempts.Process):
    """A process that only the clock and requests interrupt."""

    def __init__(self, clock: Clock, operator: Any) -> None:
        super().__init__(operator)
        self.is_told = False
        self._clock = clock
        self._rung = threading.Event()
        if operator and operator.execution_timeout:
            clock.later(operator.execution_timeout.total_seconds(), self.ring)

    def kill(self) -> None:
        if not self.is_over:
            self.is_dead = True
            raise Killed

    def tell(self) -> None:
        """Send SIGTERM, and SIGKILL later."""
        self.is_told = True
        self._clock.later(_TIME_TO_END, self.kill)
        self.operator.on_kill()

    def ring(self) -> None:
        """Raise in the main thread, as Airflow's handler does."""
        if self.is_over:
            return
        if threading.current_thread() is threading.main_thread():
            raise AirflowTaskTimeout("Timeout")

        def rung(*_: object) -> None:
            self._rung.set()
            raise AirflowTaskTimeout("Timeout")

        signal.signal(signal.SIGALRM, rung)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        self._rung.wait()


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting. All threads of a loop are calls, so there is nothing else to wait for."""

    clock: Clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("The event loop waits for something that never happens.")
        if timeout > 0:
            self.clock.sleep(timeout + 1e-6)  # or rounding would stop the clock
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """Event loop of a clock."""

    def __init__(self, clock: Clock) -> None:
        selector = _Selector()
        selector.clock = self._clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._clock.now - START  # a large number has no room for the resolution of asyncio

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)
        return future


class NotConnected(Exception):
    """No connection is opened, so nothing is sent."""


class Wire(Exchange):
    """An exchange in memory."""

    def __init__(self, request: ReceivedRequest, answer: Callable[[ReceivedRequest], Answer]) -> None:
        self.request = request
        self._answer = answer
        self.sent = Answer(200)

    def result_of(self, fault: Any) -> Answer:
        """Return what the client gets, or raise what it sees."""
        happens = fault.happen(self) if fault else self._answered()
        try:
            happens.send(None)
        except StopIteration:
            return self.sent
        raise AssertionError("An exchange in memory waits for nothing.")

    async def _answered(self) -> None:
        await self.send(await self.take())

    async def send(self, answer: Answer) -> None:
        self.request.status, self.sent = answer.status, answer

    async def stream(self, answer: Answer, parts: Any, length: int | None) -> None:
        del length
        await self.send(Answer(answer.status, b"".join(parts), answer.headers))

    def write(self, raw: bytes) -> None:
        self.sent = Answer(self.request.status or 200, raw.partition(b"\r\n\r\n")[2])

    async def close(self) -> None:
        """The client has got everything that was written."""

    async def reset(self) -> None:
        raise ConnectionResetError("reset by peer")

    async def pause(self, seconds: float = 0.0) -> None:
        del seconds
        raise TimeoutError("no response in time")


class Refusal:
    """A fault: nothing listens."""

    times, for_seconds, kind = None, None, "refuse"

    def __init__(self, on: str) -> None:
        self.on = on

    async def happen(self, _: Exchange) -> None:
        raise NotConnected


def faults(clock: Clock) -> Faults:
    return Faults(clock, lambda **_: None)


Send = Callable[[ReceivedRequest], Answer]


def _received(method: str, url: str, headers: Any, body: Any = None) -> ReceivedRequest:
    sent = tuple((name.lower(), value) for name, value in headers.items())
    return ReceivedRequest(method, urlsplit(url).path, "", sent, body or b"", ("127.0.0.1", 1))


class _Body:
    def __init__(self, answer: Answer) -> None:
        self._left = answer.body

    def read1(self, _: int, **__: Any) -> bytes:
        read, self._left = self._left, b""
        return read

    async def readany(self) -> bytes:
        return self.read1(0)


@contextmanager
def _response(answer: Answer) -> Any:
    body = _Body(answer)
    headers = requests.structures.CaseInsensitiveDict(answer.headers)
    yield SimpleNamespace(status_code=answer.status, status=answer.status, headers=headers, raw=body, content=body)


def _send_sync(clock: Clock, send: Send) -> Callable[..., Any]:
    def send_sync(_: Any, request: Any, *, timeout: tuple[float, float], **__: Any) -> Any:
        clock.sleep(_REQUEST_TAKES)
        try:
            body = request.body and request.body.read()
            return _response(send(_received(request.method, request.url, request.headers, body)))
        except NotConnected:
            raise urllib3.exceptions.NewConnectionError(None, "refused") from None  # type: ignore[arg-type]
        except TimeoutError:
            clock.sleep(timeout[1])
            raise

    return send_sync


def _get_async(send: Send) -> Callable[..., Any]:
    @asynccontextmanager
    async def get(_: Any, url: Any, *, headers: Any, **options: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(_REQUEST_TAKES)
        try:
            response = _response(send(_received("GET", str(url), headers)))
        except NotConnected:
            raise aiohttp.ConnectionTimeoutError from None
        except TimeoutError:
            await asyncio.sleep(options["timeout"].total)
            raise
        with response as received:
            yield received

    return get


def one_by_one(_: Board, work: Callable[[Any], Any], items: Any) -> Iterator[list[tuple[Any, Any]]]:
    """Do the work of threads in this one."""
    for item in items:
        outcome: Future[Any] = Future()
        try:
            outcome.set_result(work(item))
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is read
            outcome.set_exception(error)
        yield [(item, outcome)]


def install(patch: pytest.MonkeyPatch, clock: Clock, send: Send) -> None:
    """Let everything in this process wait by a clock, and send requests without sockets, one after the other."""
    patch.setattr(Board, "each", one_by_one)
    patch.setattr(requests.adapters.HTTPAdapter, "send", _send_sync(clock, send))
    patch.setattr(aiohttp.ClientSession, "get", _get_async(send))
    patch.setattr(ExecutorSafeguard, "test_mode", True)
    patch.setattr(time, "time", clock)
    patch.setattr(time, "monotonic", clock)
    patch.setattr(time, "sleep", clock.sleep)
    patch.setattr(asyncio.events, "new_event_loop", partial(Loop, clock))
