"""
Words of the stories in ``stories.txt``: what a crew, Airflow and people do to a task, and what comes of it.

A story has a title, its kinds of task with their options, and steps. What follows an arrow is an outcome.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseHook,
    TaskDeferred,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic import BaseModel

from airflow_provider_crew import api_server, versions
from airflow_provider_crew.batch import batch, recall
from airflow_provider_crew.batch.files import ResultFiles
from airflow_provider_crew.batch.operator import CrewBatchOperator
from airflow_provider_crew.client import errors
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.decorators.crew import crew_task
from airflow_provider_crew.local import LocalCrewService, Scenario, ScenarioTask
from airflow_provider_crew.triggers.events import HAS_ANSWERED, STOP_WAITING, read_event
from tests.integration import batches
from tests.integration.batches import TOKENS, Killed, killed_at
from tests.integration.operators import kickoff, run, run_deferred, sensor
from tests.integration.pages import ROOT
from tests.integration.tasks import (
    ASKING,
    CONNECTION,
    FAILING,
    INPUTS,
    QUICK,
    SLOW,
    TASK_STATES,
    TOKEN,
    Ledger,
    Log,
    Task,
    TaskStateStore,
    WatchedService,
    api_error,
    poked,
)

LARGE = SLOW.model_copy(update={"tasks": (ScenarioTask(name="a", seconds=3600, output="x" * 70_000),)})
CREWS = {"quick": QUICK, "slow": SLOW, "failing": FAILING, "asking": ASKING, "large": LARGE}
CREWS |= {
    "quick and metered": batches.QUICK,
    "failing and metered": batches.FAILING,
    "slow and metered": batches.SLOW,
    "slow and failing": batches.SLOW.failing("out of credit"),
}
DONE = {"status": "completed", "result": {"output": "Done.", "tasks": [{"task_id": "a", "output": "A."}]}}
# A deployed crew, which tells the last task alone, and not how it went on when it has failed.
A_IS_DONE = {"state": "RUNNING", "last_executed_task": {"name": "a", "output": "A."}}
AT_B = {"progress": {"unit": "task", "completed": 1, "total": 3, "current": "b", "current_agent": "Writer"}}
STATUSES: dict[str, list[Any]] = {
    "running": [{"state": "RUNNING", "status": "Task is Running"}],
    "completed": [{"status": "completed", "result": "Done."}],
    "failed": [{"status": "error", "error": "out of credit"}],
    "done": [DONE],
    "asking about a": [
        A_IS_DONE | AT_B,
        *[A_IS_DONE | AT_B] * 3,
        *[{"state": "PAUSED", "status": "Awaiting input"}] * 9,
    ],
    "failing after a": [*[A_IS_DONE] * 5, {"state": "FAILED", "status": "out of credit"}],
    "running, and its status is large": [
        {"state": "RUNNING", "last_executed_task": {"name": "a", "output": "x" * 2**21}}
    ],
    "as it is": [],
}


class Report(BaseModel):
    title: str
    pages: int = 1


def output(value: Any) -> Any:
    """Return the output of another task, as Airflow takes it from an XComArg."""
    return SimpleNamespace(resolve=lambda _: value)


def decorated(inputs: Any = INPUTS, **options: Any) -> Any:
    decorator: Any = crew_task(task_id="crew", poll_interval=0.02, **options)

    def function(topic: Any, audience: str = "") -> dict[str, Any]:
        return {"topic": topic, "audience": audience or "sailors"}

    return decorator(function)(**inputs).operator


def packaged(kickoff_id: str) -> Any:
    """Return the sensor of a DAG that comes with the package."""
    file = ROOT / "airflow_provider_crew/dags/crew_wait_for_execution.py"
    operator = run_path(str(file))["dag"].get_task("result")
    operator.kickoff_id, operator.crew_conn_id, operator.poll_interval = kickoff_id, "crew_default", 0.02
    return operator


KINDS: dict[str, Callable[..., Any]] = {
    "kickoff": lambda _, **options: kickoff(**options),
    "run": lambda _, **options: run(**options),
    "deferred run": lambda _, **options: run_deferred(**options),
    "DAG of the package": lambda story, **_: packaged(**story.watched()),
    "batch": lambda story, **options: story.batch(**options),
    "deferred batch": lambda story, **options: story.batch(**options, deferrable=True),
    "decorated": lambda _, **options: decorated(**options),
    "sensor": lambda story, **options: sensor(**story.watched() | options),
    "deferred sensor": lambda story, **options: sensor(**story.watched() | options, deferrable=True),
    "rescheduled sensor": lambda story, **options: sensor(**story.watched() | options, mode="reschedule"),
}


def named(text: str | None) -> dict[str, Any]:
    """Read options as they stand in a call."""
    words = {"timedelta": timedelta, "GONE": "{{ 1 // 0 }}", "ROW": TOKENS, "ROWS": batches.rows(3)}
    words |= {"Report": Report, "output": output}
    options: dict[str, Any] = eval(f"dict({text or ''})", words)  # noqa: S307 - of a table beside the tests
    return options


class Story:
    """A task, its crew, and what a story does to them."""

    def __init__(self, kind: str, options: Any, fixtures: Mapping[str, Any]) -> None:
        self.kind = kind
        self.crew: WatchedService = fixtures["live_crew"]
        self.log: Log = fixtures["task_log"]
        self.monkeypatch: pytest.MonkeyPatch = fixtures["monkeypatch"]
        self.timing = fixtures["timing"]
        self.each_poll_takes = fixtures["each_look_takes"]
        self.ledger: Ledger = fixtures["ledger"]
        self.spans: InMemorySpanExporter = fixtures["exporter"]
        self.out: Path = fixtures["out"]
        self.metrics: Counter[str] = fixtures["counted"]
        self.rows = batches.rows(options.pop("rows", 10))
        self.store = TaskStateStore()
        kept = self.store if options.pop("store", True) else None
        may_retry = kept is not None or "sensor" in kind
        self.task = Task(self._operator, store=kept, retries=options.pop("retries", int(may_retry)))
        self.options = options
        self.address = os.environ[CONNECTION]
        self._closing = ExitStack()
        self.others: list[LocalCrewService] = []
        self.waiting: Any = None
        self.event: dict[str, Any] = {}
        self.failure: Any = None
        self.traceback = ""
        self._calls = 0

    def _operator(self) -> Any:
        self.operator = KINDS[self.kind](self, **self.options)
        return self.operator

    def batch(self, **options: Any) -> CrewBatchOperator:
        named: dict[str, Any] = {
            "task_id": "crew",
            "inputs": self.rows,
            "key": "topic",
            "result_path": str(self.out),
            "poll_interval": 0.02,
        }
        return CrewBatchOperator(**named | options)

    def watched(self) -> dict[str, Any]:
        """Return the execution of a sensor."""
        if not self.crew.ids and "kickoff_id" not in self.options:
            self.crew.new_execution(self.crew.scenario)
        return {"kickoff_id": next(iter(self.crew.ids), None)}

    def lines(self, steps: list[str]) -> Iterator[str]:
        """Take each step, and yield it with its outcome."""
        for text in steps:
            if each := text.partition("-> ")[0].strip():
                told = self.take(each)
                yield f"  {each} -> {self.plain(str(told))}" if told is not None else f"  {each}"
        stops = ", ".join(sorted(map(self.plain, self.crew.stopped_ids)))
        yield f"  -> kickoffs: {len(self.crew.kickoffs)}, stops: {stops or 'none'}"
        assert not [other for other in self.others if other.kickoffs or other.requests.on("stop")]
        self._closing.close()

    def take(self, text: str) -> object:
        """Take a step."""
        for pattern, act in STEPS.items():
            if found := re.fullmatch(pattern, text):
                return act(self, *found.groups())
        raise AssertionError(f"unknown step: {text}")

    def plain(self, text: str) -> str:
        """Return a text with short names of executions and addresses."""
        for number, kickoff_id in enumerate(self.crew.ids, 1):
            text = text.replace(kickoff_id, f"e{number}")
        return text.replace(self.crew.url, "CREW").replace(versions.KEEP, "").replace("\n", "\\n")

    @property
    def last(self) -> dict[str, Any]:
        """The last progress that was pushed."""
        return self.crew.xcoms.progress[-1] if self.crew.xcoms.progress else {}

    def outcome(self, act: Callable[[], Any]) -> str:
        """Run a process, and return how it ends and what it has asked the crew."""
        try:
            told = self._value(act())
        except TaskDeferred as deferred:
            told, self.waiting = "waits", deferred
        except AirflowRescheduleException:
            told = "waits"
            self.task.ti.try_number -= 1
        except BaseException as error:  # noqa: BLE001 - an outcome
            told = self._error(error)
        if self.kind.endswith("batch"):  # its rows are served side by side
            return told
        calls = [call for call, _ in groupby(self.crew.calls[self._calls :])]
        self._calls = len(self.crew.calls)
        return f"{told} [{', '.join(calls)}]"

    def _value(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if "counts" in value:
            counts = batches.counted(Counter(value["counts"]).elements())
            tokens = (value["usage"] or {}).get("total_tokens", 0) / TOKENS
            return "; ".join(
                [counts, value["terminal_reason"], *([f"tokens of {tokens:g} rows"] if tokens else [])]
            )
        output = str(value["output"])
        data = f" = {value['output_json']}" if value["output_json"] is not None else ""
        return f"{value['kickoff_id']}: {output if len(output) < 80 else f'{len(output)} characters'}{data}"

    def _error(self, error: BaseException) -> str:
        self.failure = failure = getattr(error, "failure", error)
        self.traceback = "".join(traceback.format_exception(error))
        cost = getattr(failure, "cost", None)
        if cost and self.last.get("end"):
            assert self.last["end"]["cost"] == cost
        final = isinstance(error, (AirflowFailException, AirflowSensorTimeout))
        ends = "skipped" if isinstance(error, AirflowSkipException) else "failed" if final else "to retry"
        about = failure.kickoff_id if cost and failure.kickoff_id in self.crew.ids else None
        return ", ".join([f"{ends}: {type(failure).__name__}", *filter(None, (cost and str(cost), about))])

    # Steps that are no single call.

    def start(self) -> str:
        """Run the next attempt up to its deferral, or until its process is killed at its end."""
        return self.outcome(lambda: self.task.begin().execute(self.task.context))

    def fire(self) -> str:
        """Run the trigger up to its event."""
        self.event = self.task.event_of(self.waiting)
        self._calls = len(self.crew.calls)
        if self.kind == "deferred batch" or "chosen_options" in self.event:
            return "event"
        end = read_event(self.event)
        ends = {"large": end.too_large, "result": end.result, "completed": end.completed, "error": end.error}
        return f"event: {next(name for name in ends if ends[name])}"

    def resume(self, **changes: Any) -> str:
        rules = self.waiting.trigger.rules
        told = self.outcome(lambda: self.task.resume(self.waiting, self.event | changes))
        assert self.waiting.trigger.rules["deadline"] == rules["deadline"]
        return told

    def answered(self, option: str, by: str | None = "Ada") -> dict[str, Any]:
        """Return the event with which Airflow resumes a task after an answer."""
        self.task.ti.xcoms["crew_progress"] = self.last
        user = by and {"id": "1", "name": by}
        return {"chosen_options": [option], "params_input": {}, "responded_by_user": user}

    def fail(self, status: str, after: str | None, on: Any, times: str | None, seconds: str | None) -> None:
        """Let the crew fail, until it is back."""
        extent: Any = {"times": int(times)} if times else {"for_seconds": float(seconds or math.inf)}
        body: Any = {"body": {}} if on == "stop" else {}
        self.crew.faults.answer(int(status), on=on, after_taken=bool(after), **extent, **body)

    def write(self, text: str, after: str | None) -> None:
        """Let the crew have this output."""
        output = ScenarioTask(name="a", output=text.replace("\\n", "\n"), seconds=0.2 if after else 0.0)
        self.crew.scenario = Scenario(tasks=(output,), inputs=())

    def sleep(self, number: str) -> None:
        """Let the crew sleep, until it has got so many requests."""
        self.crew.fall_asleep(3600)
        self.crew.after = lambda _: self.crew.fall_asleep(0) if len(self.crew.calls) == int(number) else None

    def ask(self) -> None:
        """Let the crew wait for a person at once, and be known at once."""
        self.crew.scenario = ASKING
        self.timing(not_found_grace=0.0, unknown_poll=0.0)

    def mark(self) -> None:
        """Mark the task as failed."""
        self.monkeypatch.setattr(api_server, "has_ended", lambda _: True)
        self.operator.on_kill()

    def at_push(self, name: str, then: str) -> None:
        """Take a step when the task has pushed an XCom."""
        push = self.task.ti.xcom_push

        def acts(key: str, value: Any) -> None:
            push(key, value)
            if key == name:
                self.take(then)

        self.monkeypatch.setattr(self.task.ti, "xcom_push", acts)

    def mark_deferred(self) -> None:
        """Mark the task as failed while its trigger polls."""
        for kind in ("triggers", "batch"):
            marked = AsyncMock(return_value=True)
            self.monkeypatch.setattr(f"airflow_provider_crew.{kind}.watching.is_marked", marked)
        asyncio.run(self.task.revived(self.waiting).on_kill())

    def resume_without(self, why: str) -> str:
        """Resume as Airflow does when a trigger has failed, or did not fire in time."""
        if self.last:
            self.task.ti.xcoms["crew_progress"] = self.last
        told = "Trigger failure" if why == "trigger" else "Trigger timeout"
        return self.outcome(lambda: self.task.resume_without_event(told, ["KeyError: 'x'"]))

    @property
    def xcoms(self) -> str:
        pushed = self.task.ti.xcoms | self.crew.xcoms.others
        names = [
            key
            for key, value in pushed.items()
            if value is not None and not key.startswith(("crew_progress", "crew_reason_"))
        ]
        return ", ".join(sorted(names)) or "none"

    def killed(self) -> str:
        """Kill an attempt while it waits."""
        with self.monkeypatch.context() as patched:
            patched.setattr(time, "sleep", Mock(side_effect=Killed))
            return self.start()

    def break_store(self, call: str, when: str | None, error: str | None) -> None:
        """Let the task state store fail."""
        self.store.breaks_with = ERRORS[error or "an error"]
        is_due: dict[str | None, Callable[[], object]] = {
            None: lambda: True,
            "the intent": lambda: self.store.kickoff,
            "the kickoff": lambda: self.crew.kickoffs,
            "the inputs": lambda: "inputs" in self.crew.calls,
            "the first poll": lambda: "status" in self.crew.calls,
        }
        kinds = {"call": {"get", "set", "delete"}, "write": {"set", "delete"}}.get(call, {call})
        self.store.breaks_at = lambda name: name in kinds and bool(is_due[when]())

    def ring(self, progress: dict[str, Any]) -> None:
        """Let execution_timeout pass while the end is pushed."""
        if progress["end"]:
            raise AirflowTaskTimeout("Timeout")

    def move(self) -> None:
        """Let the connection point to another crew."""
        self.others.append(self._closing.enter_context(LocalCrewService(QUICK, token=TOKEN)))
        self.connect(self.others[-1].connection_uri)

    def connect(self, uri: str) -> None:
        self.monkeypatch.setenv(CONNECTION, uri)

    @property
    def requests(self) -> str:
        """The requests to users under Required Actions."""
        told = []
        for each in self.crew.required_actions:
            subject, body, options = ("", "", [each]) if isinstance(each, str) else each
            names = [name for name in ("crew", *self.crew.ids, "Ada") if name in subject + body]
            told.append(" about ".join([" or ".join(options), *filter(None, [", ".join(names)])]))
        return "; ".join(told) or "none"

    def counted(self, number: object) -> str:
        """Return the run of the DAG that counts a kickoff of today."""
        return f"crew_default.{datetime.now(UTC):%Y-%m-%d}.{number}"

    @property
    def traced(self) -> str:
        """The spans of executions: each with its attempt, its row, its error, and what has happened meanwhile."""
        told = []
        for span in self.spans.get_finished_spans():
            assert "out of credit" not in span.to_json()
            if span.name.startswith("invoke_workflow"):
                known: Any = span.attributes
                ends = ["ERROR", known["error.type"]] if span.status.status_code is StatusCode.ERROR else []
                events = [each.name for each in span.events]
                number = str(known["airflow.task_instance.try_number"])
                row = [f"row {known['crew.row']}"] if "crew.row" in known else []
                told.append(f"{known['crewai.execution_uuid']}: {', '.join([number, *row, *ends, *events])}")
        return "; ".join(told) or "none"

    @property
    def position(self) -> str:
        """How far an execution had come, as people see it."""
        known = self.last
        steps = ", ".join(str(step["task_id"]) for step in known["steps"])
        drafts = ", ".join(str(each["output"]) for each in known["tasks"])
        return f"{known['state']} {known['completed']}/{known['total']}; steps: {steps}; outputs: {drafts}"

    def resume_without_values(self) -> str:
        """Resume as dag.test() does."""
        self.waiting.kwargs.clear()
        return self.outcome(lambda: self.task.resume(self.waiting, self.event | {"is_quick": False}))

    def lose(self, what: str | None) -> None:
        """Lose files with facts, of any kind or of one."""
        for file in (self.out / "facts").iterdir():
            if what is None or f'"what": "{what}"' in file.read_text():
                file.unlink()

    def resume_in_next(self) -> str:
        """Resume the next attempt with the event of this one."""
        self.task.ti.try_number += 1
        return self.outcome(lambda: self.task.resume(self.waiting, self.event))

    @property
    def reasons(self) -> str:
        """Failed rows, as alerts count them."""
        groups = self.last["batch"]["reasons"]
        return ", ".join(f"{each['count']} {each['status']}" for each in groups) or "none"

    @property
    def record(self) -> str:
        """The kickoff record, and what is left of it."""
        kept = self.store.kickoff or {}
        facts = [name for name in ("reported", "delivered", "cancelled") if kept.get(name)]
        return ", ".join(filter(None, [str(kept.get("kickoff_id")), kept.get("end"), *facts]))


ERRORS: dict[str, BaseException] = {
    "a kill": Killed(),
    "an error": RuntimeError("the API does not answer"),
    "an alarm": AirflowTaskTimeout("Timeout"),
    "404": api_error(404),
    "no response": api_error(None),
}

WRITES = {
    "records ends": (ResultFiles, "append"),
    "writes the results": (batch, "write_results"),
    "saves open rows": (recall, "save_open"),
    "saves its entry": (recall, "save_entry"),
}

# What a line does, by its pattern. What it returns is printed.
STEPS: dict[str, Callable[..., object]] = {
    # The crew.
    f"crew is ({'|'.join(CREWS)})": lambda it, name: setattr(it.crew, "scenario", CREWS[name]),
    "crew (finish|forget|approve|revoke)e?s (e1|all)": lambda it, act, which: (
        [getattr(it.crew, act)(kickoff_id) for kickoff_id in it.crew.ids[: 1 if which == "e1" else None]] and None
    ),
    r"from kickoff (\d+) on: (.+)": lambda it, n, then: setattr(
        it.crew, "at_kickoff", lambda: it.take(then) if len(it.crew.ids) == int(n) - 1 else None
    ),
    "crew tells no usage": lambda it: setattr(
        it.crew, "scenario", it.crew.scenario.model_copy(update={"usage": {}})
    ),
    "crew fails and tells no usage": lambda it: (
        it.take("crew is failing and metered"),
        it.take("crew tells no usage"),
    )[1],
    "crew writes (.+?)( after a while)?": Story.write,
    r"crew sleeps up to request (\d+)": Story.sleep,
    r"inputs hang (\d+) times": lambda it, n: it.crew.faults.hang(on="inputs", times=int(n)),
    "crew lists (.+)": lambda it, text: it.crew.faults.answer(200, body={"inputs": json.loads(text)}, on="inputs"),
    "each poll takes (.+) seconds": lambda it, seconds: it.each_poll_takes(float(seconds)),
    "no response to a kickoff": lambda it: it.crew.faults.reset(on="kickoff", after_taken=True),
    r"e(\d) is (.+)": lambda it, n, name: it.crew.set_status(it.crew.ids[int(n) - 1], *STATUSES[name]),
    r"(\d+)( after it was taken)? for (\w+)(?: (\d+) times?)?(?: during (.+) seconds)?": Story.fail,
    "crew takes a kickoff: clear, (.+)": lambda it, then: setattr(
        it.crew, "at_kickoff", lambda: (it.task.clear(), it.take(then))
    ),
    "crew takes a kickoff: (.+)": lambda it, then: setattr(it.crew, "at_kickoff", lambda: it.take(then)),
    "crew is away": lambda it: it.crew.faults.refuse(),
    "crew is back": lambda it: it.crew.faults.clear(),
    r"at poll (\d+): (.+)": lambda it, n, then: it.crew.at_look(int(n), lambda: it.take(then)),
    "at a stop: (.+)": lambda it, then: setattr(
        it.crew, "after", lambda request: it.take(then) if request.operation == "stop" else None
    ),
    "another execution starts": lambda it: it.crew.new_execution(it.crew.scenario) and None,
    r"next ID is (\d+)": lambda it, kickoff_id: it.crew.next_kickoff_id(int(kickoff_id)),
    # Airflow.
    "attempt": lambda it: it.outcome(lambda: poked(it.task)),
    "attempt that is killed while it waits": Story.killed,
    "first poke was (.+) seconds ago": lambda it, ago: setattr(
        it.task.ti, "first_poke", datetime.now(UTC) - timedelta(seconds=int(ago))
    ),
    "defer|attempt that is killed at its end": Story.start,
    "one poke": lambda it: it.outcome(it.task.run),
    "trigger": Story.fire,
    "resume": Story.resume,
    "resume without values": Story.resume_without_values,
    "resume with (quick|slow) rows": lambda it, pace: it.resume(is_quick=pace == "quick"),
    "trigger is told of a mark": Story.mark_deferred,
    "resume late": lambda it: it.resume(deadline=0.0),
    "resume with progress (.+)": lambda it, text: it.resume(progress=json.loads(text)),
    "next attempt resumes": Story.resume_in_next,
    "trigger, resume": lambda it: f"{it.fire()}; {it.resume()}",
    "resume without (trigger|time)": Story.resume_without,
    "attempt that resumes without event": lambda it: it.outcome(
        lambda: it.task.begin().resume_execution(it.waiting.method_name, it.waiting.kwargs or {}, it.task.context)
    ),
    "clear": lambda it: it.task.clear(),
    "alarm at the end": lambda it: setattr(it.crew.xcoms, "at", it.ring),
    "told to end": lambda it: it.operator.on_kill(),
    "state is (.+)": lambda it, state: it.monkeypatch.setattr(
        TASK_STATES, lambda **_: {it.task.ti.run_id: {"crew": state}}
    ),
    "Airflow refuses (.+)": lambda it, names: setattr(it.task.ti, "refused_xcoms", frozenset(names.split())),
    r"at push of (\w+): (.+)": Story.at_push,
    "a policy decides on retries": lambda it: setattr(it.task.ti, "task", SimpleNamespace(retry_policy=object())),
    "Airflow (forgets|keeps) what is cleared": lambda it, does: it.monkeypatch.setattr(
        versions, "CLEARING_DELETES_TASK_STATE", does == "forgets"
    ),
    "time is over at an import": lambda it: it.monkeypatch.setattr(
        "airflow_provider_crew.operators.base.resolve_name", Mock(side_effect=AirflowTaskTimeout("Timeout"))
    ),
    r"store holds (\w+): (.+)": lambda it, key, text: it.store.set(
        key, json.loads(text.replace("e1", it.crew.ids[0] if it.crew.ids else ""))
    ),
    "store fails at (get|set|call|write)(?: after (.+?))?(?: with (.+))?": Story.break_store,
    "at each call of the store: (.+)": lambda it, then: setattr(
        it.store, "breaks_at", lambda call, fails=it.store.breaks_at: (fails(call), it.take(then))[0]
    ),
    "store keeps what it does not confirm": lambda it: setattr(it.store, "keeps_all", True),
    "store works": lambda it: setattr(it.store, "breaks_at", lambda _: False),
    "store is empty": lambda it: it.store.texts.clear(),
    rf"process dies (before|after) it ({'|'.join(WRITES)})(?: for the (\d+)\w+ time)?( with an error)?": (
        lambda it, when, act, n, error: killed_at(
            it.monkeypatch, *WRITES[act], call=int(n or 1), after=when == "after", why=OSError if error else Killed
        )
    ),
    # People.
    "options: (.+)": lambda it, text: it.options.update(named(text)),
    "connection is gone": lambda it: it.monkeypatch.delenv(CONNECTION),
    "connection is elsewhere": Story.move,
    "connection is back": lambda it: it.connect(it.address),
    "connection is by name": lambda it: it.connect(it.address.replace("127.0.0.1", "localhost")),
    "connection has (.+)": lambda it, more: it.connect(f"{it.address}?{more}"),
    r"clock jumps (\S+) seconds": lambda it, seconds: it.monkeypatch.setattr(
        time, "time", lambda clock=time.time: clock() + float(seconds)
    ),
    "timing: (.+)": lambda it, text: it.timing(**named(text)),
    "answer: stop": lambda it: it.outcome(lambda: it.task.resume(it.waiting, it.answered(STOP_WAITING))),
    "answer: check": lambda it: it.outcome(lambda: it.task.resume(it.waiting, it.answered(HAS_ANSWERED))),
    "answer to stop is stored": lambda it: setattr(it.crew, "stored_answer", it.answered(STOP_WAITING)),
    "request was closed": lambda it: setattr(it.crew, "stored_answer", it.answered(STOP_WAITING, None)),
    "request is open": lambda it: setattr(it.crew, "stored_answer", None),
    "requests are off": lambda it: it.monkeypatch.setenv("AIRFLOW__CREW__REQUIRED_ACTIONS", "False"),
    "requests fail": lambda it: it.monkeypatch.setattr(api_server, "open_required_action", lambda *_, **__: 1 / 0),
    "worker cannot reach the crew": lambda it: it.monkeypatch.setattr(
        CrewClient, "status", Mock(side_effect=errors.Unreachable("The worker cannot reach the crew."))
    ),
    "worker has a rejected token": lambda it: it.monkeypatch.setattr(
        CrewClient, "status", Mock(side_effect=errors.NotAuthenticated("Rejected.", http_status=401))
    ),
    "client fails at kickoff": lambda it: it.monkeypatch.setattr(
        CrewClient, "kickoff", Mock(side_effect=RuntimeError("unexpected"))
    ),
    "connection hooks: (.+)": lambda it, text: it.monkeypatch.setenv("AIRFLOW_CONN_HOOKS", text),
    "setting progress_xcom is (.+)": lambda it, text: it.monkeypatch.setenv("AIRFLOW__CREW__PROGRESS_XCOM", text),
    "crew asks at once": Story.ask,
    "marked": Story.mark,
    r"kickoff (\d+) of others counts": lambda it, n: it.ledger.runs.update({it.counted(n): {}}),
    r"kickoff (\d+) of others is not seen": lambda it, n: it.ledger.unseen.add(it.counted(n)),
    "counting fails with (.+)": lambda it, why: setattr(it.ledger, "breaks_with", ERRORS[why]),
    # What is known.
    "record": lambda it: it.record,
    "XComs": lambda it: it.xcoms,
    "if (retried|cleared)": lambda it, act: it.last["end"][f"if_{act}"],
    "cost of the end": lambda it: it.last["end"]["cost"],
    "clearing": lambda it: (it.last["end"] or it.last["if_lost"])["choices"]["clear"],
    "progress of (.+)": lambda it, names: ", ".join(
        f"{it.last['batch'][name]} {name}" for name in names.split(", ")
    ),
    "rows are others": lambda it: it.rows.__setitem__(slice(None), batches.rows(len(it.rows) + 1)[1:]),
    "kickoffs": lambda it: len(it.crew.ids),
    "rows": lambda it: batches.counted(batches.statuses(it.out).values()),
    "files are lost": lambda it: shutil.rmtree(it.out),
    "facts (?:about (.+) )?are lost": Story.lose,
    "manifest": lambda it: it._value(json.loads(batches.newest(it.out, "manifest").read_text())),
    "reasons": lambda it: it.reasons,
    "elsewhere": lambda it: it.failure.elsewhere,
    "lacks connection": lambda it: it.failure.cause.lacks_connection,
    "log of (.+)": lambda it, text: "has it" if text in it.log.text else "lacks it",
    "log": lambda it: "warns of e1" if it.crew.ids[0] in it.log.warnings else "does not warn of e1",
    "next step": lambda it: it.failure.next_step,
    "misfits": lambda it: ", ".join(each.partition(":")[0] for each in it.failure.misfits),
    "requests for inputs": lambda it: it.crew.calls.count("inputs"),
    "secrets backend fails": lambda it: it.monkeypatch.setattr(
        BaseHook, "get_connection", Mock(side_effect=RuntimeError("the secrets backend broke"))
    ),
    "counted": lambda it: ", ".join(run.rpartition(".")[2] for run in it.ledger.runs) or "none",
    "spans": lambda it: it.traced,
    "error names (.+)": lambda it, names: ", ".join(str(name in it.traceback) for name in names.split(", ")),
    "pause": lambda it: (
        "over a minute" if it.waiting.trigger.rules["first_poll_at"] > time.time() + 60 else "short"
    ),
    "position": lambda it: it.position,
    "choice (.+)": lambda it, name: it.last["choices"][name],
    "progress": lambda it: "; ".join(
        f"{each['state']} {each['completed']} {each['current_task']}" for each in it.crew.xcoms.progress
    ),
    "action": lambda it: it.last["end"]["action"],
    "metrics": lambda it: ", ".join(f"{name} {count}" for name, count in sorted(it.metrics.items())),
    "cause": lambda it: type(it.failure.cause).__name__,
    "end": lambda it: f"{it.last['end']['error']}, {it.last['end']['cost']}",
    "requests": lambda it: it.requests,
}
