"""Runner: the process that hosts one execution, the pipes to it, and the output that the crew prints."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from airflow_provider_crew.local.unusable import Unusable

Message = dict[str, Any]

# One message holds the whole output of a crew.
_LONGEST_MESSAGE = 256 * 1024 * 1024
_LONGEST_LINE = 64 * 1024
_PRINTED = 1.0


class ProjectError(Unusable):
    """The project cannot be hosted."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class Process:
    """A runner that was started. Its owner has to end it."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.name = "loading"
        """Prefix of each line that the crew prints."""
        self.started_at = time.time()
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._open = contextlib.AsyncExitStack()
        self._process: asyncio.subprocess.Process
        self._socket: socket.socket
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._printing: asyncio.Task[None]

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], log: Callable[[str], None]
    ) -> Self:
        """Start a runner. Raise ProjectError if the interpreter does not exist."""
        started = cls(log)
        # Use one socket pair per direction. If this process dies with unread data in a pair, the other side gets
        # an error instead of the end of the stream.
        asks, asked = socket.socketpair()
        hears, says = socket.socketpair()
        printed, output = os.pipe()
        with asked, says, os.fdopen(output, "wb"):
            # Start the process last, so a cancellation before that leaves none behind.
            try:
                await started._connect(asks, hears, printed)
                await started._spawn(command, environment, (asked.fileno(), says.fileno()), output)
            except BaseException:
                await started._open.aclose()
                raise
        return started

    async def _connect(self, asks: socket.socket, hears: socket.socket, printed: int) -> None:
        self._socket = hears
        pipe = os.fdopen(printed, "rb")
        for end in (asks, hears, pipe):
            self._open.callback(end.close)
        _, self._writer = await asyncio.open_connection(sock=asks)
        self._open.push_async_callback(_close, self._writer)
        self._reader, hearing = await asyncio.open_connection(sock=hears, limit=_LONGEST_MESSAGE)
        self._open.push_async_callback(_close, hearing)
        lines = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(lines)
        reading, _ = await self._loop.connect_read_pipe(lambda: protocol, pipe)
        self._open.callback(reading.close)
        self._printing = asyncio.create_task(self._print(lines))
        self._open.callback(self._printing.cancel)

    async def _spawn(
        self, command: Sequence[str], environment: Mapping[str, str], ends: tuple[int, int], output: int
    ) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(*command, "--read", str(ends[0]), "--write", str(ends[1])),
                env=environment,
                pass_fds=ends,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C is for the server, which stops its processes in its own order.
                start_new_session=True,
            )
        except OSError as error:
            raise ProjectError(f"{command[0]} cannot be run: {error.strerror}.") from None

    @property
    def is_alive(self) -> bool:
        """Whether the runner's end of the pipe is open. It is closed even if the process crashes."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def send(self, message: Message) -> None:
        """Send a message, from any thread."""
        self._loop.call_soon_threadsafe(self._writer.write, json.dumps(message).encode() + b"\n")

    async def read(self) -> Message | None:
        """Return the next message, or None if there will be no more."""
        with contextlib.suppress(ConnectionError):
            if line := await self._reader.readline():
                message: Message = json.loads(line)
                return message
        return None

    def kill(self) -> None:
        """Kill the runner at once, with every process it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self, grace: float = 0.0) -> int:
        """Wait this many seconds for the runner to exit, then kill it. Return its exit code."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._process.wait()
        self.kill()
        code = await self._process.wait()
        # A process that left the process group may keep the output open.
        await asyncio.wait([self._printing], timeout=_PRINTED)
        await self._open.aclose()
        return code

    async def _print(self, printed: asyncio.StreamReader) -> None:
        rest = b""
        while chunk := await printed.read(_LONGEST_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._print_line(line)
        if rest:
            self._print_line(rest)

    def _print_line(self, line: bytes) -> None:
        # A model may write anything, including control characters that move the terminal's cursor.
        text = "".join(each for each in line.decode("utf-8", "replace") if each.isprintable() or each == "\t")
        self._log(f"{self.name} | {text}")


async def _close(end: asyncio.StreamWriter) -> None:
    end.close()
    with contextlib.suppress(ConnectionError):
        await end.wait_closed()
