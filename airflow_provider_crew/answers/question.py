"""Question of a crew, on its way from the receiver through an XCom to the task that waits."""

import base64
import hashlib
import json
from typing import Annotated, Any, Literal

from cryptography.fernet import Fernet, InvalidToken
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from airflow_provider_crew.client.errors import InvalidSettings, storable_json, storable_text, text_of
from airflow_provider_crew.client.settings import WebhookSecret
from airflow_provider_crew.task.record import KICKOFF_ID

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


class Undeliverable(ValueError):
    """A webhook that is not for a task that waits for an answer. The sender gets the text and the status."""

    def __init__(self, why: str, status: int = 422) -> None:
        super().__init__(why)
        self.status = status


class _Origin(BaseModel):
    """Task that sent the kickoff, from the kickoff's ``meta``."""

    model_config = ConfigDict(strict=True, frozen=True)

    dag_id: _Id
    run_id: _Id
    task_id: _Id
    map_index: int = Field(ge=-1, lt=2**31)
    try_number: int


class Call(BaseModel):
    """Webhook of a crew or a flow that waits for a person."""

    # ``None`` for a flow, whose webhook has no ``meta``.
    origin: _Origin | None = None
    kickoff_id: _Id = "-"
    task_id: Annotated[str, StringConstraints(strict=True, pattern=r"^[\w.:-]{1,200}$")]
    draft: str
    # Where a flow takes the answer, sealed with the kickoff ID and the question's ID.
    callback: str = ""

    @classmethod
    def of(cls, body: Any) -> "Call":
        """Read a crew's webhook, whose fields may be nested. Raise Undeliverable if it names no question."""
        if not isinstance(body, dict):
            raise Undeliverable("the body is not a JSON object")
        parts = [body, *_objects_in(body)]
        names = ("task_id", "task_output")
        fields = {name: part[name] for part in reversed(parts) for name in names if name in part}
        meta: Any = next((part["airflow"] for part in [*parts, *_objects_in(*parts)] if "airflow" in part), {})
        try:
            return cls(origin=meta, task_id=fields.get("task_id"), draft=text_of(fields.get("task_output")))
        except (ValidationError, RecursionError):
            raise Undeliverable("task_id, or meta.airflow of the kickoff, is missing or malformed") from None

    @classmethod
    def of_flow(cls, body: Any, secret: WebhookSecret) -> "Call":
        """Read a flow's webhook, which the secret has signed. The ID of a deployed flow is its kickoff ID."""
        try:
            told = _FlowCall.model_validate(body)
            asks = told.request
            parts = [asks.message, text_of(asks.method_output)]
            parts += [f"State: {_indented(asks.state)}"] if asks.state else []
            parts += [f"Outcomes: {', '.join(asks.emit_options)}"] if asks.emit_options else []
            draft = storable_text("\n\n".join(filter(None, parts)))
            callback = _seal(secret).encrypt(f"{asks.flow_id} {asks.id} {told.callback_url}".encode())
            return cls(kickoff_id=asks.flow_id, task_id=asks.id, draft=draft, callback=callback.decode())
        except (ValueError, RecursionError):
            raise Undeliverable("it is not a flow's new_request, or one of its fields is malformed") from None

    @property
    def task(self) -> dict[str, Any]:
        """Task instance in Airflow, or the XCom that identifies it."""
        return self.origin.model_dump(exclude={"try_number"}) if self.origin else {KICKOFF_ID: self.kickoff_id}

    def added_to(self, box: Any) -> dict[str, Any] | None:
        """Return the XCom with this question, or None if it has been delivered before."""
        match box:
            case {"try_number": number, "known": list(known)} if (
                not self.origin or number == self.origin.try_number
            ):
                if self.task_id in known:
                    return None
                shown = self.draft.encode()[:_LONGEST_DRAFT].decode(errors="ignore")
                shown += _REST if len(shown) < len(self.draft) else ""
                question = {"task_id": self.task_id, "draft": shown, "callback": self.callback}
                return {**box, "known": [*known, self.task_id][-_MOST_KNOWN:], "question": question}
        raise Undeliverable("no task waits for this execution")


class _Request(BaseModel):
    """Question of a flow."""

    id: str
    flow_id: str
    message: str = ""
    method_output: Any = None  # undocumented
    emit_options: list[str] | None = None
    state: dict[str, Any] | None = None


class _FlowCall(BaseModel):
    """Webhook of a flow that waits for feedback."""

    event: Literal["new_request"]
    request: _Request
    callback_url: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=2_000)]


def _indented(state: dict[str, Any]) -> str:
    """Return a state in lines, unless it is nested so deeply that their indentation would multiply its size."""
    try:
        return json.dumps(storable_json(state), indent=2, ensure_ascii=False)
    except ValueError:
        return json.dumps(state, ensure_ascii=False)


def _objects_in(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects in which a deployment may have nested the fields."""
    found = (part.get(name) for part in parts for name in _NESTS)
    return [each for each in found if isinstance(each, dict)]


def empty_box(try_number: int) -> dict[str, Any]:
    """Return the XCom before the first question. ``try_number``: attempt that sends the kickoff."""
    return {"try_number": try_number, "known": [], "question": None}


def question_in(box: Any) -> dict[str, str] | None:
    """Return the last question, if there is one."""
    match box:
        case {"question": {"task_id": str(task_id), "draft": str(draft), "callback": str(callback)}}:
            return {"task_id": task_id, "draft": draft, "callback": callback}
    return None


def callback_in(question: dict[str, str], secret: WebhookSecret, kickoff_id: str) -> str:
    """Return the URL for the answer to a flow. Empty for a crew."""
    try:
        sealed = _seal(secret).decrypt(question["callback"]).decode() if question["callback"] else ""
    except InvalidToken:
        raise InvalidSettings("The webhook secret was replaced after the flow had asked.") from None
    asked, _, url = sealed.rpartition(" ")
    if sealed and asked != f"{kickoff_id} {question['task_id']}":
        raise InvalidSettings("The callback URL belongs to another question.")
    return url


def _seal(secret: WebhookSecret) -> Fernet:
    """Return the cipher for a callback URL. Users may read XComs, and the URL may authorize an answer."""
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(secret.password.encode()).digest()))


def typed(value: Any) -> str:
    """Return what a user has typed. Airflow's form turns text that looks like JSON into an object or a number."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text.strip()
