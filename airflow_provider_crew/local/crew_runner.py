"""
Host one execution of a CrewAI project. The local server starts this file with the project's own interpreter.

It imports nothing from this package and runs on Python 3.10 and newer, because CrewAI and Airflow can't be
installed together. It communicates over two file descriptors of its own, with one JSON object per line,
because crews print anything to stdout. When the one that it reads is closed, the result is no longer needed.
It then stops, with every process it started, because model calls cost money.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import inspect
import json
import os
import pkgutil
import queue
import re
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, ClassVar

# The first version with a provider for human input. Flows that start from an earlier state need 1.14.5.
_OLDEST = (1, 10, 1)
# The file in which CrewAI puts a crew or a flow, and the attribute that identifies its class.
_SHAPES = {"crew": ("crew.py", "is_crew_class"), "flow": ("main.py", "kickoff_async")}
_ANY_WORD = 6  # longest value in .env, in characters, that is not treated as a secret
_SETTLED = 10.0  # seconds to wait for the remaining events of CrewAI


class ProjectError(Exception):
    """The project cannot be hosted, for a reason that needs no traceback."""


class Service:
    """The server at the other end of both pipes."""

    def __init__(self, read: int, write: int) -> None:
        for end in (read, write):
            # Processes started by the crew must not hold the pipes open, because both sides rely on their end.
            os.set_inheritable(end, False)  # noqa: FBT003 - the argument is positional-only
        self.hidden: list[str] = []
        self.kickoffs: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lines = os.fdopen(read, "rb")
        self._write = write
        self._saying, self._asking = threading.Lock(), threading.Lock()
        self._answers: queue.Queue[dict[str, Any]] | None = None

    def say(self, said: str, **what: Any) -> None:
        """Send a message as one line."""
        line = json.dumps({"said": said, **what}).encode() + b"\n"
        with self._saying:
            while line:
                line = line[os.write(self._write, line) :]

    def say_error(self, said: str, error: BaseException, **what: Any) -> None:
        """Send the reason for a failure, without secrets."""
        ours = isinstance(error, ProjectError)
        reason = str(error) if ours else f"{type(error).__name__}: {error}"
        trace = "" if ours else "".join(traceback.format_exception(type(error), error, error.__traceback__))
        for secret in self.hidden:
            reason, trace = reason.replace(secret, "***"), trace.replace(secret, "***")
        self.say(said, error=reason, traceback=trace, **what)

    def ask(self, **what: Any) -> dict[str, Any]:
        """Ask for human input and wait for the answer. Concurrent questions wait for their turn."""
        with self._asking:
            # A queue for each question, so that a second click can't approve work that was not shown yet.
            self._answers = queue.Queue()
            self.say("waits", **what)
            answer = self._answers.get()
            self.say("goes_on")
        return answer

    def listen(self) -> None:
        """Read messages until the pipe is closed. Then stop this process, and every one that the crew started."""
        try:
            for line in self._lines:
                self._take(json.loads(line))
        finally:
            os.killpg(0, signal.SIGKILL)

    def _take(self, message: dict[str, Any]) -> None:
        if message["do"] == "kickoff":
            self.kickoffs.put(message)
        elif self._answers:
            self._answers.put(message)


class Progress:
    """Progress from CrewAI's event bus: the tasks of one crew or the methods of one flow."""

    def __init__(self, service: Service, subject: Crew | Flow) -> None:
        from crewai import events

        self._service, self._subject = service, subject
        self._bus = events.crewai_event_bus
        self._going_on: dict[str, float] = {}
        self._begun = 0
        # Coroutines, because CrewAI calls them in the order of its events. It calls functions in any order.
        for name, handler in zip(subject.events, (self._started, self._completed), strict=True):
            self._bus.on(getattr(events, name))(handler)

    def settle(self) -> None:
        """Wait until all events have been reported."""
        self._bus.flush(timeout=_SETTLED)

    def current(self) -> str | None:
        """Return the name of the running task or method that began last."""
        return next(reversed(self._going_on), None)

    async def _started(self, source: Any, event: Any) -> None:
        if told := self._subject.step(source, event):
            self._begun += 1
            self._going_on[told["task"]] = event.timestamp.timestamp()
            index = told.pop("index", self._begun)
            self._service.say("task_started", task=told["task"], agent=told["agent"], index=index, of=told["of"])

    async def _completed(self, source: Any, event: Any) -> None:
        if told := self._subject.step(source, event):
            at = event.timestamp.timestamp()
            seconds = round(at - self._going_on.pop(told["task"], at), 3)
            output = text(event.output if hasattr(event, "output") else event.result)
            told = {name: told[name] for name in ("task", "agent", "description")}
            self._service.say("task_completed", **told, output=output, seconds=seconds)


class People:
    """Provider for CrewAI's human input, for its human feedback and for the questions of a flow."""

    def __init__(self, service: Service, progress: Progress) -> None:
        from crewai.core.providers.human_input import set_provider
        from crewai.flow.flow_config import flow_config

        self._service, self._progress = service, progress
        set_provider(self)
        flow_config.hitl_provider = flow_config.input_provider = self

    def setup_messages(self, _context: Any) -> bool:
        """Leave the messages of an agent to CrewAI."""
        return False

    def post_setup_messages(self, _context: Any) -> None:
        """Add no messages."""

    def handle_feedback(self, answer: Any, context: Any) -> Any:
        """Ask for feedback after a task with ``human_input``. Its agent repeats the work until it is approved."""
        while self._has_to_change(answer, context):
            answer = context._invoke_loop()  # noqa: SLF001 - CrewAI passes this context to providers
        return answer

    async def handle_feedback_async(self, answer: Any, context: Any) -> Any:
        """Do the same for an agent on an event loop."""
        while await asyncio.to_thread(self._has_to_change, answer, context):
            answer = await context._ainvoke_loop()  # noqa: SLF001
        return answer

    def _has_to_change(self, draft: Any, context: Any) -> bool:
        answer = self._ask(
            task_name(context.task), draft.output, "Approve this, or reject it and say what to change."
        )
        context.ask_for_human_input = not answer["approved"]
        if not answer["approved"]:
            words = answer["feedback"].strip() or "The draft was rejected."
            context.messages.append(context._format_feedback_message(words))  # noqa: SLF001
        return not answer["approved"]

    def request_feedback(self, context: Any, _flow: Any) -> str:
        """Ask for feedback after a method of a flow. For an empty answer CrewAI would use the default."""
        answer = self._ask(context.method_name, context.method_output, context.message)
        return answer["feedback"].strip() or ("approved" if answer["approved"] else "rejected")

    def request_input(self, message: str, _flow: Any, metadata: Any = None) -> str:  # noqa: ARG002 - CrewAI's name
        """Ask a question from a flow's ``ask()``."""
        return str(self._ask(self._progress.current(), "", message)["feedback"])

    def _ask(self, task: str | None, draft: Any, message: str) -> dict[str, Any]:
        self._progress.settle()
        return self._service.ask(task=task, draft=text(draft), message=message)


class Crew:
    """A crew: agents that work through tasks."""

    kind: ClassVar = "crew"
    events: ClassVar = ("TaskStartedEvent", "TaskCompletedEvent")

    def __init__(self, crew: Any, defaults: dict[str, Any]) -> None:
        self._crew, self._defaults = crew, defaults
        self.name = str(crew.name)
        self.of = len(crew.tasks)
        # The placeholders in its texts. A project without code may define defaults.
        self.inputs = sorted(crew.fetch_inputs())
        self.required = [name for name in self.inputs if name not in defaults]

    def step(self, source: Any, _event: Any) -> dict[str, Any] | None:
        """Return the progress for a task, or None if it belongs to another crew."""
        index = next((n for n, task in enumerate(self._crew.tasks, start=1) if task is source), None)
        agent = source.agent.role.strip() if source.agent else None
        told = {"task": task_name(source), "agent": agent, "description": source.description}
        return {**told, "index": index, "of": self.of} if index else None

    def kickoff(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run the crew and return its result."""
        result = self._crew.kickoff(inputs={**self._defaults, **message["inputs"]})
        return {**told_result(result), "usage": plain(result.token_usage), "state_id": None}


class Flow:
    """A flow: a program of methods with a state."""

    kind: ClassVar = "flow"
    events: ClassVar = ("MethodExecutionStartedEvent", "MethodExecutionFinishedEvent")
    required: ClassVar[list[str]] = []
    of: ClassVar = None

    def __init__(self, flow: Any) -> None:
        self._flow = flow
        self.name = str(flow.name or type(flow).__name__)
        # The fields of its state. Its ID comes from the kickoff.
        fields = flow.state.model_dump() if hasattr(flow.state, "model_dump") else dict(flow.state)
        self.inputs = sorted(name for name in fields if name != "id")

    def step(self, source: Any, event: Any) -> dict[str, Any] | None:
        """Return the progress for a method, or None for another flow's. In recent versions every agent is one."""
        told = {"task": event.method_name, "agent": None, "description": "", "of": None}
        return told if source is self._flow else None

    def kickoff(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run the flow and return its result. Its state gets the kickoff ID, so a later kickoff can name it."""
        earlier = message.get("restore_from")
        restoring = {"restore_from_state_id": earlier} if earlier else {}
        if not restoring.keys() <= inspect.signature(self._flow.kickoff).parameters.keys():
            raise ProjectError("This crewai cannot start from the state of an earlier run. Use 1.14.5 or newer.")
        result = self._flow.kickoff(inputs={"id": message["id"], **message["inputs"]}, **restoring)
        if type(result).__name__ == "HumanFeedbackPending":
            raise ProjectError(
                f"The flow asks for human input in its own way, which the local server cannot answer: {result}"
            )
        # Older versions of crewai count the token usage of a flow only if its last method returns a crew's result.
        usage = getattr(self._flow, "usage_metrics", None) or getattr(result, "token_usage", None)
        return {**told_result(result), "usage": plain(usage), "state_id": self._flow.flow_id}


def task_name(task: Any) -> str:
    """Return the name of a task."""
    return str(task.name or task.description)


def told_result(result: Any) -> dict[str, Any]:
    """Return a result: its text, its structured value if there is one, and the tasks as CrewAI returns them."""
    tasks = getattr(result, "tasks_output", [])
    value = (result.json_dict or result.pydantic) if tasks else result
    # The messages to the model are as long as the whole conversation.
    outputs = [{name: each for name, each in vars(task).items() if name != "messages"} for task in tasks]
    structured = None if isinstance(value, str) else plain(value)
    return {"output": text(result), "json": structured, "tasks": plain(outputs)}


def text(value: Any) -> str:
    """Return the output of a crew, a task or a method as text."""
    raw = getattr(value, "raw", value)
    if isinstance(raw, str):
        return raw
    return "" if raw is None else json.dumps(plain(raw), ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value as JSON, or else as text, so that a result that cost money is never lost."""
    from pydantic_core import to_jsonable_python

    try:
        return to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    except Exception:  # noqa: BLE001 - a project's own models may raise any exception
        return str(value)


def loaded(project: str) -> Crew | Flow:
    """Load a project: a folder in CrewAI's layout, or the import path of a crew or flow."""
    found, defaults = in_folder(Path.cwd()) if ":" not in project else (pkgutil.resolve_name(project), {})
    import crewai

    made = found if isinstance(found, (crewai.Crew, crewai.Flow)) else found()
    made = made.crew() if hasattr(made, "is_crew_class") else made
    made.stream = False  # the result is returned at the end
    return Flow(made) if isinstance(made, crewai.Flow) else Crew(made, defaults)


def in_folder(folder: Path) -> Any:
    """Return the crew or flow of a project and the defaults of its inputs."""
    settings = settings_of(folder)
    kind = settings.get("type", "crew")
    if definition := settings.get("definition"):
        return defined(folder / definition, kind)
    file, mark = _SHAPES[kind]
    modules = [importlib.import_module(f"{path.parent.name}.{path.stem}") for path in folder.glob(f"src/*/{file}")]
    classes = [(module, each) for module in modules for each in vars(module).values() if isinstance(each, type)]
    found = [each for module, each in classes if hasattr(each, mark) and each.__module__ == module.__name__]
    if len(found) != 1:
        names = ", ".join(f"{each.__module__}:{each.__name__}" for each in found) or "none"
        raise ProjectError(
            f"{folder} must contain one {kind}, unless you name one by its import path. Found: {names}."
        )
    return found[0], {}


def settings_of(folder: Path) -> dict[str, Any]:
    """Read CrewAI's settings from a project."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    file = folder / "pyproject.toml"
    tools = toml.loads(file.read_text(encoding="utf-8")).get("tool", {}) if file.exists() else {}
    if "crewai" not in tools:
        raise ProjectError(f"{folder} is not a CrewAI project: it has no pyproject.toml with [tool.crewai].")
    return dict(tools["crewai"])


def defined(definition: Path, kind: str) -> Any:
    """Load a crew or flow without code, as newer versions of CrewAI create them."""
    if kind == "flow":
        return importlib.import_module("crewai").Flow.from_declaration(path=definition), {}
    return importlib.import_module("crewai.project.crew_loader").load_crew(definition)


def version_of_crewai() -> str:
    """Return the version of crewai. Raise ProjectError if it is not supported."""
    try:
        version = importlib.metadata.version("crewai")
    except importlib.metadata.PackageNotFoundError:
        raise ProjectError(
            f"{sys.executable} has no crewai. Pass the project's interpreter as --python."
        ) from None
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < _OLDEST:
        raise ProjectError(f"crewai {version} is too old. Use {'.'.join(map(str, _OLDEST))} or newer.")
    return version


def load_dotenv(service: Service) -> None:
    """Set the variables in the project's .env that the environment does not set. Their values stay hidden."""
    from dotenv import dotenv_values

    values = {name: value for name, value in dotenv_values(".env").items() if value}
    for name, value in values.items():
        os.environ.setdefault(name, value)
    service.hidden = sorted((value for value in values.values() if len(value) > _ANY_WORD), key=len, reverse=True)


def run(project: str, service: Service) -> int:
    """Load a project, run its kickoff and return the exit code."""
    try:
        version = version_of_crewai()
        if ":" not in project:
            os.chdir(project)
        sys.path[:0] = [str(Path.cwd() / "src"), str(Path.cwd())]
        load_dotenv(service)
        subject = loaded(project)
    except BaseException as error:  # noqa: BLE001 - a project may raise anything while it loads
        service.say_error("not_loaded", error)
        return 1
    told = {name: getattr(subject, name) for name in ("kind", "name", "inputs", "required", "of")}
    service.say("ready", crewai=version, **told)
    carry_out(subject, service.kickoffs.get(), service)
    return 0


def carry_out(subject: Crew | Flow, message: dict[str, Any], service: Service) -> None:
    """Run a crew or flow and report its end."""
    progress = Progress(service, subject)
    People(service, progress)
    begin = time.monotonic()
    try:
        result = subject.kickoff(message)
    except BaseException as error:  # noqa: BLE001 - a crew may raise anything, including SystemExit
        progress.settle()
        service.say_error("failed", error, task=progress.current())
    else:
        progress.settle()
        service.say("completed", **result, seconds=round(time.monotonic() - begin, 3))


def main() -> int:
    """Host one execution."""
    parser = argparse.ArgumentParser()
    for name, kind in (("--project", str), ("--read", int), ("--write", int)):
        parser.add_argument(name, type=kind, required=True)
    options = parser.parse_args()
    # Python puts this file's folder first. Its modules could hide modules of the project with the same names.
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).parent)]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # into the log as it is printed
    if os.getpgrp() != os.getpid():
        os.setsid()
    service = Service(options.read, options.write)
    threading.Thread(target=service.listen, daemon=True).start()
    return run(options.project, service)


if __name__ == "__main__":
    sys.exit(main())
