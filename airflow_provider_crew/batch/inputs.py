"""Inputs of a batch: its rows, each with a key of its own, and the file that they may come from."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from airflow.sdk import ObjectStoragePath

from airflow_provider_crew.batch.fold import Row
from airflow_provider_crew.client.errors import CrewError, InvalidInputs
from airflow_provider_crew.client.payload import plain, some_names
from airflow_provider_crew.client.text import in_words, one_line
from airflow_provider_crew.exceptions import CrewTaskError
from airflow_provider_crew.task.record import fingerprint

LONGEST_KEY = 200
# The form of a line in the file of failed rows, which can be the next batch's inputs.
_FAILED = {"key", "index", "status", "inputs", "error"}
_LONGEST_PATH = 300


def rows_of(given: Iterable[Any], key: str | None, state_id: Any) -> list[Row]:
    """Return the rows of a batch. Raise InvalidInputs if one is unusable, before anything is sent."""
    if isinstance(given, str):
        given = _lines_of(given)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidInputs(f"inputs must be a list of objects, not {type(given).__name__}.")
    rows = [_row_of(index, item, key, state_id) for index, item in enumerate(given)]
    if not rows:
        raise InvalidInputs("inputs is empty.")
    if twice := [name for name, times in Counter(row.key for row in rows).items() if times > 1]:
        raise InvalidInputs(f"Keys that name more than one row: {some_names(twice)}.")
    return rows


def _row_of(index: int, item: Any, key: str | None, state_id: Any) -> Row:
    is_of_failed_file = isinstance(item, Mapping) and item.keys() == _FAILED
    inputs = item["inputs"] if is_of_failed_file else item
    if not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs[{index}] must be an object, not {type(inputs).__name__}.")
    inputs = plain(inputs, f"inputs[{index}]")
    name = index if key is None else inputs.get(key)
    if name in (None, ""):
        raise InvalidInputs(f"inputs[{index}] has no {key!r}, which is the key of the batch.")
    if not isinstance(name, str | int | float) or isinstance(name, bool):
        raise InvalidInputs(f"The key of inputs[{index}] is neither a text nor a number.")
    if len(str(name)) > LONGEST_KEY:
        raise InvalidInputs(f"The key of inputs[{index}] is longer than {LONGEST_KEY} characters.")
    return Row(index, str(name), fingerprint(inputs, state_id), inputs)


def _lines_of(path: str) -> list[Any]:
    """Return the values of a file of JSON lines."""
    shown = one_line(path, _LONGEST_PATH)
    try:
        file_path: Any = ObjectStoragePath(path)
        with file_path.open("r") as file:
            return [_value(line, number, shown) for number, line in enumerate(file, start=1) if line.strip()]
    except CrewError:
        raise
    except Exception as error:  # noqa: BLE001 - an object store may raise anything
        why = one_line(in_words(error), _LONGEST_PATH)
        raise CrewTaskError(f"The inputs at {shown} are unreadable: {why}.") from None


def _value(line: str, number: int, path: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise InvalidInputs(f"Line {number} of {path} is not JSON.") from None
