"""Pages for human input: view executions and answer, in a browser or by ``POST /resume``. Local only."""

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Iterator
from html import escape
from urllib.parse import parse_qs, urlsplit

from pydantic import AliasChoices, BaseModel, Field, StrictBool

from airflow_provider_crew.local.answer import Answer, text_answer
from airflow_provider_crew.local.crew import Crew
from airflow_provider_crew.local.executions import Execution, Standing
from airflow_provider_crew.local.record import ReceivedRequest

PATH = "/local/"
_SHOWN = 100
# The output of a crew may have long lines.
_STYLE = (
    "body { max-width: 60em; margin: auto; padding: 1em } pre { white-space: pre-wrap; overflow-wrap: anywhere }"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    # Allow only the page itself: the output of a crew can load nothing, run nothing and send nothing.
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # With no-referrer, a browser would not send the origin of an answer.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Local crew service</title><style>{style}</style></head><body>
<h1>Executions</h1>
<p>This page is local only: no deployment has it. Load it again to see what is new.</p>
{executions}
</body></html>
"""
_FORM = """\
<form method="post" action="{path}">
<input type="hidden" name="kickoff_id" value="{kickoff_id}">
<input type="hidden" name="task_id" value="{question}">
<p><label>Feedback<br><textarea name="feedback" rows="4" cols="80"></textarea></label></p>
<button name="answer" value="approve">Approve</button>
<button name="answer" value="reject">Have it done again</button>
</form>
"""


class Resume(BaseModel):
    """Body of ``POST /resume``, in either spelling. ``task_id`` names the request for input, by its ID or task."""

    execution_id: str = Field(validation_alias=AliasChoices("execution_id", "executionId"))
    task_id: str | None = Field(default=None, validation_alias=AliasChoices("task_id", "taskId"))
    human_feedback: str = Field(default="", validation_alias=AliasChoices("human_feedback", "humanFeedback"))
    is_approve: StrictBool = Field(validation_alias=AliasChoices("is_approve", "isApprove"))


class People:
    """The page of executions, for browsers that have the token and come from the page itself."""

    def __init__(self, crew: Crew, host: str) -> None:
        self._crew = crew
        self._host = host

    def page(self, request: ReceivedRequest) -> Answer:
        """Show the newest executions."""
        return self.refusal(request) or self._shown(request)

    def refusal(self, request: ReceivedRequest) -> Answer | None:
        """Return a rejection unless the request has the token and was sent to a known host name."""
        if not self._is_known(request.header("host") or ""):
            return _text(403, "This host name is not the service's.")
        if not self._crew.accepts(token_of(request)):
            refusal = _text(401, "The token of the service is needed, as password. Any user name will do.")
            asking = {"www-authenticate": 'Basic realm="the token of the local crew service, as password"'}
            return Answer(refusal.status, refusal.body, {**refusal.headers, **asking})
        return None

    def answered(self, request: ReceivedRequest) -> Answer:
        """Apply the answer that a person gave on the page."""
        origin = urlsplit(request.header("origin") or "")
        if (refused := self.refusal(request)) or origin.netloc != request.header("host"):
            return refused or _text(403, "This answer does not come from the page itself.")
        form = {name: values[0] for name, values in parse_qs(request.body.decode("utf-8", "replace")).items()}
        approved = form.get("answer") == "approve"
        try:
            self._crew.answer(
                form.get("kickoff_id", ""),
                approved=approved,
                feedback=form.get("feedback", ""),
                question=form.get("task_id", ""),
            )
        except (LookupError, ValueError) as error:
            return _text(409, f"{error}. Go back, and load the page again.")
        return Answer(303, headers={"location": PATH})

    def _is_known(self, host: str) -> bool:
        # Only a name can later resolve to another address. Foreign pages use that to reach this machine.
        name = urlsplit(f"//{host}").hostname or ""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in ("localhost", self._host.lower())
        return True

    def _shown(self, _: ReceivedRequest) -> Answer:
        newest = self._crew.kickoffs[: -_SHOWN - 1 : -1]
        parts = [part for execution in newest for part in _section(execution, self._crew.now())]
        page = _PAGE.format(style=_STYLE, executions="\n".join(parts) or "<p>There are none.</p>")
        return _text(200, page, "html")


def _section(execution: Execution, now: float) -> Iterator[str]:
    at = execution.standing(now)
    yield f"<h2>{escape(execution.kickoff_id)}</h2>"
    yield f"<p>{escape(_told(at))}</p>"
    yield _details("inputs", "\n".join(f"{name}: {value}" for name, value in execution.inputs.items()))
    for task in at.tasks:
        by = f", by {task.agent}" if task.agent else ""
        yield _details(f"{task.name}{by}, in {task.seconds:.1f} s", task.output)
    if at.waiting:
        yield f"<pre>{escape(at.draft)}</pre>"
        yield _FORM.format(path=PATH, kickoff_id=escape(execution.kickoff_id), question=escape(at.question))
    if at.over and at.error is None:
        yield _details("result", at.output)


def _told(at: Standing) -> str:
    if at.error is not None:
        return f"Failed: {at.error}"
    if at.over:
        return f"Completed in {at.seconds:.1f} s."
    if at.queued:
        return "Queued."
    where = f" at {at.current}" if at.current else ""
    return f"Waits for a person{where}:" if at.waiting else f"Continues{where}."


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def _text(status: int, text: str, kind: str = "plain") -> Answer:
    answer = text_answer(status, text, kind)
    return Answer(answer.status, answer.body, {**answer.headers, **_HEADERS})


def token_of(request: ReceivedRequest) -> str:
    """Return the token that a client or a browser sent, or an empty string."""
    scheme, _, proof = (request.header("authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return proof
    try:
        return base64.b64decode(proof).decode("utf-8").partition(":")[2] if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""
