"""The table of promises: which cells are red, and which do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.promises.promises import PROMISES

# A cell that turns green fails until it is removed here.
RED: dict[tuple[str, str], str] = {}

# Why a kind has no such option.
ABSENT: dict[tuple[str, str], str] = {
    ("kickoff_option_rendered_to_nothing_sends_nothing", "tool"): "takes no such option",
    ("secret_connection_rendered_to_nothing_sends_nothing", "tool"): "takes no such option",
    **{
        ("later_call_brings_a_better_id", f"{mode}sensor"): "its kickoff has succeeded, with the first ID"
        for mode in ("", "deferred ", "rescheduled ")
    },
    ("misfitting_output_is_kept_and_checked_again_at_no_cost", "tool"): "takes no output_type",
    **{
        (
            "execution_timeout_during_poll_ends_attempt",
            f"deferred {kind}",
        ): "has no alarm in the triggerer"
        for kind in ("sensor", "batch")
    },
}


def cells(*kinds: str) -> Iterator[Any]:
    """Yield the cells of the table for these kinds."""
    for promise in PROMISES:
        for kind in kinds:
            if (promise, kind) in ABSENT:
                continue
            reason = RED.get((promise, kind))
            marks = [pytest.mark.xfail(raises=AssertionError, reason=reason)] if reason else []
            yield pytest.param(promise, kind, marks=marks, id=f"{promise}: {kind}")
