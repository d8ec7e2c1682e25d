"""Execution of a project, as its runner reports it."""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_crew.local.executions import REVOKED, DoneTask, Execution, Standing
from airflow_provider_crew.local.projects.process import Message, Process


def queued(total: int | None) -> Standing:
    """Return the status of an execution with this many tasks before it has a process."""
    return Standing(0, over=False, seconds=0.0, queued=True, total=total)


@dataclass
class ProjectExecution(Execution):
    """An execution whose work is done in a process. You can query and manipulate it from any thread."""

    at: Standing = field(kw_only=True)
    process: Process | None = None
    on_revoke: Callable[["ProjectExecution"], None] = lambda _: None
    """Saves the execution once it is revoked."""
    _idle: float = 0.0
    """Seconds in which it was queued or waited for human input."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def standing(self, now: float) -> Standing:  # noqa: ARG002 - the status does not depend on the time alone
        """Return the status of the execution."""
        return self.at

    def answer(self, now: float, *, approved: bool, feedback: str) -> None:
        """Send a person's answer to the crew, once."""
        with self._lock:
            if not self.at.waiting or self.process is None:
                raise ValueError(f"execution {self.kickoff_id!r} does not wait for human input")
            self._go_on(now)
        self.process.send({"do": "answer", "approved": approved, "feedback": feedback})

    def finish(self, now: float) -> None:  # noqa: ARG002 - as above
        """Reject the call, because real work can't be ended early."""
        raise ValueError("an execution of a project ends by itself, or is revoked")

    def revoke(self, now: float) -> None:
        """Revoke the execution and kill its process."""
        self.fail(REVOKED, now, revoked=True)
        self.on_revoke(self)
        if self.process:
            self.process.kill()

    def begin(self, process: Process, now: float) -> None:
        """Start the work in the process. From here on it costs money."""
        with self._lock:
            if self.at.over:
                return
            self.process = process
            self._idle = now - self.started_at
            self._stand(now, queued=False)
        inputs = self.inputs
        process.send(
            {"do": "kickoff", "id": self.kickoff_id, "inputs": inputs, "restore_from": self.restored_from}
        )

    def hear(self, message: Message, now: float) -> None:
        """Apply a message from the runner. Messages after the end are ignored."""
        with self._lock:
            if self.at.over:
                return
            match message:
                case {"said": "task_started", "task": task, "agent": agent, "of": total}:
                    self._stand(now, current=task, agent=agent, total=total)
                case {"said": "task_completed", "task": task, "agent": agent, **more}:
                    done = DoneTask(task, agent, more["description"], more["output"], more["seconds"])
                    tasks = (*self.at.tasks, done)
                    self._stand(now, done=len(tasks), tasks=tasks, current=None, agent=None)
                case {"said": "waits", "task": task, "draft": draft, "message": asked}:
                    self._wait(now, task, "\n\n".join(part for part in (draft, asked) if part))
                case {"said": "goes_on"}:
                    self._go_on(now)
                case {"said": "completed"}:
                    # The execution cost money, so an incomplete message must not lose the rest of the result.
                    told = {name: message.get(name) for name in ("json", "usage")}
                    self._end(now, output=str(message.get("output", "")), **told)
                case {"said": "failed", "error": error}:
                    self._end(now, error=error)

    def fail(self, error: str, now: float, *, revoked: bool = False) -> None:
        """End the execution as failed, unless it has already ended."""
        with self._lock:
            if not self.at.over:
                self._end(now, error=error, revoked=revoked)

    def _stand(self, now: float, **change: Any) -> None:
        self.at = replace(self.at, since=now - self.started_at, **change)

    def _wait(self, now: float, task: str | None, draft: str) -> None:
        current = task or self.at.current
        self._stand(now, waiting=True, current=current, draft=draft, question=str(uuid.uuid4()))

    def _go_on(self, now: float) -> None:
        if self.at.waiting:
            self._idle += now - self.started_at - self.at.since
            self._stand(now, waiting=False, draft="", question="")

    def _end(self, now: float, **result: Any) -> None:
        self._go_on(now)
        if self.at.queued:
            self._idle = now - self.started_at
        seconds = now - self.started_at - self._idle
        self._stand(now, over=True, queued=False, current=None, agent=None, seconds=seconds, **result)
