"""Engine of a project: one process per execution, one spare process, and a limit on concurrent executions."""

import asyncio
import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pydantic import JsonValue

from airflow_provider_crew.local.executions import Execution, Kickoff
from airflow_provider_crew.local.projects.execution import ProjectExecution, queued
from airflow_provider_crew.local.projects.keep import Kept, make_private
from airflow_provider_crew.local.projects.process import Message, Process, ProjectError
from airflow_provider_crew.local.scenario import CrewInput, Scenario

_RUNNER = Path(__file__).parents[1] / "crew_runner.py"
_SOURCE = (".py", ".yaml", ".yml", ".toml", ".env")
# Seconds that a runner gets to exit after its crew has ended.
_GRACE = 5.0


class Project:
    """
    A CrewAI project on this machine: a folder as ``crewai create`` makes it, or ``package.module:Class``.

    ``python`` is the project's interpreter. By default it is the one in its ``.venv``, or else the current one.
    ``keep`` is a file that stores the executions for later services. ``log`` gets each line of output, in the
    server's thread.
    """

    def __init__(
        self,
        crew: str | Path,
        *,
        python: str | Path | None = None,
        at_most: int = 4,
        keep: str | Path | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        own = Path(crew) / ".venv" / "bin" / "python"
        interpreter = python or (own if own.exists() else sys.executable)
        self._crew = crew
        self._command = (f"{interpreter}", f"{_RUNNER}", "--project", f"{crew}")
        self._file = Path(keep).absolute() if keep else None
        self._kept: Kept | None = None
        self._storage = ""
        self._log = log
        self._slots = asyncio.Semaphore(at_most)
        self._loop: asyncio.AbstractEventLoop
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare: asyncio.Task[Process] | None = None
        self._starting: set[asyncio.Task[Process]] = set()
        self._processes: set[Process] = set()
        self._ending = False
        self._ready: Message = {}
        self.on_load: Callable[[], None] = lambda: None
        """Called whenever the project was loaded. Each kickoff triggers a reload, as it may have changed."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Load the project, and kill every process at the end. Raise ProjectError if it cannot be loaded."""
        self._check_folder()
        self._loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as closing:
            if self._file:
                self._kept = closing.enter_context(contextlib.closing(Kept(self._file, self._log)))
                self._storage = f"{self._file}-storage"
                make_private(Path(self._storage), self._log)
            else:
                self._storage = closing.enter_context(tempfile.TemporaryDirectory(prefix="crew-"))
            try:
                # The first process that is ready becomes the spare for the first kickoff.
                self._spare = asyncio.create_task(self._load())
                await asyncio.wait([self._spare])
                self._spare.result()
                yield
            finally:
                await self._end_all()

    def _check_folder(self) -> None:
        if ":" not in f"{self._crew}" and not Path(self._crew).is_dir():
            raise ProjectError(f"There is no folder {self._crew}.")

    def described(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the kind and inputs of the project, as last loaded."""
        required = self._ready["required"]
        inputs = tuple(CrewInput(name=name, required=name in required) for name in self._ready["inputs"])
        return scenario.model_copy(update={"kind": self._ready["kind"], "inputs": inputs})

    def kept(self, scenario: Scenario) -> list[Execution]:
        """Return the executions of earlier services. If one had not ended, it was interrupted."""
        executions = self._kept.load(scenario) if self._kept else []
        for execution in executions:
            self._fail(execution, "The local server ended while the crew was at work.")
        return [*executions]

    def received(
        self,
        scenario: Scenario,
        given: dict[str, JsonValue],
        earlier: Execution | None,  # noqa: ARG002 - CrewAI stores its state
    ) -> dict[str, JsonValue]:
        """Return the inputs for the crew. Unknown ones are dropped for a flow, which has its own defaults."""
        known = {wanted.name for wanted in scenario.inputs}
        return {name: value for name, value in given.items() if name in known or not scenario.is_flow}

    def begin(self, kickoff: Kickoff) -> Execution:
        """Queue an execution. If it cannot be saved, it does not start."""
        execution = ProjectExecution(**vars(kickoff), at=queued(self._ready["of"]), on_revoke=self._keep)
        if self._kept:
            self._kept.save(execution)
        self._loop.call_soon_threadsafe(self._queue, execution)
        return execution

    def _queue(self, execution: ProjectExecution) -> None:
        task = asyncio.create_task(self._run(execution))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, execution: ProjectExecution) -> None:
        async with self._slots:
            if execution.standing(time.time()).over:
                return
            try:
                process = await self._next()
            except Exception as error:  # noqa: BLE001 - any error has to end the execution visibly
                self._log_lines(execution.kickoff_id, getattr(error, "traceback", ""))
                self._fail(execution, f"{error}")
                return
            try:
                await self._follow(execution, process)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(execution, f"The local server has lost the process of the crew: {error!r}.")
            finally:
                # If the server stops in between, the execution has not ended, and the next server reports that.
                code = await self._end(process, _GRACE if execution.at.over else 0.0)
            at = f" at {execution.at.current}" if execution.at.current else ""
            self._fail(execution, f"The process of the crew ended{at}, with exit code {code}.")

    async def _follow(self, execution: ProjectExecution, process: Process) -> None:
        process.name = execution.kickoff_id
        execution.begin(process, time.time())
        while not execution.at.over and (message := await process.read()):
            execution.hear(message, time.time())
            self._keep(execution)
            self._tell(execution, message)

    def _fail(self, execution: ProjectExecution, reason: str) -> None:
        if not execution.at.over:
            execution.fail(reason, time.time())
            self._log(f"{execution.kickoff_id} failed: {reason}")
        self._keep(execution)

    def _keep(self, execution: ProjectExecution) -> None:
        try:
            if self._kept:
                self._kept.save(execution)
        except sqlite3.Error as error:
            # The crew is working, and this service still knows its status.
            self._log(f"{execution.kickoff_id} cannot be kept: {error}")

    async def _next(self) -> Process:
        """Return a process that is ready: the spare, or a new one if the spare has died or is outdated."""
        spare, self._spare = self._spare, None
        process = await self._used(spare) if spare else None
        process = process or await self._load()
        self._keep_warm()
        return process

    def _keep_warm(self) -> None:
        if self._spare is None and not self._ending:
            self._spare = asyncio.create_task(self._load())

    async def _used(self, spare: asyncio.Task[Process]) -> Process | None:
        with contextlib.suppress(ProjectError, OSError):
            process = await spare
            if process.is_alive and process.started_at > _changed_at(self._crew):
                return process
            await self._end(process)
        return None

    async def _load(self) -> Process:
        environment = {**os.environ, "CREWAI_STORAGE_DIR": self._storage}
        starting = asyncio.create_task(Process.start(self._command, environment, self._log))
        self._starting.add(starting)
        starting.add_done_callback(self._started)
        # Shielded, so a cancellation here cannot leave an untracked process behind.
        process = await asyncio.shield(starting)
        said: Message = {}
        try:
            said = await process.read() or {}
        finally:
            code = await self._end(process, _GRACE if said else 0.0) if said.get("said") != "ready" else 0
        if said.get("said") == "not_loaded":
            raise ProjectError(said["error"], said["traceback"])
        if not said:
            raise ProjectError(f"The runner ended with exit code {code} before it had loaded the project.")
        self._ready = said
        self.on_load()
        return process

    def _started(self, starting: asyncio.Task[Process]) -> None:
        self._starting.discard(starting)
        if not starting.cancelled() and not starting.exception():
            self._processes.add(starting.result())

    async def _end(self, process: Process, grace: float = 0.0) -> int:
        code = await process.end(grace)
        self._processes.discard(process)
        return code

    async def _end_all(self) -> None:
        self._ending = True
        tasks = [*self._tasks, *([self._spare] if self._spare else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._starting, return_exceptions=True)
        for process in [*self._processes]:
            await self._end(process)

    def _tell(self, execution: ProjectExecution, message: Message) -> None:
        match message:
            case {"said": "task_started", "task": task, "agent": agent}:
                event = f"started {task}" + (f", by {agent}" if agent else "")
            case {"said": "task_completed", "task": task, "seconds": seconds}:
                event = f"completed {task} in {seconds:.1f} s"
            case {"said": "waits", "task": task}:
                event = f"waits for human input at {task}"
            case {"said": "completed"}:
                event = f"completed in {execution.at.seconds:.1f} s"
            case {"said": "failed", "error": error, "traceback": traceback}:
                self._log_lines(execution.kickoff_id, traceback)
                event = f"failed: {error}"
            case _:
                return
        self._log(f"{execution.kickoff_id} {event}")

    def _log_lines(self, name: str, text: str) -> None:
        for line in text.splitlines():
            self._log(f"{name} | {line}")


def _changed_at(crew: str | Path) -> float:
    """Return when the source of a project was last changed. Hidden files and folders don't count."""
    newest = 0.0
    for place, folders, files in os.walk(crew):
        folders[:] = [each for each in folders if not each.startswith((".", "_"))]
        for file in files:
            if file.endswith(_SOURCE):
                with contextlib.suppress(OSError):
                    newest = max(newest, (Path(place) / file).stat().st_mtime)
    return newest
