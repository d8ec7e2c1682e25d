"""Whatever ends badly is told in lines that fit a screen, and stands on docs/messages.md."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_crew.compat import KEEPING
from airflow_provider_crew.service import errors, messages
from airflow_provider_crew.service.messages import Message, Money
from airflow_provider_crew.service.models import Failed, Progress, Running
from airflow_provider_crew.service.watch_words import execution_failed, place
from airflow_provider_crew.tasks import ends
from airflow_provider_crew.tasks.messages import End
from tests import message_layout, message_page, message_texts
from tests.message_notes import REFUSED, WARNINGS
from tests.supported import AIRFLOW
from tests.unit.test_errors import ONE_OF_EACH, family

ID = "6f1c2d3e-0000-4000-8000-123456789abc"
EVERY: dict[str, Any] = {
    f"{page.__name__}.{name}": each
    for page in message_page.CATALOGUES
    for name, each in message_page.said_in(page).items()
}
# What is said in parts that can be long is cut, and said whole in the details.
OPEN = {"INVALID_FIELD", "NO_JSON", "NOT_TRUSTED", "INVALID_KICKOFF_ID"}
OURS = {kind.__name__ for kind in family(errors.CrewError)} | {
    name for name, kind in vars(ends).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
AIRFLOWS = {
    "AirflowException",
    "AirflowFailException",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "AirflowSensorTimeout",
}
WORDS = {
    "execution": f"Execution {ID}",
    "id": ID,
    "lasted": "23h 59m",
    "mend": "Renew the token in the connection.",
}
of_the_page = pytest.mark.skipif(
    AIRFLOW < (3, 3), reason="the page says how a task is made to forget its kickoff from Airflow 3.3 on"
)


@of_the_page
def test_the_page_is_that_of_the_package() -> None:
    assert message_page.PAGE.read_text() == message_page.page(), "write it anew: make message-page"


def stray(tree: ast.AST) -> Iterator[str]:
    """Find what is said in words that stand in no catalogue."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[said, *_]):
                is_literal = isinstance(said, ast.Constant | ast.JoinedStr | ast.BinOp)
                if is_literal and (name in {*OURS, "saying", "Message", "End"} or name in AIRFLOWS):
                    yield f"{name}, line {node.lineno}"


@pytest.mark.parametrize(
    "code",
    [
        'raise InvalidInputs("No.")',
        'raise errors.WatchBroken(f"No {x}.", kickoff_id=x)',
        'raise AirflowFailException("No.")',
        'raise sdk.AirflowException("No " + why)',
        'raise CrewError.saying(Message("No.", Money.NOTHING))',
        'meaning(failure, End("Nothing."))',
    ],
)
def test_a_message_that_stands_nowhere_is_found(code: str) -> None:
    assert list(stray(ast.parse(code)))


def test_whatever_ends_badly_is_said_by_a_message_of_the_page() -> None:
    catalogues = {str(each.__file__) for each in message_page.CATALOGUES}
    found = {
        str(path): told
        for path, tree in message_texts.sources()
        if str(path) not in catalogues and (told := list(stray(tree)))
    }

    assert not found, "say it in service/messages.py or tasks/messages.py"


def _examples(name: str) -> dict[str, Any]:
    examples = message_layout.EXAMPLES | message_layout.OF_ONE.get(name.rpartition(".")[2], {})
    return {word: example.replace("*", "") for word, example in examples.items()}


def test_every_message_has_its_place_on_the_page() -> None:
    laid_out = [id(row[0]) for _, _, rows in message_layout.GROUPS for row in rows]
    said = {name: id(each) for name, each in EVERY.items() if isinstance(each, Message)}

    assert not [name for name, each in said.items() if laid_out.count(each) != 1]
    assert set(laid_out) == set(said.values())


@of_the_page
@pytest.mark.parametrize("name", EVERY)
def test_whatever_is_said_is_found_on_the_page(name: str) -> None:
    page = message_page.PAGE.read_text()

    for text in (each for each in EVERY[name] if isinstance(each, str) and not isinstance(each, Money)):
        constant = re.split(r"{\w+}", text.replace(KEEPING, "").replace("{{", "{").replace("}}", "}"))
        assert not [each for each in constant if each.strip() not in page]


@of_the_page
def test_every_warning_is_explained_on_the_page() -> None:
    explained = [text for table in WARNINGS.values() for text in table]
    found = {each.text for each in message_texts.warned()}

    assert found - set(explained) == set(), "add it to tests/message_notes.py"
    assert set(explained) - found == set(), "nothing says it any more"
    assert len(explained) == len(set(explained))
    assert set(REFUSED) == {text for _, text in message_texts.refused_at_parsing()}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ('log.warning("It broke: %s", error)', "It broke: {}"),
        ("log.warning(_CONSTANT)", "A constant."),
        ("self.log.error(_CONSTANT)", "A constant."),
        ("task.warn(_CONSTANT)", "A constant."),
        ("task.warn(_FILLED.format(kickoff_id))", "Execution {}: odd."),
        ('warn(log, f"{_CONSTANT} It is {word}.")', "A constant. It is {}."),
        ("log.log(level, _CONSTANT)", "A constant."),
        ("Line(logging.WARNING, _CONSTANT)", "A constant."),
        ("self._in_trouble(_CONSTANT, 'More.')", "Execution {}: A constant. More."),
        ("self._line(_CONSTANT, logging.WARNING)", "Execution {}: A constant."),
        ("def _doubts(): yield _CONSTANT", "A constant."),
        ("log.warning(made_elsewhere)", "{}"),
    ],
)
def test_a_warning_is_found_however_it_is_said(code: str, text: str) -> None:
    names = {"_CONSTANT": "A constant.", "_FILLED": "Execution {}: odd."}

    assert [each.text for each in message_texts.warned_in(ast.parse(code), names)] == [text]


def test_what_only_passes_on_is_still_there() -> None:
    calls = {ast.unparse(node) for _, tree in message_texts.sources() for node in ast.walk(tree)}

    assert calls >= message_texts.PASSED_ON


def test_a_warning_in_one_line_fits() -> None:
    examples = {text: note.examples for table in WARNINGS.values() for text, note in table.items()}
    for text, line, _ in message_texts.warned():
        told = line.format(*(each.replace("57a13a6e-…", ID) for each in examples.get(text, (ID,) * 9)))
        assert len(told) < 110, told


@pytest.mark.parametrize("name", EVERY)
def test_a_message_fits_its_lines(name: str) -> None:
    said: Any = EVERY[name]
    words = _examples(name) | WORDS | {"next": ""}
    following = said.next.format_map(words)

    assert len(f"Next: {following}") < 110
    if isinstance(said, Message) and name.rpartition(".")[2] not in OPEN:
        assert len(said.what.format_map(words)) < 100
    if isinstance(said, End):
        assert said.next or said.also


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_an_error_is_told_in_three_lines_that_fit(error: errors.CrewError) -> None:
    told = error.but(message := "x" * 300, kickoff_id="7" * 200, next="Do it. " * 40, details="y " * 300)
    what, own, money, following, *details = told.lines()

    assert (what[:6], own, money[:7], following[:6]) == ("What: ", "7" * 200, "Money: ", "Next: ")
    assert all(len(line) < 110 for line in (what, money, following))
    assert all(len(line) < 110 or " " not in line for line in details)
    assert message in "".join(details)
    assert len(str(told).splitlines()[0]) < 100


def test_the_three_lines_are_those_that_are_told() -> None:
    error = errors.LostContact("Gone.", kickoff_id="7", next="Wait.", details="It was there.")

    assert error.lines() == [
        "What: Gone.",
        f"Money: {Money.GOES_ON.sentence}",
        "Next: Wait.",
        "It was there.",
    ]
    assert error.told() == {"what": "Gone.", "money": Money.GOES_ON.sentence, "next": "Wait."}
    assert str(error) == f"Gone.\nMoney: {Money.GOES_ON.sentence}\nNext: Wait.\nIt was there."


@pytest.mark.parametrize(
    ("agent", "task", "told"),
    [
        ("Writer", "write", "failed after 4m 10s, seen at task 2 of 3, write."),
        ("Writer", "writing_task", "failed after 4m 10s, seen at task 2 of 3, writing_…."),
        (None, "writing_task", "failed after 4m 10s, seen at task 2 of 3, writing_…."),
        ("Writer", "writing_and_reading_task", "failed after 4m 10s, seen at task 2 of 3, writing_…."),
        (None, None, "failed after 4m 10s, seen at task 2 of 3."),
    ],
)
def test_a_failure_tells_where_the_crew_was(agent: str | None, task: str | None, told: str) -> None:
    running = Running(
        status="running",
        kickoff_id=ID,
        word="running",
        current_task=task,
        current_agent=agent,
        progress=Progress(completed=1, total=3, unit="task"),
    )
    failed = Failed(status="error", kickoff_id=ID, error="boom", execution_time=250.0)

    error = execution_failed(failed, place(running))

    assert error.what == f"Execution {ID} {told}"
    assert len(error.what) < 100
    assert f"At the last poll before, it was at {place(running)}." in error.details


@pytest.mark.parametrize(
    "kind", [ends.CrewTaskFailed, ends.CrewTaskError, ends.CrewTaskTimeout, ends.CrewSensorTimeout]
)
def test_what_airflow_raises_knows_the_same_as_an_error_of_ours(kind: type[ends.EndedTask]) -> None:
    failure = errors.ExecutionFailed.saying(
        messages.FAILED,
        {"execution": "Execution 7", "after": "", "place": "", "said": "x"},
        kickoff_id="7",
        error="x",
    )
    end = pickle.loads(pickle.dumps(kind(failure)))  # noqa: S301 - our own

    assert (end.kickoff_id, end.money, end.error) == ("7", Money.ENDED, "x")
    assert (failure.kickoff_id, failure.money, failure.error) == ("7", Money.ENDED, "x")
    assert (str(end), end.told()) == (str(failure), failure.told())


ADVICE = {each.next for each in EVERY.values() if isinstance(each, Message)}


@pytest.mark.parametrize("name", [name for name, each in EVERY.items() if "{mend}" in each.next])
def test_what_to_mend_and_what_then_fit_into_one_line_or_are_both_told(name: str) -> None:
    end: Any = EVERY[name]
    for advice in ADVICE:
        failure = errors.WatchBroken("Broken.", kickoff_id="7", next=advice)

        told = ends.meaning(failure, end)

        assert all(len(line) < 110 for line in told.lines())
        assert "…" not in told.told()["next"]
        assert advice in str(told)
