"""Faults on demand, as calls that are easy to read in a test."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from pydantic import JsonValue

from airflow_provider_crew.local.faults.kinds import (
    AnswerFault,
    DripFault,
    HangFault,
    HugeFault,
    RawFault,
    RefuseFault,
    RequestFault,
    ResetFault,
    TruncateFault,
)
from airflow_provider_crew.local.record import Operation


class Extent(TypedDict, total=False):
    """Requests that a fault affects: the next one, unless ``every``, ``times`` or ``for_seconds`` is set."""

    on: Operation | Literal["all"]
    times: int
    every: int
    for_seconds: float


class AnswerOptions(Extent, total=False):
    """Options of a fault's response."""

    body: JsonValue | bytes
    headers: dict[str, str]
    retry_after: int
    retry_after_date: bool
    after_taken: bool


@dataclass
class _Pending:
    fault: RequestFault
    left: float
    until: float
    seen: int = 0


class Faults:
    """
    Faults for the next requests. Faults for the same operation happen in the order you requested them.

    A fault affects one request, unless ``times=N`` or ``for_seconds=S`` is given. With both, the first to end
    counts. ``for_seconds=math.inf`` lasts until ``clear()``. ``every=N`` affects each Nth request. ``on`` is an
    operation or ``"all"``.
    """

    def __init__(self, clock: Callable[[], float], listen: Callable[..., None]) -> None:
        self._clock = clock
        self._listen = listen
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []

    def answer(self, status: int, **options: Unpack[AnswerOptions]) -> None:
        """
        Return this status instead.

        An error without a ``body`` has the documented one. Text and bytes are sent as they are.
        ``after_taken``: the crew does its work before this response is sent.
        """
        self.add(AnswerFault(status=status, **options))

    def redirect(self, location: str, status: int = 302, **extent: Unpack[Extent]) -> None:
        """Redirect the client to another URL."""
        self.add(AnswerFault(status=status, headers={"location": location}, **extent))

    def reset(self, *, after_taken: bool = False, **extent: Unpack[Extent]) -> None:
        """Reset the connection instead of responding."""
        self.add(ResetFault(after_taken=after_taken, **extent))

    def hang(self, *, seconds: float | None = None, after_taken: bool = False, **extent: Unpack[Extent]) -> None:
        """Send no response for this many seconds, or indefinitely."""
        self.add(HangFault(seconds=seconds, after_taken=after_taken, **extent))

    def drip(self, *, pause: float = 0.1, part: Literal["all", "body"] = "all", **extent: Unpack[Extent]) -> None:
        """Send the real response byte by byte."""
        self.add(DripFault(pause=pause, part=part, **extent))

    def truncate(self, *, keep: int | None = None, incomplete: bool = False, **extent: Unpack[Extent]) -> None:
        """Cut the body of the real response. ``incomplete`` announces the full length and closes midway."""
        self.add(TruncateFault(keep=keep, incomplete=incomplete, **extent))

    def huge(self, size: int, *, chunked: bool = False, **extent: Unpack[Extent]) -> None:
        """Pad the real response to this many bytes."""
        self.add(HugeFault(size=size, chunked=chunked, **extent))

    def raw(self, data: bytes, **extent: Unpack[Extent]) -> None:
        """Send these bytes instead of HTTP and close the connection."""
        self.add(RawFault(data=data, **extent))

    def refuse(self, seconds: float | None = None) -> None:
        """Close the listening socket and every connection, for this many seconds or until ``clear()``."""
        self.add(RefuseFault(seconds=seconds))

    def add(self, fault: RequestFault | RefuseFault) -> None:
        """Add a fault that was built elsewhere, such as one from a scenario."""
        if isinstance(fault, RefuseFault):
            self._listen(refuse=True, seconds=fault.seconds)
            return
        once = fault.times is None and fault.for_seconds is None and fault.every == 1
        left = 1 if once else fault.times or float("inf")
        until = self._clock() + fault.for_seconds if fault.for_seconds else float("inf")
        with self._lock:
            self._pending.append(_Pending(fault, left, until))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._pending.clear()
        self._listen(refuse=False)

    def next_for(self, operation: Operation | None) -> RequestFault | None:
        """Use up and return the first fault for this operation."""
        now = self._clock()
        with self._lock:
            self._pending = [pending for pending in self._pending if pending.left > 0 and now < pending.until]
            for pending in self._pending:
                if pending.fault.on in ("all", operation):
                    pending.seen += 1
                    if pending.seen % pending.fault.every == 0:
                        pending.left -= 1
                        return pending.fault
        return None
