"""What others say, on its way into a log or an error; and what fits into one line of a log."""

import re
from typing import Any

# Airflow's log page folds what stands between two of these, wherever in a line they are, and shows neither.
_FOLDS = re.compile(r"(?:::|##\[\]?)(?=(?:end)?group(?:::|\]))")
# Some scripts, and some emoji, are not legible without them.
_JOINERS = "\u200c\u200d"
_TAB = 4


def one_line(text: str, most: int) -> str:
    """
    Return the text on one line and not too long, without characters that a terminal obeys or that turn it around.

    Whoever writes it could otherwise forge the next line of a log, or hide what stands there.
    """
    if len(text) <= most and text.isprintable() and "  " not in text and "group" not in text:
        return text.strip()
    # Cut first: what others say may be as long as an answer.
    line = " ".join(text[: 4 * most].split())
    shown = _unfolded("".join(character if character.isprintable() else "\ufffd" for character in line[:most]))
    return shown if len(line) <= most and len(text) <= 4 * most else f"{shown}…"


def warn(log: Any, text: str) -> None:
    """Log a warning whose text is no template."""
    log.warning("%s", text)


def quoted(text: str, most: int) -> tuple[str, bool]:
    """
    Return as many bytes of a text, line by line behind a bar, so that it forges no line, and whether it is cut.

    Nothing in it commands a terminal, or ends what Airflow's log page folds.
    """
    beginning = text[:most].encode(errors="replace")[:most].decode(errors="ignore")
    lines = beginning.expandtabs(_TAB).splitlines()
    shown = [f"| {_unfolded(''.join(map(_shown, line)))}".rstrip() for line in lines]
    is_cut = len(beginning) < len(text)
    return "\n".join([*shown, "| …"] if is_cut else shown), is_cut


def size(text: str) -> str:
    """Say how large a text is, as people do: ``4.2 KB``."""
    from pydantic import ByteSize

    return ByteSize(len(text.encode(errors="replace"))).human_readable(decimal=True, separator=" ")


def _shown(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    return " " if character.isspace() else "\ufffd"


def _unfolded(text: str) -> str:
    return _FOLDS.sub(lambda mark: f"{mark[0][0]} {mark[0][1:]}", text)
