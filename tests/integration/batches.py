"""Rows of a batch, what its files have of them, and a judge of both."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_crew.local.executions import Execution
from tests.integration import tasks

# A deployed crew reports its usage, even that of failed executions.
QUICK, FAILING, SLOW = (
    each.model_copy(update={"dialect": "deployed"}) for each in (tasks.QUICK, tasks.FAILING, tasks.SLOW)
)
TOKENS = QUICK.usage["total_tokens"]


class Killed(BaseException):
    """The process ends here."""


def killed_at(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    *,
    call: int = 1,
    after: bool = False,
    why: type[BaseException] = Killed,
) -> None:
    """End the process at a call of a method, once. ``why``: or let the call fail."""
    original, calls = getattr(owner, name), iter(range(1, 10_000))

    def method(self: Any, *given: Any, **named: Any) -> Any:
        dies = next(calls) == call
        if dies and not after:
            raise why
        result = original(self, *given, **named)
        if dies:
            raise why
        return result

    monkeypatch.setattr(owner, name, method)


def one_by_one(_: Any, work: Callable[[Any], Any], items: Any, **__: Any) -> Iterator[list[tuple[Any, Any]]]:
    """Do the work of a batch's threads in this one."""
    for item in items:
        outcome: Future[Any] = Future()
        try:
            outcome.set_result(work(item))
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is read
            outcome.set_exception(error)
        yield [(item, outcome)]


def rows(count: int = 10) -> list[dict[str, Any]]:
    return [{"topic": f"topic {number}", "audience": "sailors"} for number in range(count)]


def newest(folder: Any, kind: str = "results") -> Any:
    """Return the file of that kind that the last attempt has written."""
    return max(folder.glob(f"{kind}-*"), key=lambda path: int(path.name.split("-")[1]))


def lines(folder: Any, kind: str = "results") -> list[dict[str, Any]]:
    return [json.loads(line) for line in newest(folder, kind).read_text().splitlines()]


def statuses(folder: Any) -> dict[str, str]:
    return {line["key"]: line["status"] for line in lines(folder)}


def counted(found: Iterable[str]) -> str:
    return ", ".join(f"{number} {status}" for status, number in sorted(Counter(found).items()))


def faults_of(
    lines: list[dict[str, Any]], kickoffs: Iterable[Execution], reports: Mapping[str, int], rows: int
) -> list[str]:
    """Return outcomes that must not occur. ``reports``: how often each row was reported as uncertain."""
    started: dict[str, list[Execution]] = defaultdict(list)
    for execution in kickoffs:
        started[str(execution.inputs["topic"])].append(execution)
    faults = [] if len({line["key"] for line in lines}) == len(lines) == rows else [f"{len(lines)} of {rows} rows"]
    for line in lines:
        executions, told = started[line["key"]], reports.get(line["key"], 0)
        again = [pair for pair in pairwise(executions) if not has_failed(pair[0], pair[1].started_at)]
        others = [it for it in executions if it.kickoff_id != line["kickoff_id"]]
        unnamed = [it.kickoff_id for it in others if not has_failed(it)]
        is_own = line["status"] != "success" or re.search(rf"{line['key']}\b", line["output"])
        found = {
            "started twice": len(again) > told,
            f"paid for, and named nowhere: {unnamed}": len(unnamed) > told,
            f"another result: {line['output']}": not is_own,
            "execution of another row": bool(line["kickoff_id"]) and len(others) == len(executions),
            "uncertain, and not reported": line["status"] == "uncertain" and not told,
        }
        faults += [f"{fault}, {told} reports: {line}" for fault, is_so in found.items() if is_so]
    return faults


def has_failed(execution: Execution, at: float = math.inf) -> bool:
    """Whether an execution had ended without a result at a time of the crew's clock."""
    then = execution.standing(at)
    return then.over and then.error is not None
