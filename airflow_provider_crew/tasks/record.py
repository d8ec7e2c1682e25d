"""
Kickoff record, read field by field.

A newer version, or a person, may have stored a record that this version does not fully understand. A kickoff ID
alone is enough to ask the service.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from airflow_provider_crew.service.kickoff_id import issued_kickoff_id
from airflow_provider_crew.service.text import one_line
from airflow_provider_crew.tasks.decide import KickoffRecord

_LONGEST = 500
_FIELDS = {field.name: field for field in fields(KickoffRecord)}
# Where the fields are kept that could not be read.
_UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """
    Record as the store keeps it.

    ``besides`` are the keys that this version does not know, and the values that it could not read. They are
    written back with the record. ``unread`` shows those values in one line, which is empty if there are none.
    """

    record: KickoffRecord
    besides: Mapping[str, Any]
    unread: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return what to keep."""
        return {**self.besides, **asdict(self.record)}


def read_record(kept: Any, *, max_tries: int, now: float) -> StoredRecord:
    """
    Read what was kept.

    :param max_tries: Stands in for a value that cannot be read, so that the attempt counts as a retry.
    :param now: Stands in for the time of the kickoff, so that the execution does not count as old.
    """
    told = kept if isinstance(kept, Mapping) else {"record": kept}
    known: dict[str, Any] = {}
    odd = {name: value for name, value in told.items() if told is not kept}
    for name in _FIELDS.keys() & told.keys():
        try:
            known[name] = _read(name, told[name])
        except ValueError:
            odd[name] = told[name]
    missing = [name for name in ("max_tries", "kicked_off_at") if name not in told]
    besides = {name: value for name, value in told.items() if name not in known and name not in odd}
    if odd:
        earlier = besides.get(_UNREAD)
        besides[_UNREAD] = {**earlier, **odd} if isinstance(earlier, Mapping) else odd
    if "kickoff_id" in odd:
        known["reported"] = False  # the log shows the value first, before a clear starts another execution
    record = KickoffRecord(**{"max_tries": max_tries, "kicked_off_at": now, **known})
    return StoredRecord(
        record, besides, one_line(repr(odd | dict.fromkeys(missing)), _LONGEST) if odd or missing else ""
    )


def _read(name: str, value: Any) -> Any:
    """Return the value of a field, or raise ValueError."""
    if name == "kickoff_id" and value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    if name == "kickoff_id" and value is not None:
        return issued_kickoff_id(value)
    return TypeAdapter(get_type_hints(KickoffRecord)[name]).validate_python(value)
