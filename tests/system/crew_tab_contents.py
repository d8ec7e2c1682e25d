"""What tasks leave for the tab of a crew to show: what crews write, and what they should not."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from airflow_provider_crew.batch.watching import line_of
from airflow_provider_crew.client.errors import Cost
from airflow_provider_crew.client.progress import begun
from airflow_provider_crew.task.verdict import RowCounts, while_rows_run

KICKOFF_ID = "57a13a6e-0d6f-4b36-9d0e-3a1f6c2b9e11"
DASHBOARD = "https://app.example/crews/7?execution=57a13a6e"
REPORT = """# Electric ferries, for harbour masters

**Summary.** Three ports have ordered shore power, and [the first one](https://ports.example/news?id=7&lang=en)
has it. See `crew_run` and https://ports.example/wiki/Ferry_(electric).

## What changes

1. Charging takes *seven* minutes
   - at night longer
   - with two berths, half of it
2. The berth needs 4 MW

| Port | Power | Ready |
|------|-------|-------|
| Aero | 4 MW  | yes   |
| Fynshav | 2 MW | 2027 |

> Batteries are lighter than they were.

```python
berths = {"Aero": 4}
```

---

~~Diesel~~ is on its way out.
"""
WIDE_TABLE = """| Port | Power | Ready | Operator | Berths | Remarks |
|------|-------|-------|----------|--------|---------|
| Fynshav | 2 MW | 2027 | Als Havn | 1 | See https://ports.example/als/fynshav/tenders/2027/shore-power |
"""


def progress(**others: Any) -> dict[str, Any]:
    now = time.time()
    return {
        "version": 1,
        "kickoff_id": KICKOFF_ID,
        "state": "running",
        "doing": "task 2 of 3, writing_task (Writer)",
        "unit": "task",
        "completed": 1,
        "total": 3,
        "current_task": "writing_task",
        "current_agent": "Writer",
        "started_at": now - 190,
        "since": now - 62,
        "polled_at": now,
        "trouble": "",
        "tasks": [
            {
                "task_id": "research_task",
                "agent": "Researcher",
                "output": "* Notes on **ferries**",
                "execution_time": 128.0,
            }
        ],
        "end": None,
        **others,
    }


def result(**others: Any) -> dict[str, Any]:
    return {
        "kickoff_id": KICKOFF_ID,
        "output": REPORT,
        "output_json": {
            "headlines": ["Seven minutes", "4 MW"],
            "ports": [{"name": "Aero", "ready": True, "berth": None}],
        },
        "tasks": [
            {
                "task_id": "research_task",
                "agent": "Researcher",
                "output": "* Notes on **ferries**",
                "execution_time": 4.2,
            },
            {"task_id": "fact_check", "agent": "Checker", "output": WIDE_TABLE, "execution_time": 3.0},
            {"task_id": "writing_task", "agent": "Writer", "output": REPORT, "execution_time": 8.6},
        ],
        "tasks_complete": True,
        "usage": {
            "total_tokens": 3410,
            "prompt_tokens": 2120,
            "completion_tokens": 1290,
            "successful_requests": 6,
        },
        "execution_time": 15.8,
        **others,
    }


def batch_progress(
    *, cancels: bool = False, of_batch: dict[str, Any] | None = None, **others: Any
) -> dict[str, Any]:
    """Return the progress of a batch that has run for ten minutes, and whose trigger has seen three more ends."""
    now = time.time()
    counts = RowCounts(Counter(success=388, error=11, uncertain=1, not_is_billed=True), running=16, is_billed=True)
    reasons = [
        {"status": "error", "reason": "402: out of credit", "count": 9, "keys": ["006", "012", "018"]},
        {"status": "uncertain", "reason": "No response within 60 s.", "count": 1, "keys": ["customer-12"]},
    ]
    batch = {
        "total": 1_000,
        "ended": 400,
        "failed": 11,
        "uncertain": 1,
        "running": 13,
        "waiting": 584,
        "unread": 3,
        "earlier": 0,
        "tokens": 1_364_000,
        "estimate": 3_400_000,
        "reasons": reasons,
        "result_path": "s3://bucket/scores/2026-11-26",
        **(of_batch or {}),
    }
    known = begun("", now - 600) | {"polled_at": now, "since": now, "batch": batch, "doing": line_of(batch)}
    return known | while_rows_run(counts, cancels=cancels) | others


FINISHED = {
    "kickoff_id": KICKOFF_ID,
    "usage": {"kickoff_id": KICKOFF_ID, "try_number": 1, "total_tokens": 3410},
    "crew_dashboard": DASHBOARD,
    "return_value": result(),
}
END = {
    "error": "ExecutionFailed",
    "event": "Crew failed at writing_task (Writer): the model's provider has no credit left.",
    "cost": Cost.ENDED.value,
    "billed": Cost.ENDED.sentence,
    "next_step": "Top up the account, then clear this task: it starts a new execution, which is billed again.",
}

# Each tries to run a script that calls crewGotIn(), or to reach another host.
ATTACKS = [
    "<script>crewGotIn(1)</script>",
    "<img src=x onerror=crewGotIn(2)>",
    "<svg onload=crewGotIn(3)><animate onbegin=crewGotIn(3) attributeName=x dur=1s></svg>",
    "<iframe srcdoc='<script>parent.crewGotIn(4)</script>'></iframe>",
    "<details open ontoggle=crewGotIn(6)>",
    "<style>@import 'http://evil.example/a.css'; body { background: url(http://evil.example/b.png) }</style>",
    "<link rel=prefetch href=http://evil.example/d>",
    "<base href='http://evil.example/'>",
    "<form action='http://evil.example/i'><input autofocus onfocus=crewGotIn(8)></form>",
    "<math><mtext><table><mglyph><style><img src=x onerror=crewGotIn(9)>",
    "[click](javascript:crewGotIn(13))",
    "[click](JaVaScRiPt:crewGotIn(14))",
    "[click](java\tscript:crewGotIn(15))",
    "[click](&#106;avascript:crewGotIn(16))",
    "[click](data:text/html,<script>crewGotIn(17)</script>)",
    '[click](https://evil.example/"onmouseover="crewGotIn(19))',
    "[<img src=x onerror=crewGotIn(20)>](https://evil.example/j)",
    "![pixel](http://evil.example/k.png)",
    "[![nested](http://evil.example/m.png)](javascript:crewGotIn(21))",
    "<javascript:crewGotIn(22)>",
    "<https://evil.example/n><script>crewGotIn(23)</script>",
    "| a | b |\n|---|---|\n| <img src=x onerror=crewGotIn(24)> | [x](javascript:crewGotIn(25)) |",
    "# <img src=x onerror=crewGotIn(26)>",
    "[ref]: javascript:crewGotIn(30)\n[ref]",
    "{{constructor.constructor('crewGotIn(31)')()}}",
    "\u202e<script>crewGotIn(33)</script>\u2028\u2029",
]


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
    return progress(
        **said,
        unit=attack,
        tasks=[{"task_id": attack, "agent": attack, "output": attack}],
        steps=[step, attack],
        deadline=attack,
        state="constructor",
    )


def hostile_batch() -> dict[str, Any]:
    """Return the progress of a batch whose every text is an attack."""
    reasons: list[Any] = [dict.fromkeys(("status", "reason"), each) | {"keys": [each]} for each in ATTACKS]
    odd = [None, 7, {"keys": {"$$typeof": "x"}, "reason": ["<b>"]}, {"keys": [None, ["<b>"]], "count": "x"}]
    return batch_progress(
        of_batch={"reasons": [*reasons, *odd], "result_path": ATTACKS[0], "failed": 1e18, "earlier": "x"}
    )
