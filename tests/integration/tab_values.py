"""States of a task, and what the Crew tab shows of each, from tab_states.json."""

from __future__ import annotations

import fnmatch
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.progress import begun, completed, ended
from airflow_provider_crew.client.text import one_line
from airflow_provider_crew.client.wording import SHOWN_TEXT
from airflow_provider_crew.task.decide import KickoffRecord, Next
from airflow_provider_crew.task.verdict import Facts, if_lost, while_waiting
from tests.system.crew_tab_contents import CONTENTS, KICKOFF_ID, batch_progress, progress, result

FILE = json.loads(Path(__file__).with_name("tab_states.json").read_text(encoding="utf-8"))
NOW = time.time() // 1
LONG = "Traceback:\n" + "  x = 402\n" * 900
COLORED = "Traceback:\n  \x1b[31mx = 402\x1b[0m\n"
RUNNING = KickoffRecord(0, 0.0, KICKOFF_ID)
MISFITS = ("title: Field required", "ports[0].ready: Input should be a valid boolean")


def failed(error: errors.CrewError, **known: Any) -> dict[str, Any]:
    """Return the progress of a task that ended with this error."""
    told = ended(progress(**known), error, NOW)
    effects = {"next_step": "Clear the task.", "if_retried": "starts another execution (billed)"}
    return told | {"end": told["end"] | effects}


def waits(**options: bool) -> dict[str, str]:
    return while_waiting(Facts(next=Next(RUNNING)), **{"cancels": False} | options)["choices"]


def finished(doing: str) -> dict[str, Any]:
    return completed(begun(KICKOFF_ID, 1_000.0) | {"polled_at": 1_092.0, "doing": doing}, result(), 1_092.0)


# What the package makes. The others are in the file.
VALUES: dict[str, Any] = {
    "progress": progress(),
    "result": result(),
    "begun": begun("", 1.0),
    "completed": finished("task 1 of 2"),
    "completed unseen": finished(""),
    "batch": batch_progress(),
    "rows": CONTENTS["batch"],
    "batch of five": batch_progress(state="completed", of_batch=dict.fromkeys(CONTENTS["batch"], 0))
    | {"batch": {"total": 5, "ended": 5}},
    "ExecutionFailed": failed(errors.ExecutionFailed("It ended.")),
    "ExecutionCancelled": failed(errors.ExecutionCancelled("It ended.")),
    "WaitedTooLong": failed(errors.WaitedTooLong("It ended.")),
    "InvalidInputs": failed(errors.InvalidInputs("It ended."), kickoff_id=""),
    "UncertainKickoff": failed(errors.UncertainKickoff("It ended."), kickoff_id=""),
    "out of credit": failed(
        errors.ExecutionFailed(
            "out of credit", at="task 2 of 2, writing_task (Writer), after 6s", kickoff_id=KICKOFF_ID
        )
    ),
    "traceback": failed(errors.ExecutionFailed("Traceback: x = 402", error="Traceback:\n  x = 402")),
    "traceback, and more": failed(
        errors.ExecutionFailed("It has ended: Traceback: x = 402. Refused.", error="Traceback:\n  x = 402.\n")
    ),
    "long traceback, and more": failed(
        errors.ExecutionFailed(f"E. {one_line(LONG, SHOWN_TEXT)} Refused.", error=LONG)
    ),
    "colored traceback, and more": failed(
        errors.ExecutionFailed(f"It has ended: {one_line(COLORED, SHOWN_TEXT)}. Refused.", error=COLORED)
    ),
    # Python takes this separator for a space.
    "traceback with a separator, and more": failed(
        errors.ExecutionFailed("It has ended: a b. See …, which was refused.", error="a\x1f\nb")
    ),
    "many misfits": failed(
        errors.InvalidOutput(f"It does not match: {'; '.join(MISFITS)}; and 3 more.", misfits=MISFITS)
    ),
    "misfits": failed(
        errors.InvalidOutput(f"The output does not match output_type: {'; '.join(MISFITS)}.", misfits=MISFITS)
    ),
    "lost wait": if_lost(Next(RUNNING), keeping=""),
    "lost wait from 3.4 on": if_lost(Next(RUNNING), keeping=" with Keep task state"),
    "lost result": if_lost(Next(replace(RUNNING, end="completed")), keeping=""),
    "lost kickoff": if_lost(Next(KickoffRecord(0, 0.0)), keeping=""),
    "delivered": if_lost(Next(replace(RUNNING, end="completed", delivered=True)), keeping=""),
    "waits": waits(),
    "cancels": waits(cancels=True),
    "cancels late": waits(cancels_at_timeout=True),
}


def made(value: Any) -> Any:
    """Return a value of the file. ``like`` names another value, and ``ago`` is a time."""
    match value:
        case {"ago": seconds}:
            return NOW - seconds
        case {"like": name, **others}:
            return made(VALUES.get(name) or FILE["values"][name]) | made(others)
        case dict():
            return {key: made(each) for key, each in value.items()}
        case list():
            return [made(each) for each in value]
    return value


def mismatches(shown: Any, wanted: Any, at: str = "") -> list[str]:
    """Return where a value is another one. An object may have other keys, and an ellipsis is any text."""
    if isinstance(wanted, dict) and isinstance(shown, dict):
        return [
            each for key in wanted for each in mismatches(shown.get(key, "(missing)"), wanted[key], f"{at}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(shown, list) and len(wanted) == len(shown):
        pairs = enumerate(zip(shown, wanted, strict=True))
        return [each for index, pair in pairs for each in mismatches(*pair, f"{at}[{index}]")]
    if isinstance(wanted, str) and isinstance(shown, str) and "…" in wanted:
        is_same = fnmatch.fnmatchcase(shown, wanted.replace("[", "[[]").replace("…", "*"))
    else:
        is_same = shown == wanted
    return [] if is_same else [f"{at}: {shown!r}, not {wanted!r}"]
