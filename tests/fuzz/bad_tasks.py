"""Tasks as Airflow runs them, with as little of Airflow as they need."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    mask_secret,
)
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.client.timing import replaced
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.operators.base import CrewTask
from airflow_provider_crew.triggers.crew import CrewExecutionTrigger
from tests.fuzz.cases import assert_presentable
from tests.integration import tasks


class Store:
    """Airflow's store of task states, which holds one thing."""

    def __init__(self, kept: Any = None) -> None:
        self.kept = kept

    def get(self, _key: str) -> Any:
        return self.kept

    def set(self, _key: str, value: Any, **_: Any) -> None:
        self.kept = value

    def delete(self, _key: str) -> None:
        self.kept = None


class TaskInstance(tasks.TaskInstance):
    """A second attempt of four, which keeps progress like any other XCom."""

    max_tries = 3

    def __init__(self) -> None:
        super().__init__(try_number=2, max_tries=self.max_tries)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


def context(store: Store, ti: TaskInstance | None = None) -> Any:
    """Return what a task looks at of its context."""
    return {"ti": ti or TaskInstance(), "task_state_store": store}


_ENDS = (CrewError, AirflowFailException, AirflowSkipException, AirflowSensorTimeout, AirflowTaskTimeout)


def ended(call: Callable[[], Any]) -> Any:
    """Return what a task returns, or what it ends with, when that is one of its own ends."""
    try:
        return call()
    except _ENDS as error:
        assert_presentable(error)
        return error


class Clock:
    """Goes on only when somebody waits, and then by ten seconds at least. Stands for time, and for asyncio."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._now = time.time()

    def time(self) -> float:
        return self._now

    def pause(self, seconds: float) -> None:
        self._now += max(seconds, 10.0)

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


# Modules of the package task that look at the clock.
_KIT = ("attempt", "sensor", "stop", "task", "wait")


@contextmanager
def airflow_without_delays() -> Iterator[None]:
    """Let operators be called, nothing wait, and logs be read here."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(ExecutorSafeguard, "test_mode", True))
        stack.enter_context(replaced(longest_back_off=0.0, longest_retry_after=0.0))
        # Airflow keeps, and looks for, every secret that it has ever been told.
        masker = import_module(mask_secret.__module__)._secrets_masker()
        stack.enter_context(patch.object(type(masker), "add_mask", lambda *_, **__: None))
        clock = Clock()
        waits = SimpleNamespace(**vars(time) | {"time": clock.time, "monotonic": clock.time, "sleep": clock.pause})
        for module in ("triggers.crew", "triggers.watching", "hooks.polling"):
            stack.enter_context(patch(f"airflow_provider_crew.{module}.asyncio", clock))
        for module in ("triggers.crew", "hooks.polling", *(f"task.{part}" for part in _KIT)):
            stack.enter_context(patch(f"airflow_provider_crew.{module}.time", waits))
        for logging_class in (CrewHook, CrewTask, CrewExecutionTrigger):
            stack.enter_context(
                patch.object(logging_class, "log", logging.getLogger("airflow_provider_crew.task"))
            )
        yield
