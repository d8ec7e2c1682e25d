"""Runs a test over bad input: cases that are known, and cases that Hypothesis generates."""

from __future__ import annotations

import json
import os
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st

from airflow_provider_crew.client.errors import CrewError, error_record
from tests.fuzz.bad_values import TOKEN

# Cases of each kind. Without the variable they are always the same.
EXAMPLES = int(os.environ.get("CREW_FUZZ_CASES", "25"))
_MOST_COMPUTING = 5.0
_LONGEST_TEXT = 200_000


def cases(strategy: st.SearchStrategy[Any], *, known: Iterable[Any] = ()) -> Callable[..., Any]:
    """Run a test for each known case and for generated ones, and check the time of each."""

    def declare(test: Callable[..., None]) -> Callable[..., None]:
        def each(case: Any) -> None:
            computed = time.process_time()
            try:
                test(case)
            except Exception as error:
                error.add_note(ascii(case)[:2000])
                raise
            assert time.process_time() - computed < _MOST_COMPUTING

        each.__name__ = each.__qualname__ = test.__name__
        each.__module__ = test.__module__
        # Deferred, because Hypothesis would warn of the length of some strategies.
        run: Any = hypothesis.given(case=st.deferred(lambda: strategy))(each)
        for case in known:
            run = hypothesis.example(case=case)(run)
        run = hypothesis.settings(
            max_examples=EXAMPLES,
            derandomize="CREW_FUZZ_CASES" not in os.environ,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )(run)
        return pytest.mark.timeout(max(300, EXAMPLES))(run)

    return declare


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the error of this package that it raises."""
    try:
        return call()
    except CrewError as error:
        assert_presentable(error)
        return error


def assert_presentable(error: BaseException, *secrets: str) -> None:
    """Check that an error shows no secret and can be stored."""
    for secret in {TOKEN, *secrets}:
        for text in _texts_of(error):
            assert secret not in text
            assert quote(secret, safe="") not in text
    text = str(error)
    assert text
    odd = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert not odd - {"\n"}
    assert len(text) < _LONGEST_TEXT
    if isinstance(error, CrewError):
        stored = json.dumps(error_record(error), ensure_ascii=False)
        assert stored.encode()
        assert "\\u0000" not in stored.replace("\\\\", "")


def _texts_of(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    below = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if below is not None:
        yield from _texts_of(below)


def assert_storable(value: Any) -> None:
    """Check that Airflow's stores would accept a result."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    assert text.encode()
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json.loads(text) == value
