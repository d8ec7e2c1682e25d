"""Each error keeps its message and its facts, also on the way to another process."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import error_record, recorded_error

# A value for each field that an error may have.
FACTS: dict[str, Any] = {
    "http_status": 418,
    "retry_after": 2.5,
    "address": "https://crew.example",
    "lasted": 600.0,
    "error": "boom",
    "missing_inputs": ("day", "topic"),
    "misfits": ("title: Field required",),
    "execution_time": 1.5,
    "usage": {"total_tokens": 312, "cost": 0.5},
    "cause": errors.RateLimited("429", retry_after=2.5),
    "elsewhere": "https://crew.example",
    "at": "task 1",
    "next_step": "Wait.",
    "kickoff_id": "7",
}


def family(of: type[errors.CrewError]) -> Iterator[errors.CrewError]:
    """Return an error of each class, whose fields differ from their defaults."""
    known = {each.name: FACTS.get(each.name, not each.default) for each in fields(of) if each.name != "cost"}
    yield of("told", **known)
    for child in of.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from family(child)


ONE_OF_EACH = [*family(errors.CrewError)]


def facts(error: object) -> object:
    """Return what an error tells, in a form that can be compared."""
    return (
        (type(error), str(error), {k: facts(v) for k, v in vars(error).items()})
        if isinstance(error, Exception)
        else error
    )


def carried(error: errors.CrewError) -> Any:
    """Send an error to another process, as text."""
    return recorded_error(json.loads(json.dumps(error_record(error))))


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_error_keeps_class_message_and_facts(error: errors.CrewError) -> None:
    assert facts(pickle.loads(pickle.dumps(error))) == facts(error)  # noqa: S301 - our own
    assert facts(copy.copy(error)) == facts(error)
    if not vars(error).keys() & {"misfits", "missing_inputs"}:
        assert facts(carried(error)) == facts(error)
        assert carried(error).args == error.args
