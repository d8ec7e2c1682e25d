"""A trigger that measures how late the triggerer's event loop is."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PAUSE = 0.05
_ROUNDS = 100


class LoopLag(BaseTrigger):
    """Write the lag of the event loop to a file, 20 times a second, until the file is gone."""

    def __init__(self, path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to build this again."""
        return "benchmarks.lag.LoopLag", {"path": self.path}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Measure."""
        file = Path(self.path)
        while os.path.exists(self.path):  # noqa: ASYNC240, PTH110 - a few microseconds
            lags = []
            for _ in range(_ROUNDS):
                began = time.monotonic()
                await asyncio.sleep(_PAUSE)
                lags.append(time.monotonic() - began - _PAUSE)
            with file.open("a") as lines:  # noqa: ASYNC230 - a few microseconds
                lines.writelines(f"{lag:.5f}\n" for lag in lags)
        yield TriggerEvent(None)  # type: ignore[no-untyped-call]


class MeasureLoopLag(BaseOperator):
    """Defer to a trigger that measures the lag of the triggerer's event loop."""

    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path

    def execute(self, context: Any) -> None:  # noqa: ARG002 - as Airflow calls it
        """Defer at once."""
        self.defer(trigger=LoopLag(self.path), method_name="execute_complete")

    def execute_complete(self, context: Any, event: Any) -> None:
        """Do nothing."""
