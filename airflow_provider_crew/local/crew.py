"""The crew itself, without HTTP: its kickoffs, its executions and its answers."""

import hmac
import json
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields

from pydantic import JsonValue

from airflow_provider_crew.local.dialects.documented import documented
from airflow_provider_crew.local.executions import Engine, Execution, Kickoff
from airflow_provider_crew.local.scenario import Scenario, ScenarioTask


class Crew:
    """
    A crew that you can start, query and manipulate from any thread.

    ``clock`` returns the time of executions in seconds. A test may pass its own clock and move it.
    """

    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        clock: Callable[[], float],
        on_begin: Callable[[Execution], None] = lambda _: None,
    ) -> None:
        self.scenario = scenario
        """Scenario for the next kickoffs and for the answers of the server. You can replace it at any time.
        The new one's tokens, faults and cold start are ignored, because they apply only at the server's start."""
        self.token = scenario.token
        self.user_token = scenario.user_token
        self.rejects_unknown_fields = False
        """Whether a kickoff with an unknown field is rejected with 422. A deployment ignores such fields."""
        self.airflow_url: str | None = None
        """Address of the Airflow UI, for links to the tasks that started the executions."""
        self._engine = engine
        self._clock = clock
        self._on_begin = on_begin
        self._lock = threading.RLock()
        self._taken: list[Execution] = []
        self._known: dict[str, Execution] = {}
        self._superseded: set[str] = set()
        self._next_ids: deque[JsonValue] = deque()

    @property
    def kickoffs(self) -> tuple[Execution, ...]:
        """Every execution that was actually started, in order, including forgotten ones."""
        with self._lock:
            return tuple(self._taken)

    def now(self) -> float:
        """Return the time of executions."""
        return self._clock()

    def remember(self, executions: Iterable[Execution]) -> None:
        """Add executions that an earlier service started."""
        with self._lock:
            self._taken += executions
            self._known |= {execution.kickoff_id: execution for execution in self._taken}

    def accepts(self, token: str) -> bool:
        """Return whether this is one of the tokens. The comparison takes the same time for any token."""
        known = (self.token, self.user_token)
        return any(hmac.compare_digest(token.encode(), each.encode()) for each in known)

    def rotate_token(self, new: str) -> None:
        """Accept only this organization token from now on."""
        self.token = new

    def next_kickoff_id(self, value: JsonValue) -> None:
        """Return this ID, which may be any JSON value, for the next kickoff that is accepted."""
        with self._lock:
            self._next_ids.append(value)

    def forget(self, kickoff_id: str) -> None:
        """Return NOT FOUND for this execution from now on."""
        with self._lock:
            del self._known[self.execution(kickoff_id).kickoff_id]

    def finish(self, kickoff_id: str) -> None:
        """End the execution at once, the way its scenario ends. It skips human input."""
        self.execution(kickoff_id).finish(self._clock())

    def approve(self, kickoff_id: str) -> None:
        """Approve the work that waits for human input. Raise ValueError if there is none."""
        self.answer(kickoff_id, approved=True)

    def reject(self, kickoff_id: str, feedback: str = "") -> None:
        """Reject the work that waits for human input, so it is done again. Raise ValueError if there is none."""
        self.answer(kickoff_id, approved=False, feedback=feedback)

    def answer(self, kickoff_id: str, *, approved: bool, feedback: str = "", question: str | None = None) -> None:
        """
        Answer a request for human input. Raise ValueError if there is none.

        ``question`` names the request, by its ID or by its task, so an answer can't approve a later request.
        """
        with self._lock:
            execution, now = self.execution(kickoff_id), self._clock()
            at = execution.standing(now)
            if not at.waiting:
                raise ValueError(f"execution {kickoff_id!r} does not wait for human input")
            if question is not None and question not in (at.question, at.current):
                raise ValueError(f"execution {kickoff_id!r} now waits for the answer to another request")
            execution.answer(now, approved=approved, feedback=feedback)

    def continue_as(self, kickoff_id: str, *, fails: bool = False) -> str:
        """
        Return another ID of an execution, the only one under which ``/status`` knows it from now on.

        ``fails``: the ID belongs to an execution that fails at once, and the real one keeps waiting.
        """
        continued_as = str(uuid.uuid4())
        with self._lock:
            execution = self.execution(kickoff_id)
            if fails:
                crash = ScenarioTask(name="resume", error="'NoneType' object has no attribute 'human_input'")
                facts = {each.name: getattr(execution, each.name) for each in fields(Kickoff)}
                scenario = execution.scenario.model_copy(update={"tasks": (crash,)})
                other = {"scenario": scenario, "kickoff_id": continued_as, "started_at": self._clock()}
                execution = self._engine.begin(Kickoff(**{**facts, **other}))
            else:
                self._superseded |= {each for each, known in self._known.items() if known is execution}
            self._known[continued_as] = execution
        return continued_as

    def revoke(self, kickoff_id: str) -> None:
        """Revoke the execution, whatever its status."""
        self.execution(kickoff_id).revoke(self._clock())

    def set_status(self, kickoff_id: str, *bodies: JsonValue) -> None:
        """Return these bodies for the next polls, and repeat the last. Without any, return the true status."""
        with self._lock:
            self.execution(kickoff_id).statuses = list(bodies)

    def execution(self, kickoff_id: str) -> Execution:
        """Return an execution that the server knows. LookupError lists the known ones."""
        with self._lock:
            if kickoff_id not in self._known:
                raise LookupError(f"no execution {kickoff_id!r}; known: {', '.join(self._known) or 'none'}")
            return self._known[kickoff_id]

    def kicked_off(self, kickoff_id: str) -> Execution:
        """Return an execution by the ID that its kickoff returned. Raise LookupError for any other ID."""
        execution = self.execution(kickoff_id)
        if execution.kickoff_id != kickoff_id:
            raise LookupError(f"{kickoff_id!r} is not the ID of a kickoff")
        return execution

    def received(self, given: dict[str, JsonValue], restored_from: str | None) -> dict[str, JsonValue]:
        """Return the inputs that the crew gets from a kickoff. The state of an unknown execution is empty."""
        with self._lock:
            earlier = self._known.get(restored_from) if restored_from is not None else None
        return self._engine.received(self.scenario, given, earlier)

    def take(
        self,
        inputs: dict[str, JsonValue],
        meta: dict[str, JsonValue] | None,
        webhooks: dict[str, JsonValue],
        events: dict[str, JsonValue] | None = None,
        restored_from: str | None = None,
    ) -> JsonValue:
        """Start an execution and return the ID to answer with."""
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
        """Return the status of an execution. Raise LookupError if the ID is unknown."""
        with self._lock:
            execution = self.execution(kickoff_id)
            if kickoff_id in self._superseded:
                raise LookupError(f"execution {kickoff_id!r} continues under another ID")
            if execution.statuses:
                return execution.next_scripted_status()
        return tell(execution, self._clock())

    def shown(self, kickoff_id: str) -> JsonValue:
        """Return the details of an execution, in one form for all dialects. Raise LookupError if it is unknown."""
        execution = self.execution(kickoff_id)
        sent: dict[str, JsonValue] = {"kickoff_id": kickoff_id, "inputs": execution.inputs, "meta": execution.meta}
        return sent | documented(execution, self._clock()).model_dump()
