"""What the tests of the crew service share: settings, answers, and a transport that follows a script."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.service.answer import Answer
from airflow_provider_crew.service.settings import ServiceSettings
from airflow_provider_crew.service.wire import advance

TOKEN = "org/Token-0123+45=6789"
KICKOFF_ID = "6f1d9c1e-3f0c-4f6e-9f43-2a1f6f0f9a11"
NOW = 1_750_000_000.0


def settings(**changes: Any) -> ServiceSettings:
    return ServiceSettings(**{"address": "https://crew.example", "token": TOKEN} | changes)


def answer(status: int = 200, body: Any = b"", headers: dict[str, str] | None = None) -> Answer:
    """Build an answer; a body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer.received(status, headers or {}, content, secrets=(TOKEN,), now=NOW)


def live_answer(state: str = "RUNNING", status: Any = None, **fields: Any) -> dict[str, Any]:
    """Build what a deployed crew says about an execution: all its fields, most of them null."""
    names = (
        *("result", "result_json", "usage_metrics", "progress", "last_event", "events", "events_count"),
        *("events_by_type", "triggered_by", "execution_origin", "last_step", "last_executed_task", "flow_id"),
        "source",
    )
    return {"state": state, "status": status, **dict.fromkeys(names), **fields}


class Script:
    """Answers a conversation's requests one after the other, and keeps the requests."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)
        self.requests: list[Any] = []

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def play(self, conversation: Any) -> Any:
        request = next(conversation)
        while True:
            self.requests.append(request)
            try:
                request = advance(conversation, self._outcomes.pop(0))
            except StopIteration as end:
                return end.value


# Whatever can come in JSON as Python reads it: half surrogate pairs, NaN and infinities, integers of any width.
any_text = st.text(st.characters(exclude_categories=()), max_size=8)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(min_value=2**63) | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
