"""
Writes docs/messages.md from the package: what it says when something ends badly, and what it warns of.

    python -m tests.message_page

A word that is filled in is shown as an example in italics. What an end means for a task is asked of the code that
ends one, so that it stands beside what has ended it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from airflow_provider_crew.compat import KEEPING
from airflow_provider_crew.service import errors
from airflow_provider_crew.service import messages as of_service
from airflow_provider_crew.service.messages import Message, Money
from airflow_provider_crew.tasks import ends, kickoff
from airflow_provider_crew.tasks import messages as of_tasks
from airflow_provider_crew.tasks.messages import End
from tests.message_layout import ALSO, BESIDES, EXAMPLES, FILLED_IN, GROUPS, OF_ONE, SEEN_BY, Row
from tests.message_notes import REFUSED, WARNINGS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "messages.md"
CATALOGUES = (of_service, of_tasks)
_BEGIN = "<!-- written by tests/message_page.py -->"
_HEADER = "| What | Money, and what is next |\n|---|---|\n"
_NOBODY = logging.getLogger("nobody")
_NOBODY.disabled = True


def page() -> str:
    """Return the page as it should be: what was written by hand, and the tables."""
    by_hand = PAGE.read_text().partition(_BEGIN)[0]
    tables = "".join(
        f"\n## {title}\n\n{fill(intro, 120)}\n\n{_HEADER}{_rows(rows)}" for title, intro, rows in GROUPS
    )
    return f"{by_hand}{_BEGIN}\n{tables}{_of_ends()}{_of_dags()}{_of_warnings()}"


def said_in(catalogue: ModuleType) -> dict[str, Message | End]:
    """Return the messages of a catalogue, and what an end means for a task, by their names."""
    return {name: each for name, each in vars(catalogue).items() if isinstance(each, Message | End)}


def shown(text: str, said: object = None) -> str:
    """Fill a text with examples: those of its message, or those that fit everywhere."""
    words = EXAMPLES | OF_ONE.get(_name_of(said), {})
    return text.format_map(words).replace(KEEPING, "").strip()


def _name_of(said: object) -> str:
    names = (name for each in CATALOGUES for name, one in said_in(each).items() if one is said)
    return next(names, "")


def _rows(rows: tuple[Row, ...]) -> str:
    return "".join(_row(*row) for row in rows)


def _row(message: Message, kind: type[errors.CrewError], situations: tuple[str, ...]) -> str:
    what = "The connection *'crew_default'* cannot be used. " if kind is errors.InvalidSettings else ""
    told = [f"**{what}{shown(message.what, message)}**", shown(message.details, message)]
    told += [f"Perhaps: {shown(each)}" for each in ALSO.get(_name_of(message), ())]
    following = [*_following(message, kind, situations)] or [f"**Next:** {shown(message.next, message)}"]
    return _table_row(told, [f"**Money:** {_money(message, kind, situations)}", *following])


def _money(message: Message, kind: type[errors.CrewError], situations: tuple[str, ...]) -> str:
    """Return what the task says: a call before the kickoff, which has not been taken, has started nothing."""
    of_call = issubclass(kind, errors.CallError) and "kickoff" in situations
    return (Money.NOTHING if of_call else message.money).sentence


def _following(message: Message, kind: type[errors.CrewError], situations: tuple[str, ...]) -> Iterator[str]:
    """Say what is next for each that may meet it; those for whom the same is next, in one."""
    said: dict[str, list[str]] = {}
    for situation in situations:
        said.setdefault(_of_end(end_of(message, kind, situation), message), []).append(situation)
    for text, by in said.items():
        named = [each for each in by if not (each == "before" and "run" in by)]
        who = ", ".join(SEEN_BY[each] for each in named)
        yield (
            f"**Next:** {text}"
            if named == ["kickoff"] and "sensor" not in situations
            else f"**Next,** {who}: {text}"
        )
    if said and _name_of(message) in said_in(of_service):
        own = shown(message.next, message)
        if own not in "".join(said):
            yield f"**Next,** `CrewHook`: {own}"


def _of_end(end: End | None, message: Message) -> str:
    """Return what the task says is next, and what it adds below."""
    if end is None:
        return shown(message.next, message)
    following = (end.next or message.next).replace("{mend}", message.next)
    return " ".join(filter(None, (shown(following, message), shown(end.also, message))))


def end_of(message: Message, kind: type[errors.CrewError], situation: str) -> End | None:
    """Ask the code that ends a task what it makes of an error, in one situation."""
    if message.next == "{next}":
        return End(FILLED_IN[situation].next)
    found: list[End] = []

    def noted(failure: errors.CrewError, end: End, *, mend: str = "{mend}", **_: object) -> errors.CrewError:
        found.append(end._replace(next=end.next.replace("{mend}", mend).strip()))
        return failure

    error = kind("", kickoff_id="7", money=message.money)
    if message is of_service.OUT_OF_REACH:
        error = error.but(has_completed=True)
    elif message is of_service.KNOWN_ELSEWHERE:
        error = error.but(elsewhere="x")
    elif message is of_service.MISFITTING_OUTPUT:
        error = error.but(misfits=("x",))
    asked = patch.object(ends, "meaning", noted), patch.object(kickoff, "meaning", noted)
    with asked[0], asked[1], suppress(errors.CrewError, ends.EndedTask):
        _ending(situation)(error)
    return found[0] if found else None


def _ending(situation: str) -> Callable[[errors.CrewError], object]:
    """Return what ends a task in a situation: the package's own, with stand-ins for what is left alone."""
    lasts = situation != "before"
    task: Any = MagicMock(execution="", log=_NOBODY, is_told_to_end=False)
    task.ti.try_number = 1
    memory: Any = MagicMock(lasts=lasts, going_on=None, last=None, has_given_up=False, may_follow_a_clear=False)
    begun: Any = kickoff.Kickoff.__new__(kickoff.Kickoff)
    begun._task, begun.memory = task, memory
    begun._given = SimpleNamespace(on_uncertain_kickoff="retry" if situation == "chosen" else "fail", meta={})

    def of_run(error: errors.CrewError) -> object:
        task.has_ended = error.money is Money.ENDED
        if isinstance(error, errors.InvalidOutput):
            ends.end_misfit(task, memory, error, anew=situation == "anew")
        ends.end_run(task, memory, error)

    def of_sensor(error: errors.CrewError) -> object:
        ends.end_sensor(task, error, soft_fail=False, never_fail=False)

    return {"sensor": of_sensor, "kickoff": begun._give_up, "chosen": begun._give_up}.get(situation, of_run)


def _of_ends() -> str:
    """Show what a task says besides, whatever has ended it."""
    rows = "".join(
        _table_row(
            [when], [end.money and f"**Money:** {end.money.sentence}", shown(end.next, end), shown(end.also, end)]
        )
        for when, end in BESIDES
    )
    return (
        "\n## What a task adds\n\nIt stands in the line `Next`, or below, whatever has ended the task."
        f"\n\n| When | What it adds |\n|---|---|\n{rows}"
    )


def _of_dags() -> str:
    rows = "".join(
        _table_row(
            [f"**{_example(text, examples)}**"], ["**Money:** Nothing was started.", "**Next:** Correct the DAG."]
        )
        for text, examples in REFUSED.items()
    )
    return (
        "\n## When Airflow parses a DAG\n\nA `ValueError` in the import errors of the DAG. It has one line."
        f"\n\n{_HEADER}{rows}"
    )


def _of_warnings() -> str:
    def table(title: str) -> str:
        rows = "".join(
            _table_row(
                [f"**{_example(text, note.examples)}**"],
                [note.cause, f"**Money:** {note.money}", f"**Next:** {note.do}"],
            )
            for text, note in WARNINGS[title].items()
        )
        return f"\n## {title}\n\n| Warning | Cause, money, and what is next |\n|---|---|\n{rows}"

    return "".join(map(table, WARNINGS))


def _example(text: str, examples: tuple[str, ...]) -> str:
    return text.format(*(f"*{each.strip()}*" if each[:1] != " " else f" *{each[1:]}*" for each in examples))


def _table_row(*cells: Iterable[str | None]) -> str:
    """Return a row, of cells with several lines."""
    told = " | ".join("<br>".join(filter(None, lines)) for lines in cells)
    return f"| {told} |\n".replace("\n", "<br>", told.count("\n"))


if __name__ == "__main__":
    PAGE.write_text(page())
