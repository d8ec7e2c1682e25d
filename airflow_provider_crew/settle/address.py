"""
Address that the crew of one kickoff calls, and the IDs in its calls.

The call proves that an execution has started, and names it. No call proves nothing.
"""

import base64
import hmac
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic import Field

from airflow_provider_crew.answers.question import TaskColumns, objects_in
from airflow_provider_crew.client.payload import issued_kickoff_id

HEARD = "crew_heard"
"""Start of the key of what a crew has called, followed by the hash of its address."""
# The kickoff ID in a call. The second may be another one, which the crew's status does not know.
_NAMES = {"kickoff_id": ("kickoff_id", "kickoffId"), "execution_id": ("execution_id", "executionId")}
_LONGEST = 4096
_PURPOSE = b"crew call "


class _Slot(TaskColumns):
    record: str = Field(max_length=250, pattern=r"^[^\x00]+$")


class Address(NamedTuple):
    """
    Address for the calls of one execution.

    :param task: Columns that identify the task instance.
    :param record: Key of the kickoff record in the task state store.
    :param call: Hash of the random part. The record has it as well, so neither it nor a log allows a forgery.
    """

    task: dict[str, Any]
    record: str
    call: str


def new_address(receiver: str, key: str, task: Mapping[str, Any], record: str) -> tuple[str, str]:
    """
    Return an address that cannot be guessed, and the hash of its random part.

    :param key: Signs the address, so that strangers are turned away. Every crew may know it.
    """
    part = secrets.token_urlsafe(16)
    data = json.dumps([task, record, part], ensure_ascii=False).encode()
    named = base64.urlsafe_b64encode(data).decode().rstrip("=")
    return f"{receiver.rstrip('/')}/{named}.{_signature(named, key)}", _hash(part)


def read_address(path: str, key: str) -> Address | None:
    """Return an address from the last part of its path. None if it was not signed with the key."""
    named, _, signature = path.partition(".")
    if len(path) > _LONGEST or not hmac.compare_digest(signature.encode(), _signature(named, key).encode()):
        return None
    try:  # a crew knows the key as well
        task, record, part = json.loads(base64.urlsafe_b64decode(f"{named}{'=' * (-len(named) % 4)}"))
        slot = _Slot.model_validate({**task, "record": record})
        return Address(slot.model_dump(exclude={"record"}), slot.record, _hash(part))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _signature(named: str, key: str) -> str:
    return hmac.new(key.encode(), _PURPOSE + named.encode(), sha256).hexdigest()


def _hash(part: str) -> str:
    return sha256(part.encode()).hexdigest()[:32]


def ids_in(body: Any) -> dict[str, str]:
    """Return the IDs in a call, by their name. Its fields may be nested, or in a list of events."""
    outer = [body] if isinstance(body, dict) else []
    listed = [each.get("events") for each in (*outer, *objects_in(outer))]
    events = [each for events in listed if isinstance(events, list) for each in events if isinstance(each, dict)]
    parts = [*outer, *objects_in(outer), *events, *objects_in(events)]
    found: dict[str, str] = {}
    for kind, names in _NAMES.items():
        for value in (part[name] for part in parts for name in names if name in part):
            with suppress(ValueError):
                found.setdefault(kind, issued_kickoff_id(value))
    return found


def best_id(ids: Mapping[str, str] | None) -> str:
    """Return the ID to poll, from those of all calls until now. Empty if there is none."""
    return next((ids[kind] for kind in _NAMES if kind in ids), "") if ids else ""
