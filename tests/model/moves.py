"""
Moves of the model: what may happen next in a state of the world. Begin here.

``MOVES`` has a row for each thing that happens by itself, and ``REPLIES`` one for each request of a process.
``CHOICES`` has what has several outcomes. The effects are in ``world.py`` and, about questions, in ``answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.model import answers, world
from tests.model.process import TASKS, Process, Wrong
from tests.model.world import Replies, Step, World

_MARKABLE = frozenset({"running", "deferred", "retry"})

# What may happen, when, and the state after it.
MOVES: tuple[tuple[str, Callable[[World], object], Callable[[World], World]], ...] = (
    # Airflow
    ("Airflow starts attempt {0.try_number}.", lambda it: world.is_due(it) and not it.resumes, world.begun),
    ("Airflow resumes attempt {0.try_number}.", lambda it: world.is_due(it) and it.resumes, world.begun),
    ("The worker dies.", world.may_fail, lambda it: world.after_death(it.surprised(process=None))),
    (
        "The worker shuts down.",
        lambda it: world.may_fail(it) and it.may_be_told,
        lambda it: world.told_to_end(it.surprised()),
    ),
    (
        "Airflow takes the process for dead, but it runs on.",
        lambda it: TASKS[it.task].has_ghosts and world.may_fail(it) and not it.ghost,
        lambda it: world.after_death(it.surprised(process=None)).but(ghost=it.process),
    ),
    (
        "Airflow tells the process to end.",
        lambda it: it.state == "restarting" and it.process and not it.is_told and it.may_be_told,
        world.told_to_end,
    ),
    (
        "Airflow kills the process.",
        lambda it: it.process and it.is_told,
        lambda it: world.after_death(it.but(process=None)),
    ),
    (
        "The trigger fails.",
        lambda it: it.state == "deferred" and it.may_surprise,
        lambda it: world.left_trigger(it.surprised(), ("__fail__", '{"error": "Trigger failure"}')),
    ),
    (
        "Another triggerer takes over.",
        lambda it: it.state == "deferred" and it.may_surprise,
        lambda it: world.noticed(it.surprised()),
    ),
    ("The trigger closes the request, because the crew works.", answers.is_answered, answers.closed),
    # The crew
    ("The crew asks q{0.dialog.asked}.", answers.may_ask, answers.asked),
    ("A user answers q{0.dialog.asked} in the crew's dashboard.", answers.may_be_approved, answers.works),
    # The user
    (
        "A user marks the task as failed.",
        lambda it: it.state in _MARKABLE and world.may_click(it),
        lambda it: world.marked(it.surprised()),
    ),
)
# What a user clicks after reading something, the crew calls, or a trigger finds.
CHOICES: tuple[Callable[[World], Iterator[Step]], ...] = (world.clears, answers.answers, world.calls, world.fires)
# What may become of each request of a process: what it then knows, and the state.
REPLIES: dict[str, Callable[..., Replies]] = {
    "get": world.reads,
    "set": world.stores,
    "delete": world.stores,
    "sleep": world.waits,
    "kickoff": world.kicks_off,
    "late kickoff": world.kicks_off_late,
    "status": world.polls,
    "stop": world.stops,
    "open": answers.opens,
    "answer": answers.sends,
}


def steps(before: World) -> Iterator[Step]:
    """Yield every next state, with what has happened."""
    if TASKS[before.task].questions and "completed" in before.crew:  # the same as for other kinds
        return
    for sentence, may_happen, effect in MOVES:
        if may_happen(before):
            then = world.answered(before, effect(before))
            yield sentence.format(then), then
    for choice in (_of_process, _of_ghost, *CHOICES):
        for sentence, after in choice(before):
            yield sentence, after if isinstance(after, Wrong) else world.answered(before, after)


def _of_process(before: World) -> Iterator[Step]:
    return _goes_on(before, "process", "The task", before.process)


def _of_ghost(before: World) -> Iterator[Step]:
    return _goes_on(before, "ghost", "The old process", before.ghost)


def _goes_on(before: World, slot: str, who: str, process: Process | None) -> Iterator[Step]:
    """Yield what a process does next."""
    if process is None:
        return
    what, *about = process.request
    if what == "finish":
        yield from world.finishes(before, slot, process)
        return
    for sentence, answer, then in REPLIES[what](before, slot, *about):
        said = sentence and f"{who} {sentence}."
        yield said, then if isinstance(then, Wrong) else world.went_on(then, slot, process, answer)
