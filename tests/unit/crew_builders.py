"""Settings, answers, a scripted transport and a watch of one execution for the unit tests of the client."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_crew.client.api import Masks, Request, Response
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import CallError, InvalidSettings, Unreachable
from airflow_provider_crew.client.models import Completed, Progress, Running
from airflow_provider_crew.client.settings import ServiceSettings
from airflow_provider_crew.client.text import maskable
from airflow_provider_crew.client.watch import Step, Watch, WatchRules, WatchState

TOKEN = "org/Token-0123+45=6789"
FORMS = maskable(TOKEN)
PART_OF_TOKEN = r"\borg\b|Token-"
KICKOFF_ID = "6f1d9c1e-3f0c-4f6e-9f43-2a1f6f0f9a11"
NOW = 1_750_000_000.0


def settings(**changes: Any) -> ServiceSettings:
    return ServiceSettings(**{"address": "https://crew.example", "token": TOKEN} | changes)


def answer(
    status: int = 200, body: Any = b"", headers: dict[str, str] | None = None, forms: tuple[str, ...] = FORMS
) -> Response:
    """Build an answer; a body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request("GET", "https://crew.example", "/inputs", masks=Masks(forms, forms))
    return Response(request, status, headers or {}, content)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


class Script(CrewClient):
    """Client that takes the outcomes of its requests from a list, and keeps the requests."""

    def __init__(self, *outcomes: Any, **changes: Any) -> None:
        super().__init__(settings(**changes))
        self.outcomes = list(outcomes)
        self.requests: list[Request] = []

    @property
    def paths(self) -> list[str]:
        return [urlsplit(request.url).path for request in self.requests]

    def _send(self, request: Request) -> Response:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return replace(outcome, request=request)


def signed(data: Any, purpose: bytes = b"crew call ") -> str:
    """Return the last part of an address that a crew calls, with other data or for another purpose."""
    named = base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=")
    return f"{named.decode()}.{hmac.new(b'secret', purpose + named, 'sha256').hexdigest()}"


DOWN = Unreachable("The crew did not answer.")
SUCCESS = Completed(status="completed", kickoff_id=KICKOFF_ID, output="text", execution_time=4210.0)


def running(
    task: str | None = None,
    done: int | None = None,
    *,
    total: int | None = 3,
    word: str = "running",
    **fields: Any,
) -> Running:
    unit = fields.pop("unit", "task")
    progress = None if done is None else Progress(completed=done, total=total, unit=unit)
    return Running(
        status="running", kickoff_id=KICKOFF_ID, word=word, current_task=task, progress=progress, **fields
    )


# A story leaves out most polls, so hours may lie between two of them.
SKIPS_POLLS = 7 * 24 * 3600.0

RESEARCH, WRITING = running("research_task", 0), running("writing_task", 1)


class Story:
    """
    Watch of one execution, fed with outcomes at given times.

    :param carried: Whether each poll is in a process of its own.
    """

    def __init__(
        self,
        *,
        carried: bool = False,
        dice: float = 0.5,
        timeout: float = 24 * 3600.0,
        request_timeout: float = SKIPS_POLLS,
        memory: WatchState | None = None,
        **rules: Any,
    ) -> None:
        self.time = 0.0
        self.looks = 0
        self._carried, self._dice, self._request_timeout = carried, dice, request_timeout
        self._rules = WatchRules(deadline=NOW + timeout, **{"poll_interval": 10.0} | rules)
        self.watch = self._new(memory)

    def _new(self, memory: WatchState | None) -> Watch:
        watch = Watch(
            KICKOFF_ID, self._rules, clock=lambda: NOW + self.time, random=lambda: self._dice, memory=memory
        )
        watch.request_timeout = self._request_timeout
        return watch

    def next_process(self) -> None:
        """Carry the watch to another process, if each poll has its own."""
        if self._carried:
            kept = json.loads(json.dumps(self.watch.memory.carried(), allow_nan=False))
            self.watch = self._new(WatchState.recalled(kept))

    def see(self, outcome: Any, *, at: float | None = None, after: float = 0.0) -> Step:
        self.time = (self.time if at is None else at) + after
        self.looks += 1
        self.next_process()
        return (
            self.watch.on_error(outcome)
            if isinstance(outcome, CallError | InvalidSettings)
            else self.watch.on_status(outcome)
        )

    def see_until_the_end(self, outcome: Any) -> Step:
        """Poll as often as the steps ask for, until one of them ends the watch."""
        while True:
            step = self.see(outcome)
            if step.error or step.completed:
                return step
            assert step.poll_again_in > 0
            self.time += step.poll_again_in


def logged(watch: Watch) -> list[str]:
    """
    Return the beginning of each log line about a poll, or ``warning``.

    The lines of one warning count once, because their number depends on the wording.
    """
    carried: list[str] = []
    for level, line in watch.lines:
        assert len(line) <= 300 or level == logging.WARNING
        text = "warning" if level == logging.WARNING else line.partition(".")[0][:60]
        carried += [] if carried[-1:] == [text] == ["warning"] else [text]
    return carried
