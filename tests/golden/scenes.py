"""States of a task in Airflow's database and in its result files, and what today's code does with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from airflow_provider_crew.client import errors
from airflow_provider_crew.client.errors import CrewError
from airflow_provider_crew.local import Scenario
from tests.integration.tasks import FAILING, INPUTS, QUICK, SLOW, Ledger
from tests.promises.harness import World
from tests.promises.kinds import KINDS, Batch, Job, Run, Sensor

Act = Callable[[World, Job], Any]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """
    State of a task, and what comes of it.

    :param at: Request before whose response the state is recorded, and its number. ``None``: end of the attempt.
    :param before: What happens before the recorded attempt.
    :param after: What happens before today's code goes on.
    :param kickoffs: Kickoffs that today's code sends.
    :param error: Error with which the next attempt ends. ``None`` if it succeeds.
    :param rows: Rows of the manifest by status.
    :param alert: Cost that an alert tells if the process was lost. Empty without an alert.
    :param tab: Title of the Crew tab.
    """

    kind: Callable[..., Job] = Run
    options: Mapping[str, Any] = field(default_factory=dict)
    at: tuple[str, int] | None = None
    before: Act = lambda *_: None
    after: Act = lambda *_: None
    kickoffs: int = 0
    error: type[CrewError] | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    alert: str = ""
    tab: str


def _clear(_: World, job: Job) -> None:
    job.clear()


def _run_slowly(world: World, _: Job) -> None:
    def finish() -> None:
        world.crew.scenario = QUICK
        world.finish()

    world.connect(dashboard_url=world.crew.dashboard_url)
    world.crew.scenario = SLOW
    world.at("status", finish, number=8)


def _end_first_row(world: World, job: Job) -> None:
    _run_slowly(world, job)
    world.at("status", world.finish, number=2)


def _run_slowly_until_marked(world: World, job: Job) -> None:
    _run_slowly(world, job)
    world.connect(cancel_on_kill=True)


def _fail(world: World, _: Job) -> None:
    world.crew.scenario = FAILING


def _forget(world: World, _: Job) -> None:
    """Let the crew forget all executions, so that what is stored about their ends counts."""
    for kickoff_id in world.crew.ids:
        with suppress(LookupError):
            world.crew.forget(kickoff_id)


def _report_usage(world: World, _: Job) -> None:
    world.crew.scenario = QUICK.model_copy(update={"dialect": "deployed"})


def _stop(world: World, _: Job) -> None:
    world.crew.scenario = SLOW
    world.at("status", lambda: world.crew.revoke(world.crew.ids[0]))


def _lose_response(world: World, _: Job) -> None:
    world.crew.faults.reset(on="kickoff", after_taken=True)


def _fix_type(_: World, job: Job) -> None:
    job.clear()
    job.options["output_type"] = None


def _change_rows(_: World, job: Job) -> None:
    """Clear a batch of three rows, remove the last one, and change the inputs of another."""
    job.clear()
    job.options["inputs"] = [INPUTS, INPUTS | {"audience": "captains"}]


def _forget_and_change_rows(world: World, job: Job) -> None:
    _forget(world, job)
    _change_rows(world, job)


def _change_rows_and_fail(world: World, job: Job) -> None:
    job.attempt()
    _change_rows(world, job)
    world.crew.scenario = FAILING


def _limit_kickoffs(world: World, _: Job) -> None:
    world.connect(max_kickoffs_per_day=1)


def _clear_with_limit(world: World, job: Job) -> None:
    job.clear()
    _limit_kickoffs(world, job)


# The longest timeout: what is stored is read years later.
DECADE = timedelta(days=3650)
_THREE_ROWS = {"rows": 3, "max_active": 1, "max_failed": 1}
_TWO_AT_ONCE = _THREE_ROWS | {"max_active": 2}
_UNCERTAIN: dict[str, Any] = {"alert": "unknown", "tab": "Uncertain kickoff"}

_waiting = partial(Scene, before=_run_slowly, at=("status", 4), tab="Running")
_batch = partial(Scene, kind=Batch, options=_THREE_ROWS, kickoffs=1)

SCENES: Mapping[str, Scene] = {
    "intent": Scene(at=("kickoff", 1), error=errors.UncertainKickoff, **_UNCERTAIN),
    "reported": Scene(before=_lose_response, after=_clear, kickoffs=1, **_UNCERTAIN),
    "running": Scene(before=_run_slowly, at=("status", 2), alert="running", tab="Stopped waiting"),
    "failed": Scene(before=_fail, after=_forget, kickoffs=1, alert="ended", tab="Failed"),
    "stopped": Scene(before=_stop, error=errors.ExecutionStopped, alert="ended", tab="Failed"),
    "misfit": Scene(
        options={"output_type": list[int]}, before=_report_usage, after=_fix_type, alert="ended", tab="Failed"
    ),
    "delivered": Scene(after=_clear, kickoffs=1, tab="Completed"),
    "counted": Scene(
        before=_limit_kickoffs, after=_clear_with_limit, error=errors.DailyLimitReached, tab="Completed"
    ),
    "deferred": _waiting(kind=KINDS["deferred run"], alert="running"),
    "deferred_with_cancel": _waiting(kind=KINDS["deferred run"], before=_run_slowly_until_marked),
    "deferred_sensor": _waiting(kind=KINDS["deferred sensor"], alert="running"),
    "batch_intent": _batch(
        at=("kickoff", 1),
        kickoffs=2,
        rows={"uncertain": 1, "success": 2},
        alert="unknown",
        tab="Failed",
    ),
    "batch_running": _batch(
        before=_end_first_row, at=("status", 4), rows={"success": 3}, alert="unknown", tab="Failed"
    ),
    "batch_deferred": _waiting(
        kind=KINDS["deferred batch"],
        options=_TWO_AT_ONCE,
        kickoffs=1,
        rows={"success": 3},
        alert="unknown",
    ),
    "batch_ended": _batch(
        before=_change_rows_and_fail,
        after=_forget_and_change_rows,
        rows={"success": 2},
        tab="Partly completed",
    ),
}


def recorded(world: World, scene: Scene, ledger: Ledger) -> dict[str, Any]:
    """Play a scene, and return what is stored."""
    job, taken = scene.kind(world, timeout=DECADE, **scene.options), list[dict[str, Any]]()

    def take() -> None:
        files = {path.relative_to(job.folder): path for path in sorted(job.folder.rglob("*")) if path.is_file()}
        taken.append(
            {
                "kickoff_ids": world.crew.ids,
                "try_number": job.now.ti.try_number,
                "max_tries": job.now.ti.max_tries,
                "states": job.now.store.entries,
                "xcoms": dict(job.now.xcoms),
                "deferral": job.now.deferral if scene.at else {},
                "files": {str(name): path.read_text() for name, path in files.items()},
                "runs": dict(ledger.runs),
            }
        )

    scene.before(world, job)
    if scene.at:
        world.at(scene.at[0], take, number=scene.at[1])
    outcome = job.attempt()
    if not taken:
        take()
        if outcome.value:
            taken[0]["xcoms"]["return_value"] = outcome.value
    return taken[0]


def restored(world: World, scene: Scene, stored: Mapping[str, Any], ledger: Ledger, crew: Scenario = QUICK) -> Job:
    """Return the task of a scene whose state is stored, with a crew that completes by default."""
    world.forget()
    world.crew.faults.clear()
    world.crew.scenario = crew
    for kickoff_id in stored["kickoff_ids"]:
        world.crew.next_kickoff_id(kickoff_id)
        world.crew.take(INPUTS, None, {})
    world.crew.requests.clear()
    job = scene.kind(world, timeout=DECADE, **scene.options)
    if isinstance(job, Sensor):
        job.kickoff.xcoms["return_value"] = stored["kickoff_ids"][0]
    task = job.now
    task.ti.try_number, task.ti.max_tries = stored["try_number"], stored["max_tries"]
    for key, value in stored["states"].items():
        task.store.set(key, value)
    task.xcoms.update(stored["xcoms"])
    for name, text in stored["files"].items():
        (job.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (job.folder / name).write_text(text)
    ledger.runs = dict(stored["runs"])
    scene.after(world, job)
    return job
