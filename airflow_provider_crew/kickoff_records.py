"""The commands ``adopt`` and ``forget``, which change kickoff records through Airflow's REST API."""

import os
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import requests
from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.api_server import LAST_STATES
from airflow_provider_crew.client.text import forms_of, mask, one_line
from airflow_provider_crew.task.decide import KickoffRecord
from airflow_provider_crew.task.record import KEY, VariableStore, as_stored, read_record
from airflow_provider_crew.task.verdict import AFTER_FORGETTING, if_lost
from airflow_provider_crew.versions import KEEP

# That of Airflow's airflowctl. An argument would show the token in the list of processes.
_TOKEN = "AIRFLOW_CLI_TOKEN"  # noqa: S105 - a name
_TIMEOUT = 60.0
_SHOWN = 500


def adopt(options: Namespace, about: dict[str, Any], confirm: Callable[..., None]) -> dict[str, Any]:
    """
    Write the kickoff record of a task whose execution a user has found, and return what was done.

    :param about: The execution, with its ``state``, and the ``address`` of its crew.
    :param confirm: Ends the command unless the user confirms a question about these facts.
    """
    call = _airflow(options.url)
    (task,) = _ended(_look(call, options))
    if task.unread or not (task.last or task.has_store):
        raise SystemExit(
            f"{task.name} has no readable kickoff record, so it may ignore a new one. Nothing was changed."
        )
    end = about["state"] if about["state"] in {"completed", "failed"} else None
    lost = if_lost(options.kickoff_id, end, keeping=task.keeping)
    about |= {"task": task.name.removeprefix("Task "), "replaces": _described(task)}
    about["next_step"] = lost["next_step"]
    confirm("Write this kickoff record?", about)
    # The time for abandon_unknown_after starts again, because a user has just found the execution.
    found = KickoffRecord(task.max_tries, time.time(), options.kickoff_id, try_number=task.try_number)
    value = as_stored(replace(found, address=(task.last and task.last.address) or about["address"]))
    _expect([task], _look(call, options))
    if task.has_store:
        call("PUT", task.path, json={"value": value, "expires_at": None})
    else:
        store = VariableStore(task)
        sent = {"key": store.name, "value": store.packed(value), "description": store.about}
        call("PATCH", task.path, json=sent)
    task.kept, task.last = value, read_record(value, max_tries=0, now=0.0)[0]
    _expect([task], _look(call, options))
    return about | {"done": "The kickoff record was written."}


def forget(options: Namespace, confirm: Callable[..., None]) -> dict[str, Any]:
    """Delete kickoff records of one or many task instances, and return what was given up."""
    call = _airflow(options.url)
    found = _ended(_look(call, options))
    about = {task.name: _described(task) for task in found if task.kept}
    if not about:
        raise SystemExit(f"No kickoff record of {options.task_id} was found. Nothing was changed.")
    about["next_step"] = AFTER_FORGETTING
    confirm("Delete the kickoff records of these executions?", about)
    _expect(found, _look(call, options))
    for task in found:
        if task.kept:
            call("DELETE", task.path, missing=True)
    return about | {"done": "The kickoff records were deleted."}


def _airflow(url: str | None) -> Callable[..., Any]:
    """Return a function that sends requests to Airflow's REST API. An error ends the command."""
    base = (url or conf.get("api", "base_url", fallback=None) or "http://localhost:8080").rstrip("/")
    token = os.environ.get(_TOKEN, "").strip()

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {token}"  # an entry in .netrc would replace a plain header
        return request

    def call(method: str, path: str, missing: Any = None, **sent: Any) -> Any:
        sent |= {"auth": sign, "allow_redirects": False}
        try:
            response = requests.request(method, f"{base}/api/v2/{path}", timeout=_TIMEOUT, **sent)
            status = response.status_code
            if status == requests.codes.not_found and missing:
                return missing
            if status < requests.codes.multiple_choices:
                return response.json() if response.content else None
        except (requests.RequestException, ValueError) as error:  # some texts repeat the token
            raise SystemExit(f"Airflow at {base} returned no usable response: {type(error).__name__}.") from None
        hint = f" Check {_TOKEN}." if status in {401, 403} else ""
        reason = one_line(mask(response.text, forms_of(token)), _SHOWN)
        raise SystemExit(f"Airflow at {base} returned {status} for {method} {path}: {reason}{hint}")

    return call


def _look(call: Callable[..., Any], options: Namespace) -> list[SimpleNamespace]:
    """Return the named task instances with their kickoff records."""
    version = tuple(int(part) for part in call("GET", "version")["version"].split(".")[:2])
    names = (quote(name, safe="") for name in (options.dag_id, options.run_id, options.task_id))
    path = "dags/{}/dagRuns/{}/taskInstances/{}".format(*names)
    found: list[dict[str, Any]] = []
    while options.failed and (
        page := call("GET", f"{path}/listMapped?state=failed&offset={len(found)}")["task_instances"]
    ):
        found += page
    tasks = []
    for each in found if options.failed else [call("GET", f"{path}/{options.map_index}")]:
        keys = ("dag_id", "task_id", "map_index", "state", "try_number", "max_tries")
        task = SimpleNamespace(run_id=options.run_id, **{key: each[key] for key in keys})
        task.has_store, task.keeping = version >= (3, 3), KEEP if version >= (3, 4) else ""
        store, where = VariableStore(task), f"{path}/state-store/{KEY}?map_index={task.map_index}"
        task.name = store.task
        task.path = where if task.has_store else f"variables/{store.name}"
        kept = call("GET", task.path, missing={"value": None})["value"]
        task.kept = kept if task.has_store else store.unpacked(kept)[1]
        task.last, task.unread = read_record(task.kept, max_tries=0, now=0.0) if task.kept else (None, "")
        tasks.append(task)
    return tasks


def _ended(tasks: list[SimpleNamespace]) -> list[SimpleNamespace]:
    """Return the tasks. End the command if one of them may run soon, and use its kickoff record."""
    for task in tasks:
        if task.state not in LAST_STATES | {"upstream_failed"}:
            raise SystemExit(f"{task.name} has not ended (state: {task.state}). Nothing was changed.")
    return tasks


def _expect(expected: list[SimpleNamespace], found: list[SimpleNamespace]) -> None:
    """End the command if the task or its record has changed in the meantime."""
    if expected != found:
        raise SystemExit(
            "The task or its kickoff record has changed in the meantime. Check both before you clear the task."
        )


def _described(task: SimpleNamespace) -> str:
    """Return what is lost with a kickoff record."""
    if task.last is None:
        return "nothing; a task with durable=False ignores the new record"
    if task.unread:
        return f"an unreadable record: {task.unread}"
    which = f"execution {task.last.kickoff_id}" if task.last.kickoff_id else "a kickoff without a response"
    state = f"ended ({task.last.end})" if task.last.end else "may be running and billed"
    return f"{which} at {task.last.address}: {state}"
