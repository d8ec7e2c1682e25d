"""
Files of a batch under its ``result_path``: a folder, or a prefix in an object store.

They are enough by themselves to continue a batch. A file is written once, whole, because object stores cannot
append. Its size is read back, because a write that was lost may have been a paid result.
"""

import json
import os
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from airflow.sdk import ObjectStoragePath

from airflow_provider_crew.batch.rows import Row, RowUsage, failure
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.errors import UncertainKickoff
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.exceptions import CrewTaskError, InvalidResultPath
from airflow_provider_crew.task.stop import shielded

OWNER = "batch.json"
MANIFEST = "manifest.json"
RESULTS = "results.jsonl"
FAILED = "failed.jsonl"
REMOVED = "removed.jsonl"
# Folders of a batch that has not ended: rows that have ended, and kickoffs that were sent.
PARTS = "parts"
SENT = "sent"

_ATTEMPTS = 4
_IN_MEMORY = 2**20


class ResultFiles:
    """Result files of one batch. An error of the storage becomes a CrewTaskError, which Airflow retries."""

    def __init__(self, path: str, try_number: int) -> None:
        self.path = path
        self._try_number = try_number
        self.number = 0
        """Number of the newest file of this attempt."""
        self._root: Any = ObjectStoragePath(path)

    def claim(self, owner: Mapping[str, Any], *, has_begun: bool) -> None:
        """Write who owns these files, or raise if it is another batch, or if they are not there any more."""
        found = next(self.read(OWNER), None)
        if found is None and has_begun:
            event = f"The batch has begun, but its files are missing from {self.path}, so no row was started."
            raise InvalidResultPath(event)
        if found is None:
            self.write(OWNER, [owner])
            time.sleep(timing.BATCH_CLAIM)  # another batch may be writing as well
            found = next(self.read(OWNER), None)
        if found != owner:
            other = json.dumps(found)
            raise InvalidResultPath(f"{self.path} contains the results of another batch: {other}.", owner=other)

    def new_name(self, folder: str) -> str:
        """Return a new name of a file in a folder. Names sort in the order of writing, whatever the clocks say."""
        self.number += 1
        # A process that Airflow has replaced may still write.
        return f"{folder}/{self._try_number:06d}-{self.number:06d}-{random.getrandbits(32):08x}.jsonl"

    def number_on(self) -> None:
        """Continue the numbers of an earlier process of this attempt."""
        found = [name.rpartition("/")[2].split("-") for name in (*self.names(PARTS), *self.names(SENT))]
        self.number = max((int(each[1]) for each in found if int(each[0]) == self._try_number), default=0)

    def write(self, name: str, lines: Iterable[Any]) -> None:
        """Write a file whole, and read its size back."""
        with SpooledTemporaryFile(_IN_MEMORY) as whole:  # an object store keeps a part if ``lines`` raises
            for line in lines:
                whole.write(json.dumps(line).encode() + b"\n")
            fault = ""
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    # A signal would also leave a part.
                    fault = shielded(lambda _: self._write(self._root / name, whole))
                except Exception as error:  # noqa: BLE001 - an object store may raise anything
                    fault = in_words(error)
                if not fault:
                    return
                if attempt < _ATTEMPTS:
                    time.sleep(timing.STORAGE_PAUSE * 2 ** (attempt - 1))
        raise CrewTaskError(f"The result file {self.path}/{name} was not written: {fault}.")

    @staticmethod
    def _write(path: Any, whole: IO[bytes]) -> str:
        """Write a file, and return the fault if it is not there afterwards."""
        size, is_local = whole.seek(0, os.SEEK_END), path.protocol in {"", "file"}
        whole.seek(0)
        with suppress(Exception):  # an object store has no folders, and the token may not allow to create a bucket
            path.parent.mkdir(parents=True, exist_ok=True)
        target = path.with_name(f"{path.name}.new") if is_local else path  # an object store replaces it at once
        with target.open("wb") as file:
            shutil.copyfileobj(whole, file)
        if is_local:
            os.replace(target.path, path.path)  # noqa: PTH105 - pathlib would take it for a path of its own
        found = path.stat().st_size
        return "" if found == size else f"it has {found:,} bytes, but {size:,} were written"

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
            root = self._root / folder
            root.fs.invalidate_cache()  # some filesystems remember an older list
            # Not iterdir(), which takes a folder for missing if the object store does not respond.
            found = sorted(path.rpartition("/")[2] for path in root.fs.ls(root.path, detail=False))
            return [f"{folder}/{name}" for name in found if name.endswith(".jsonl")]
        except FileNotFoundError:
            return []
        except Exception as error:  # noqa: BLE001 - an object store may raise anything
            raise CrewTaskError(f"{self.path}/{folder} cannot be listed: {in_words(error)}.") from None

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield all lines about rows, older ones first, with the usage of all executions of the row so far."""
        return self._lines(self.names(PARTS))

    def _lines(self, parts: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield all lines. ``parts`` are listed before, so none moves to the results unnoticed."""
        spent: defaultdict[tuple[str, str], RowUsage] = defaultdict(RowUsage)
        for name in (REMOVED, RESULTS, *parts):
            is_empty, is_final = True, name in {REMOVED, RESULTS}
            for line in self.read(name):
                is_empty = False
                yield line | {"usage": spent[_which(line)].with_line(line, is_final=is_final)}
            if is_empty and name in parts:
                raise CrewTaskError(f"{self.path}/{name} has vanished. Another process may have ended the batch.")

    def _copied(self, parts: Sequence[str], copy: IO[bytes]) -> dict[tuple[str, str], int]:
        """Copy all lines to a local file, and return the number of the last one about each row."""
        last: dict[tuple[str, str], tuple[int, int]] = {}
        for number, line in enumerate(self._lines(parts)):
            copy.write(json.dumps(line).encode() + b"\n")
            # If a run was deleted and created again, its files sort before older ones.
            if line["attempts"] >= last.get(_which(line), (0, 0))[0]:
                last[_which(line)] = line["attempts"], number
        return {which: number for which, (_, number) in last.items()}

    def append(self, lines: Iterable[Any]) -> list[str]:
        """Write lines of rows that have ended to a file of their own, and return its name."""
        if not (lines := list(lines)):
            return []
        name = self.new_name(PARTS)
        self.write(name, lines)
        return [name]

    def delete(self, *names: str) -> None:
        """
        Delete files that are no longer needed, up to the first that cannot be deleted.

        In order, so that no older line about a row is left without the newer one.
        """
        with suppress(Exception):
            for name in names:
                (self._root / name).unlink()

    def compact(self, rows: Sequence[Row]) -> tuple[Counter[str], dict[str, float]]:
        """Write one line for each row to the final files. Return the rows by status, and all usage."""
        by_id = {(row.key, row.fingerprint): row for row in rows}
        parts = self.names(PARTS)
        with SpooledTemporaryFile(_IN_MEMORY) as copy:  # a thousand files in an object store take minutes to read
            last = self._copied(parts, copy)

            def latest(*, is_current: bool = True) -> Iterator[dict[str, Any]]:
                copy.seek(0)
                for number, text in enumerate(copy):
                    which = _which(line := json.loads(text))
                    if last[which] == number and (which in by_id) == is_current:
                        yield line | {"index": by_id[which].index if is_current else -1}
                if is_current:
                    new = (row for which, row in by_id.items() if which not in last and row.sent_at is None)
                    yield from map(_unwritten, new)

            statuses: Counter[str] = Counter()
            usage: Counter[str] = Counter()
            for line in latest():
                statuses[line["status"]] += 1
                usage.update(line["usage"] or {})
            if statuses.total() != len(rows):
                raise CrewTaskError(f"The result files list {statuses.total()} of {len(rows)} rows.")
            self.write(FAILED, (_failed(row, rows) for row in latest() if row["status"] != "success"))
            removed = list(latest(is_current=False))
            for line in removed:
                usage.update(line["usage"] or {})
            # Each row stays in a file at any time. A row may also come back from those that were removed.
            parts += self.append(removed)
            self.write(RESULTS, latest())
            self.write(REMOVED, removed)
        self.delete(*parts)  # not those that another process has written meanwhile
        return statuses, dict(usage)


def _which(line: Mapping[str, Any]) -> tuple[str, str]:
    """Return what identifies the row of a line."""
    return line["key"], line["fingerprint"]


def _unwritten(row: Row) -> dict[str, Any]:
    """Return a line about a row that has none. If a file was lost, its execution is uncertain."""
    if row.status == "not_started":
        return row.as_line("not_started")
    lost = UncertainKickoff(f"The row has ended as {row.status}, but the result files have lost its line.")
    return row.as_line("uncertain", error=failure(lost, "kickoff"))


def _failed(line: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a line that can be the input of another batch."""
    told = {name: line[name] for name in ("key", "index", "status", "error")}
    return told | {"inputs": rows[line["index"]].inputs}
