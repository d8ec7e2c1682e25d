"""The API of a crew: its paths, its access rules and its answers."""

import json
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, JsonValue, ValidationError

from airflow_provider_crew.local.answer import Answer, json_answer
from airflow_provider_crew.local.crew import Crew
from airflow_provider_crew.local.dialects import DIALECTS
from airflow_provider_crew.local.dialects.dialect import Dialect
from airflow_provider_crew.local.dialects.kickoff import KickoffRequest, Resume
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.local.wire.browser import Browser, token_of
from airflow_provider_crew.local.wire.description import described
from airflow_provider_crew.local.wire.page import LIST

Handler = Callable[[ReceivedRequest], Answer]
KICKOFF_FIELDS = {field.alias or name for name, field in KickoffRequest.model_fields.items()}
_Body = TypeVar("_Body", bound=BaseModel)


class Refused(Exception):
    """A request that is rejected, and the answer to it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Api:
    """Answers of a crew, in the dialect of its scenario at the time of a request."""

    def __init__(self, crew: Crew, browser: Browser, *, pages_need_token: bool) -> None:
        self._crew = crew
        self._browser = browser
        self._pages_need_token = pages_need_token
        self._plain: dict[str, dict[str, Handler]] = {
            "/inputs": {"GET": self._inputs},
            "/kickoff": {"POST": self._kickoff},
            "/openapi.json": {"GET": self._description},
            "/resume": {"POST": self._resume},
            "/": {"GET": lambda _: Answer(303, headers={"location": LIST})},
            LIST: {"GET": browser.executions, "POST": browser.answer},
        }

    def answer(self, request: ReceivedRequest) -> Answer:
        """Answer one request."""
        handlers = self._plain.get(request.path) or self._of_execution(request.path)
        if handlers and request.method not in handlers:
            return self._no_such_path(request, HTTPStatus.METHOD_NOT_ALLOWED, allow=", ".join(handlers))
        try:
            return handlers.get(request.method, self._no_such_path)(request)
        except Refused as refused:
            return refused.answer

    def knows(self, request: ReceivedRequest) -> bool:
        """Return whether a request has a valid token, sent by a client or by a browser."""
        return self._crew.accepts(token_of(request))

    def _of_execution(self, path: str) -> dict[str, Handler]:
        # The path is not decoded, so that an ID with an encoded slash is one segment.
        match path.split("/"):
            case ["", "executions", kickoff_id] if kickoff_id:
                return {"GET": lambda request: self._page(request, unquote(kickoff_id))}
            case ["", "status", kickoff_id] if kickoff_id and self._serves("status_first"):
                return {"GET": lambda request: self._status(request, unquote(kickoff_id))}
            case ["", kickoff_id, "status"] if kickoff_id and self._serves("id_first"):
                return {"GET": lambda request: self._status(request, unquote(kickoff_id))}
            case ["", "stop", kickoff_id] if kickoff_id:
                return {"POST": lambda request: self._stop(request, unquote(kickoff_id))}
        return {}

    def _serves(self, variant: str) -> bool:
        return self._crew.scenario.status_paths in ("both", variant)

    @property
    def _dialect(self) -> Dialect:
        return DIALECTS[self._crew.scenario.dialect]

    def _authenticate(self, request: ReceivedRequest) -> str:
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not self._crew.accepts(token):
            refusal = self._dialect.refusal(401, "Unauthorized", "The bearer token is missing or invalid.")
            raise Refused(Answer(refusal.status, refusal.body, {**refusal.headers, "www-authenticate": "Bearer"}))
        return token

    def _authorize(self, request: ReceivedRequest, action: str) -> None:
        """Reject a user token that may not start executions. Stopping one needs the same permission."""
        if self._authenticate(request) != self._crew.token and not self._crew.scenario.user_token_may_kickoff:
            raise Refused(self._dialect.refusal(403, "Forbidden", f"A user token may not {action} this crew."))

    def _inputs(self, request: ReceivedRequest) -> Answer:
        self._authenticate(request)
        return json_answer(200, self._dialect.inputs(self._crew.scenario))

    def _kickoff(self, request: ReceivedRequest) -> Answer:
        self._authorize(request, "kick off")
        wanted = self._read(KickoffRequest, request.body)
        unknown = json.loads(request.body).keys() - KICKOFF_FIELDS
        if unknown and self._crew.rejects_unknown_fields:
            raise Refused(self._dialect.refusal(422, "Unknown fields", f"{', '.join(sorted(unknown))}."))
        inputs = self._crew.received(wanted.inputs, wanted.restored_from)
        missing = self._crew.scenario.missing(inputs)
        if missing:
            raise Refused(self._dialect.missing_inputs(missing))
        kickoff_id = self._crew.take(inputs, wanted.meta, wanted.webhooks(), wanted.events(), wanted.restored_from)
        return json_answer(200, {"kickoff_id": kickoff_id})

    def _resume(self, request: ReceivedRequest) -> Answer:
        """Answer a request for human input. Local only, because no deployment resumed after this call."""
        self._authenticate(request)
        way = self._crew.scenario.resume
        said = self._read(Resume, request.body)
        spelling = {"documented": "execution_id", "failing": "executionId", "production": "executionId"}.get(way)
        if spelling and spelling not in json.loads(request.body):
            return self._dialect.refusal(422, "Missing field", f"{spelling}: Field required.")
        if way in {"failing", "production"}:
            return json_answer(200, {"kickoff_id": self._resumed_anyway(said, fails=way == "failing")})
        try:
            self._crew.answer(
                said.execution_id, approved=said.is_approve, feedback=said.human_feedback, question=said.task_id
            )
        except LookupError:
            return self._unknown(said.execution_id)
        except ValueError as error:
            return self._dialect.refusal(409, "Not waiting", f"{error}.")
        return json_answer(200, {"kickoff_id": said.execution_id})

    def _resumed_anyway(self, said: Resume, *, fails: bool) -> str:
        """Return a new ID, whatever execution and question the answer names. Only a fitting one has an effect."""
        is_approval = said.human_feedback.strip().rstrip(".").lower() in {"approve", "approved", "ok", "yes"}
        try:
            execution = self._crew.kicked_off(said.execution_id)
            if not fails:
                self._crew.answer(
                    said.execution_id,
                    approved=is_approval,
                    feedback=said.human_feedback,
                    question=said.task_id,
                )
                webhook = said.human_input_webhook
                execution.webhooks = {"humanInputWebhook": webhook.model_dump()} if webhook else {}
            return self._crew.continue_as(said.execution_id, fails=fails)
        except (LookupError, ValueError):
            return str(uuid.uuid4())

    def _read(self, model: type[_Body], body: bytes) -> _Body:
        try:
            return model.model_validate(json.loads(body))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "The body"
            raise Refused(self._dialect.no_kickoff(f"{place}: {first['msg']}.")) from None
        except (ValueError, RecursionError) as error:
            raise Refused(self._dialect.no_json(f"{error}")) from None

    def _status(self, request: ReceivedRequest, kickoff_id: str) -> Answer:
        self._authenticate(request)
        try:
            return json_answer(200, self._crew.status_body(kickoff_id, self._dialect.standing))
        except LookupError:
            return self._dialect.unknown_execution(kickoff_id)

    def _stop(self, request: ReceivedRequest, kickoff_id: str) -> Answer:
        """Stop an execution."""
        self._authorize(request, "stop")
        try:
            execution = self._crew.execution(kickoff_id)
        except LookupError:
            return self._unknown(kickoff_id)
        now = self._crew.now()
        if execution.standing(now).over:
            state = self._dialect.state(execution, now)
            return self._dialect.refusal(400, "Cannot stop", f"Cannot stop execution. Current state: {state}")
        # It is unknown whether a deployed crew can be stopped while it waits for human input.
        execution.revoke(now)
        return json_answer(200, {"status": "stopped", "kickoffId": kickoff_id})

    def _unknown(self, kickoff_id: str) -> Answer:
        """Reject a call for an unknown execution. Only ``/status`` may answer otherwise, by its dialect."""
        return self._dialect.refusal(404, "Execution not found", f"No execution exists with the id {kickoff_id}.")

    def _page(self, request: ReceivedRequest, kickoff_id: str) -> Answer:
        """
        Show an execution, usually without a token, like the dashboard of a deployed crew.

        Programs get JSON.
        """
        # Other users on this machine must not read the output of a real crew.
        if self._pages_need_token and (refused := self._browser.refusal(request)):
            return refused
        try:
            if "text/html" in (request.header("accept") or ""):
                return self._browser.execution(kickoff_id)
            return json_answer(200, self._crew.shown(kickoff_id))
        except LookupError:
            return self._no_such_path(request)

    def _description(self, _: ReceivedRequest) -> Answer:
        return json_answer(200, described(self._dialect.bodies, self._crew.scenario))

    def _no_such_path(self, request: ReceivedRequest, status: int = 404, **headers: str) -> Answer:
        what = HTTPStatus(status).phrase
        body: JsonValue = {"detail": what}
        if self._crew.scenario.unknown_path == "error_body":
            body = {"error": what, "message": f"{request.method} {unquote(request.path)} is not served here."}
        return json_answer(status, body, **headers)
