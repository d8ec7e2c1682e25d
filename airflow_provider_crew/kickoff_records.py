"""The commands ``adopt`` and ``forget``, which change kickoff records through Airflow's REST API."""

import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import requests
from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.api_server import LAST_STATES
from airflow_provider_crew.batch.store import keys_of, last_kickoff, with_execution
from airflow_provider_crew.client.text import mask, maskable, one_line
from airflow_provider_crew.task.decide import KickoffRecord, Next
from airflow_provider_crew.task.record import BATCH, KEY, as_stored, read_record
from airflow_provider_crew.task.verdict import AFTER_FORGETTING, if_lost
from airflow_provider_crew.versions import KEEP

# That of Airflow's airflowctl. An argument would show the token in the list of processes.
_TOKEN = "AIRFLOW_CLI_TOKEN"  # noqa: S105 - a name
_TIMEOUT = 60.0
_OTHER_ROWS = (
    " A row with a later execution keeps that one. Clearing also starts the other rows that failed, are uncertain "
    "or were not started (billed)."
)
_SHOWN = 500


def adopt(options: Namespace, about: dict[str, Any], confirm: Callable[..., None]) -> dict[str, Any]:
    """
    Write the kickoff record of a task whose execution a user has found, and return what was done.

    :param about: The execution, with its ``state``, and the ``address`` of its crew.
    :param confirm: Ends the command unless the user confirms a question about these facts.
    """
    call = _airflow(options.url)
    task = _ended(_look(call, options))
    key, last = _replaceable(task, options)
    end: Any = about["state"] if about["state"] in {"completed", "failed"} else None
    known = replace(last, end=end) if last.kickoff_id in {None, options.kickoff_id} else last
    about |= {"task": task.name, "row": options.row, "replaces": _described(known)}
    then = Next(KickoffRecord(0, 0.0, options.kickoff_id, end))
    about["next_step"] = if_lost(then, task.keeping)["next_step"] + ("" if key == KEY else _OTHER_ROWS)
    about["doubts"] = _doubts(options, about, last.address)
    if options.yes and about["doubts"] and not (options.force and about["state"] == "unknown"):
        raise SystemExit(f"{about['doubts']} Nothing was changed.")
    confirm("Write this kickoff record?", about)
    if key == KEY:
        found = KickoffRecord(task.max_tries, time.time(), options.kickoff_id, adopted=True)
        # The crew's questions name the attempt that sent the kickoff.
        own: Any = {"fingerprint": last.fingerprint, "try_number": last.try_number}
        is_there = about["state"] != "unknown"  # the crew may have moved since the kickoff
        address = about["address"] if is_there else last.address or about["address"]
        value: Any = as_stored(replace(found, address=address, **own))
    else:
        value = with_execution(task.entries[key], options.row, options.kickoff_id)
    _expect(task, _look(call, options))
    call("PUT", _where(task, key), json={"value": value, "expires_at": None})
    task.entries[key] = value
    _expect(task, _look(call, options))
    return about | {"done": "The kickoff record was written."}


def _replaceable(task: SimpleNamespace, options: Namespace) -> tuple[str, KickoffRecord]:
    """Return the record that an execution may replace, and its key. End the command if none would be read."""
    entries, row = task.entries, options.row
    if row is not None:
        key, last = last_kickoff(entries, row)
        if last is None:
            reason = f"has no kickoff of row {row!r} in its task state store"
        elif last.kickoff_id in {None, options.kickoff_id}:
            return key, last
        else:
            reason = f"knows execution {last.kickoff_id} of row {row!r}"
    elif KEY in entries:
        last, unread = read_record(entries[KEY], max_tries=0, now=0.0)
        if not unread:
            return KEY, last
        reason = f"has an unreadable kickoff record ({unread})"
    elif BATCH in entries:
        reason = "runs a batch, so name a row with --row"
    else:
        reason = "has no kickoff record, so it would ignore this one"
    raise SystemExit(f"{task.name} {reason}. Nothing was changed.")


def _doubts(options: Namespace, about: Mapping[str, Any], sent_to: str) -> str | None:
    """Return why the execution may not be the task's, or None. ``sent_to``: address of the kickoff."""
    if about["state"] == "unknown":
        is_other = sent_to not in {"", about["address"]}
        why = f"The kickoff was sent to {sent_to}, so pass that crew's connection" if is_other else ""
        why = why or "While it waits for human input, --yes needs --force"
        return f"The crew at {about['address']} does not know this execution. {why}."
    origin = (about.get("meta") or {}).get("airflow")
    own = {name: getattr(options, name) for name in ("dag_id", "run_id", "task_id", "map_index", "row")}
    if isinstance(origin, dict) and any(origin.get(name, value) != value for name, value in own.items()):
        return "The meta of this execution names another task, so --yes does not adopt it."
    return None


def forget(options: Namespace, confirm: Callable[..., None]) -> dict[str, Any]:
    """Delete the kickoff record of a task, and return what was given up."""
    call = _airflow(options.url)
    task = _ended(_look(call, options))
    if KEY not in task.entries:
        why = "runs a batch, whose rows it keeps" if BATCH in task.entries else "has no kickoff record"
        raise SystemExit(f"{task.name} {why}. Nothing was changed.")
    forgotten = _described(*read_record(task.entries[KEY], max_tries=0, now=0.0))
    about = {"task": task.name, "forgets": forgotten, "next_step": AFTER_FORGETTING}
    confirm("Delete this kickoff record?", about)
    _expect(task, _look(call, options))
    call("DELETE", _where(task, KEY), missing=True)
    return about | {"done": "The kickoff record was deleted."}


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
        reason = one_line(mask(response.text, maskable(token)), _SHOWN)
        raise SystemExit(f"Airflow at {base} returned {status} for {method} {path}: {reason}{hint}")

    return call


def _look(call: Callable[..., Any], options: Namespace) -> SimpleNamespace:
    """Return the named task instance with its kickoff records."""
    version = tuple(int(part) for part in call("GET", "version")["version"].split(".")[:2])
    names = (quote(name, safe="") for name in (options.dag_id, options.run_id, options.task_id))
    path = "dags/{}/dagRuns/{}/taskInstances/{}".format(*names)
    found = call("GET", f"{path}/{options.map_index}")
    keys = ("dag_id", "task_id", "map_index", "state", "try_number", "max_tries")
    task = SimpleNamespace(run_id=options.run_id, **{key: found[key] for key in keys})
    number = f" {task.map_index}" if task.map_index >= 0 else ""
    task.name = f"Task {task.task_id}{number} of {task.dag_id}, run {task.run_id}"
    task.keeping, task.path, task.entries = KEEP if version >= (3, 4) else "", path, {}
    wanted = [KEY, BATCH]
    for key in wanted:  # the entry of a batch names others
        value = call("GET", _where(task, key), missing={"value": None})["value"]
        if value is not None:
            task.entries[key] = value
        if key == BATCH and value:
            wanted += keys_of(value)
    return task


def _where(task: SimpleNamespace, key: str) -> str:
    """Return the path of an entry of a task."""
    return f"{task.path}/state-store/{key}?map_index={task.map_index}"


def _ended(task: SimpleNamespace) -> SimpleNamespace:
    """Return the task. End the command if it may run soon, and use its kickoff record."""
    if task.state not in LAST_STATES | {"upstream_failed"}:
        raise SystemExit(f"{task.name} has not ended (state: {task.state}). Nothing was changed.")
    return task


def _expect(expected: SimpleNamespace, found: SimpleNamespace) -> None:
    """End the command if the task or its record has changed in the meantime."""
    if expected != found:
        raise SystemExit(
            "The task or its kickoff record has changed in the meantime. Check both before you clear the task."
        )


def _described(record: KickoffRecord, unread: str = "") -> str:
    """Return what is lost with a kickoff record."""
    if unread:
        return f"an unreadable record: {unread}"
    which = f"execution {record.kickoff_id}" if record.kickoff_id else "a kickoff without a response"
    where = f" at {record.address}" if record.address else ""
    return f"{which}{where}: {f'ended ({record.end})' if record.end else 'may be running and billed'}"
