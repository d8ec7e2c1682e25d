"""
Calls of a crew that has started, at an address that only one kickoff knows.

A kickoff whose response is lost may have started an execution. Its crew can prove that: no other kickoff has the
address, and the call names the execution. No call proves nothing.
"""

import base64
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from airflow_provider_crew.client.payload import issued_kickoff_id

# The kickoff ID in a call. The second may be another one, which the crew's status does not know.
_NAMES = {"kickoff_id": ("kickoff_id", "kickoffId"), "execution_id": ("execution_id", "executionId")}
# Objects in which deployments nest the fields of a webhook.
_NESTS = ("data", "body", "payload", "meta")
_LONGEST = 4096
_PURPOSE = b"crew call "


# PostgreSQL stores no NUL.
_Id = Annotated[str, StringConstraints(max_length=250, pattern=r"^[^\x00]+$")]


class TaskColumns(BaseModel):
    """Columns that identify a task instance, which a crew has sent back and may have changed."""

    model_config = ConfigDict(strict=True, frozen=True)

    dag_id: _Id
    run_id: _Id
    task_id: _Id
    map_index: int = Field(ge=-1, lt=2**31)


class _Slot(TaskColumns):
    record: _Id


@dataclass(frozen=True, slots=True)
class Address:
    """
    Address for the calls of one execution.

    :param task: Columns that identify the task instance. Empty for the command ``check``.
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
    named = (
        base64.urlsafe_b64encode(json.dumps([task, record, part], ensure_ascii=False).encode())
        .decode()
        .rstrip("=")
    )
    return f"{receiver.rstrip('/')}/{named}.{_signature(named, key)}", _hash(part)


def read_address(path: str, key: str) -> Address | None:
    """Return an address from the last part of its path. None if it was not signed with the key."""
    named, _, signature = path.partition(".")
    if len(path) > _LONGEST or not hmac.compare_digest(signature.encode(), _signature(named, key).encode()):
        return None
    try:  # a crew knows the key as well
        task, record, part = json.loads(base64.urlsafe_b64decode(f"{named}{'=' * (-len(named) % 4)}"))
        if task == {}:
            return Address({}, "", _hash(part))
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


def objects_in(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects in which a deployment may have nested the fields of a webhook."""
    found = (part.get(name) for part in parts for name in _NESTS)
    return [each for each in found if isinstance(each, dict)]


def best_id(ids: Mapping[str, str] | None) -> str:
    """Return the ID to poll, from those of all calls. Empty if there is none."""
    return next((ids[kind] for kind in _NAMES if kind in ids), "") if ids else ""


def names_execution(meta: Mapping[str, Any]) -> bool:
    """Whether a kickoff's meta, which the crew repeats in each call, would be read as the ID of the execution."""
    return bool(ids_in({"meta": dict(meta)}))
