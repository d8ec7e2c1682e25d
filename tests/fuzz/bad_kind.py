"""One kind of bad input, and where it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from airflow_provider_crew.client.client import CrewClient
from tests.async_crew import AsyncCrew
from tests.fuzz.bad_service import AnyService


@dataclass(frozen=True)
class World:
    """A service that answers anything, both clients of it, and what is wrong with the lines of the log."""

    service: AnyService
    crews: tuple[CrewClient, AsyncCrew]
    log_faults: list[str]


@dataclass(frozen=True)
class Kind:
    """
    Cases, and what must hold for each of them.

    ``weight`` is its share of a long run. ``known`` are cases that once went wrong.
    """

    name: str
    cases: st.SearchStrategy[Any]
    check: Callable[[World, Any], None]
    weight: int = 2
    known: tuple[Any, ...] = ()
