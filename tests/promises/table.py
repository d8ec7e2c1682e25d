"""The table of promises: which cells are red, and which do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.promises.promises import PROMISES

# A cell that turns green fails until it is removed here.
RED: dict[tuple[str, str], str] = {
    ("kickoff_option_rendered_to_nothing_sends_nothing", "batch"): "sends it for each row",
    ("kickoff_option_rendered_to_nothing_sends_nothing", "deferred batch"): "sends it for each row",
    ("connection_rendered_to_nothing_sends_nothing", "batch"): "waits until timeout for a connection of that name",
    (
        "connection_rendered_to_nothing_sends_nothing",
        "deferred batch",
    ): "waits until timeout for a connection of that name",
    ("large_result_is_returned", "batch"): "ends the batch, and so does clearing it",
    ("large_result_is_returned", "deferred batch"): "ends the batch, and so does clearing it",
    ("token_renewed_while_waiting_is_used", "batch"): "polls with the rejected token until timeout",
    ("store_away_before_kickoff_is_waited_for", "batch"): "one failed write ends the attempt",
    ("store_away_before_kickoff_is_waited_for", "deferred batch"): "one failed write ends the attempt",
    ("kickoff_id_outlives_store_that_was_away", "batch"): "one failed write ends the attempt",
    ("kickoff_id_outlives_store_that_was_away", "deferred batch"): "one failed write ends the attempt",
    ("unexpected_exception_in_wait_surfaces", "batch"): "polls the row no more, and says nothing",
    ("unexpected_exception_in_wait_surfaces", "deferred batch"): "polls the row no more, and says nothing",
    ("execution_timeout_during_poll_ends_attempt", "batch"): "the alarm vanishes with the poll",
    ("execution_that_outlasts_its_time_is_running", "deferred batch"): "forgets the row at the next deferral",
}

# Why a kind has no such option.
ABSENT: dict[tuple[str, str], str] = {
    ("kickoff_option_rendered_to_nothing_sends_nothing", "tool"): "takes no such option",
    ("secret_connection_rendered_to_nothing_sends_nothing", "tool"): "takes no such option",
    ("misfitting_output_is_kept_and_checked_again_at_no_cost", "tool"): "takes no output_type",
    (
        "execution_timeout_during_poll_ends_attempt",
        "deferred batch",
    ): "polls in the triggerer only, without an alarm",
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
