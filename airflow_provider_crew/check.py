"""The command ``check``: what a deployed crew supports of this package, and what that proves."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from airflow_provider_crew.attempt.shielded import shielded
from airflow_provider_crew.client.api import KickoffRequest, compare_inputs, resend
from airflow_provider_crew.client.errors import Cost, ExecutionNotFound
from airflow_provider_crew.client.models import Completed, Execution, Failed, Paused, Running
from airflow_provider_crew.client.options import TIMEOUT, WAKING_UP
from airflow_provider_crew.client.watch import WatchRules, describe_end
from airflow_provider_crew.hooks.crew import CrewHook
from airflow_provider_crew.hooks.polling import Poller

# Sent with the kickoffs, so that you find the executions in the crew's dashboard.
_META = {"started_by": "python -m airflow_provider_crew check"}
_UNPROVEN = "not reported"


def check(
    hook: CrewHook, options: Namespace, about: dict[str, Any], confirm: Callable[..., None]
) -> dict[str, Any]:
    """
    Return what a crew's responses prove. If an error is raised, ``about`` has what was known until then.

    :param options: Without ``start`` and ``stop``, only GET requests are sent. Each of them starts one execution.
    :param confirm: Ends the command unless the user confirms a question about these facts.
    """
    crew, starts = hook.get_conn(), options.start + options.stop
    about["token"] = hook.connection.token_type
    known = resend(crew.inputs, wake_up_within=WAKING_UP)
    about["inputs"] = list(known.names)
    try:
        about["dialect"] = f"unclear; an unknown execution has the status {crew.status(str(uuid4())).status}"
    except ExecutionNotFound as error:
        about["dialect"] = "documented" if error.http_status == HTTPStatus.NOT_FOUND else "deployed"
    if not starts:
        return about
    about["doubts"] = compare_inputs(options.inputs, known)
    confirm(f"Start {starts} execution(s)? Each is billed.", about)
    about |= dict.fromkeys(("running", "progress", "result", "token_usage", "execution_time", "meta"), _UNPROVEN)
    if options.start:
        about["output"] = _execute(hook, options.inputs, about)
    if options.stop:
        about["cancel"] = _UNPROVEN
        _execute(hook, options.inputs, about, to_end=False)
        end = hook.cancel(about["kickoff_ids"][-1])
        about["cancel"] = "proven" if isinstance(end, Failed) and end.was_stopped else describe_end(end)
    return about | {"cost": Cost.ENDED.value}


def _execute(hook: CrewHook, inputs: dict[str, Any], about: dict[str, Any], *, to_end: bool = True) -> str:
    """Start one execution, and poll it to its end and return its output, or until it is known."""
    request = KickoffRequest.of(inputs, meta=_META)
    ids = about.setdefault("kickoff_ids", [])

    def send(_: object) -> None:
        about["cost"] = Cost.UNKNOWN.value
        ids.append(hook.get_conn().kickoff(request))
        about["cost"] = Cost.RUNNING.value

    def status(ask: Callable[[str], Execution], kickoff_id: str) -> Execution:
        execution = ask(kickoff_id)
        about.update(_proven(execution))
        return execution

    shielded(send)
    sys.stderr.write(f"Started execution {ids[-1]}.\n")
    now = time.time()
    poller = Poller(hook, ids[-1], WatchRules(deadline=now + TIMEOUT, kicked_off_at=now, exists=True))
    poller.call = status
    while not (step := poller.poll()).completed and (to_end or not poller.watch.memory.seen):
        poller.pause(step)
    return step.completed.output if step.completed else ""


def _proven(execution: Execution) -> dict[str, str]:
    """Return what the status of an execution proves."""
    seen = {
        "running": isinstance(execution, Running | Paused),
        "progress": isinstance(execution, Running | Paused) and execution.progress,
        "result": isinstance(execution, Completed),
        "token_usage": isinstance(execution, Completed | Failed) and execution.usage,
        "execution_time": isinstance(execution, Completed | Failed) and execution.execution_time is not None,
        "meta": execution.meta == _META,
    }
    return {name: "proven" for name, is_seen in seen.items() if is_seen}
