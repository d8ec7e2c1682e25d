"""
Files of a batch under its ``result_path``: a folder, or a prefix in an object store.

Each is written once, whole, under a name of its own, because object stores cannot append, and because
a process that Airflow has replaced may still write. Nothing is deleted. The size of a file is read back, because a
write that was lost may have been a paid result.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from airflow.sdk import ObjectStoragePath

from airflow_provider_crew.batch.facts import Fact, is_fact
from airflow_provider_crew.client import timing
from airflow_provider_crew.client.text import in_words
from airflow_provider_crew.exceptions import CrewTaskError, InvalidResultPath
from airflow_provider_crew.task.stop import shielded

FACTS = "facts"
_OWNER = "batch"
_ATTEMPTS = 4
IN_MEMORY = 2**20


class ResultFiles:
    """
    Files of one batch. An error of the storage becomes a CrewTaskError, which Airflow retries.

    :param attempt: Try number and ID of the task instance, which no other attempt has.
    """

    def __init__(self, path: str, try_number: int, attempt: str) -> None:
        self.path = path
        self.attempt = f"{try_number}-{attempt[-8:]}"
        self._root: Any = ObjectStoragePath(path)

    def claim(self, owner: Mapping[str, Any], *, has_begun: bool) -> None:
        """Write who owns these files, or raise if it is another batch, or if they are not there any more."""
        text = json.dumps(owner)
        own = f"{_OWNER}-{sha256(text.encode()).hexdigest()[:16]}.json"
        found = self._owners()
        self._reject_others(found, own)
        if own in found:
            return
        if has_begun:
            event = f"The batch has begun, but its files are missing from {self.path}, so no row was started."
            raise InvalidResultPath(event)
        self.write(own, [owner])
        try:
            self._reject_others(self._owners(), own)  # another batch may have written its name as well
        except InvalidResultPath:
            (self._root / own).unlink()
            raise

    def _owners(self) -> list[str]:
        return [name for name in self._names(self._root) if name.startswith(_OWNER) and name.endswith(".json")]

    def _reject_others(self, names: Iterable[str], own: str) -> None:
        for name in names:
            if name != own:
                other = " ".join(json.dumps(line) for line in self.read(name)) or name
                event = f"{self.path} contains the results of another batch or version: {other}."
                raise InvalidResultPath(event, owner=other)

    def name_of(self, kind: str) -> str:
        """Return the name of a file that this attempt writes at its end."""
        return f"{kind}-{self.attempt}.json{'' if kind == 'manifest' else 'l'}"

    def append(self, facts: Iterable[Fact]) -> None:
        """Write facts to a file of their own."""
        if facts := list(facts):
            self.write(f"{FACTS}/{self.attempt}-{time.time_ns()}-{random.getrandbits(32):08x}.jsonl", facts)

    def write(self, name: str, lines: Iterable[Any]) -> None:
        """Write a file whole, and read its size back."""
        with SpooledTemporaryFile(IN_MEMORY) as whole:  # an object store keeps a part if ``lines`` raises
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
        raise CrewTaskError(f"The file {self.path}/{name} was not written: {fault}.")

    @staticmethod
    def _write(path: Any, whole: IO[bytes]) -> str:
        """Write a file, and return the fault if it is not there afterwards."""
        size, is_local = whole.seek(0, os.SEEK_END), path.protocol in {"", "file", "local"}
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
        """Yield the values of the lines, ``None`` for one that is not JSON: a write may have been cut."""
        try:
            with (self._root / name).open("rb") as file:
                for line in file:
                    value = None
                    with suppress(ValueError):
                        value = json.loads(line)
                    yield value
        except Exception as error:  # noqa: BLE001 - an object store may raise anything
            raise CrewTaskError(f"The file {self.path}/{name} is unreadable: {in_words(error)}.") from None

    def names(self) -> list[str]:
        """Return the names of the files with facts."""
        return [f"{FACTS}/{name}" for name in self._names(self._root / FACTS) if name.endswith(".jsonl")]

    def facts(self, name: str) -> tuple[list[Fact], int]:
        """Return the facts in a file, and the number of its other lines."""
        lines = [*self.read(name)]
        facts = [line for line in lines if is_fact(line)]
        return facts, len(lines) - len(facts)

    def _names(self, folder: Any) -> list[str]:
        try:
            folder.fs.invalidate_cache()  # some filesystems remember an older list
            # Not iterdir(), which takes a folder for missing if the object store does not respond.
            return sorted(path.rstrip("/").rpartition("/")[2] for path in folder.fs.ls(folder.path, detail=False))
        except FileNotFoundError:
            return []
        except Exception as error:  # noqa: BLE001 - an object store may raise anything
            raise CrewTaskError(f"{self.path} cannot be listed: {in_words(error)}.") from None
