"""What tasks leave for the tab of a crew to show: what crews write, and what they should not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from airflow_provider_crew.batch.watching import line_of
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.progress import begun
from airflow_provider_crew.task.decide import RowCounts
from airflow_provider_crew.task.verdict import while_rows_run

CONTENTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
KICKOFF_ID: str = CONTENTS["result"]["kickoff_id"]
DASHBOARD = "https://app.example/crews/7?execution=57a13a6e"
REPORT = "\n".join(CONTENTS["report"])
# Each tries to run a script that calls crewGotIn(), or to reach another host.
ATTACKS: list[str] = CONTENTS["attacks"]


def progress(**others: Any) -> dict[str, Any]:
    now = time.time()
    return CONTENTS["progress"] | {"started_at": now - 190, "since": now - 62, "polled_at": now} | others


def result(**others: Any) -> dict[str, Any]:
    *others_of_crew, last = CONTENTS["result"]["tasks"]
    told = {"output": REPORT, "tasks": [*others_of_crew, last | {"output": REPORT}]}
    return CONTENTS["result"] | told | others


def batch_progress(*, of_batch: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    """Return the progress of a batch that has run for ten minutes, and whose trigger has seen three more ends."""
    now = time.time() // 1
    steps = {("keeps", "successful"): 388, ("reruns", "failed"): 11, ("waits for", "running"): 16}
    retried, cleared = steps | {("keeps", "uncertain"): 1}, steps | {("reruns", "uncertain"): 1}
    counts = RowCounts(retried=retried, cleared=cleared, executions=1)
    batch = CONTENTS["batch"] | (of_batch or {})
    known = begun("", now - 600) | {
        "try_number": 1,
        "polled_at": now,
        "since": now,
        "batch": batch,
        "doing": line_of(batch),
    }
    return known | while_rows_run(counts, cancels=False) | others


FINISHED = {
    "kickoff_id": KICKOFF_ID,
    "usage": {"kickoff_id": KICKOFF_ID, "try_number": 1, "total_tokens": 3410},
    "crew_dashboard": DASHBOARD,
    "return_value": result(),
}
EVENT = "Crew failed at writing_task (Writer): the model's provider has no credit left."
END = {
    "error": "ExecutionFailed",
    "event": EVENT,
    "cost": Cost.ENDED.value,
    "billed": Cost.ENDED.sentence,
    "next_step": "Top up the account, then clear this task: it starts another execution (billed).",
    "choices": {"clear": "it starts another execution (billed)"},
}


def hostile() -> dict[str, Any]:
    """Return what a crew leaves whose every text is an attack: outputs, names, agents, keys, and what is odd."""
    all_of_them = "\n\n".join(ATTACKS)
    odd: list[Any] = [
        None,
        7,
        "text",
        [],
        {"task_id": {"$$typeof": "x"}, "agent": ["<b>"], "execution_time": "NaN"},
    ]
    tasks = [{"task_id": each, "agent": each, "output": each, "execution_time": 1e18} for each in ATTACKS]
    keys = {each: each for each in ATTACKS} | {"__proto__": {"onclick": ATTACKS[0]}, "constructor": ATTACKS[1]}
    left = result(output=all_of_them, output_json=keys, tasks=[*tasks, *odd])
    left["usage"] = {**dict.fromkeys(ATTACKS, 1), "dangerouslySetInnerHTML": {"__html": ATTACKS[0]}}
    return {"return_value": left, "crew_dashboard": "javascript:crewGotIn(40)", "usage": {ATTACKS[0]: 1}}


def hostile_progress() -> dict[str, Any]:
    """Return the progress of such a crew."""
    attack = ATTACKS[0] + ATTACKS[1]
    said = dict.fromkeys(("doing", "current_task", "current_agent", "trouble", "kickoff_id"), attack)
    step = dict.fromkeys(("task_id", "agent", "number", "started_at", "ended_at"), attack)
    task = dict.fromkeys(("task_id", "agent", "output"), attack)
    return progress(**said, unit=attack, tasks=[task], steps=[step, attack], deadline=attack, state="constructor")


def hostile_batch() -> dict[str, Any]:
    """Return the progress of a batch whose every text is an attack."""
    reasons: list[Any] = [dict.fromkeys(("status", "reason"), each) | {"keys": [each]} for each in ATTACKS]
    odd = [None, 7, {"keys": {"$$typeof": "x"}, "reason": ["<b>"]}, {"keys": [None, ["<b>"]], "count": "x"}]
    told = {"reasons": [*reasons, *odd], "result_path": ATTACKS[0], "failed": 1e18, "earlier": "x"}
    return batch_progress(of_batch=told)
