"""Pages for a browser: view executions and answer human input. Only the local server has them."""

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

from airflow_provider_crew.local.answer import Answer, json_answer, text_answer
from airflow_provider_crew.local.crew import Crew
from airflow_provider_crew.local.executions import Execution
from airflow_provider_crew.local.record import ReceivedRequest
from airflow_provider_crew.local.wire.page import LIST, STYLE, listed, page_of

_SHOWN = 100
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_HEADERS = {
    # Allow only the page itself: the output of a crew can load nothing, run nothing and send nothing.
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # With no-referrer, a browser would not send the origin of an answer.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class Browser:
    """
    The pages, and who may see them.

    The list needs the token. An answer must also come from a page of this server.
    """

    def __init__(self, crew: Crew, host: str) -> None:
        self._crew = crew
        self._host = host

    def executions(self, request: ReceivedRequest) -> Answer:
        """Show the newest executions. Programs get a list of all of them as JSON."""
        if refused := self.refusal(request):
            return refused
        if "text/html" not in (request.header("accept") or ""):
            return json_answer(200, listed(self._crew.kickoffs, self._crew.now()), **_HEADERS)
        return self._shown(self._crew.kickoffs[: -_SHOWN - 1 : -1])

    def execution(self, kickoff_id: str) -> Answer:
        """Show one execution. Raise LookupError if it is unknown."""
        return self._shown([self._crew.execution(kickoff_id)], single=True)

    def refusal(self, request: ReceivedRequest) -> Answer | None:
        """Return a rejection unless the request has the token and was sent to a known host name."""
        if not self._is_known(request.header("host") or ""):
            return _text(403, "This is not a host name of the local server.")
        if not self._crew.accepts(token_of(request)):
            login = {"www-authenticate": 'Basic realm="local server: the password is the token"'}
            return _text(401, "Log in with any user name, and the token as the password.", **login)
        return None

    def answer(self, request: ReceivedRequest) -> Answer:
        """Apply the answer that was entered on a page."""
        origin = urlsplit(request.header("origin") or "")
        if (refused := self.refusal(request)) or origin.netloc != request.header("host"):
            return refused or _text(403, "This answer does not come from a page of the local server.")
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
        return Answer(303, headers={"location": LIST})

    def _is_known(self, host: str) -> bool:
        # Only a name can later resolve to another address. Foreign pages use that to reach this machine.
        name = urlsplit(f"//{host}").hostname or ""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in ("localhost", self._host.lower())
        return True

    def _shown(self, executions: Sequence[Execution], *, single: bool = False) -> Answer:
        page = page_of(executions, self._crew.now(), self._crew.airflow_url, single=single)
        return _text(200, page, "html")


def _text(status: int, text: str, kind: str = "plain", **headers: str) -> Answer:
    return text_answer(status, text, kind, **_HEADERS, **headers)


def token_of(request: ReceivedRequest) -> str:
    """Return the token that a client or a browser sent, or an empty string."""
    scheme, _, proof = (request.header("authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return proof
    try:
        return base64.b64decode(proof).decode("utf-8").partition(":")[2] if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""
