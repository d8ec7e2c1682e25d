"""Question of a crew, on its way from the receiver through an XCom to the task that waits."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from airflow_provider_crew.client.models import text_of

# XCom key of the last question. The task opens it before its kickoff.
QUESTION = "crew_question"
# Parameter of a request with the ID of its question. Airflow answers whichever request is open, so a page that
# still shows an earlier draft would otherwise approve a later one.
ASKED = "question"
# Bytes of a draft in Airflow's database, before JSON doubles them.
_LONGEST_DRAFT = 16 * 1024
_REST = "\n[This is only the beginning. The crew's dashboard shows the rest.]"
# Questions whose repeated deliveries are recognized.
_MOST_KNOWN = 100
# Objects in which deployments nest the fields of a webhook.
_NESTS = ("data", "body", "payload", "meta")

# PostgreSQL stores no NUL.
_Id = Annotated[str, StringConstraints(max_length=250, pattern=r"^[^\x00]+$")]


class TaskColumns(BaseModel):
    """Columns that identify a task instance, which a crew has sent back and may have changed."""

    model_config = ConfigDict(strict=True, frozen=True)

    dag_id: _Id
    run_id: _Id
    task_id: _Id
    map_index: int = Field(ge=-1, lt=2**31)


def objects_in(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects in which a deployment may have nested the fields of a webhook."""
    found = (part.get(name) for part in parts for name in _NESTS)
    return [each for each in found if isinstance(each, dict)]


class Undeliverable(ValueError):
    """A webhook that is not for a task that waits for an answer. The sender gets the text and the status."""

    def __init__(self, why: str, status: int = 422) -> None:
        super().__init__(why)
        self.status = status


# Answers that the Crew tab shows.
_MOST_ANSWERS = 5
Outcome = Literal["", "not_sent", "sending", "sent", "rejected", "uncertain"]


@dataclass(slots=True)
class Answer:
    """
    Answer to a question, as the Crew tab shows it.

    :param user: Name of the user. Empty if Airflow answered after the timeout.
    :param at: Time of the response, which identifies it.
    :param why: Reason for the outcome.
    :param stored_at: Time at which the outcome was stored.
    """

    option: str
    user: str
    at: str
    outcome: Outcome = ""
    why: str = ""
    stored_at: float | None = None


@dataclass(slots=True)
class Question:
    """
    Last question of an execution, with the answers to it and to earlier ones.

    :param task_id: ID of the question. Empty if the crew has asked none.
    :param number: Number of questions so far.
    :param known: IDs of the questions so far. One that is delivered again replaces none.
    :param answer_by: Time at which the request closes. ``None`` leaves it open.
    :param outcome: Outcome of the last answer to this question. Empty if none was sent.
    :param is_over: Whether a poll has found the execution at work since.
    :param has_user: Whether a user has responded, so that no automatic answer may follow.
    :param sent_back: Whether Airflow has sent back a draft of this execution after the timeout.
    :param continued_as: Another ID of the execution, from the crew's response to an answer.
    """

    task_id: str = ""
    draft: str = ""
    number: int = 0
    answer_by: float | None = None
    outcome: Outcome = ""
    is_over: bool = False
    has_user: bool = False
    sent_back: bool = False
    continued_as: str = ""
    answers: list[Answer] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    @classmethod
    def stored(cls, stored: Any, kickoff_id: str) -> "Question":
        """Return the question of an execution as a task has stored it. Raise a ValueError if it is malformed."""
        is_its_own = isinstance(stored, dict) and stored.get("kickoff_id") == kickoff_id
        return TypeAdapter(cls).validate_python(stored) if is_its_own else cls()

    @classmethod
    def delivered(cls, box: Any) -> "Question | None":
        """Return the last question that the receiver has delivered into an XCom, if there is one."""
        match box:
            case {"question": {"task_id": str(task_id), "draft": str(draft)}, "known": list(known)}:
                return cls(task_id, draft, known=known)
        return None

    def note_answer(self, option: str, user: str, at: str) -> None:
        """Add an answer, unless an earlier process has."""
        if at not in {answer.at for answer in self.answers}:
            self.answers = [*self.answers, Answer(option, user, at)][-_MOST_ANSWERS:]


class _Origin(TaskColumns):
    """Task that sent the kickoff, from the kickoff's ``meta``."""

    try_number: int


class Call(BaseModel):
    """Webhook of a crew that waits for a person."""

    origin: _Origin
    task_id: Annotated[str, StringConstraints(strict=True, pattern=r"^[\w.:-]{1,200}$")]
    draft: str

    @classmethod
    def of(cls, body: Any) -> "Call":
        """Read a crew's webhook, whose fields may be nested. Raise Undeliverable if it names no question."""
        if not isinstance(body, dict):
            raise Undeliverable("the body is not a JSON object")
        parts = [body, *objects_in([body])]
        names = ("task_id", "task_output")
        fields = {name: part[name] for part in reversed(parts) for name in names if name in part}
        meta: Any = next((part["airflow"] for part in [*parts, *objects_in(parts)] if "airflow" in part), None)
        try:
            return cls(origin=meta, task_id=fields.get("task_id"), draft=text_of(fields.get("task_output")))
        except (ValidationError, RecursionError):
            raise Undeliverable("task_id, or meta.airflow of the kickoff, is missing or malformed") from None

    @property
    def task(self) -> dict[str, Any]:
        """Task instance in Airflow."""
        return self.origin.model_dump(exclude={"try_number"})

    def added_to(self, box: Any) -> dict[str, Any] | None:
        """Return the XCom with this question, or None if it has been delivered before."""
        match box:
            case {"try_number": number, "known": list(known)} if number == self.origin.try_number:
                if self.task_id in known:
                    return None
                shown = self.draft.encode()[:_LONGEST_DRAFT].decode(errors="ignore")
                shown += _REST if len(shown) < len(self.draft) else ""
                question = {"task_id": self.task_id, "draft": shown}
                return {**box, "known": [*known, self.task_id][-_MOST_KNOWN:], "question": question}
        raise Undeliverable("no task waits for this execution")


def empty_box(try_number: int, conn_id: str, known: Iterable[str] = ()) -> dict[str, Any]:
    """
    Return the XCom before the next question.

    :param try_number: Attempt that sends the kickoff.
    :param conn_id: Connection whose token the receiver masks in drafts.
    :param known: IDs of the questions so far.
    """
    return {"try_number": try_number, "known": [*known], "conn_id": conn_id}


def typed(value: Any) -> str:
    """Return what a user has typed. Airflow's form turns text that looks like JSON into an object or a number."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text.strip()
