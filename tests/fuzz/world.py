"""A service that answers with any bytes, both clients in front of it, and a reader of the log."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from airflow_provider_crew.client.client import CrewClient
from tests.async_crew import AsyncCrew
from tests.fuzz.bad_values import TOKEN
from tests.integration.hostile import Hostile, answer


@dataclass(frozen=True)
class World:
    """The service, both of its clients, and the faults found in log lines."""

    service: Hostile
    crews: tuple[CrewClient, AsyncCrew]
    log_faults: list[str]

    def prepare(self, told: bytes | dict[str, Any]) -> None:
        """Answer with these bytes, or with this document, and forget earlier requests."""
        self.service.says = [answer(json.dumps(told).encode()) if isinstance(told, dict) else told]
        self.service.requests.clear()

    @property
    def kickoffs(self) -> int:
        """Number of kickoffs since requests were last forgotten."""
        return sum(line.startswith("POST ") for line in self.service.lines)


class LogReader(logging.Handler):
    """Finds lines that show the token or cannot be written."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if TOKEN in text:
            self.faults.append("a log line shows the token")
        try:
            text.encode()
        except UnicodeError:
            self.faults.append("a log line cannot be written")
