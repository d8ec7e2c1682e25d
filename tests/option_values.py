"""A value of each option of a kickoff, and its field in the request, for tests of all options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_crew.client.options import SENT_AS

_VALUES: dict[type, Any] = {
    Mapping: {"url": "https://hooks.example", "events": ["task_completed"], "realtime": False},
    str: "https://hooks.example",
    bool: True,
    int: 7,
    float: 2.5,
}


def _in_camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


OPTIONS = {name: _VALUES[sent.kind] for name, sent in SENT_AS.items()} | {"restore_from_state_id": "4711"}
FIELDS = {_in_camel_case(name): value for name, value in OPTIONS.items()}
