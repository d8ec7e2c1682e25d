"""Promises: what is wrong with a kickoff, with the end of an attempt, or with what the user reads."""

from __future__ import annotations

from airflow_provider_crew.settle.address import HEARD
from airflow_provider_crew.task.record import KICKOFF_ID
from tests.model import answers
from tests.model.process import Wrong
from tests.model.world import AT_REST, World

DISCARDS = "discards the task state"
CHANGED = "does what it no longer does"
_NO_RESULT = frozenset({"failed", "stopped"})


def is_choice(effect: str) -> bool:
    """Whether a user who clears the task after reading this has chosen to pay for another execution."""
    return effect.startswith(("starts another", "reruns"))


def expected(world: World, effect: str) -> str:
    """Return an effect, unless it depends on an end, or on a clear, of which no process has stored anything."""
    is_news = effect.startswith(("waits", "reads", "reports", "ends")) and _NO_RESULT & {*world.crew}
    is_open = effect.startswith("reads the kickoff record") or "starts the others" in effect
    is_old = "row" in effect and world.state not in AT_REST
    return "" if is_news or is_open or is_old else effect


def of_kickoff(world: World, slot: str) -> Wrong | None:
    """Return what is wrong if a process starts an execution."""
    owed, allowed = world.owed, world.allowed if slot == "process" else ""
    if slot == "process" and world.is_heard and owed == ["running"]:
        return Wrong("Another execution is started although the crew had called.")
    if not is_choice(allowed or ""):
        harmless = {"failed"} if allowed is None else _NO_RESULT
        read = f" after the user had read {allowed.partition(',')[0]!r}" if allowed else ""
        states = owed or world.crew[-1:]
        for status in ("running", "waiting", "completed", "stopped"):
            if status in states and status not in harmless:
                wrong = f"one is {status}" if owed else "a result was returned"
                return Wrong(f"Another execution is started although {wrong}{read}.")
    is_next = slot == "process" and world.state == "running"
    if is_next and world.expects and not world.expects.startswith(("starts", "reruns")):
        return Wrong(f"An execution is started although the user had read {world.expects!r}.")
    return None


def of_end(world: World, how: str, error: str) -> Wrong | None:
    """Return what is wrong if an attempt ends otherwise than the user had read."""
    effect, is_report = world.expects, error == "UncertainKickoff"
    has_called = any(key.startswith(HEARD) for key, _ in world.store)
    if world.is_heard and (is_report or (error and world.told()["cost"] == "unknown")):
        return Wrong("An uncertain kickoff is reported although the crew had called.")
    if (world.is_heard and not error) or ("row" in effect and (world.is_heard or error == "WaitedTooLong")):
        return None  # it waits for an execution whose crew has called, or starts the row in the next attempt
    is_open = any(words in effect for words in ("only if", "unless", "stopped"))
    has_execution = KICKOFF_ID in dict(world.xcoms) or how in {"success", "deferred"}
    is_kept = {
        **dict.fromkeys(("starts", "reruns"), is_open or has_called),  # it waits for that execution
        **dict.fromkeys(("waits", "reads", "checks", "keeps"), is_open or has_execution),
        # It may do better: an ID that Airflow refused to store may be in an XCom.
        "reports": is_report or has_execution,
    }
    if is_kept.get(effect.partition(" ")[0], True):
        return None
    return Wrong(f"The attempt ends as {error or how} although the user had read {effect!r}.")


def at_rest(world: World) -> Wrong | None:
    """Return what is wrong with what the user reads if nothing more happens."""
    if world.process or world.ghost or world.state not in AT_REST:
        return None
    owed, cost = {"running", "completed"} & {*world.owed}, world.told()["cost"]
    is_lost = owed and (world.state == "success" or cost == "none")
    if is_lost or (cost == "ended" and "running" in owed):
        return Wrong(f"The page shows {world.state!r} and the cost {cost!r} although one is {max(owed)}.")
    return answers.at_rest(world)
