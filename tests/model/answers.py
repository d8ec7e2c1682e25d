"""Questions of a crew and answers to them: what users do, what a trigger sees, and what reaches the crew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_crew.answers.attempt import APPROVE, ASKED, KEY
from airflow_provider_crew.answers.question import QUESTION, Call, Undeliverable, question_in
from airflow_provider_crew.client.errors import HumanInputNeeded
from airflow_provider_crew.task.ask import REQUEST
from airflow_provider_crew.triggers.events import told_error
from tests.integration.tasks import TaskInstance
from tests.model.process import TASKS, Wrong, as_json, from_json

if TYPE_CHECKING:
    from tests.model.moves import Replies
    from tests.model.world import World

_MOST_CLICKS = 2
# States of a task whose questions the receiver takes.
_GOES_ON = frozenset({"running", "deferred", "queued"})
_STEPS = frozenset({"status", "open", "answer", "finish"})
_MAY_HAVE_ARRIVED = frozenset({"sent", "uncertain"})

Event = tuple[str, "World", dict[str, Any]]


class Dialog(NamedTuple):
    """
    Questions and answers of an execution.

    :param asked: Number of questions. The crew waits for an answer to the last one if its status is ``waiting``.
    :param asker: Attempt that has sent the kickoff.
    :param shows: Question of the open request under Required Actions. Empty if there is none.
    :param given: Name of the answer to this request.
    :param read: For each answer of a user, the question on the page, and answers that it said may have arrived.
    :param warned: Number of answers when the log last said that one was not sent.
    :param sent: Question and name of each answer that may have arrived, as far as the task knows.
    :param has_worked: Whether a poll of the trigger may have found the crew at work.
    :param late: How often the time to answer has passed.
    """

    asked: int = 0
    asker: int = 0
    shows: str = ""
    given: str = ""
    read: tuple[tuple[str, frozenset[str]], ...] = ()
    warned: int = 0
    sent: frozenset[tuple[str, str]] = frozenset()
    has_worked: bool = False
    late: int = 0


def is_the_time(world: World) -> bool:
    """Whether something may happen now. At other steps of a process, it could as well happen at the next one."""
    request = world.process.request if world.process and TASKS[world.task].questions else ("answer",)
    return request[0] in _STEPS or request[:2] == ("set", KEY)


def may_surprise(world: World) -> bool:
    """Whether a fault would differ from that of other kinds, or from one about the question before."""
    is_second = '"number": 2' in dict(world.store).get(KEY, "")
    return not TASKS[world.task].questions or (world.dialog.asked > 0 and not is_second)


# The crew.


def crew(world: World) -> Iterator[tuple[str, World]]:
    """Yield a question of the crew, or the answer to it that a user gives in the crew's dashboard."""
    if not is_the_time(world):
        return
    if world.crew[-1:] == ("running",) and world.dialog.asked < TASKS[world.task].questions:
        yield f"The crew asks q{world.dialog.asked + 1}.", _asked(world)
    if world.crew[-1:] == ("waiting",):
        yield f"A user answers q{world.dialog.asked} in the crew's dashboard.", _works(world)


def _asked(world: World) -> World:
    """Return the state in which the receiver has taken the question, or has rejected it."""
    world = world.answers(asked=world.dialog.asked + 1).with_end(f"e{len(world.crew)}", "waiting")
    task = {name: getattr(TaskInstance, name) for name in ("dag_id", "run_id", "task_id", "map_index")}
    meta = {"airflow": {**task, "try_number": world.dialog.asker}}
    call = Call.of({"task_id": f"q{world.dialog.asked}", "task_output": "A draft.", "meta": meta})
    try:
        box = call.added_to(world.xcom(QUESTION) if world.state in _GOES_ON else None)
    except Undeliverable:
        return world
    return world.pushed({QUESTION: as_json(box)}).answers(shows="", given="")


def _works(world: World) -> World:
    """Return the state in which the crew has got the answer that it waits for."""
    return world.with_end(f"e{len(world.crew)}", "running").answers(has_worked=world.state == "deferred")


# The user.


def user(world: World) -> Iterator[tuple[str, World]]:
    """Yield answers under Required Actions, even from a page that still shows the question before."""
    dialog = world.dialog
    is_open = dialog.shows and not dialog.given and len(dialog.read) < _MOST_CLICKS and is_the_time(world)
    if not is_open or not (world.state in _GOES_ON or _is_recorded(world)):
        return
    answers, name = (world.kept(KEY) or {}).get("answers", []), f"a{len(dialog.read) + 1}"
    told = frozenset(each["at"] for each in answers if each["outcome"] in _MAY_HAVE_ARRIVED)
    before = f"q{int(dialog.shows[1:]) - 1}"
    for shown in [dialog.shows, before] if before != "q0" and world.surprises else [dialog.shows]:
        then = world if shown == dialog.shows else world.surprised()
        then = then.answers(given=name, read=(*dialog.read, (shown, told)))
        if world.state == "deferred" and world.resumes:
            resumes = as_json({**from_json(world.resumes[1]), "event": _event(name, shown)})
            then = then.but(state="queued", trigger="", resumes=("execute_complete", resumes))
        yield f"A user gives answer {name} to {shown}.", then


def _event(name: str, shown: str) -> dict[str, Any]:
    event = {"chosen_options": [APPROVE], "params_input": {ASKED: shown}, "responded_at": name}
    return {**event, "responded_by_user": {"name": "Ann"}}


def _is_recorded(world: World) -> bool:
    """Whether the next attempt finds the open request."""
    return bool((world.kept(REQUEST) or {}).get("question") == world.dialog.shows)


# The trigger.


def events(world: World, stored: dict[str, Any], ends: Iterator[Event]) -> Iterator[Event]:
    """
    Yield the events of a trigger of a crew that asks. ``watched()`` in ``triggers/watching.py`` makes them.

    :param ends: Those of another crew. The end of the time to wait is a surprise here.
    """
    dialog = world.dialog
    if stored["asked"] and dialog.given:
        yield f"finds answer {dialog.given}", world, _event(dialog.given, dialog.read[-1][0])
        return
    for what, then, event in ends:
        if then.crew[-1] == "completed":
            yield what, then, event
        elif world.may_surprise:
            yield what, world.surprised(), event
    kickoff_id, memory = stored["kickoff_id"], stored["memory"]
    needed = told_error(HumanInputNeeded("?", kickoff_id=kickoff_id))
    needed |= {"kickoff_id": kickoff_id, "deadline": stored["rules"]["deadline"]}
    for what, then in _needs(world, stored):
        for works in {memory["works"], memory["works"] or dialog.has_worked}:
            yield what, then, {**needed, "memory": as_json({**memory, "works": works})}


def _needs(world: World, stored: dict[str, Any]) -> Iterator[tuple[str, World]]:
    """Yield why a trigger fires because the crew needs a person."""
    dialog, question = world.dialog, question_in(world.xcom(QUESTION))
    if question and stored["known_question"] not in {None, question["task_id"]}:
        yield f"reads {question['task_id']}", world
    if stored["asked"] and dialog.shows and stored["answer_by"] and not dialog.late:
        yield "has no answer in time", world.answers(late=1)
    is_closed = stored["asked"] and not dialog.shows  # the trigger has seen the crew work since
    if world.crew[-1] == "waiting" and (stored["rules"]["stops_for_input"] or is_closed):
        yield "finds that the crew waits", world


def is_answered(world: World) -> bool:
    """Whether a trigger finds that the crew works, although it asks under Required Actions."""
    is_open = world.state == "deferred" and world.dialog.shows and not world.dialog.given
    return bool(is_open) and world.crew[-1] == "running" and from_json(world.trigger)[1]["asked"]


def closed(world: World) -> World:
    """Return the state in which a trigger has closed its request."""
    return world.answers(shows="", has_worked=True)


def left_trigger(world: World) -> World:
    """Return the state after the event of a trigger, which has closed its request."""
    return world.answers(has_worked=False, shows=world.dialog.given and world.dialog.shows)


# A process.


def opens(world: World, _: str, question: str) -> Replies:
    """Yield what becomes of a request that a process opens."""
    if world.state == "running":
        asks = world.answers(shows=question, given="")
        yield f"asks a user {question}", ("ok", None), _wrong(asks) or asks
    if world.state != "running" or world.may_surprise:
        yield "cannot ask a user", ("refused", None), world if world.state != "running" else world.surprised()


def sends(world: World, slot: str, question: str) -> Replies:
    """Yield what becomes of an answer that a process sends."""
    dialog, (_, resumes) = world.dialog, getattr(world, slot).start.resumes
    name = from_json(resumes)["event"].get("responded_at", "")
    shown, told = dialog.read[int(name[1:]) - 1] if name else (question, frozenset())
    name = name or [{"at": "unrecorded"}, *(world.kept(KEY) or {}).get("answers", [])][-1]["at"]
    others = {other for asked, other in dialog.sent if asked == question}
    what, sent = f"sends answer {name} to {question}", world.answers(sent=dialog.sent | {(question, name)})
    is_expected = world.crew[-1] == "waiting" and question == f"q{dialog.asked}"
    then = _works(sent) if is_expected else sent
    if shown != question:
        yield what, ("ok", ""), Wrong("An answer is sent to another question than its user had read.")
    elif others - told:
        twice = "twice" if name in others else "although its user had not been told of the first"
        yield what, ("ok", ""), Wrong(f"An answer is sent {twice}.")
    else:
        yield what, ("ok", ""), then
        if world.may_surprise:
            yield f"{what}, but the response is lost", ("silent", None), then.surprised()
            yield f"{what}, which does not arrive, and does not learn that", ("silent", None), sent.surprised()
            yield f"{what}, which the crew rejects", ("rejected", None), world.surprised()


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
