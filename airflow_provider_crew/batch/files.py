"""
Files of a batch under its ``result_path``: a folder, or a prefix in an object store.

They are enough by themselves to continue a batch. A file is written once, whole, because object stores cannot
append. Its size is read back, because a write that was lost may have been a paid result.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from airflow.sdk import ObjectStoragePath

from airflow_provider_crew.batch.rows import Row
from airflow_provider_crew.client.text import in_words, warn
from airflow_provider_crew.exceptions import CrewTaskError

OWNER = "batch.json"
MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
FAILED = "failed.jsonl"
REMOVED = "removed.jsonl"
# Folders of a batch that has not ended: rows that have ended, and kickoffs that were sent.
PARTS = "parts"
SENT = "sent"

_ATTEMPTS = 4


class ResultFiles:
    """Result files of one batch. An error of the storage becomes a CrewTaskError, which Airflow retries."""

    def __init__(self, path: str, try_number: int) -> None:
        self.path = path
        self._try_number = try_number
        self.number = 0
        """Number of the newest file of this attempt."""
        self._root: Any = ObjectStoragePath(path)

    def claim(self, owner: Mapping[str, Any]) -> None:
        """Write who owns these files, or raise if it is another batch."""
        found = next(self.read(OWNER), None)
        if found is None:
            self.write(OWNER, lambda: [owner])
            found = next(self.read(OWNER), None)
        if found != owner:
            raise CrewTaskError(f"{self.path} has the results of another batch: {json.dumps(found)}.")

    def new_name(self, folder: str) -> str:
        """Return a new name of a file in a folder. Names sort in the order of writing, whatever the clocks say."""
        self.number += 1
        # A process that Airflow has replaced may still write.
        return f"{folder}/{self._try_number:06d}-{self.number:06d}-{random.getrandbits(32):08x}.jsonl"

    def number_on(self) -> None:
        """Continue the numbers of an earlier process of this attempt."""
        found = [name.rpartition("/")[2].split("-") for name in (*self.names(PARTS), *self.names(SENT))]
        self.number = max((int(each[1]) for each in found if int(each[0]) == self._try_number), default=0)

    def write(self, name: str, lines: Callable[[], Iterable[Any]]) -> None:
        """Write a file whole, and read its size back. ``lines`` returns the values, again for each attempt."""
        fault = ""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                fault = self._write(self._root / name, lines())
            except Exception as error:  # noqa: BLE001 - an object store may raise anything
                fault = in_words(error)
            if not fault:
                return
            if attempt < _ATTEMPTS:
                time.sleep(2 ** (attempt - 1))
        raise CrewTaskError(f"The result file {self.path}/{name} was not written: {fault}.")

    @staticmethod
    def _write(path: Any, lines: Iterable[Any]) -> str:
        """Write a file, and return the fault if it is not there afterwards."""
        size, is_local = 0, path.protocol in {"", "file"}
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.with_name(f"{path.name}.new") if is_local else path  # an object store replaces it at once
        with target.open("wb") as file:
            for line in lines:
                size += file.write(json.dumps(line).encode() + b"\n")
        if is_local:
            os.replace(target.path, path.path)  # noqa: PTH105 - pathlib would take it for a path of its own
        found = path.stat().st_size
        return "" if found == size else f"it has {found:,} bytes, and {size:,} were written"

    def read(self, name: str) -> Iterator[Any]:
        """Yield the values of the lines of a file. A file that is not there has none."""
        try:
            with (self._root / name).open("rb") as file:
                for line in file:
                    yield json.loads(line)
        except FileNotFoundError:
            return
        except Exception as error:  # noqa: BLE001 - an object store may raise anything
            raise CrewTaskError(f"The result file {self.path}/{name} is unreadable: {in_words(error)}.") from None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in the order in which they were written."""
        try:
            return [f"{folder}/{path.name}" for path in sorted(self._files_of(folder), key=lambda path: path.name)]
        except FileNotFoundError:
            return []
        except Exception as error:  # noqa: BLE001 - an object store may raise anything
            raise CrewTaskError(f"{self.path}/{folder} cannot be listed: {in_words(error)}.") from None

    def _files_of(self, folder: str) -> list[Any]:
        root = self._root / folder
        root.fs.invalidate_cache()  # some filesystems remember an older list
        return [path for path in root.iterdir() if path.name.endswith(".jsonl")]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield all lines about rows, older ones first."""
        return (line for _, line in self._places())

    def _places(self) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        for name in (REMOVED, RESULTS, *self.names(PARTS)):
            for number, line in enumerate(self.read(name)):
                yield (name, number), line

    def append(self, lines: Iterable[Any]) -> None:
        """Write lines of rows that have ended, to a file of their own."""
        if lines := list(lines):
            self.write(self.new_name(PARTS), lambda: lines)

    @staticmethod
    @contextmanager
    def best_effort(log: Any) -> Iterator[None]:
        """Only log an error, because what is written is stored elsewhere as well."""
        try:
            yield
        except CrewTaskError as error:
            warn(log, error.event)

    def delete(self, *names: str) -> None:
        """
        Delete files that are no longer needed, up to the first that cannot be deleted.

        In order, so that no older line about a row is left without the newer one.
        """
        with suppress(Exception):
            for name in names:
                (self._root / name).unlink()

    def compact(self, rows: Sequence[Row]) -> tuple[Counter[str], dict[str, float]]:
        """Write one line for each row to the final files. Return the rows by status, and their usage."""
        by_id = {(row.key, row.fingerprint): row for row in rows}
        last = {(line["key"], line["fingerprint"]): place for place, line in self._places()}

        def latest(*, is_current: bool = True) -> Iterator[dict[str, Any]]:
            for place, line in self._places():
                which = (line["key"], line["fingerprint"])
                if last[which] == place and (which in by_id) == is_current:
                    yield line | {"index": by_id[which].index if is_current else -1}
            if is_current:
                new = (row for which, row in by_id.items() if which not in last and row.sent_at is None)
                yield from (row.as_line("not_started") for row in new)

        statuses: Counter[str] = Counter()
        usage: Counter[str] = Counter()
        for line in latest():
            statuses[line["status"]] += 1
            usage.update({name: n for name, n in (line["usage"] or {}).items() if isinstance(n, int | float)})
        if statuses.total() != len(rows):
            raise CrewTaskError(f"The result files list {statuses.total()} of {len(rows)} rows.")
        self.write(FAILED, lambda: (_failed(row, rows) for row in latest() if row["status"] != "success"))
        removed = list(latest(is_current=False))
        # Each row stays in a file at any time. A row may also come back from those that were removed.
        self.append(removed)
        self.write(RESULTS, latest)
        self.write(REMOVED, lambda: removed)
        self.delete(*self.names(PARTS))
        return statuses, dict(usage)


def _failed(line: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a line that can be the input of another batch."""
    told = {name: line[name] for name in ("key", "index", "status", "error")}
    return told | {"inputs": rows[line["index"]].inputs}
