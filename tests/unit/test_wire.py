from __future__ import annotations

from typing import Any

import pytest
from crew_builders import KICKOFF_ID, Script, answer, settings

from airflow_provider_crew.service.errors import UncertainKickoff, UnreadableAnswer
from airflow_provider_crew.service.wire import CrewWire

PAYLOAD: dict[str, Any] = {"inputs": {"topic": "AI"}}


@pytest.fixture
def wire() -> CrewWire:
    return CrewWire(settings())


@pytest.mark.parametrize("status", [100, 102, 103])
def test_an_answer_that_is_not_final_refuses_nothing(wire: CrewWire, status: int) -> None:
    with pytest.raises(UncertainKickoff):
        Script(answer(status)).play(wire.kickoff(PAYLOAD))
    with pytest.raises(UnreadableAnswer, match="it is not a final answer"):
        Script(answer(status)).play(wire.status(KICKOFF_ID))
