"""What may come of bad input: a result, or an error of this package that can be shown, stored and told."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

from airflow_provider_crew.client.errors import CrewError, error_record
from tests.fuzz.bad_values import TOKEN

_LONGEST_TEXT = 200_000


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error of this package that it raises."""
    try:
        return call()
    except CrewError as error:
        presentable(error)
        return error


def presentable(error: BaseException, *secrets: str) -> None:
    """Refuse an error that shows a token, or that cannot be written down."""
    for shown in {TOKEN, *secrets}:
        for text in _texts_of(error):
            assert shown not in text
            assert quote(shown, safe="") not in text
    text = str(error)
    assert text
    assert text.encode()
    assert "\x00" not in text
    assert len(text) < _LONGEST_TEXT
    if isinstance(error, CrewError):
        assert json.dumps(error_record(error), ensure_ascii=False).encode()


def _texts_of(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    below = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if below is not None:
        yield from _texts_of(below)


def storable(value: Any) -> None:
    """Refuse a result that Airflow's stores would refuse."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    assert text.encode()
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json.loads(text) == value


class _Reader(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if TOKEN in text:
            self.faults.append("a line of the log shows the token")
        try:
            text.encode()
        except UnicodeError:
            self.faults.append("a line of the log cannot be written")


@contextmanager
def log_that_is_read() -> Iterator[list[str]]:
    """Read every line, and yield what is wrong with them."""
    reader, log = _Reader(), logging.getLogger("airflow_provider_crew")
    level = log.level
    log.addHandler(reader)
    log.setLevel(logging.DEBUG)
    try:
        yield reader.faults
    finally:
        log.removeHandler(reader)
        log.setLevel(level)


@contextmanager
def log_that_nobody_keeps() -> Iterator[None]:
    """Keep lines from pytest, which holds all of them until the end of a test."""
    with patch.object(logging.getLogger(), "handlers", [logging.NullHandler()]):
        yield
