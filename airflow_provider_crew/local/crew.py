"""The crew itself, without HTTP: what it takes, what it remembers, what it says."""

import hmac
import json
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from pydantic import JsonValue

from airflow_provider_crew.local.dialects.documented import documented
from airflow_provider_crew.local.executions import Engine, Execution, Kickoff
from airflow_provider_crew.local.scenario import Scenario


class Crew:
    """
    A crew that can be kicked off, looked at and interfered with, from any thread.

    ``clock`` tells the seconds that executions go by; a test may pass its own and move it.
    """

    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        clock: Callable[[], float],
        on_begin: Callable[[Execution], None] = lambda _: None,
    ) -> None:
        self.scenario = scenario
        """What the next kickoffs do and how the service talks. Another one may be set at any time; its tokens,
        faults and cold start do not count then, because those are what the service was started with."""
        self.token = scenario.token
        self.user_token = scenario.user_token
        self._engine = engine
        self._clock = clock
        self._on_begin = on_begin
        self._lock = threading.RLock()
        self._taken: list[Execution] = []
        self._known: dict[str, Execution] = {}
        self._next_ids: deque[JsonValue] = deque()

    @property
    def kickoffs(self) -> tuple[Execution, ...]:
        """Every execution that was really started, in order, the forgotten ones included."""
        with self._lock:
            return tuple(self._taken)

    def now(self) -> float:
        """Tell the time that executions go by."""
        return self._clock()

    def remember(self, executions: Iterable[Execution]) -> None:
        """Know executions that an earlier service has started."""
        with self._lock:
            self._taken += executions
            self._known |= {execution.kickoff_id: execution for execution in self._taken}

    def accepts(self, token: str) -> bool:
        """Tell whether it is one of the tokens, in a time that does not tell how much of it is right."""
        known = (self.token, self.user_token)
        return any(hmac.compare_digest(token.encode(), each.encode()) for each in known)

    def rotate_token(self, new: str) -> None:
        """Accept only this organization token from now on."""
        self.token = new

    def next_kickoff_id(self, value: JsonValue) -> None:
        """Let the next kickoff that is taken answer with this id, whatever JSON it is."""
        with self._lock:
            self._next_ids.append(value)

    def forget(self, kickoff_id: str) -> None:
        """Know nothing of this execution from now on."""
        with self._lock:
            del self._known[self.execution(kickoff_id).kickoff_id]

    def finish(self, kickoff_id: str) -> None:
        """Let the execution be over at once, the way its scenario ends. It does not wait for people either."""
        self.execution(kickoff_id).finish(self._clock())

    def approve(self, kickoff_id: str) -> None:
        """Let a person approve of the work that waits; ValueError when none does."""
        self.answer(kickoff_id, approved=True)

    def reject(self, kickoff_id: str, feedback: str = "") -> None:
        """Let a person ask for the work that waits to be done again; ValueError when none does."""
        self.answer(kickoff_id, approved=False, feedback=feedback)

    def answer(self, kickoff_id: str, *, approved: bool, feedback: str = "", question: str | None = None) -> None:
        """
        Let a person say this to the work that waits; ValueError when none does.

        ``question`` says which wait is meant, by its id or by its task: nobody approves of what came after it.
        """
        with self._lock:
            execution, now = self.execution(kickoff_id), self._clock()
            at = execution.standing(now)
            if not at.waiting:
                raise ValueError(f"execution {kickoff_id!r} does not wait for a person")
            if question is not None and question not in (at.question, at.current):
                raise ValueError(f"execution {kickoff_id!r} waits for an answer to something else by now")
            execution.answer(now, approved=approved, feedback=feedback)

    def revoke(self, kickoff_id: str) -> None:
        """Let the execution be revoked from now on, wherever it stands."""
        self.execution(kickoff_id).revoke(self._clock())

    def set_status(self, kickoff_id: str, *bodies: JsonValue) -> None:
        """Answer the next polls of this execution with these bodies; the last stays. None at all: the truth."""
        with self._lock:
            self.execution(kickoff_id).statuses = list(bodies)

    def execution(self, kickoff_id: str) -> Execution:
        """Return an execution that the service knows; LookupError names those it does."""
        with self._lock:
            if kickoff_id not in self._known:
                raise LookupError(f"no execution {kickoff_id!r}; known: {', '.join(self._known) or 'none'}")
            return self._known[kickoff_id]

    def received(self, given: dict[str, JsonValue], restored_from: str | None) -> dict[str, JsonValue]:
        """Return the inputs that the crew gets of a kickoff. The state of an unknown execution is empty."""
        with self._lock:
            earlier = self._known.get(restored_from) if restored_from is not None else None
        return self._engine.received(self.scenario, given, earlier)

    def take(
        self,
        inputs: dict[str, JsonValue],
        meta: dict[str, JsonValue] | None,
        webhooks: dict[str, str],
        events: dict[str, JsonValue] | None = None,
        restored_from: str | None = None,
    ) -> JsonValue:
        """Start an execution and return the id to answer with."""
        with self._lock:
            answered = self._next_ids.popleft() if self._next_ids else str(uuid.uuid4())
            kickoff = Kickoff(
                kickoff_id=answered if isinstance(answered, str) else json.dumps(answered),
                inputs=inputs,
                meta=meta,
                webhooks=webhooks,
                events=events,
                restored_from=restored_from,
                scenario=self.scenario,
                started_at=self._clock(),
            )
            execution = self._engine.begin(kickoff)
            self._taken.append(execution)
            self._known[execution.kickoff_id] = execution
        self._on_begin(execution)
        return answered

    def status_body(self, kickoff_id: str, tell: Callable[[Execution, float], JsonValue]) -> JsonValue:
        """Return what the service says about an execution; LookupError when it knows none by that id."""
        with self._lock:
            execution = self.execution(kickoff_id)
            if execution.statuses:
                return execution.next_scripted_status()
        return tell(execution, self._clock())

    def shown(self, kickoff_id: str) -> JsonValue:
        """Return what there is to see of an execution, in one form for all dialects; LookupError for none."""
        execution = self.execution(kickoff_id)
        sent: dict[str, JsonValue] = {"kickoff_id": kickoff_id, "inputs": execution.inputs, "meta": execution.meta}
        return sent | documented(execution, self._clock()).model_dump()
