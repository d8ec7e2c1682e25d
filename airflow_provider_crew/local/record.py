"""Requests that the local server received, in order."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

Operation = Literal["inputs", "kickoff", "status", "stop", "resume"]

# Bytes kept of requests without a valid token. Any local process can send an unlimited number of them.
MOST_OF_STRANGERS = 4 * 1024 * 1024


@dataclass
class ReceivedRequest:
    """One request as it was received, and its outcome."""

    method: str
    path: str
    """Undecoded, as it was received."""
    query: str
    headers: tuple[tuple[str, str], ...]
    """In order, with duplicates; names in lower case."""
    body: bytes
    """Empty without a valid token, because the body is not read then."""
    client: tuple[str, int]
    """Address and port of the client: requests with the same value came over one connection."""
    received_at: float = field(default_factory=time.time)
    fault: str | None = None
    """Kind of the fault that was applied; ``cold_start`` if a gateway responded for a sleeping crew."""
    status: int | None = None
    """HTTP status of the response. None while, or if, there is none."""

    @property
    def operation(self) -> Operation | None:
        """The operation that was requested, whether or not it was allowed."""
        return operation_of(self.method, self.path)

    @property
    def json(self) -> Any:
        """The body as JSON, or None if it can't be parsed."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def size(self) -> int:
        """Approximate size of the request in memory, in bytes."""
        texts = [self.method, self.path, self.query, *(part for header in self.headers for part in header)]
        return len(self.body) + sum(map(len, texts))

    def header(self, name: str) -> str | None:
        """Return the first header with this name."""
        return next((value for known, value in self.headers if known == name.lower()), None)


class Record(Sequence[ReceivedRequest]):
    """
    Every request received so far. Safe to read from any thread, even while requests arrive.

    For requests without a valid token, the record keeps the newest 4 MiB.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[ReceivedRequest] = []
        self._of_strangers: deque[ReceivedRequest] = deque()
        self._size_of_strangers = 0

    def add(self, request: ReceivedRequest, *, of_stranger: bool = False) -> None:
        """Append a request on its arrival, so that one without a response is recorded as well."""
        with self._lock:
            self._requests.append(request)
            if of_stranger:
                self._of_strangers.append(request)
                self._size_of_strangers += request.size
                self._forget_strangers()

    def _forget_strangers(self) -> None:
        """Forget the oldest requests without a valid token when they use too much memory."""
        while self._size_of_strangers > MOST_OF_STRANGERS:
            oldest = self._of_strangers.popleft()
            self._size_of_strangers -= oldest.size
            self._requests.remove(oldest)

    def on(self, operation: Operation) -> list[ReceivedRequest]:
        """Return the requests for one operation."""
        return [request for request in self if request.operation == operation]

    def clear(self) -> None:
        """Forget the requests received so far."""
        with self._lock:
            self._requests.clear()
            self._of_strangers.clear()
            self._size_of_strangers = 0

    @overload
    def __getitem__(self, index: int) -> ReceivedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[ReceivedRequest]: ...
    def __getitem__(self, index: int | slice) -> ReceivedRequest | list[ReceivedRequest]:
        with self._lock:
            return self._requests[index]

    def __iter__(self) -> Iterator[ReceivedRequest]:
        return iter(self[:])

    def __len__(self) -> int:
        with self._lock:
            return len(self._requests)


def operation_of(method: str, path: str) -> Operation | None:
    """Return the operation for the method and the undecoded path."""
    match method, path.split("/"):
        case "GET", ["", "inputs"]:
            return "inputs"
        case "POST", ["", "kickoff"]:
            return "kickoff"
        case "GET", ["", "status", _] | ["", _, "status"]:
            return "status"
        case "POST", ["", "stop", _]:
            return "stop"
        case "POST", ["", "resume"]:
            return "resume"
    return None
