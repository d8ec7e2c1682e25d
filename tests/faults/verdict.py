"""What came of many executions under random harm: was one started twice by accident, was a result lost?"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from airflow_provider_crew.local import LocalCrewService
from airflow_provider_crew.local.executions import Execution
from dev.rest import ApiError
from tests.airflow_runs import Run

# The tasks that kick off, with the task that returns the result of each.
RETURNED_BY = {
    "run_deferred": "run_deferred",
    "run_sync": "run_sync",
    "run_anyway": "run_anyway",
    "kickoff_1": "sensor_deferred",
    "kickoff_2": "sensor_reschedule",
}
# Where another kickoff after an uncertain one was chosen.
ANYWAY = "run_anyway"
UNCERTAIN = "It is not known whether"
_ON_ITS_WAY = "Sending the kickoff."
_CHOSEN = "It is kicked off anew, because the task was cleared."


@dataclass
class Verdict:
    """Counts of what was seen, and in words what may not be."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    cleared: list[tuple[str, str, float]] = field(default_factory=list)


def judge(crew: LocalCrewService, runs: list[Run], cleared: list[tuple[str, str, float]]) -> Verdict:
    """
    Look at every execution of these runs, from the crew's side and from Airflow's.

    ``cleared``: which task of which run was cleared, and when Airflow had done so.
    """
    verdict = Verdict(cleared=cleared)
    started: dict[tuple[str, str], list[Execution]] = defaultdict(list)
    for execution in crew.kickoffs:
        origin: Any = (execution.meta or {}).get("airflow")
        started[origin["run_id"], origin["task_id"]].append(execution)
    verdict.counts["executions"] = len(crew.kickoffs)
    verdict.counts["executions that waited for a person"] = sum(map(_asks, crew.kickoffs))
    for run in runs:
        for task_id, ends_in in RETURNED_BY.items():
            _judge_task(verdict, run, task_id, ends_in, started[run.run_id, task_id])
    return verdict


def _judge_task(verdict: Verdict, run: Run, task_id: str, ends_in: str, executions: list[Execution]) -> None:
    last = run.task(ends_in)
    where = f"{run.run_id} {task_id}"
    logs = {name: _logs(run, name) for name in {task_id, ends_in}}
    log = "\n".join(text for tries in logs.values() for text in tries.values())
    verdict.counts[f"{ends_in}: {last['state']}"] += 1
    uncertain = log.count(UNCERTAIN)
    verdict.counts["reports of an uncertain kickoff"] += uncertain
    for before, after in pairwise(executions):
        chosen = (task_id == ANYWAY and uncertain) or _CHOSEN in log or _was_rerun(verdict, run, task_id, before)
        if not _had_failed(before, after.started_at) and not chosen:
            verdict.faults.append(f"{where}: started twice by accident, {before.kickoff_id}, {after.kickoff_id}")
    returned = _returned(run, ends_in) if last["state"] == "success" else None
    if last["state"] == "success" and not _is_the_result(returned, run, task_id, executions):
        verdict.faults.append(f"{where}: ended well, and has no result of its own: {returned}")
    for execution in executions:
        if returned and execution.kickoff_id == returned["kickoff_id"]:
            verdict.counts["results in XCom"] += 1
        elif execution.kickoff_id in log:
            verdict.counts["named in a log"] += 1
        elif uncertain or _is_last_word(logs[task_id], execution):
            verdict.counts["only known to be possible"] += 1
        else:
            verdict.faults.append(f"{where}: {execution.kickoff_id} is named nowhere")


def _asks(execution: Execution) -> bool:
    return any(task.human_input for task in execution.scenario.tasks)


def _had_failed(execution: Execution, at: float) -> bool:
    then = execution.standing(at)
    return then.over and then.error is not None


def _was_rerun(verdict: Verdict, run: Run, task_id: str, execution: Execution) -> bool:
    """
    Whether the task was cleared when Airflow had the result already.

    A task that is seen running may have ended by the time that a busy Airflow clears it.
    """
    stored = _stored_at(run, task_id, execution.kickoff_id)
    return any(
        (run.run_id, task_id) == (run_id, cleared) and stored < at for run_id, cleared, at in verdict.cleared
    )


def _stored_at(run: Run, task_id: str, kickoff_id: str) -> float:
    """Return when Airflow stored the result of an execution; for ever, if it has not."""
    for number in range(1, max(run.task(task_id)["try_number"], 1) + 1):
        events = run.events(task_id, number)
        if any(kickoff_id in event["event"] for event in events):
            for event in events:
                if event["event"] == "Pushing xcom":
                    return datetime.fromisoformat(event["timestamp"]).timestamp()
    return math.inf


def _is_the_result(returned: Any, run: Run, task_id: str, executions: list[Execution]) -> bool:
    """Whether it is that of one of the task's own executions."""
    return (
        isinstance(returned, dict)
        and returned["kickoff_id"] in {execution.kickoff_id for execution in executions}
        and returned["output"] == f"Briefing: {run.run_id} {task_id}"
    )


def _is_last_word(tries: dict[int, str], execution: Execution) -> bool:
    """Whether the try that started it was killed while that was under way, with no try left to say so."""
    origin: Any = (execution.meta or {})["airflow"]
    number = origin["try_number"]
    return number == max(tries) and _ON_ITS_WAY in tries[number]


def _returned(run: Run, task_id: str) -> Any:
    try:
        return run.xcom(task_id)
    except ApiError:
        return None


def _logs(run: Run, task_id: str) -> dict[int, str]:
    tries = max(run.task(task_id)["try_number"], 1)
    return {number: _log(run, task_id, number) for number in range(1, tries + 1)}


def _log(run: Run, task_id: str, number: int) -> str:
    lines = []
    for event in run.events(task_id, number):
        lines.append(event["event"])
        lines += [detail["exc_value"] for detail in event.get("error_detail") or ()]
    return "\n".join(lines)
