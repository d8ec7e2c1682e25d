"""Addresses that crews call, and the IDs in their calls."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest

from airflow_provider_crew.client.calls import best_id, new_address, read_address

KEY = "secret"
TASK = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}


def signed(data: Any, purpose: bytes = b"crew call ") -> str:
    named = base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=")
    return f"{named.decode()}.{hmac.new(KEY.encode(), purpose + named, 'sha256').hexdigest()}"


@pytest.mark.parametrize("record", ["r", "re", "rec"])  # base64 pads each otherwise
def test_address_is_one_part_of_a_path(record: str) -> None:
    url, call = new_address("https://airflow.example/events/", KEY, TASK, record)
    base, _, path = url.rpartition("/")
    assert (base, "=" in path) == ("https://airflow.example/events", False)
    address = read_address(path, KEY)
    assert address
    assert (address.task, address.record, address.call, len(call)) == (TASK, record, call, 32)


ODD: dict[str, tuple[Any, ...]] = {
    "dag_id": ("d\0", "d\ud83d", "d" * 251, "", 1, None, ["d"], {}),
    "map_index": (2**31, -2, "-1", 0.5, True, None),
}


@pytest.mark.parametrize(
    "data",
    [
        *([TASK, 1, "part"], [{"dag_id": "d"}, "record", "part"], [1, "record", "part"]),
        *([[*TASK], "record", "part"], [TASK, "re\0cord", "part"]),
        *([TASK | {name: odd}, "record", "part"] for name, values in ODD.items() for odd in values),
    ],
)
def test_other_data_with_the_right_signature_are_no_address(data: Any) -> None:
    assert read_address(signed([TASK, "record", "part"]), KEY)
    assert read_address(signed(data), KEY) is None


@pytest.mark.parametrize(("length", "is_read"), [(4096, True), (4097, False)])
def test_long_address_is_not_read(length: int, is_read: bool) -> None:  # noqa: FBT001
    lengths = {len(path := signed([TASK, "record", "p" * more])): path for more in range(2850, 2960)}
    assert (read_address(lengths[length], KEY) is not None) == is_read


def test_signature_for_another_purpose_is_none() -> None:
    assert read_address(signed([TASK, "record", "part"], b""), KEY) is None


@pytest.mark.parametrize(
    ("ids", "best"),
    [
        ({"execution_id": "e", "kickoff_id": "k"}, "k"),
        ({"execution_id": "e"}, "e"),
        ({"other": "o"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_kickoff_id_is_better_than_execution_id(ids: Any, best: str) -> None:
    assert best_id(ids) == best
