"""Questions of a crew and answers to them: what users do, what a trigger sees, and what reaches the crew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_provider_crew.answers.people import APPROVE, KEY
from airflow_provider_crew.answers.question import ASKED, QUESTION, Call, Question, Undeliverable
from airflow_provider_crew.task.ask import REQUEST
from tests.integration.tasks import TaskInstance
from tests.model.process import TASKS, Wrong, as_json, from_json
from tests.model.world import Replies, State, World

_MOST_CLICKS = 2
# States of a task whose questions the receiver takes.
_GOES_ON = frozenset({"running", "deferred", "queued"})
_MAY_HAVE_ARRIVED = frozenset({"sent", "uncertain"})

# The crew.


def crew(world: World) -> Iterator[tuple[str, World]]:
    """Yield a question of the crew, or the answer to it that a user gives in the crew's dashboard."""
    if not world.is_the_time:
        return
    if world.crew[-1:] == ("running",) and world.dialog.asked < TASKS[world.task].questions:
        yield f"The crew asks q{world.dialog.asked + 1}.", _asked(world)
    if world.crew[-1:] == ("waiting",):
        yield f"A user answers q{world.dialog.asked} in the crew's dashboard.", _works(world)


def _asked(world: World) -> World:
    """Return the state in which the receiver has taken the question, or has rejected it."""
    world = world.talks(asked=world.dialog.asked + 1).with_end(f"e{len(world.crew)}", "waiting")
    task = {name: getattr(TaskInstance, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
    meta = {"airflow": {**task, "try_number": world.dialog.asker}}
    call = Call.of({"task_id": f"q{world.dialog.asked}", "task_output": "A draft.", "meta": meta})
    try:
        box = call.added_to(world.xcom(QUESTION) if world.state in _GOES_ON else None)
    except Undeliverable:
        return world
    return world.pushed({QUESTION: as_json(box)}).talks(shows="", given="")


def _works(world: World) -> World:
    """Return the state in which the crew has got the answer that it waits for."""
    return world.with_end(f"e{len(world.crew)}", "running").talks(has_worked=world.state == "deferred")


# The user.


def user(world: World) -> Iterator[tuple[str, World]]:
    """Yield answers under Required Actions, even from a page that still shows the question before."""
    dialog = world.dialog
    is_open = dialog.shows and not dialog.given and len(dialog.read) < _MOST_CLICKS and world.is_the_time
    if not is_open or not (world.state in _GOES_ON or _is_recorded(world)):
        return
    answers, name = (world.kept(KEY) or {}).get("answers", []), f"a{len(dialog.read) + 1}"
    told = frozenset(each["at"] for each in answers if each["outcome"] in _MAY_HAVE_ARRIVED)
    before = f"q{int(dialog.shows[1:]) - 1}"
    for shown in [dialog.shows, before] if before != "q0" and world.surprises else [dialog.shows]:
        then = world if shown == dialog.shows else world.surprised()
        then = then.talks(given=name, read=(*dialog.read, (shown, told)))
        if world.state == "deferred" and world.resumes:
            resumes = as_json({**from_json(world.resumes[1]), "event": event_of(name, shown)})
            then = then.but(state="queued", trigger="", resumes=("execute_complete", resumes))
        yield f"A user gives answer {name} to {shown}.", then


def event_of(name: str, shown: str) -> dict[str, Any]:
    event = {"chosen_options": [APPROVE], "params_input": {ASKED: shown}, "responded_at": name}
    return {**event, "responded_by_user": {"name": "Ann"}}


def _is_recorded(world: World) -> bool:
    """Whether the next attempt finds the open request."""
    return bool((world.kept(REQUEST) or {}).get("question") == world.dialog.shows)


# The trigger.


def needs(world: World, stored: dict[str, Any]) -> Iterator[tuple[str, World, dict[str, Any]]]:
    """Yield why a trigger fires because the crew needs a person, and what it remembers."""
    dialog, question, memory = world.dialog, Question.delivered(world.xcom(QUESTION)), stored.get("memory", {})
    whys = list[tuple[str, World]]()
    if question and stored["known_question"] not in {None, question.task_id}:
        whys.append((f"reads {question.task_id}", world))
    if dialog.shows and stored["asked"] and stored["answer_by"] and not dialog.late:
        whys.append(("has no answer in time", world.talks(late=1)))
    if dialog.asked and world.crew[-1] == "waiting":
        is_closed = stored["asked"] and not dialog.shows  # the trigger has seen the crew work since
        if is_closed or stored["rules"]["stops_for_input"]:
            whys.append(("finds that the crew waits", world))
    for why, then in whys:
        for works in {memory["works"], memory["works"] or dialog.has_worked}:
            yield why, then, {**memory, "works": works}


# A process.


def opens(world: World, _: str, question: str) -> Replies:
    """Yield what becomes of a request that a process opens."""
    if world.state != "running":
        return iter([("cannot ask a user", ("refused", None), world)])
    asks = world.talks(shows=question, given="")
    return world.outcomes(f"asks a user {question}", _wrong(asks) or asks, None, (", in vain", "refused", world))


def sends(world: World, _: str, question: str, name: str) -> Replies:
    """Yield what becomes of an answer that a process sends, which has no name if no user has given it."""
    dialog = world.dialog
    shown, told = dialog.read[int(name[1:]) - 1] if name else (question, frozenset())
    name = name or [{"at": "unrecorded"}, *(world.kept(KEY) or {}).get("answers", [])][-1]["at"]
    others = {other for asked, other in dialog.sent if asked == question} - told
    sent, wrong = world.talks(sent=dialog.sent | {(question, name)}), None
    if shown != question:
        wrong = Wrong("An answer is sent to another question than its user had read.")
    elif others:
        twice = "twice" if name in others else "although its user had not been told of the first"
        wrong = Wrong(f"An answer is sent {twice}.")
    is_expected = world.crew[-1] == "waiting" and question == f"q{dialog.asked}"
    then: State = wrong or (_works(sent) if is_expected else sent)
    return world.outcomes(f"sends answer {name} to {question}", then, "", *world.losses("silent", then, sent))


def at_rest(world: World) -> Wrong | None:
    """Return what is wrong if nothing more happens."""
    return _wrong(world, world.dialog.given if _is_recorded(world) else "")


def _wrong(world: World, found: str = "") -> Wrong | None:
    """Return what is wrong if the crew waits for an answer that was given, besides one that will be found."""
    dialog, answers = world.dialog, (world.kept(KEY) or {}).get("answers", [])
    known = {found, *(each["at"] for each in answers if each["outcome"]), *(name for _, name in dialog.sent)}
    later = [*enumerate(dialog.read, 1)][dialog.warned :]
    given = {f"a{number}" for number, (shown, _) in later if shown == f"q{dialog.asked}"}
    is_lost = world.crew[-1:] == ("waiting",) and given - known and not world.is_marked
    return Wrong("An answer is lost, and no one is told.") if is_lost else None
