"""What the local service was sent, in order."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

Operation = Literal["inputs", "kickoff", "status"]

# Bytes kept of the requests without a valid token. Any process on this machine can send as many as it likes.
MOST_OF_STRANGERS = 4 * 1024 * 1024


@dataclass
class ReceivedRequest:
    """One request as it came over the wire, and what became of it."""

    method: str
    path: str
    """Undecoded, as on the wire."""
    query: str
    headers: tuple[tuple[str, str], ...]
    """In order, with duplicates; names in lower case."""
    body: bytes
    """Empty without a valid token, because it is not read then."""
    client: tuple[str, int]
    """Address and port of the other end: requests with the same value came over one connection."""
    received_at: float = field(default_factory=time.time)
    fault: str | None = None
    """The kind of the fault that was applied; ``cold_start`` when a gateway answered for a crew that slept."""
    status: int | None = None
    """The HTTP status that was answered; None while, or when, there was no answer."""

    @property
    def operation(self) -> Operation | None:
        """What the request asked for, whether or not it was allowed to."""
        return operation_of(self.method, self.path)

    @property
    def json(self) -> Any:
        """The body as JSON, or None when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def size(self) -> int:
        """The bytes that it takes to keep the request, roughly."""
        texts = [self.method, self.path, self.query, *(part for header in self.headers for part in header)]
        return len(self.body) + sum(map(len, texts))

    def header(self, name: str) -> str | None:
        """Return the first header of that name."""
        return next((value for known, value in self.headers if known == name.lower()), None)


class Record(Sequence[ReceivedRequest]):
    """
    Every request received so far. Safe to read from any thread, also while requests come in.

    Of the requests without a valid token, the record keeps the newest 4 MiB.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[ReceivedRequest] = []
        self._of_strangers: deque[ReceivedRequest] = deque()
        self._size_of_strangers = 0

    def add(self, request: ReceivedRequest, *, of_stranger: bool = False) -> None:
        """Append a request on its arrival, so that one that gets no answer is seen too."""
        with self._lock:
            self._requests.append(request)
            if of_stranger:
                self._of_strangers.append(request)
                self._size_of_strangers += request.size
                self._forget_strangers()

    def _forget_strangers(self) -> None:
        """Forget the oldest requests without a valid token, as soon as they take too much memory."""
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
    """Tell the operation from the method and the undecoded path."""
    match method, path.split("/"):
        case "GET", ["", "inputs"]:
            return "inputs"
        case "POST", ["", "kickoff"]:
            return "kickoff"
        case "GET", ["", "status", _] | ["", _, "status"]:
            return "status"
    return None
