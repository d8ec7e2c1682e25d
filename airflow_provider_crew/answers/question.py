"""Question of a crew, on its way from the receiver through an XCom to the task that waits."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from airflow_provider_crew.client.errors import text_of

# XCom key of the last question. The task opens it before its kickoff.
QUESTION = "crew_question"
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


class _Record(BaseModel):
    """Types of a record, as far as a task depends on them. Each field may be missing."""

    model_config = ConfigDict(extra="allow", strict=True)

    question: dict[str, str] = {}
    number: int = 0
    answer_by: float | None = None
    continued_as: str = ""
    answers: list[dict[str, str]] = []


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


def empty_box(try_number: int) -> dict[str, Any]:
    """Return the XCom before the first question. ``try_number``: attempt that sends the kickoff."""
    return {"try_number": try_number, "known": []}


def record_in(kept: Any, kickoff_id: str) -> dict[str, Any]:
    """Return the record of an execution's question. Raise a ValueError if it is malformed."""
    if not isinstance(kept, dict) or kept.get("kickoff_id") != kickoff_id:
        return {}
    return _Record.model_validate(kept).model_dump(exclude_unset=True)


def question_in(box: Any) -> dict[str, str] | None:
    """Return the last question, if there is one."""
    match box:
        case {"question": {"task_id": str(task_id), "draft": str(draft)}}:
            return {"task_id": task_id, "draft": draft}
    return None


def typed(value: Any) -> str:
    """Return what a user has typed. Airflow's form turns text that looks like JSON into an object or a number."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text.strip()
