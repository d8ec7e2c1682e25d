"""The table of promises, and its cells that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.promises.promises import PROMISES

# Why a kind has no such option.
ABSENT: dict[tuple[str, str], str] = {
    ("kickoff_option_rendered_to_nothing_sends_nothing", "tool"): "takes no such option",
    ("template_that_cannot_be_rendered_costs_nothing", "tool"): "takes no such option",
    ("unusable_output_type_is_found_before_anything_is_billed", "tool"): "takes no output_type",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "tool"): "takes no such option",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "sensor"): "takes no such option",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "deferred sensor"): "takes no such option",
    ("echoed_secret_of_webhooks_is_shown_nowhere", "rescheduled sensor"): "takes no such option",
    ("failed_check_of_inputs_sends_nothing", "tool"): "an agent decides what comes after a failed call",
    ("marked_task_waits_for_no_slow_poll", "tool"): "learns of a mark between two polls",
    ("timeout_stops_nothing_at_another_crew", "rescheduled sensor"): "reads its connection at each poke",
    ("mark_stops_nothing_at_another_crew", "rescheduled sensor"): "reads its connection at each poke",
    ("misfitting_output_is_kept_and_checked_again_at_no_cost", "tool"): "takes no output_type",
    ("execution_timeout_during_poll_ends_attempt", "deferred sensor"): "polls in the triggerer, without an alarm",
    ("execution_timeout_during_poll_ends_attempt", "deferred batch"): "polls in the triggerer, without an alarm",
}


def cells(*kinds: str) -> Iterator[Any]:
    """Yield the cells of the table for these kinds."""
    for promise in PROMISES:
        for kind in kinds:
            if (promise, kind) not in ABSENT:
                yield pytest.param(promise, kind, id=f"{promise}: {kind}")
