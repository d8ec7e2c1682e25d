"""How the command ends: what scripts go by."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """One code for each thing that a script may do next. Python itself ends with 1 when the command breaks."""

    ANSWERED = 0
    BROKEN = 1
    USAGE = 2
    GOING_ON = 3
    PAUSED = 4
    FAILED = 5
    UNKNOWN = 6
    CONNECTION = 7
    NO_ANSWER = 8
    REFUSED = 9

    @property
    def meaning(self) -> str:
        """Say it to people."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.ANSWERED: "status: the execution has completed; inputs: the crew has answered",
    ExitCode.BROKEN: "the command itself broke, with a traceback",
    ExitCode.USAGE: "wrong usage",
    ExitCode.GOING_ON: "the execution is going on",
    ExitCode.PAUSED: "the execution is paused: it waits for a person's answer",
    ExitCode.FAILED: "the execution has failed",
    ExitCode.UNKNOWN: "the crew does not know the execution, which may be waiting for a person",
    ExitCode.CONNECTION: "there is no such connection, or it cannot be read or used",
    ExitCode.NO_ANSWER: "the crew gave no usable answer: try again later",
    ExitCode.REFUSED: "the crew refused, or its answer is too large: people have to mend it",
}
