"""Fingerprint of a kickoff, by which a later attempt sees whether its inputs are still the same."""

import json
from hashlib import sha256
from typing import Any

from airflow_provider_crew.service.payload import plain


def fingerprint(inputs: Any, restore_from_state_id: Any) -> str:
    """
    Return the SHA-256 of the canonical JSON of both, as 64 hexadecimal digits.

    Raises InvalidInputs for inputs that are not JSON. An option that is not set counts as ``None``.
    """
    state = str(restore_from_state_id) if restore_from_state_id else None
    data = {"inputs": plain(inputs, "inputs"), "restore_from_state_id": state}
    return sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
