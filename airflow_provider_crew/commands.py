"""The commands about a crew: its inputs and executions, and what a deployed crew supports of this package."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from airflow_provider_crew.client import errors, timing
from airflow_provider_crew.client.api import resend
from airflow_provider_crew.client.client import CrewClient
from airflow_provider_crew.client.errors import Cost, CrewError, ExecutionNotFound
from airflow_provider_crew.client.models import Completed, CrewInputs, Execution, Failed, Paused, Running
from airflow_provider_crew.client.options import TIMEOUT
from airflow_provider_crew.client.payload import KickoffRequest, compare_inputs
from airflow_provider_crew.client.watch import WatchRules
from airflow_provider_crew.client.wording import describe_end, execution_failed
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import Poller
from airflow_provider_crew.kickoff_records import adopt, forget
from airflow_provider_crew.task.stop import shielded

_AFTER_COMPLETION = "If no task has returned the result, trigger crew_wait_for_execution with this kickoff ID."


def run(options: Namespace, about: dict[str, Any], confirm: Callable[..., None]) -> bool | None:
    """
    Carry out a command. Return whether it succeeded, or None if that is undecided.

    :param about: Receives the answer. If the command ends early, it has what was known until then.
    :param confirm: Ends the command unless the user confirms a question about these facts.
    """
    if options.command == "forget":
        about |= forget(options, confirm)
        return True
    # Outside a task, Airflow skips its database unless this variable is set.
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    about["connection"] = options.conn_id
    try:
        return _ask(CrewHook(options.conn_id), options, about, confirm)
    except CrewError as error:
        is_unknown = isinstance(error, errors.NotCancelled) and error.cost is Cost.UNKNOWN
        is_open = isinstance(error, errors.WatchError | errors.UncertainKickoff) and error.cost is not Cost.ENDED
        is_undecided = is_unknown or is_open or isinstance(error, errors.TransientError | ExecutionNotFound)
        if isinstance(error, ExecutionNotFound):
            about["state"] = "unknown"
        elif "kickoff_id" in options and not isinstance(error, errors.NotCancelled):
            error = error.replace(cost=Cost.UNKNOWN)  # a failed query reveals nothing about the execution
        about |= _shown(error)
        return None if is_undecided else False


def _ask(hook: CrewHook, options: Namespace, about: dict[str, Any], confirm: Callable[..., None]) -> bool | None:
    """Carry out a command about a crew."""
    crew = hook.get_conn()
    about["address"] = crew.settings.address
    if "kickoff_id" in options:
        about["kickoff_id"] = options.kickoff_id
    match options.command:
        case "inputs":
            about["inputs"] = _listed(crew.inputs())
        case "check":
            _check(hook, options, about, confirm)
        case "cancel":
            confirm("Cancel this execution?", about)
            end = hook.cancel(options.kickoff_id)
            state = "completed" if isinstance(end, Completed) else "failed"
            about |= {"state": state, "event": describe_end(end), "cost": Cost.ENDED.value}
        case "adopt":
            about |= adopt(options, about | _found(crew, options.kickoff_id), confirm)
        case "status":
            execution = crew.status(options.kickoff_id)
            about |= _described(execution)
            return None if isinstance(execution, Running | Paused) else isinstance(execution, Completed)
    return True


def _found(crew: CrewClient, kickoff_id: str) -> dict[str, Any]:
    """Return the state of an execution. It is unknown while its crew waits for human input."""
    try:
        execution = crew.status(kickoff_id)
    except ExecutionNotFound as error:
        return {"state": "unknown", "event": error.event}
    return _described(execution) | {"result": None, "meta": execution.meta}


def _described(execution: Execution) -> dict[str, Any]:
    match execution:
        case Failed():
            return {"state": "failed", "usage": execution.usage, **_shown(execution_failed(execution, ""))}
        case Completed():
            facts = {"state": "completed", "cost": Cost.ENDED.value, "next_step": _AFTER_COMPLETION}
            return facts | {"result": execution.result()}
    what = "Answer the crew in its dashboard" if isinstance(execution, Paused) else "Wait"
    step = f"{what}. Do not start another execution."
    return {"state": execution.status, "progress": execution.doing, "cost": Cost.RUNNING.value, "next_step": step}


def _shown(error: CrewError) -> dict[str, str]:
    return {**error.as_dict(), "next_step": error.fix}


def _check(hook: CrewHook, options: Namespace, about: dict[str, Any], confirm: Callable[..., None]) -> None:
    """Add what a crew responds. With ``start``, run one execution to its end."""
    crew, expected = hook.get_conn(), None
    about["token"] = hook.connection.token_type
    try:
        expected = resend(crew.inputs, wake_up_within=timing.WAKING_UP)
        about["inputs"] = _listed(expected)
    except errors.NotAllowed as error:  # a task starts an execution
        about["warning"] = f"The crew does not list its inputs, so a task cannot check them. {error.event}"
    with suppress(ExecutionNotFound):  # a token that may not read a status is found before it costs something
        crew.status(str(uuid4()))
    if not options.start:
        return
    if expected:
        about["doubts"] = compare_inputs(options.inputs, expected)
    confirm("Start an execution? It is billed.", about)
    # The meta is for those who find the execution in the crew's dashboard.
    request = KickoffRequest.of(options.inputs, meta={"started_by": "python -m airflow_provider_crew check"})

    def send(_: object) -> None:
        about["cost"] = Cost.UNKNOWN.value
        about["kickoff_id"] = crew.kickoff(request)
        about["cost"] = Cost.RUNNING.value

    shielded(send)
    sys.stderr.write(f"Started execution {about['kickoff_id']}.\n")
    now = time.time()
    rules = WatchRules(deadline=now + TIMEOUT, kicked_off_at=now, exists=True)
    about["result"] = Poller(hook, about["kickoff_id"], rules).to_end().result()
    about["cost"] = Cost.ENDED.value


def _listed(inputs: CrewInputs) -> list[dict[str, Any]]:
    """Return the inputs, each with its name and whether it is required if the crew tells that."""
    return [each.model_dump(exclude_none=True) for each in inputs.inputs]
